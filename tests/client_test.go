package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A server is a running `mcp-bridge serve`.
type server struct {
	*proc
	url    string
	client *http.Client
}

var listening = regexp.MustCompile(`listening.*url"?[=:]\s*"?(http://[^\s"]+)`)

// serve starts `mcp-bridge serve FLAGS -- child CHILDARGS` on a free port.
func serve(t testing.TB, flags []string, childArgs ...string) *server {
	t.Helper()
	argv := append([]string{bridgeBin, "serve", "--listen", "127.0.0.1:0"}, flags...)
	argv = append(append(argv, "--", childBin), childArgs...)
	return serveArgv(t, nil, argv...)
}

func serveArgv(t testing.TB, env []string, argv ...string) *server {
	t.Helper()
	p := start(t, env, argv...)
	s := &server{proc: p, client: &http.Client{Transport: &http.Transport{}}}
	s.url = p.waitLog(listening)[1]
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// do sends one HTTP request. The response's body is closed when the test ends.
func (s *server) do(ctx context.Context, method, body string, header http.Header) *http.Response {
	s.t.Helper()
	resp, err := s.try(ctx, method, body, header)
	bridgetest.Must(s.t, err)
	return resp
}

// try is do for a test that goes on after an error. No exchange, body
// included, may take longer than twice our patience.
func (s *server) try(ctx context.Context, method, body string, header http.Header) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*harness.Patience)
	context.AfterFunc(s.t.Context(), cancel)
	req, err := http.NewRequestWithContext(ctx, method, s.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range header {
		req.Header[k] = v
	}
	return s.client.Do(req)
}

// A session is one initialized MCP session of a server.
type session struct {
	*server
	id, version string
}

func initialize(version string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":%q,"capabilities":{"sampling":{},"elicitation":{},"roots":{}},"clientInfo":{"name":"test","version":"1"}}}`, version)
}

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// open makes a session of the given revision.
func (s *server) open(version string) *session {
	s.t.Helper()
	c, err := s.tryOpen(version)
	bridgetest.Must(s.t, err)
	return c
}

func (s *server) tryOpen(version string) (*session, error) {
	resp, err := s.try(s.t.Context(), http.MethodPost, initialize(version), nil)
	if err != nil {
		return nil, err
	}
	msgs, err := messages(resp)
	if err != nil {
		return nil, err
	}
	c := &session{server: s, id: resp.Header.Get("Mcp-Session-Id"), version: version}
	if c.id == "" || len(msgs) != 1 || !strings.Contains(msgs[0], `"result"`) {
		return nil, fmt.Errorf("initialize: session %q, %q", c.id, msgs)
	}
	if status := c.post(initialized); status != http.StatusAccepted {
		return nil, fmt.Errorf("notifications/initialized: status %d, want 202", status)
	}
	return c, nil
}

func (c *session) header() http.Header {
	return http.Header{"Mcp-Session-Id": {c.id}, "Mcp-Protocol-Version": {c.version}}
}

// request POSTs body and returns the response, whatever its status.
func (c *session) request(body string) *http.Response {
	c.t.Helper()
	return c.do(c.t.Context(), http.MethodPost, body, c.header())
}

// post POSTs a message that has no answer and returns the status.
func (c *session) post(body string) int {
	c.t.Helper()
	resp := c.request(body)
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

// call POSTs a request and returns every message of the reply, in order.
func (c *session) call(body string) []string {
	c.t.Helper()
	msgs, err := c.tryCall(body)
	bridgetest.Must(c.t, err)
	return msgs
}

func (c *session) tryCall(body string) ([]string, error) {
	resp, err := c.try(c.t.Context(), http.MethodPost, body, c.header())
	if err != nil {
		return nil, err
	}
	return messages(resp)
}

// answer is call for a reply that must be one message.
func (c *session) answer(body string) string {
	c.t.Helper()
	msgs := c.call(body)
	if len(msgs) != 1 {
		c.t.Fatalf("%d messages in reply, want 1: %.300q", len(msgs), msgs)
	}
	return msgs[0]
}

// background does call in a goroutine; the channel gives the reply.
func (c *session) background(body string) <-chan []string {
	out := make(chan []string, 1)
	go func() {
		msgs, err := c.tryCall(body)
		if err != nil {
			msgs = []string{"error: " + err.Error()}
		}
		out <- msgs
	}()
	return out
}

// end DELETEs the session.
func (c *session) end() int {
	c.t.Helper()
	resp := c.do(c.t.Context(), http.MethodDelete, "", c.header())
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

// listen opens a GET stream, resuming after lastID if that is not empty.
func (c *session) listen(ctx context.Context, lastID string) *stream {
	c.t.Helper()
	h := c.header()
	h.Set("Accept", "text/event-stream")
	if lastID != "" {
		h.Set("Last-Event-ID", lastID)
	}
	resp := c.do(ctx, http.MethodGet, "", h)
	if resp.StatusCode != http.StatusOK {
		c.t.Fatalf("GET: status %d, want 200", resp.StatusCode)
	}
	return newStream(resp)
}

// messages reads a whole reply, JSON or SSE, and closes its body.
func messages(resp *http.Response) ([]string, error) {
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("status %d: %.300s", resp.StatusCode, body)
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		body, err := io.ReadAll(resp.Body)
		return []string{string(body)}, err
	}
	var msgs []string
	s := newStream(resp)
	for {
		e, err := s.next()
		if errors.Is(err, io.EOF) {
			return msgs, nil
		}
		if err != nil {
			return msgs, err
		}
		if e.data != "" {
			msgs = append(msgs, e.data)
		}
	}
}

// event is one server-sent event; data is "" for a priming event.
type event struct{ id, name, data string }

// stream reads server-sent events. It is a reader of its own, as small as the
// bridge's output needs it, so that a fault in the bridge's cannot hide.
type stream struct {
	body io.Closer
	in   *bufio.Reader
}

func newStream(resp *http.Response) *stream {
	return &stream{body: resp.Body, in: bufio.NewReaderSize(resp.Body, 1<<16)}
}

func (s *stream) next() (event, error) {
	var e event
	var data [][]byte
	seen := false
	for {
		line, err := s.in.ReadBytes('\n')
		if err != nil {
			return e, err
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if len(line) == 0 {
			if !seen {
				continue
			}
			e.data = string(bytes.Join(data, []byte("\n")))
			return e, nil
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "id":
			e.id, seen = string(value), true
		case "event":
			e.name = string(value)
		case "data":
			data, seen = append(data, value), true
		}
	}
}

// message returns the next event that carries one.
func (s *stream) message(t testing.TB) event {
	t.Helper()
	for {
		e, err := s.next()
		if err != nil {
			t.Fatalf("reading the stream: %v", err)
		}
		if e.data != "" {
			return e
		}
	}
}

// errorOf returns the JSON-RPC error of a reply, its id as spelled and all of
// the error object as text.
func errorOf(t testing.TB, msg string) (id string, code int, text string) {
	t.Helper()
	var m struct {
		ID    json.RawMessage
		Error json.RawMessage
	}
	var e struct{ Code int }
	if err := json.Unmarshal([]byte(msg), &m); err != nil || m.Error == nil {
		t.Fatalf("want a JSON-RPC error, have %.300q (%v)", msg, err)
	}
	bridgetest.Must(t, json.Unmarshal(m.Error, &e))
	return string(m.ID), e.Code, string(m.Error)
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
