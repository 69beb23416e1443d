package streamhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/sse"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// The tests of the server run in synctest bubbles: a Handler behind a real
// http.Server, over a network of net.Pipe, with a bridge.Handler whose Conn
// the test holds in its hands.

const (
	r25a = "2025-03-26"
	r25b = "2025-06-18"
	r25c = "2025-11-25"
)

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// site is a Handler on its network.
type site struct {
	t       *testing.T
	h       *streamhttp.Handler
	srv     *http.Server
	net     *bridgetest.Network
	client  *http.Client
	servers chan *server
	wait    chan struct{} // a server whose session has ended leaves when this is closed
	dialled atomic.Int32  // connections
}

func newSite(t *testing.T, opts streamhttp.HandlerOptions) *site {
	t.Helper()
	var http1 http.Protocols
	http1.SetHTTP1(true)
	return newSiteOver(t, &http1, opts)
}

func newSiteOver(t *testing.T, protocols *http.Protocols, opts streamhttp.HandlerOptions) *site {
	s := &site{t: t, net: bridgetest.NewNetwork(), servers: make(chan *server, 2000), wait: make(chan struct{})}
	close(s.wait)
	s.h = streamhttp.NewHandler(bridge.HandlerFunc(s.serve), opts)
	s.srv = &http.Server{Handler: httpserve.Deadlines{Reply: opts.StallAfter}.Handler(s.h), Protocols: protocols}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.srv.Serve(s.net)
	}()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			s.dialled.Add(1)
			return s.net.Dial(ctx, "", "")
		},
		DisableCompression: true,
		Protocols:          protocols,
	}
	s.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		s.h.Close()
		s.srv.Close()
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

func (s *site) serve(ctx context.Context, conn bridge.Conn) error {
	p := &server{Conn: conn, t: s.t, ctx: ctx, quit: make(chan error, 1), left: make(chan struct{})}
	defer close(p.left)
	s.servers <- p
	select {
	case err := <-p.quit:
		return err
	case <-ctx.Done():
		<-s.wait
		return ctx.Err()
	}
}

// says sends messages to the client; that must not block.
func (p *server) says(texts ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	for _, text := range texts {
		if err := p.Send(ctx, message(text)); err != nil {
			p.t.Fatalf("Send: %v", err)
		}
	}
	synctest.Wait()
}

// gets receives the next message, which must be there by now.
func (p *server) gets() jsonrpc.Message {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	m, err := bridgetest.Recv(ctx, p)
	if err != nil {
		p.t.Fatalf("Recv: %v", err)
	}
	synctest.Wait()
	return m
}

func (p *server) getsText(want string) {
	p.t.Helper()
	if got := string(new(p.gets()).Bytes()); got != want {
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

// gone wants the session to have ended for the server.
func (p *server) gone() {
	p.t.Helper()
	synctest.Wait()
	select {
	case <-p.left:
	default:
		p.t.Error("the server is still being served")
	}
	if _, err := bridgetest.Recv(context.Background(), p); err == nil || errors.Is(err, io.EOF) {
		p.t.Errorf("Recv of an ended session = %v", err)
	}
	if err := p.Send(context.Background(), message(`{"jsonrpc":"2.0","method":"x"}`)); err == nil {
		p.t.Error("Send to an ended session gave no error")
	}
}

var message = bridgetest.Parse

// user is a client of one session; without an id of none yet.
type user struct {
	*site
	id, version string
}

// reply is one HTTP exchange under way. It reads whatever comes.
type reply struct {
	t      *testing.T
	cancel context.CancelFunc // cuts the connection
	done   chan struct{}      // closed when all has come

	mu     sync.Mutex
	status int
	header http.Header
	body   []byte
	events []sse.Event // that the test has not looked at
	ids    []string    // of all events with one
	err    error       // how an SSE stream ended; io.EOF in order
}

// request sends a request and waits until nothing more happens. Headers are
// "Name: value", in place of ours; a value of "" takes the header away.
func (u *user) request(method, body string, headers ...string) *reply {
	u.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1/mcp", content)
	bridgetest.Must(u.t, err)
	r.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	if u.id != "" {
		r.Header.Set("Mcp-Session-Id", u.id)
	}
	if u.version != "" {
		r.Header.Set("Mcp-Protocol-Version", u.version)
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
	rep := &reply{t: u.t, cancel: cancel, done: make(chan struct{})}
	go rep.run(u.client, r)
	synctest.Wait()
	u.t.Cleanup(func() {
		cancel()
		<-rep.done
	})
	return rep
}

func (r *reply) run(c *http.Client, req *http.Request) {
	defer close(r.done)
	resp, err := c.Do(req)
	if err != nil {
		r.mu.Lock()
		r.err = err
		r.mu.Unlock()
		return
	}
	defer resp.Body.Close()
	r.mu.Lock()
	r.status, r.header = resp.StatusCode, resp.Header
	r.mu.Unlock()
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		body, err := io.ReadAll(resp.Body)
		r.mu.Lock()
		r.body, r.err = body, err
		r.mu.Unlock()
		return
	}
	events := sse.NewReader(resp.Body, 0)
	for {
		e, err := events.Next()
		r.mu.Lock()
		if err != nil {
			r.err = err
			r.mu.Unlock()
			return
		}
		r.events = append(r.events, e)
		if e.HasID {
			r.ids = append(r.ids, e.ID)
		}
		r.mu.Unlock()
	}
}

func (u *user) post(body string, headers ...string) *reply {
	u.t.Helper()
	return u.request(http.MethodPost, body, headers...)
}

func (u *user) get(headers ...string) *reply {
	u.t.Helper()
	return u.request(http.MethodGet, "", headers...)
}

// call posts a tools/call with a progress token that equals its id.
func (u *user) call(id string) *reply {
	u.t.Helper()
	return u.post(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"_meta":{"progressToken":` + id + `}}}`)
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

// begun returns the status; 0 when there is none yet.
func (r *reply) begun() int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// is wants a complete reply with this status, and returns its body.
func (r *reply) is(status int) string {
	r.t.Helper()
	if !r.finished() {
		r.t.Fatalf("there is no whole reply yet, want status %d", status)
	}
	if r.status != status {
		r.t.Errorf("status %d, want %d (%s, %v)", r.status, status, r.body, r.err)
	}
	return string(r.body)
}

// isJSON wants a complete reply with status 200 and this JSON.
func (r *reply) isJSON(want string) {
	r.t.Helper()
	if got := r.is(http.StatusOK); got != want {
		r.t.Errorf("got %s, want %s", got, want)
	}
	if ct := r.header.Get("Content-Type"); ct != "application/json" {
		r.t.Errorf("Content-Type %q, want application/json", ct)
	}
}

// isError wants a complete reply that is a JSON-RPC error with this status,
// code and id ("" for none), which says nothing about our insides.
func (r *reply) isError(status, code int, id string) {
	r.t.Helper()
	body := r.is(status)
	m, err := jsonrpc.Parse([]byte(body))
	if err != nil || !m.IsError() {
		r.t.Errorf("the body is no JSON-RPC error: %q", body)
		return
	}
	if got := m.ID().String(); got != id {
		r.t.Errorf("the error has the id %q, want %q (J4): %s", got, id, body)
	}
	if got := string(m.Lookup("error", "code")); got != fmt.Sprint(code) {
		r.t.Errorf("the error has the code %s, want %d: %s", got, code, body)
	}
	for _, leak := range []string{".go", "goroutine", "panic", "/usr", "/home", "0x", "runtime"} {
		if strings.Contains(body, leak) {
			r.t.Errorf("the error tells of our insides: %s", body)
		}
	}
	if ct := r.header.Get("Content-Type"); ct != "application/json" {
		r.t.Errorf("Content-Type %q, want application/json", ct)
	}
}

// isStream wants an SSE stream.
func (r *reply) isStream() *reply {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status != http.StatusOK || r.header.Get("Content-Type") != "text/event-stream" {
		r.t.Fatalf("status %d, Content-Type %q (%s, %v); want a stream", r.status, r.header.Get("Content-Type"), r.body, r.err)
	}
	return r
}

// gets wants exactly these data on the stream since the last look. Events
// without data are left out.
func (r *reply) gets(want ...string) *reply {
	r.t.Helper()
	r.isStream()
	r.mu.Lock()
	defer r.mu.Unlock()
	var got []string
	for _, e := range r.events {
		if len(e.Data) > 0 {
			got = append(got, string(e.Data))
		}
	}
	r.events = nil
	if len(got) != len(want) {
		r.t.Errorf("got %d events %q, want %d %q", len(got), got, len(want), want)
		return r
	}
	for i := range got {
		if got[i] != want[i] {
			r.t.Errorf("event %d is %s, want %s", i, got[i], want[i])
		}
	}
	return r
}

// over wants the stream to have ended in an orderly way.
func (r *reply) over() {
	r.t.Helper()
	if !r.finished() {
		r.t.Error("the stream goes on, want its end")
	} else if r.err != io.EOF {
		r.t.Errorf("the stream ended with %v, want EOF", r.err)
	}
}

// open wants the stream to go on.
func (r *reply) open() {
	r.t.Helper()
	if r.isStream(); r.finished() {
		r.t.Errorf("the stream has ended: %v", r.err)
	}
}

// lastID returns the id of the last event with one.
func (r *reply) lastID() string {
	synctest.Wait()
	return r.lastIDNow()
}

func (r *reply) lastIDNow() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) == 0 {
		return ""
	}
	return r.ids[len(r.ids)-1]
}

// cut breaks the connection and waits until that has been noticed.
func (r *reply) cut() {
	r.cancel()
	<-r.done
	synctest.Wait()
}

func initialize(version string) string {
	return `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{}}}`
}

func initializeResult(version string) string {
	return `{"jsonrpc":"2.0","id":"init","result":{"protocolVersion":"` + version + `"}}`
}

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// begin opens a session up to the answer to initialize.
func (s *site) begin(version string) (*user, *server) {
	s.t.Helper()
	u := &user{site: s}
	r := u.post(initialize(version))
	p := <-s.servers
	p.getsText(initialize(version))
	p.says(initializeResult(version))
	r.isJSON(initializeResult(version))
	u.id, u.version = r.header.Get("Mcp-Session-Id"), version
	if u.id == "" {
		s.t.Fatal("no session id")
	}
	return u, p
}

// open opens a session with all its ceremony.
func (s *site) open(version string) (*user, *server) {
	s.t.Helper()
	u, p := s.begin(version)
	r := u.post(initialized)
	p.getsText(initialized)
	r.is(http.StatusAccepted)
	return u, p
}

// raw opens a connection for bytes that no http.Client would send.
func (s *site) raw() *rawConn {
	c, err := s.net.Dial(context.Background(), "", "")
	bridgetest.Must(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	return &rawConn{Conn: c, t: s.t, r: bufio.NewReader(c)}
}

type rawConn struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func (c *rawConn) write(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// reply reads one reply and its whole body.
func (c *rawConn) reply() (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatalf("reading a reply: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("reading the body of a reply: %v", err)
	}
	return resp, string(body)
}

// closed wants the server to have closed the connection.
func (c *rawConn) closed() {
	c.t.Helper()
	if b, err := c.r.ReadByte(); err == nil {
		c.t.Errorf("read %q, want the end of the connection", b)
	}
}

// posting is the head of a POST of the session, up to its framing.
func (u *user) posting() string {
	return "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n" +
		"Content-Type: application/json\r\nMcp-Session-Id: " + u.id + "\r\n"
}

func sized(body string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body) }

func progress(token string, n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, n)
}

func result(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":{}}` }

func logLine(text string) string {
	return `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + text + `"}}`
}

func ask(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":{}}`
}

const listChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

func big(n int) string { return string(bytes.Repeat([]byte("x"), n)) }
