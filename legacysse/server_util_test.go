package legacysse

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/sse"
)

// The tests of the server run in synctest bubbles: a Handler behind a real
// http.Server, over a network of net.Pipe, with a bridge.Handler whose Conn
// the test holds in its hands.

// site is a Handler on its network.
type site struct {
	t       *testing.T
	h       *Handler
	net     *bridgetest.Network
	client  *http.Client
	servers chan *server
	serve   func(ctx context.Context, p *server) error // of each session; nil: until it is over
}

// newSite starts a Handler. prepare may change what the requests carry before
// the Handler sees them; nil: nothing.
func newSite(t *testing.T, opts HandlerOptions, prepare func(r *http.Request) *http.Request) *site {
	s := &site{t: t, net: bridgetest.NewNetwork(), servers: make(chan *server, 1000)}
	s.h = NewHandler(bridge.HandlerFunc(s.serveConn), opts)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if prepare != nil {
			r = prepare(r)
		}
		mux(s.h).ServeHTTP(w, r)
	})
	srv := &http.Server{Handler: httpserve.Deadlines{Reply: opts.StallAfter}.Handler(handler)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(s.net)
	}()
	transport := &http.Transport{DialContext: s.net.Dial, DisableCompression: true}
	s.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		s.h.Close()
		srv.Close()
		transport.CloseIdleConnections()
		<-done
		time.Sleep(time.Second) // net/http lingers on connections that it breaks off
	})
	return s
}

// server is the MCP server of one session, played by the test.
type server struct {
	bridge.Conn
	t    *testing.T
	ctx  context.Context
	quit chan error // what ServeConn is to return
	left chan struct{}
}

func (s *site) serveConn(ctx context.Context, conn bridge.Conn) error {
	p := &server{Conn: conn, t: s.t, ctx: ctx, quit: make(chan error, 1), left: make(chan struct{})}
	defer close(p.left)
	s.servers <- p
	if s.serve != nil {
		return s.serve(ctx, p)
	}
	select {
	case err := <-p.quit:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// says sends messages to the client; that must not block.
func (p *server) says(texts ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	for _, text := range texts {
		if err := p.Send(ctx, msg(text)); err != nil {
			p.t.Fatalf("Send: %v", err)
		}
	}
	synctest.Wait()
}

// gets receives the next message, which must be there by now.
func (p *server) gets(want string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	m, err := bridgetest.Recv(ctx, p)
	if err != nil {
		p.t.Fatalf("Recv: %v", err)
	}
	synctest.Wait()
	if got := string(m.Bytes()); got != want {
		p.t.Errorf("the server got %s, want %s", got, want)
	}
}

// getsNothing wants nothing to be there for the server.
func (p *server) getsNothing() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	if m, err := bridgetest.Recv(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
		p.t.Errorf("the server got %s, %v; want nothing", m.Bytes(), err)
	}
}

// gone wants the session to have ended for the server, for this reason.
func (p *server) gone(why error) {
	p.t.Helper()
	synctest.Wait()
	select {
	case <-p.ctx.Done():
	default:
		p.t.Error("the context of the server is not done")
	}
	if _, err := bridgetest.Recv(context.Background(), p); err != why {
		p.t.Errorf("Recv of an ended session = %v, want %v", err, why)
	}
	if err := p.Send(context.Background(), msg(`{"jsonrpc":"2.0","method":"x"}`)); err != why {
		p.t.Errorf("Send to an ended session = %v, want %v", err, why)
	}
}

// reply is one HTTP exchange under way. It reads whatever comes.
type reply struct {
	t      *testing.T
	cancel context.CancelFunc // cuts the connection
	done   chan struct{}      // closed when all has come

	mu     sync.Mutex
	status int
	header http.Header
	body   string
	events []sse.Event // that the test has not looked at
	err    error       // how an SSE stream ended; io.EOF in order

	url     string  // for the POSTs of the stream's session
	session *server // of the stream
	site    *site
}

// request sends a request and waits until nothing more happens. Headers are
// "Name: value", in place of ours; a value of "" takes the header away.
func (s *site) request(method, url string, body io.Reader, headers ...string) *reply {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1"+url, body)
	bridgetest.Must(s.t, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	given := make(http.Header)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		given.Add(strings.TrimSuffix(name, ":"), value)
	}
	for name, values := range given {
		switch {
		case name == "Host":
			r.Host = values[0]
		case values[0] == "":
			delete(r.Header, name)
		default:
			r.Header[name] = values
		}
	}
	rep := &reply{t: s.t, cancel: cancel, done: make(chan struct{}), site: s}
	go rep.run(s.client, r)
	synctest.Wait()
	s.t.Cleanup(func() {
		cancel()
		<-rep.done
	})
	return rep
}

func (r *reply) run(c *http.Client, req *http.Request) {
	defer close(r.done)
	resp, err := c.Do(req)
	if err != nil {
		r.set(func() { r.err = err })
		return
	}
	defer resp.Body.Close()
	r.set(func() { r.status, r.header = resp.StatusCode, resp.Header })
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		body, err := io.ReadAll(resp.Body)
		r.set(func() { r.body, r.err = string(body), err })
		return
	}
	events := sse.NewReader(resp.Body, 0)
	for {
		e, err := events.Next()
		if err != nil {
			r.set(func() { r.err = err })
			return
		}
		r.set(func() { r.events = append(r.events, e) })
	}
}

func (r *reply) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// finished reports whether the reply has come to its end by now.
func (r *reply) finished() bool {
	synctest.Wait()
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// want wants the reply to have this status, and a JSON-RPC error that holds
// text; text "": an empty body.
func (r *reply) want(status int, text string) {
	r.t.Helper()
	if !r.finished() {
		r.t.Errorf("no reply, want %d", status)
		return
	}
	if r.status != status {
		r.t.Errorf("status %d %s, want %d", r.status, r.body, status)
	}
	switch {
	case text == "" && r.body != "":
		r.t.Errorf("the body is %q, want none", r.body)
	case text != "":
		m, err := jsonrpc.Parse([]byte(r.body))
		if err != nil || !m.IsError() || !strings.Contains(r.body, text) {
			r.t.Errorf("the body is %q, want a JSON-RPC error with %q", r.body, text)
		}
	}
}

// event returns the next event, which must be there by now.
func (r *reply) event() sse.Event {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) == 0 {
		r.t.Fatalf("no event; status %d %s, error %v", r.status, r.body, r.err)
	}
	e := r.events[0]
	r.events = r.events[1:]
	return e
}

// hears wants the next events to be these messages, and no others.
func (r *reply) hears(texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		if e := r.event(); e.Name != "message" || string(e.Data) != text || e.HasID {
			r.t.Errorf("event %q %s, want the message %s", e.Name, e.Data, text)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) > 0 {
		r.t.Errorf("one event too many: %s", r.events[0].Data)
	}
}

// rawStream sends the GET of an event stream, whose reply nobody reads yet.
func (s *site) rawStream() net.Conn {
	s.t.Helper()
	conn, err := s.net.Dial(s.t.Context(), "", "")
	bridgetest.Must(s.t, err)
	_, err = io.WriteString(conn, "GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
	bridgetest.Must(s.t, err)
	return conn
}

// open opens a session.
func (s *site) open(headers ...string) *reply {
	s.t.Helper()
	r := s.request(http.MethodGet, "/sse", nil, headers...)
	e := r.event()
	if e.Name != "endpoint" {
		s.t.Fatalf("the first event is %q", e.Name)
	}
	r.url = string(e.Data)
	r.session = <-s.servers
	return r
}

// post sends a message to the stream's session.
func (r *reply) post(body string, headers ...string) *reply {
	r.t.Helper()
	return r.site.request(http.MethodPost, r.url, strings.NewReader(body), headers...)
}

var msg = bridgetest.Parse

// mux serves a Handler at /sse and /message.
func mux(h *Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/sse", h.ServeSSE)
	mux.HandleFunc("/message", h.ServeMessage)
	return mux
}
