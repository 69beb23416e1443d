package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// httpClient is a strict client of Streamable HTTP.
type httpClient struct {
	*end
	url    string
	client *http.Client
	dialer dialer
	ctx    context.Context
	cancel context.CancelFunc
	bridge bool // the server is the bridge, which promises more than others

	mu       sync.Mutex
	session  string
	revision string            // as negotiated
	ids      map[string]bool   // event ids of the session
	last     map[string]string // by stream: the last event id
	cuts     int               // how often we have cut all connections
	busy     int               // POSTs whose reply has not ended
	deaf     bool              // the standalone stream has ended
	closing  bool
}

func newHTTPClient(e *end, url string, bridge bool) *httpClient {
	c := &httpClient{end: e, url: url, bridge: bridge, ids: map[string]bool{}, last: map[string]string{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.client = &http.Client{
		Transport:     &http.Transport{DialContext: c.dialer.dial, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// do sends one request with the headers that the protocol wants.
func (c *httpClient) do(method, body string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(c.ctx, method, c.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	c.mu.Lock()
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	if c.revision >= "2025-06-18" {
		req.Header.Set("MCP-Protocol-Version", c.revision)
	}
	c.mu.Unlock()
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return c.client.Do(req)
}

// send: a POST. One with requests is read in the background, for its reply may
// take as long as the server likes.
func (c *httpClient) send(t testing.TB, text string) {
	t.Helper()
	var ids []string
	first := ""
	for _, one := range elements(text) {
		if m, err := open(one); err == nil && m.isRequest() {
			ids = append(ids, string(m.ID))
			first = m.Method
		}
	}
	if len(ids) > 0 {
		c.replying(1, false)
		go func() {
			c.exchange(text, ids, first == "initialize")
			c.replying(-1, false)
		}()
		return
	}
	resp, err := c.do(http.MethodPost, text)
	if err != nil {
		t.Fatalf("%s: POST: %v", c.who, err)
	}
	body, err := read(resp)
	if resp.StatusCode != http.StatusAccepted || body != "" || err != nil { // LI6
		t.Fatalf("%s: POST of %s: status %d %s %v, want 202 and nothing", c.who, clip(text), resp.StatusCode, clip(body), err)
	}
	if m, _ := open(text); m.Method == "notifications/initialized" {
		c.listen(t)
	}
}

// replying counts replies. The session has ended when the standalone stream
// has, and no reply is under way any more.
func (c *httpClient) replying(more int, deaf bool) {
	c.mu.Lock()
	c.busy += more
	c.deaf = c.deaf || deaf
	over := c.deaf && c.busy == 0
	c.mu.Unlock()
	if over {
		c.end.ended("end of the streams")
	}
}

func read(resp *http.Response) (string, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// exchange POSTs requests and delivers the reply. Each request gets its answer
// on it, and nothing follows.
func (c *httpClient) exchange(text string, ids []string, initialize bool) {
	cuts := c.cutsSoFar()
	resp, err := c.do(http.MethodPost, text)
	if err != nil {
		c.lost("POST", err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.mu.Lock()
		live := c.session != ""
		c.mu.Unlock()
		if live && resp.StatusCode == http.StatusNotFound {
			c.end.ended("404") // LI21
			return
		}
		body, _ := io.ReadAll(resp.Body)
		c.fault("POST of %s: status %d %s", clip(text), resp.StatusCode, clip(string(body)))
		return
	}
	if initialize {
		c.opened(resp)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" {
		c.stream(resp, ids[0], ids, cuts)
		return
	}
	if kind != "application/json" {
		c.lost("POST", fmt.Errorf("Content-Type %q", kind))
		return
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.lost("POST", err)
		return
	}
	answers := elements(string(body))
	if batch := strings.HasPrefix(text, "["); batch != strings.HasPrefix(string(body), "[") {
		c.fault("%s was answered with %s: an array answers an array, and nothing else", clip(text), clip(string(body)))
		return
	}
	if len(answers) != len(ids) { // LI10
		c.fault("%d answers to %d requests: %s", len(answers), len(ids), clip(string(body)))
	}
	for i, one := range answers {
		if m, _ := open(one); m.Method != "" || i < len(ids) && string(m.ID) != ids[i] && c.bridge {
			c.fault("the JSON reply to requests %s has as number %d %s", ids, i+1, clip(one))
			continue
		}
		if initialize {
			c.negotiated(one)
		}
		c.answer(one, ids[0])
	}
}

// answer delivers a response, except the one that HTTP needs as a reply to a
// POST that was cancelled before anything was written (LI28).
func (c *httpClient) answer(text, on string) {
	m, _ := open(text)
	c.end.mu.Lock()
	gaveUp := c.asked[string(m.ID)]
	c.end.mu.Unlock()
	if gaveUp && m.Error != nil {
		return
	}
	c.deliver(frame{text: text, on: on})
}

var sessionID = regexp.MustCompile(`^[\x21-\x7e]{16,}$`)

// opened takes the session id (LI20).
func (c *httpClient) opened(resp *http.Response) {
	id := resp.Header.Get("Mcp-Session-Id")
	if !sessionID.MatchString(id) {
		c.fault("the session id is %q", id)
	}
	c.mu.Lock()
	c.session = id
	c.mu.Unlock()
}

// negotiated takes the revision that the answer to initialize names.
func (c *httpClient) negotiated(text string) {
	var m struct {
		Result struct{ ProtocolVersion string }
	}
	json.Unmarshal([]byte(text), &m)
	c.mu.Lock()
	c.revision = m.Result.ProtocolVersion
	c.mu.Unlock()
}

// listen opens the standalone stream.
func (c *httpClient) listen(t testing.TB) {
	t.Helper()
	cuts := c.cutsSoFar()
	resp, err := c.do(http.MethodGet, "", "Accept", "text/event-stream")
	if err != nil {
		t.Fatalf("%s: GET: %v", c.who, err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: GET: status %d, %q", c.who, resp.StatusCode, resp.Header)
	}
	go func() {
		defer resp.Body.Close()
		c.stream(resp, "", nil, cuts)
	}()
}

// stream delivers the events of one stream: that of the requests ids, or the
// standalone one. The former ends when all are answered, and not before, unless
// we have cut connections since we asked for it; cuts is how often we had then.
func (c *httpClient) stream(resp *http.Response, on string, ids []string, cuts int) {
	if c.bridge {
		c.streamHeaders(resp)
	}
	owed := map[string]bool{}
	for _, id := range ids {
		owed[id] = true
	}
	in := newEvents(resp.Body)
	for first := true; ; first = false {
		e, err := in.next()
		if err != nil {
			c.streamEnd(on, owed, cuts, err)
			return
		}
		if !c.eventID(e, on, first) {
			continue
		}
		for _, one := range elements(e.data) {
			m, _ := open(one)
			c.mu.Lock()
			closing := c.closing
			c.mu.Unlock()
			switch id := string(m.ID); {
			case closing && m.Error != nil: // what is said after DELETE is of no use to anybody
				delete(owed, id)
				continue
			case len(ids) > 0 && len(owed) == 0:
				c.fault("%s came after the answer, on its stream", clip(one))
			case m.isResponse() && !owed[id]:
				c.fault("%s came on the stream of %q", clip(one), ids)
			case m.isResponse():
				delete(owed, id)
				c.negotiatedBy(on, one)
			}
			c.deliver(frame{text: one, on: on})
		}
	}
}

func (c *httpClient) negotiatedBy(on, text string) {
	c.mu.Lock()
	known := c.revision != ""
	c.mu.Unlock()
	if !known {
		c.negotiated(text)
	}
}

// eventID checks one event, and reports whether it carries a message. Every
// event of the bridge has an id, none comes twice (LI15), and the first one is
// without data for 2025-11-25, and for no older client (LI14).
func (c *httpClient) eventID(e event, on string, first bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	wrong := ""
	switch {
	case e.name != "" && e.name != "message":
		wrong = "name"
	case e.hasID && e.data != "" && c.ids[e.id]:
		wrong = "id, which came before"
	case !e.hasID && c.bridge:
		wrong = "lack of an id"
	case e.data == "" && !(first && e.hasID && (c.revision == "2025-11-25" || c.revision == "")):
		wrong = "lack of data"
	case first && c.bridge && c.revision == "2025-11-25" && e.data != "":
		wrong = "data, which must not be in the first one"
	}
	if wrong != "" {
		c.fault("stream %q: an event has the wrong %s: %s %q %s", on, wrong, e.name, e.id, clip(e.data))
	}
	if e.hasID {
		c.ids[e.id] = true
		c.last[on] = e.id
	}
	return e.data != ""
}

// streamHeaders: LI26.
func (c *httpClient) streamHeaders(resp *http.Response) {
	for name, want := range map[string]string{"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"} {
		if got := resp.Header.Get(name); got != want {
			c.fault("a stream with %s: %q, want %q", name, got, want)
		}
	}
}

func (c *httpClient) cutsSoFar() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}

// streamEnd checks that a stream may end here.
func (c *httpClient) streamEnd(on string, owed map[string]bool, cuts int, err error) {
	c.mu.Lock()
	closing, ours := c.closing, c.cuts != cuts
	c.mu.Unlock()
	if ours {
		return
	}
	if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		c.lost("stream "+on, err)
		return
	}
	if on == "" {
		c.replying(0, true)
		return
	}
	c.end.mu.Lock()
	var missing []string
	for id := range owed {
		if gaveUp, asked := c.asked[id]; asked && !gaveUp && c.over == "" {
			missing = append(missing, id)
		}
	}
	c.end.mu.Unlock()
	if len(missing) > 0 && !closing {
		c.fault("the stream of a POST has ended without an answer to %s", missing)
	}
}

// lost handles a connection that has failed.
func (c *httpClient) lost(what string, err error) {
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if !closing {
		c.fault("%s: %v", what, err)
	}
}

// reject: 400 with the error as body (LI8, LI9).
func (c *httpClient) reject(t testing.TB, text string, code int, ids ...string) {
	t.Helper()
	resp, err := c.do(http.MethodPost, text)
	bridgetest.Must(t, err)
	body, err := read(resp)
	m, _ := open(body)
	if resp.StatusCode != http.StatusBadRequest || err != nil || !noID(m.ID, ids) || !isError(body, string(m.ID), code) {
		t.Fatalf("POST of %s: status %d %s %v, want 400 and error %d", clip(text), resp.StatusCode, clip(body), err, code)
	}
}

// hangUp: DELETE, after which there is no session.
func (c *httpClient) hangUp(t testing.TB) {
	t.Helper()
	c.delete(t)
	c.ended(t, false)
}

// vanish breaks every connection, and lets go of what was to come.
func (c *httpClient) vanish() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.dialer.cut()
}

// delete ends the session (LI23).
func (c *httpClient) delete(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	resp, err := c.do(http.MethodDelete, "")
	bridgetest.Must(t, err)
	if body, err := read(resp); resp.StatusCode != http.StatusNoContent || body != "" || err != nil {
		t.Fatalf("DELETE: status %d %s %v, want 204", resp.StatusCode, clip(body), err)
	}
}

// ended: the standalone stream has ended, and the session does not exist (LI21).
func (c *httpClient) ended(t testing.TB, gone bool) {
	t.Helper()
	c.waitOver(t)
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	if gone {
		return
	}
	resp, err := c.do(http.MethodPost, `{"jsonrpc":"2.0","id":"are you there?","method":"ping"}`)
	bridgetest.Must(t, err)
	if body, err := read(resp); resp.StatusCode != http.StatusNotFound || err != nil {
		t.Fatalf("POST after the end: status %d %s %v, want 404", resp.StatusCode, clip(body), err)
	}
}

func (c *httpClient) cut() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.cancel()
	c.client.CloseIdleConnections()
}

// resume breaks every connection as a lost network does, and comes back for
// the stream of a request and for the standalone one (LI16, LI17).
func (c *httpClient) resume(t testing.TB, id string) {
	t.Helper()
	c.mu.Lock()
	c.cuts++
	cuts, last := c.cuts, c.last[id]
	c.mu.Unlock()
	c.dialer.cut()
	resp, err := c.do(http.MethodGet, "", "Accept", "text/event-stream", "Last-Event-ID", last)
	bridgetest.Must(t, err)
	if resp.StatusCode != http.StatusOK {
		body, _ := read(resp)
		t.Fatalf("GET with Last-Event-ID %q: status %d %s", last, resp.StatusCode, clip(body))
	}
	c.replying(1, false)
	go func() {
		defer resp.Body.Close()
		c.stream(resp, id, []string{id}, cuts)
		c.replying(-1, false)
	}()
	c.listen(t)
}
