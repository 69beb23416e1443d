package matrix

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// sseClient is a strict client of HTTP+SSE.
type sseClient struct {
	*end
	client   *http.Client
	post     string
	cancel   context.CancelFunc
	bridge   bool         // the server is the bridge, which promises more than others
	revision atomic.Value // string, as negotiated
	closing  atomic.Bool
}

// dialSSE opens the stream and waits for its first event, which names the
// endpoint (SS1).
func dialSSE(t testing.TB, e *end, base string, bridge bool) *sseClient {
	t.Helper()
	c := &sseClient{end: e, bridge: bridge, client: &http.Client{
		Transport:     &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base, nil)
	bridgetest.Must(t, err)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := c.client.Do(req)
	if err != nil {
		t.Fatalf("GET %s: %v", base, err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := read(resp)
		t.Fatalf("GET %s: status %d, %q %s", base, resp.StatusCode, resp.Header, clip(body))
	}
	in := newEvents(resp.Body)
	timer := time.AfterFunc(harness.Patience, c.cancel)
	first, err := in.next()
	timer.Stop()
	if err != nil || first.name != "endpoint" || first.hasID || bridge && !strings.HasPrefix(first.data, "/") {
		t.Fatalf("the first event is %+v %v, want an endpoint that begins with /", first, err)
	}
	from, _ := url.Parse(base)
	to, err := from.Parse(first.data)
	if err != nil {
		t.Fatalf("the endpoint is %q: %v", first.data, err)
	}
	c.post = to.String()
	go func() {
		defer resp.Body.Close()
		c.stream(in)
	}()
	return c
}

// stream delivers what comes: one message an event (SS2), without ids (SS5).
func (c *sseClient) stream(in *events) {
	for {
		e, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			c.end.ended("end of the stream")
			return
		case err != nil:
			if !c.closing.Load() {
				c.fault("the stream broke: %v", err)
			}
			c.end.ended("the stream broke")
			return
		case e.name != "message" || e.hasID:
			c.fault("an event named %q with id %q: %s", e.name, e.id, clip(e.data))
		}
		if m, _ := open(e.data); c.revision.Load() == nil && m.Result != nil {
			var answer httpClient
			answer.negotiated(e.data)
			c.revision.Store(answer.revision)
		}
		c.deliver(frame{text: e.data})
	}
}

// postText POSTs a text.
func (c *sseClient) postText(t testing.TB, text string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.post, strings.NewReader(text))
	bridgetest.Must(t, err)
	req.Header.Set("Content-Type", "application/json")
	if v, _ := c.revision.Load().(string); v >= "2025-06-18" {
		req.Header.Set("MCP-Protocol-Version", v) // SS8
	}
	resp, err := c.client.Do(req)
	if err != nil {
		t.Fatalf("%s: POST: %v", c.who, err)
	}
	body, err = read(resp)
	bridgetest.Must(t, err)
	return resp.StatusCode, body
}

// send: a POST that is accepted (SS3).
func (c *sseClient) send(t testing.TB, text string) {
	t.Helper()
	if status, body := c.postText(t, text); status != http.StatusAccepted {
		if status == http.StatusNotFound {
			c.end.ended("404")
			return
		}
		t.Fatalf("%s: POST of %s: status %d %s, want 202", c.who, clip(text), status, clip(body))
	}
}

// reject: 400 (SS3).
func (c *sseClient) reject(t testing.TB, text string, code int, ids ...string) {
	t.Helper()
	status, body := c.postText(t, text)
	m, _ := open(body)
	if status != http.StatusBadRequest || !noID(m.ID, ids) || !isError(body, string(m.ID), code) {
		t.Fatalf("POST of %s: status %d %s, want 400 and error %d", clip(text), status, clip(body), code)
	}
}

// hangUp closes the stream.
func (c *sseClient) hangUp(t testing.TB) {
	t.Helper()
	c.closing.Store(true)
	c.cancel()
	c.waitOver(t)
	harness.WaitUntil(t, "the session's end: 404 for a POST", func() bool {
		status, _ := c.postText(t, `{no message`) // so that it goes nowhere until then
		return status == http.StatusNotFound
	})
}

// ended: the stream has ended, and the session does not exist.
func (c *sseClient) ended(t testing.TB, gone bool) {
	t.Helper()
	c.waitOver(t)
	if gone {
		return
	}
	if status, body := c.postText(t, `{"jsonrpc":"2.0","id":"are you there?","method":"ping"}`); status != http.StatusNotFound {
		t.Fatalf("POST after the end: status %d %s, want 404", status, clip(body))
	}
}

func (c *sseClient) cut() {
	c.closing.Store(true)
	c.cancel()
	c.client.CloseIdleConnections()
}
