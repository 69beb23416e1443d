package stdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// served is a SocketServer at a Unix socket. Each session's server is the
// other end of a Pipe, which the test has in its hands.
type served struct {
	*SocketServer
	socket  Socket
	servers chan bridge.Conn
	ended   chan error // what each session ended with
	result  chan error // of Serve
}

func serve(t *testing.T, opts ServerOptions) *served {
	t.Helper()
	l, socket := listen(t, "unix")
	s := &served{socket: socket, servers: make(chan bridge.Conn, 10), ended: make(chan error, 10), result: make(chan error, 1)}
	dialer := dialFunc(func(context.Context) (bridge.Conn, error) {
		near, far := bridge.Pipe()
		s.servers <- far
		return near, nil
	})
	h := bridge.Serve(dialer, bridge.PumpOptions{})
	s.SocketServer = NewSocketServer(bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		err := h.ServeConn(ctx, c)
		s.ended <- err
		return err
	}), opts)
	go func() { s.result <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-s.result; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

type dialFunc func(ctx context.Context) (bridge.Conn, error)

func (f dialFunc) Dial(ctx context.Context) (bridge.Conn, error) { return f(ctx) }

// peer is a client, as it sees the socket.
type peer struct {
	*net.UnixConn
	t  *testing.T
	in *bufio.Reader
}

func (s *served) connect(t *testing.T) *peer {
	t.Helper()
	nc, err := net.Dial("unix", s.socket.Address)
	bridgetest.Must(t, err)
	t.Cleanup(func() { nc.Close() })
	return &peer{nc.(*net.UnixConn), t, bufio.NewReader(nc)}
}

func (p *peer) say(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p, text+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// begin is say for what nobody may read before the caller does something else.
func (p *peer) begin(text string) {
	go func() {
		if _, err := io.WriteString(p, text+"\n"); err != nil {
			p.t.Error(err)
		}
	}()
}

func (p *peer) line() string {
	p.t.Helper()
	p.SetReadDeadline(time.Now().Add(30 * time.Second))
	line, err := p.in.ReadString('\n')
	if err != nil {
		p.t.Fatalf("the client read %q, %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *peer) wantEnd() {
	p.t.Helper()
	p.SetReadDeadline(time.Now().Add(30 * time.Second))
	if rest, err := io.ReadAll(p.in); len(rest) > 0 || err != nil {
		p.t.Errorf("the client read %q, %v; want the end", rest, err)
	}
}

func wantRecv(t *testing.T, c bridge.Conn, want string) {
	t.Helper()
	if m, err := bridgetest.Recv(t.Context(), c); err != nil || string(m.Bytes()) != want {
		t.Fatalf("received %s, %v; want %s", m.Bytes(), err, want)
	}
}

func give(t *testing.T, c bridge.Conn, text string) {
	t.Helper()
	bridgetest.Must(t, c.Send(t.Context(), parse(t, text)))
}

// Messages cross both ways, two clients never see each other's, and the first
// message is not lost on the way to its session.
func TestServerSessions(t *testing.T) {
	s := serve(t, ServerOptions{})
	var clients []*peer
	var servers []bridge.Conn
	for i := range 2 {
		c := s.connect(t)
		c.say(note)
		c.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"client":%d}}`, i))
		server := <-s.servers
		wantRecv(t, server, note)
		clients, servers = append(clients, c), append(servers, server)
	}
	if n := s.Sessions(); n != 2 {
		t.Errorf("%d sessions, want 2", n)
	}
	for i := range clients {
		wantRecv(t, servers[i], fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"client":%d}}`, i))
		give(t, servers[i], fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"client":%d}}`, i))
	}
	for i, c := range clients {
		if got := c.line(); got != fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"client":%d}}`, i) {
			t.Errorf("client %d got %s", i, got)
		}
	}
	// The server's end is told in the way of sockets.
	servers[0].Close(nil)
	clients[0].wantEnd()
}

// ST8: what was asked before the end of input is answered.
func TestServerDrains(t *testing.T) {
	s := serve(t, ServerOptions{})
	c := s.connect(t)
	c.say(ping)
	c.CloseWrite()
	server := <-s.servers
	wantRecv(t, server, ping)
	give(t, server, pong)
	if got := c.line(); got != pong {
		t.Errorf("got %s", got)
	}
	c.wantEnd()
	if err := <-s.ended; err != nil {
		t.Errorf("the session ended with %v", err)
	}
}

// A client that is lost is gone: what the server owes it is cancelled.
func TestServerClientLost(t *testing.T) {
	s := serve(t, ServerOptions{})
	c := s.connect(t)
	c.say(ping)
	server := <-s.servers
	wantRecv(t, server, ping)
	give(t, server, note)
	if n, err := c.Read(make([]byte, 1)); n != 1 {
		t.Fatal(err)
	}
	// Closing with unread input resets the connection.
	c.Close()
	m, err := bridgetest.Recv(t.Context(), server)
	if err != nil || m.Method() != "notifications/cancelled" || m.CancelledID() != jsonrpc.IntID(1) {
		t.Errorf("the server received %s, %v; want a cancellation", m.Bytes(), err)
	}
}

// Whoever connects and says nothing gets no server.
func TestServerIdleConnection(t *testing.T) {
	s := serve(t, ServerOptions{})
	s.connect(t).CloseWrite()
	c := s.connect(t)
	c.say("")
	c.CloseWrite()
	c.wantEnd()
	if len(s.servers) > 0 {
		t.Error("it has a server")
	}
}

// More clients than may be are told so in answer to their first request.
func TestServerBusy(t *testing.T) {
	s := serve(t, ServerOptions{MaxSessions: 1})
	first := s.connect(t)
	first.say(note)
	<-s.servers

	second := s.connect(t)
	second.say(note)
	second.say(`{"jsonrpc":"2.0","id":"x","method":"initialize"}`)
	m := parse(t, second.line())
	if m.ID() != jsonrpc.StringID("x") || string(m.Lookup("error", "code")) != "-32603" || string(m.Lookup("error", "data", "reason")) != `"busy"` {
		t.Errorf("the second client was answered %s", m.Bytes())
	}
	second.wantEnd()

	first.CloseWrite()
	<-s.ended
	first.wantEnd()
	first.Close()
	for third := s.connect(t); ; third = s.connect(t) { // the place is free in a moment
		third.say(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
		select {
		case server := <-s.servers:
			wantRecv(t, server, `{"jsonrpc":"2.0","id":1,"method":"a"}`)
			give(t, server, pong)
			return
		case line := <-lineOf(third):
			if line != "" && !strings.Contains(line, "busy") { // "": another is being refused just now
				t.Fatalf("got %s", line)
			}
		}
	}
}

func lineOf(p *peer) <-chan string {
	c := make(chan string, 1)
	go func() { line, _ := p.in.ReadString('\n'); c <- line }()
	return c
}

// J7, ST5: arrays are taken from 2025-03-26 on, and only there.
func TestServerBatches(t *testing.T) {
	for revision, batches := range map[string]bool{"2025-03-26": true, "2025-06-18": false} {
		t.Run(revision, func(t *testing.T) {
			s := serve(t, ServerOptions{})
			c := s.connect(t)
			batch := "[" + note + "," + `{"jsonrpc":"2.0","id":2,"method":"b"}]`
			c.say(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`)
			c.say(batch)
			server := <-s.servers
			wantRecv(t, server, `{"jsonrpc":"2.0","id":1,"method":"initialize"}`)
			if got := c.line(); !strings.Contains(got, "-32600") {
				t.Errorf("a batch before initialize was answered: %s", got)
			}
			result := `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"` + revision + `"}}`
			give(t, server, result)
			if got := c.line(); got != result {
				t.Fatalf("got %s", got)
			}
			c.say(batch)
			if batches {
				wantRecv(t, server, note)
				wantRecv(t, server, `{"jsonrpc":"2.0","id":2,"method":"b"}`)
				give(t, server, `{"jsonrpc":"2.0","id":2,"result":{}}`)
				return
			}
			if got := c.line(); !strings.Contains(got, "-32600") {
				t.Errorf("the batch was answered: %s", got)
			}
		})
	}
}

// Close lets sessions finish what they owe, ends them, and waits; nobody new
// is taken.
func TestServerClose(t *testing.T) {
	s := serve(t, ServerOptions{})
	c := s.connect(t)
	c.say(ping)
	server := <-s.servers
	wantRecv(t, server, ping)
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	if err := <-s.result; err != nil {
		t.Errorf("Serve: %v", err)
	}
	s.result <- nil
	select {
	case <-closed:
		t.Error("Close did not wait")
	default:
	}
	give(t, server, pong)
	if got := c.line(); got != pong {
		t.Errorf("got %s", got)
	}
	c.wantEnd()
	c.Close()
	<-closed
	if _, err := net.Dial("unix", s.socket.Address); err == nil {
		t.Error("somebody still listens")
	}
	l, _ := listen(t, "unix")
	if err := s.Serve(l); err != nil {
		t.Errorf("Serve after Close: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener given to Serve after Close is not closed: %v", err)
	}
	if n := s.Sessions(); n != 0 {
		t.Errorf("%d sessions", n)
	}
}

// moody is a listener that gives what is in its list.
type moody struct {
	net.Listener
	list   []any // net.Conn or error
	closed chan struct{}
}

func (l *moody) Accept() (net.Conn, error) {
	if len(l.list) == 0 {
		<-l.closed
		return nil, net.ErrClosed
	}
	next := l.list[0]
	l.list = l.list[1:]
	if err, ok := next.(error); ok {
		return nil, err
	}
	return next.(net.Conn), nil
}

func (l *moody) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

// When there are too many open files Serve goes on a little later; when the
// listener is broken it returns. A connection needs no CloseWrite.
func TestServerAcceptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		busy := &net.OpError{Op: "accept", Err: syscall.EMFILE}
		l := &moody{list: []any{busy, busy, busy, far}, closed: make(chan struct{})}
		s := NewSocketServer(bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
			m, err := bridgetest.Recv(ctx, c)
			if err != nil {
				return err
			}
			return c.Send(ctx, jsonrpc.NewResult(m.ID(), nil))
		}), ServerOptions{})
		result := make(chan error, 1)
		go func() { result <- s.Serve(l) }()
		io.WriteString(near, ping+"\n")
		if line, err := bufio.NewReader(near).ReadString('\n'); line != pong+"\n" {
			t.Errorf("read %q, %v", line, err)
		}
		near.Close()
		s.Close()
		if err := <-result; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	broken := &moody{list: []any{io.ErrUnexpectedEOF}, closed: make(chan struct{})}
	s := NewSocketServer(nil, ServerOptions{})
	defer s.Close()
	if err := s.Serve(broken); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Serve of a broken listener: %v", err)
	}
}

// A client that connects and stays silent does not keep its place.
func TestServerFirstWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		l := &moody{list: []any{far}, closed: make(chan struct{})}
		s := NewSocketServer(nil, ServerOptions{})
		go s.Serve(l)
		start := time.Now()
		if _, err := near.Read(make([]byte, 1)); err != io.EOF || time.Since(start) != firstMessageTimeout {
			t.Errorf("hung up on after %v: %v", time.Since(start), err)
		}
		s.Close()
	})
}

// D.3: who has all places, and keeps the bridge busy with connections that it refuses,
// does not keep others out: it gives up one in which nothing is said.
func TestServerFull(t *testing.T) {
	names := make(chan string)
	s := serve(t, ServerOptions{MaxSessions: 2, Party: func(net.Conn) string { return <-names }})
	for range 6 {
		c := s.connect(t)
		select {
		case names <- "a":
		case <-lineOf(c): // it is closed
		}
	}
	other := s.connect(t)
	told := lineOf(other)
	select {
	case names <- "b":
	case <-told:
		t.Fatal("the other client is not let in")
	}
	other.say(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	select {
	case server := <-s.servers:
		wantRecv(t, server, `{"jsonrpc":"2.0","id":1,"method":"a"}`)
		give(t, server, pong)
		if got := strings.TrimSpace(<-told); got != pong {
			t.Errorf("the other client gets %s", got)
		}
	case line := <-told:
		t.Errorf("the other client is told %q", line)
	}
}
