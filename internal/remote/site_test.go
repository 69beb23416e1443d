package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// site is a web server whose URL /mcp is served as the test wants it. It notes
// what it sees.
type site struct {
	URL        string // of /mcp
	streamable *streamhttp.Handler
	legacy     *legacysse.Handler
	stop       func()

	mu        sync.Mutex
	seen      []string // "POST initialize", "GET", ... at /mcp
	got       []string // the messages that a server has received, on either transport
	post, get http.HandlerFunc
	sessions  chan bridge.Conn // if not nil, they are the test's; otherwise they answer
	done      <-chan struct{}  // closed when the test receives nothing more from them; nil: when the client is gone
}

// newSite starts a web server that answers at /mcp as post and get say.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{}
	s.streamable = streamhttp.NewHandler(bridge.HandlerFunc(s.serve), streamhttp.HandlerOptions{})
	s.legacy = legacysse.NewHandler(bridge.HandlerFunc(s.serve), legacysse.HandlerOptions{})
	server := httptest.NewServer(s)
	s.URL = server.URL + "/mcp"
	s.stop = sync.OnceFunc(func() {
		s.streamable.Close()
		s.legacy.Close()
		server.CloseClientConnections()
		server.Close()
	})
	t.Cleanup(s.stop)
	return s
}

// be makes the site answer in another way from now on.
func (s *site) be(post, get http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.post, s.get = post, get
}

func (s *site) beStreamable() { s.be(s.streamable.ServeHTTP, s.streamable.ServeHTTP) }

// beLegacy: an HTTP+SSE server, and POSTs at its URL are answered with post.
func (s *site) beLegacy(post http.HandlerFunc) { s.be(post, s.legacy.ServeSSE) }

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/message" {
		s.legacy.ServeMessage(w, r)
		return
	}
	what := r.Method
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		m, _ := jsonrpc.Parse(body)
		what += " " + m.Method()
	}
	s.mu.Lock()
	s.seen = append(s.seen, what)
	answer := s.post
	if r.Method == http.MethodGet {
		answer = s.get
	}
	s.mu.Unlock()
	answer(w, r)
}

// requests returns what was requested at /mcp, and forgets it.
func (s *site) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

func (s *site) received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// serve is the MCP server behind both transports: it answers every request
// with its own method.
func (s *site) serve(ctx context.Context, conn bridge.Conn) error {
	c := conn
	s.mu.Lock()
	sessions, done := s.sessions, s.done
	s.mu.Unlock()
	if sessions != nil {
		sessions <- c
		if done == nil {
			done = ctx.Done()
		}
		<-done
		return nil
	}
	for {
		m, err := bridgetest.Recv(ctx, c)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.got = append(s.got, string(m.Bytes()))
		s.mu.Unlock()
		if m.Kind() == jsonrpc.Request {
			if err := c.Send(ctx, jsonrpc.NewResult(m.ID(), []byte(resultFor(m.Method())))); err != nil {
				return err
			}
		}
	}
}

func resultFor(method string) string {
	if method == "initialize" {
		return `{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"site","version":"1"}}`
	}
	return `{"echo":"` + method + `"}`
}

// client is a Conn under test.
type client struct {
	*testing.T
	conn bridge.Conn
}

func dial(t *testing.T, d *Dialer) *client {
	t.Helper()
	conn, err := d.Dial(t.Context())
	bridgetest.Must(t, err)
	t.Cleanup(func() { conn.Close(nil) })
	return &client{t, conn}
}

const (
	initializeText  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	initializedText = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

var msg = bridgetest.Parse

const patience = 30 * time.Second

func (c *client) send(text string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	if err := c.conn.Send(ctx, msg(text)); err != nil {
		c.Errorf("Send: %v", err) // perhaps not the test's own goroutine
	}
}

func (c *client) recv() jsonrpc.Message {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	m, err := bridgetest.Recv(ctx, c.conn)
	if err != nil {
		c.Fatalf("Recv: %v", err)
	}
	return m
}

// answerTo receives up to the answer to the request with this id.
func (c *client) answerTo(id string) jsonrpc.Message {
	c.Helper()
	for {
		if m := c.recv(); m.Kind() == jsonrpc.Response && m.ID().String() == id {
			return m
		}
	}
}

// open does the handshake.
func (c *client) open() {
	c.Helper()
	c.send(initializeText)
	want := string(new(jsonrpc.NewResult(jsonrpc.IntID(0), []byte(resultFor("initialize")))).Bytes())
	if m := c.answerTo("0"); string(m.Bytes()) != want {
		c.Fatalf("initialize was answered %s, want %s", m.Bytes(), want)
	}
	c.send(initializedText)
}

// call makes a request and expects the server's answer.
func (c *client) call(id, method string) {
	c.Helper()
	c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"}`)
	if m := c.answerTo(id); string(m.Result()) != resultFor(method) {
		c.Fatalf("%s was answered %s", method, m.Bytes())
	}
}

// wantError expects an error as the answer to the request with this id.
func (c *client) wantError(id, reason string, words ...string) {
	c.Helper()
	m := c.answerTo(id)
	if got := string(m.Lookup("error", "data", "reason")); got != `"`+reason+`"` {
		c.Errorf("reason %s, want %q: %s", got, reason, m.Bytes())
	}
	text := string(m.Lookup("error", "message"))
	for _, word := range words {
		before, after, found := strings.Cut(text, word)
		if !found {
			c.Errorf("%s does not say %q after %q", m.Bytes(), word, before)
		}
		text = after
	}
}

// wantEnd receives until the Conn ends.
func (c *client) wantEnd(want error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	for {
		if m, err := bridgetest.Recv(ctx, c.conn); errors.Is(err, want) {
			return
		} else if err != nil {
			c.Fatalf("Recv = %s, %v; want %v", m.Bytes(), err, want)
		}
	}
}

// status answers with a status and a web page.
func status(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		io.WriteString(w, "<html><body>"+http.StatusText(status))
	}
}

// says answers with a status and a JSON-RPC error.
func says(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"`+text+`"}}`)
	}
}

func (c *client) wantRequests(s *site, want ...string) {
	c.Helper()
	if got := s.requests(); !slices.Equal(got, want) {
		c.Errorf("requests %q, want %q", got, want)
	}
}
