package matrix

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// modernClient is a strict client of 2026-07-28 over Streamable HTTP: each
// request is a POST of its own, with headers that repeat what the body says.
type modernClient struct {
	*end
	url    string
	client *http.Client
	dialer dialer
	ctx    context.Context
	cancl  context.CancelFunc
	bridge bool // the server is the bridge, which promises more than others

	mu      sync.Mutex
	live    map[string]context.CancelFunc // by request id
	status  map[string]int                // of what was answered
	closing bool
}

func newModernClient(e *end, url string, bridge bool) *modernClient {
	c := &modernClient{end: e, url: url, bridge: bridge, live: map[string]context.CancelFunc{}, status: map[string]int{}}
	c.ctx, c.cancl = context.WithCancel(context.Background())
	c.client = &http.Client{
		Transport:     &http.Transport{DialContext: c.dialer.dial, DisableCompression: true, MaxIdleConnsPerHost: 100},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// mirrored are the methods that have a header for a member of their params (MI5).
var mirrored = map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

// headersOf are the headers that repeat what a request says.
func headersOf(m envelope) http.Header {
	params := members(m.Params)
	h := http.Header{
		"Accept":               {"application/json, text/event-stream"},
		"Content-Type":         {"application/json"},
		"Mcp-Protocol-Version": {modernRevision},
		"Mcp-Method":           {m.Method},
	}
	if member := mirrored[m.Method]; member != "" {
		h.Set("Mcp-Name", encoded(stringOf(params[member])))
	}
	if m.Method == "tools/call" && stringOf(params["name"]) == "region" {
		arguments := members(params["arguments"])
		if where := arguments["where"]; where != nil {
			h.Set("Mcp-Param-Region", encoded(stringOf(where)))
		}
		if n := arguments["n"]; n != nil {
			h.Set("Mcp-Param-Count", string(n))
		}
	}
	return h
}

// stringOf is what a JSON string says.
func stringOf(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// encoded is a header's value that says s (ME2).
func encoded(s string) string {
	plain := strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
	if plain && strings.TrimSpace(s) == s && !(strings.HasPrefix(s, "=?base64?") && strings.HasSuffix(s, "?=")) {
		return s
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}

// post sends a body with these headers.
func (c *modernClient) post(ctx context.Context, body string, h http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = h
	return c.client.Do(req)
}

// refused POSTs what is wrong, and returns what is said about it.
func (c *modernClient) refused(t testing.TB, what, text string, h http.Header) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	resp, err := c.post(ctx, text, h)
	if err == nil {
		status = resp.StatusCode
		body, err = read(resp)
		if got := resp.Header.Values("Mcp-Session-Id"); len(got) > 0 { // MI2
			t.Errorf("%s: the reply names a session", what)
		}
	}
	if err != nil {
		t.Errorf("%s: status %d %s %v", what, status, clip(body), err)
	}
	return status, body
}

// send: a POST, whose reply is read in the background.
func (c *modernClient) send(t testing.TB, text string) {
	t.Helper()
	m, err := open(text)
	if err != nil || !m.isRequest() {
		t.Fatalf("%s: a modern client POSTs requests, not %s", c.who, clip(text))
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	c.live[string(m.ID)] = cancel
	c.mu.Unlock()
	go func() {
		defer cancel()
		c.exchange(ctx, text, m)
		c.mu.Lock()
		delete(c.live, string(m.ID))
		c.mu.Unlock()
		c.update(func() {}) // somebody may wait for that
	}()
}

// cancel closes the stream of a request (MI15).
func (c *modernClient) cancel(id string) {
	c.mu.Lock()
	cancel := c.live[id]
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// exchange POSTs a request and delivers what comes.
func (c *modernClient) exchange(ctx context.Context, text string, m envelope) {
	resp, err := c.post(ctx, text, headersOf(m))
	if err != nil {
		c.lost(ctx, "POST", err)
		return
	}
	defer resp.Body.Close()
	id := string(m.ID)
	c.mu.Lock()
	c.status[id] = resp.StatusCode
	c.mu.Unlock()
	if got := resp.Header.Values("Mcp-Session-Id"); len(got) > 0 { // MI2
		c.fault("the reply to %s names a session", m.Method)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case kind == "text/event-stream" && resp.StatusCode == http.StatusOK:
		c.stream(ctx, resp, id)
		return
	case kind != "application/json":
		body, _ := io.ReadAll(resp.Body)
		c.fault("POST of %s: status %d, %q: %s", m.Method, resp.StatusCode, kind, clip(string(body)))
		return
	case m.Method == "subscriptions/listen" && resp.StatusCode == http.StatusOK: // MI21
		c.fault("subscriptions/listen was answered with %s", kind)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.lost(ctx, "POST", err)
		return
	}
	c.checkStatus(resp.StatusCode, string(body), id)
	c.deliver(frame{text: strings.TrimSuffix(string(body), "\n"), on: id})
}

// checkStatus wants the status to be what the response says: 400 for what is
// wrong with the request, 404 for a method that there is not (MI5 to MI12).
func (c *modernClient) checkStatus(status int, text, id string) {
	m, err := open(text)
	var body struct{ Code int }
	if m.Error != nil {
		err = errors.Join(err, json.Unmarshal(m.Error, &body))
	}
	if err != nil || string(m.ID) != id || !m.isResponse() {
		c.fault("the reply to request %s is %s", id, clip(text)) // J4
		return
	}
	want := []int{http.StatusOK}
	switch body.Code {
	case -32020, -32021, -32022:
		want = []int{http.StatusBadRequest}
	case -32602, -32600:
		want = []int{http.StatusOK, http.StatusBadRequest} // MI24
	case -32601:
		want = []int{http.StatusOK, http.StatusNotFound} // MI11
	case -32603:
		want = []int{http.StatusOK, http.StatusServiceUnavailable}
	}
	if !slices.Contains(want, status) {
		c.fault("status %d with %s", status, clip(text))
	}
}

// stream delivers the events of one reply: notifications, then the response,
// and nothing after it (MI14).
func (c *modernClient) stream(ctx context.Context, resp *http.Response, id string) {
	if c.bridge {
		for name, want := range map[string]string{"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"} {
			if got := resp.Header.Get(name); got != want {
				c.fault("a stream with %s: %q, want %q", name, got, want)
			}
		}
	}
	in := newEvents(resp.Body)
	for answered := false; ; {
		e, err := in.next()
		switch {
		case err != nil && answered && errors.Is(err, io.EOF):
			return
		case err != nil:
			c.lost(ctx, "the stream of "+id, err)
			return
		case answered:
			c.fault("%s came after the answer, on its stream", clip(e.data))
		case e.hasID || e.hasRetry || e.name != "" && e.name != "message":
			c.fault("an event with what modern ones have not: %+v", e)
		}
		m, _ := open(e.data)
		if m.isRequest() || m.isResponse() && string(m.ID) != id {
			c.fault("%s came on the stream of %s", clip(e.data), id)
		}
		answered = m.isResponse()
		c.deliver(frame{text: e.data, on: id})
	}
}

// lost handles a connection that has failed: it must not, unless we have given
// the request up.
func (c *modernClient) lost(ctx context.Context, what string, err error) {
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if ctx.Err() == nil && !closing {
		c.fault("%s: %v", what, err)
	}
}

func (c *modernClient) reject(testing.TB, string, int, ...string) {
	panic("a modern client has no use for it")
}

// hangUp lets go of everything, as a client does that ends.
func (c *modernClient) hangUp(t testing.TB) {
	t.Helper()
	c.cut()
}

// ended: whatever was under way has ended, and when the server is gone nobody
// takes a connection.
func (c *modernClient) ended(t testing.TB, gone bool) {
	t.Helper()
	c.waitFor(t, "the end of all requests", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.live) == 0
	})
	if !gone {
		return
	}
	harness.WaitUntil(t, "connections to be refused", func() bool {
		resp, err := c.post(t.Context(), `{}`, http.Header{})
		if err == nil {
			resp.Body.Close()
		}
		return err != nil
	})
}

func (c *modernClient) cut() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.cancl()
	c.client.CloseIdleConnections()
}
