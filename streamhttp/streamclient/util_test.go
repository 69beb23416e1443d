package streamclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// memListener is a network in memory: it works inside a synctest bubble.
type memListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *memListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *memListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// fakeServer is an upstream that misbehaves to order. By default it is a
// well-behaved stateful server without a standalone stream.
type fakeServer struct {
	t *testing.T

	mu       sync.Mutex
	seen     []seenRequest
	session  string // the one that is valid, "" for none yet
	sessions int
	dials    int
	conns    chan net.Conn
	http     *http.Server

	stateless bool
	down      bool // connections are refused
	// The scripts report whether they have handled the request.
	onPost   func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool
	onRaw    func(w http.ResponseWriter, r *http.Request) bool // before the body is read
	onGet    func(w http.ResponseWriter, r *http.Request) bool
	onDelete func(w http.ResponseWriter, r *http.Request) bool
}

type seenRequest struct {
	method string // HTTP
	header http.Header
	body   string
	msg    jsonrpc.Message
	at     time.Time
}

func (f *fakeServer) start() {
	l := &memListener{conns: make(chan net.Conn), done: make(chan struct{})}
	h := &http.Server{Handler: f}
	f.mu.Lock()
	f.conns, f.http = l.conns, h
	f.mu.Unlock()
	go h.Serve(l)
}

// stop cuts all connections and takes no more until start.
func (f *fakeServer) stop() {
	f.setDown(true)
	f.mu.Lock()
	h := f.http
	f.mu.Unlock()
	h.Close()
}

// script replaces onPost while the server runs.
func (f *fakeServer) script(post func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onPost = post
}

// knows reports whether the request is of the session that is valid.
func (f *fakeServer) knows(r *http.Request) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return r.Header.Get(wire.HeaderSession) == f.session
}

func (f *fakeServer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	f.mu.Lock()
	f.dials++
	down, conns := f.down, f.conns
	f.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connect: connection refused")}
	}
	client, server := net.Pipe()
	select {
	case conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.onRaw != nil && f.onRaw(w, r) {
		return
	}
	body, _ := io.ReadAll(r.Body)
	m, _ := jsonrpc.Parse(bytes.Clone(body))
	f.mu.Lock()
	f.seen = append(f.seen, seenRequest{r.Method, r.Header.Clone(), string(body), m, time.Now()})
	onPost := f.onPost
	f.mu.Unlock()
	switch r.Method {
	case http.MethodPost:
		if onPost != nil && onPost(w, r, m) {
			return
		}
	case http.MethodGet:
		if f.onGet == nil || !f.onGet(w, r) {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
		return
	case http.MethodDelete:
		if f.onDelete != nil && f.onDelete(w, r) {
			return
		}
	}
	if m.Method() == "initialize" {
		f.initialize(w, m)
		return
	}
	if !f.stateless && !f.knows(r) {
		w.Header().Set("Content-Type", wire.TypeJSON)
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
		return
	}
	switch {
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case m.Kind() == jsonrpc.Request:
		writeJSON(w, result(m, `{"echo":"`+m.Method()+`"}`))
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (f *fakeServer) initialize(w http.ResponseWriter, m jsonrpc.Message) {
	f.mu.Lock()
	f.sessions++
	f.session = fmt.Sprintf("session-%d", f.sessions)
	if !f.stateless {
		w.Header().Set("mcp-session-id", f.session)
	}
	f.mu.Unlock()
	writeJSON(w, result(m, `{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"fake","version":"1"}}`))
}

// forget makes the server lose its session.
func (f *fakeServer) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session = "none"
}

func (f *fakeServer) setDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

// requests returns what the server has seen, filtered by "GET", "DELETE",
// "POST" or a JSON-RPC method; "" for all.
func (f *fakeServer) requests(what string) (found []seenRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.seen {
		if what == "" || r.method == what || r.msg.Method() == what {
			found = append(found, r)
		}
	}
	return found
}

func result(m jsonrpc.Message, text string) string {
	return `{"jsonrpc":"2.0","id":` + m.ID().String() + `,"result":` + text + `}`
}

func writeJSON(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", wire.TypeJSON)
	io.WriteString(w, text)
}

// writeSSE sends text as it is, as (more of) an event stream.
func writeSSE(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", wire.TypeSSE)
	io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

func sseEvent(id, data string) string {
	if id != "" {
		id = "id: " + id + "\n"
	}
	return id + "data: " + data + "\n\n"
}

// clientTest is a Conn with a fakeServer, in a synctest bubble.
type clientTest struct {
	*testing.T
	server *fakeServer
	conn   bridge.Conn
	inner  *conn // what conn pulls from
}

// testClient runs f in a bubble, with a Conn to a fake server; set prepares both.
func testClient(t *testing.T, set func(s *fakeServer, o *Options), f func(t *clientTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{t: t}
		transport := &http.Transport{DialContext: s.dial, MaxIdleConnsPerHost: 100, DisableCompression: true}
		var log bytes.Buffer
		opts := Options{Transport: transport, Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info})}
		if set != nil {
			set(s, &opts)
		}
		s.start()
		dialed, err := (&Client{URL: "http://user:pass@fake.test/mcp/secret?key=secret", Options: opts}).Dial(t.Context())
		bridgetest.Must(t, err)
		pulled := dialed
		defer func() {
			pulled.Close(nil)
			for _, secret := range []string{"pass", "secret"} {
				if strings.Contains(log.String(), secret) {
					t.Errorf("the log shows a secret: %s", log.String())
				}
			}
			transport.CloseIdleConnections()
			s.stop()
			time.Sleep(24 * time.Hour) // for scripts that sleep
		}()
		f(&clientTest{t, s, pulled, dialed.(*conn)})
	})
}

var msg = bridgetest.Parse

func (t *clientTest) send(text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := t.conn.Send(ctx, msg(text)); err != nil {
		t.Fatalf("Send: %v", err)
	}
}

func (t *clientTest) recv() jsonrpc.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	m, err := bridgetest.Recv(ctx, t.conn)
	if err != nil {
		t.Fatalf("Recv: %v", err)
	}
	return m
}

// want receives a message and compares its bytes.
func (t *clientTest) want(text string) {
	t.Helper()
	if got := string(new(t.recv()).Bytes()); got != text {
		t.Fatalf("received %s\nwant     %s", got, text)
	}
}

// wantError receives the error response to id and checks its reason and that
// its message has all the words.
func (t *clientTest) wantError(id, reason string, words ...string) jsonrpc.Message {
	t.Helper()
	m := t.recv()
	if m.Kind() != jsonrpc.Response || !m.IsError() || m.ID().String() != id {
		t.Fatalf("received %s, want an error for %s", m.Bytes(), id)
	}
	if got := string(m.Lookup("error", "data", "reason")); got != `"`+reason+`"` {
		t.Errorf("reason %s, want %q: %s", got, reason, m.Bytes())
	}
	text := string(m.Lookup("error", "message"))
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("error %s does not say %q", text, word)
		}
	}
	for _, secret := range []string{"pass", "secret"} {
		if strings.Contains(text, secret) {
			t.Errorf("error %s shows a secret", text)
		}
	}
	return m
}

// wantNothing checks that nothing more comes for a while.
func (t *clientTest) wantNothing(d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if m, err := bridgetest.Recv(ctx, t.conn); err == nil {
		t.Fatalf("received %s, want nothing", m.Bytes())
	}
}

const (
	initializeText  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"t","version":"1"}}}`
	initializedText = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	initializeReply = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"fake","version":"1"}}}`
)

// open does the handshake.
func (t *clientTest) open() {
	t.Helper()
	t.send(initializeText)
	t.want(initializeReply)
	t.send(initializedText)
}

// call sends a request and expects the default answer.
func (t *clientTest) call(id, method string) {
	t.Helper()
	t.send(request(id, method))
	t.want(`{"jsonrpc":"2.0","id":` + id + `,"result":{"echo":"` + method + `"}}`)
}

func request(id, method string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{}}`
}
