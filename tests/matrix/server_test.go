package matrix

import (
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A session is the server's end of one session.
type session struct {
	*end
	wire serverWire
	pid  int // of the process at the other end, 0: there is none of its own
	from *server

	once sync.Once // for the first initialize
}

// serverWire is how one transport carries a server's messages.
type serverWire interface {
	// send sends a message or a batch in the course of the request on, "" for
	// none. A response always travels with its request.
	send(on, text string) error
	// crash ends it without a word, and without more ado for other sessions
	// where it has a process of its own.
	crash()
}

// say sends a message, or a batch, as it stands.
func (s *session) say(t testing.TB, on, text string) {
	t.Helper()
	s.said(text)
	if err := s.wire.send(on, text); err != nil {
		t.Fatalf("%s: sending %s: %v", s.who, clip(text), err)
	}
}

// deliver takes a message from the wire. The first one says whose session it is.
func (s *session) deliver(f frame) {
	m, err := open(f.text)
	switch {
	case s.sink != nil:
		s.end.deliver(f)
		return
	case err == nil && m.Method == "server/discover": // who asks is told that there is no such method
		go s.wire.send(string(m.ID), failure(string(m.ID), noMethod))
		return
	case err == nil && m.Method == "initialize":
		s.once.Do(func() {
			var p struct{ ClientInfo struct{ Name string } }
			json.Unmarshal(m.Params, &p)
			s.who = "server of " + p.ClientInfo.Name
			s.end.deliver(f)
			s.from.named(p.ClientInfo.Name, s)
		})
		return
	}
	s.end.deliver(f)
}

// A server is what sessions come to. What transport it has, its start says.
type server struct {
	target []string // what the bridge has to be told to reach it
	// restart crashes the server for all its sessions, of which it then knows
	// nothing, and starts it again where it was.
	restart func(t testing.TB)

	// forget makes a server over HTTP forget its sessions, if it has any.
	forget func()
	// ends are the ways in which a client may end a session.
	ends []string

	mu       sync.Mutex
	host     *host // nil: the script plays the server
	changed  chan struct{}
	sessions map[string][]*session // by client, those that nobody has asked for
	all      []*session
	faults   []string
}

func newServer() *server {
	return &server{changed: make(chan struct{}), sessions: map[string][]*session{}, forget: func() {}}
}

func (v *server) newSession() *session {
	s := &session{end: newEnd("a server"), from: v}
	v.mu.Lock()
	v.all = append(v.all, s)
	h := v.host
	v.mu.Unlock()
	if h != nil {
		h.connect(s)
	}
	return s
}

func (v *server) named(name string, s *session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sessions[name] = append(v.sessions[name], s)
	close(v.changed)
	v.changed = make(chan struct{})
}

// pending returns the next session of a client, nil when there is none now.
func (v *server) pending(name string) (*session, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := v.sessions[name]
	if len(list) == 0 {
		return nil, v.changed
	}
	v.sessions[name] = list[1:]
	return list[0], v.changed
}

// session waits for the session of a client, which hears nothing meanwhile.
func (v *server) session(t testing.TB, name string, c *client) *session {
	t.Helper()
	timeout := time.After(harness.Patience)
	for {
		s, changed := v.pending(name)
		heard, over, clientChanged := c.peek()
		switch {
		case s != nil:
			return s
		case len(heard) > 0 || over != "":
			t.Fatalf("%s has not reached the server, and heard %s %s", name, list(heard), over)
		}
		select {
		case <-changed:
		case <-clientChanged:
		case <-timeout:
			t.Fatalf("no session of %s reached the server; %s", name, strings.Join(v.wrong(), "\n"))
		}
	}
}

// fault notes what must never happen and belongs to no session.
func (v *server) fault(text string) {
	v.mu.Lock()
	v.faults = append(v.faults, "the server: "+text)
	v.mu.Unlock()
}

// wrong returns all faults so far.
func (v *server) wrong() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := append([]string(nil), v.faults...)
	for _, s := range v.all {
		s.end.mu.Lock()
		out = append(out, s.end.faults...)
		s.end.mu.Unlock()
	}
	return out
}

// listener remembers its connections, so that all can be broken at once.
type listener struct {
	net.Listener
	dialer
	crashed bool // guarded by the dialer's lock
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.conns = append(l.conns, conn)
		crashed := l.crashed
		l.mu.Unlock()
		if crashed { // it was accepted just before, and would live on
			abort(conn)
		}
	}
	return conn, err
}

// crash stops listening and breaks what is connected.
func (l *listener) crash() {
	l.Listener.Close()
	l.mu.Lock()
	l.crashed = true
	l.mu.Unlock()
	l.cut()
}

// listenAgain listens where somebody listened before, or on "" where nobody else will
// meanwhile.
func listenAgain(t testing.TB, network, addr string) *listener {
	t.Helper()
	if addr == "" {
		addr = bridgetest.FreeAddr(t)
	}
	var l net.Listener
	var err error
	// A process that is just being started has a copy of the old listener until
	// it becomes what it is to be.
	harness.WaitUntil(t, "an address that was ours", func() bool {
		l, err = net.Listen(network, addr)
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	if err != nil {
		t.Fatal(err)
	}
	return &listener{Listener: l}
}
