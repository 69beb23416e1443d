package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// transports are those that a port of the bridge has, by the last part of
// their paths.
var transports = []string{"mcp", "sse", "ws"}

// A site is where a bridge is for its clients, which may be behind a proxy.
type site struct {
	base   string // what stands in front of /mcp, with the scheme
	client *http.Client
	header http.Header // of every request

	comments atomic.Int64 // lines that came on event streams to keep them alive
}

// newSite returns the site at base, with connections of its own.
func newSite(t testing.TB, base string) *site {
	return &site{base: base, client: newClient(t, &http.Transport{})}
}

func newClient(t testing.TB, transport *http.Transport) *http.Client {
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// site returns where the server's endpoints are.
func (s *server) site() *site { return newSite(s.t, "http://"+s.host()) }

// as returns the same site for a client that sends these headers too.
func (s *site) as(pairs ...string) *site {
	other := &site{base: s.base, client: s.client, header: s.header.Clone()}
	if other.header == nil {
		other.header = http.Header{}
	}
	for i := 0; i < len(pairs); i += 2 {
		other.header.Set(pairs[i], pairs[i+1])
	}
	return other
}

// at returns the site of one of many servers.
func (s *site) at(path string) *site {
	return &site{base: s.base + path, client: s.client, header: s.header}
}

// request sends one HTTP request to the site's path, or to a whole URL.
func (s *site) request(ctx context.Context, method, path, body string, header http.Header) (*http.Response, error) {
	if strings.HasPrefix(path, "/") {
		path = s.base + path
	}
	req, err := http.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range []http.Header{s.header, header} {
		for k, v := range h {
			req.Header[k] = v
		}
	}
	return s.client.Do(req)
}

// refusal is a reply with a status that the client did not want.
type refusal struct {
	status int
	header http.Header
	body   string
}

func (r *refusal) Error() string { return fmt.Sprintf("status %d: %.300s", r.status, r.body) }

func refused(resp *http.Response) error {
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return &refusal{resp.StatusCode, resp.Header, string(body)}
}

// ask sends a request of which only the reply's status and headers matter.
func (s *site) ask(t testing.TB, method, path, body string, header http.Header) *refusal {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	resp, err := s.request(ctx, method, path, body, header)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return refused(resp).(*refusal)
}

// A talker is a client with a session. One goroutine uses it, but notify may
// be called during exchange.
type talker interface {
	// exchange sends a request and returns the answer. heard is told what
	// comes before it; it may be nil.
	exchange(ctx context.Context, request string, heard func(string)) (string, error)
	// notify sends what has no answer.
	notify(ctx context.Context, message string) error
	// close ends the session as the transport has it.
	close()
}

// open makes a session. A refusal is a *refusal.
func (s *site) open(ctx context.Context, transport string) (talker, error) {
	return s.openAs(ctx, transport, "2025-06-18")
}

func (s *site) openAs(ctx context.Context, transport, version string) (talker, error) {
	var c talker
	var err error
	switch transport {
	case "mcp":
		c = &httpTalker{site: s, version: version}
	case "sse":
		c, err = s.openSSE(ctx)
	case "ws":
		c, err = s.openWS(ctx)
	}
	if err != nil {
		return nil, err
	}
	return greet(ctx, c, version)
}

// greet is the handshake of MCP.
func greet(ctx context.Context, c talker, version string) (talker, error) {
	answer, err := c.exchange(ctx, initialize(version), nil)
	if err == nil && !strings.Contains(answer, `"result"`) {
		err = fmt.Errorf("initialize was answered with %.300s", answer)
	}
	if err == nil {
		err = c.notify(ctx, initialized)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// mustOpen is open for a test that cannot go on without. The session is closed
// when the test ends.
func (s *site) mustOpen(t testing.TB, transport string) talker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	c, err := s.open(ctx, transport)
	if err != nil {
		t.Fatalf("%s: %v", transport, err)
	}
	t.Cleanup(c.close)
	return c
}

// mustAnswer is exchange for a test that cannot go on without.
func mustAnswer(t testing.TB, c talker, request string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	answer, err := c.exchange(ctx, request, nil)
	bridgetest.Must(t, err)
	return answer
}

// isAnswer reports whether a message is a response.
func isAnswer(message string) bool {
	var m struct{ Method *string }
	return json.Unmarshal([]byte(message), &m) == nil && m.Method == nil
}

// untilAnswer hands over what an event stream carries, until a response.
func untilAnswer(in *stream, heard func(string)) (string, error) {
	for {
		e, err := in.next()
		switch {
		case err != nil:
			return "", fmt.Errorf("the stream ended before the answer: %w", err)
		case e.data == "":
		case isAnswer(e.data):
			return e.data, nil
		case heard != nil:
			heard(e.data)
		}
	}
}

// events is newStream, counting comments.
func (s *site) events(resp *http.Response) *stream {
	in := newStream(resp)
	in.in = bufio.NewReaderSize(&commentCounter{in: resp.Body, n: &s.comments, fresh: true}, 1<<16)
	return in
}

// commentCounter counts the lines of an event stream that begin with a colon.
type commentCounter struct {
	in    io.Reader
	n     *atomic.Int64
	fresh bool // a line begins
}

func (c *commentCounter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	for _, b := range p[:n] {
		if c.fresh && b == ':' {
			c.n.Add(1)
		}
		c.fresh = b == '\n'
	}
	return n, err
}

// httpTalker speaks Streamable HTTP.
type httpTalker struct {
	*site
	version, id string
}

func (c *httpTalker) headers() http.Header {
	if c.id == "" {
		return nil
	}
	return http.Header{"Mcp-Session-Id": {c.id}, "Mcp-Protocol-Version": {c.version}}
}

func (c *httpTalker) exchange(ctx context.Context, request string, heard func(string)) (string, error) {
	resp, err := c.request(ctx, http.MethodPost, "/mcp", request, c.headers())
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", refused(resp)
	}
	if c.id == "" {
		c.id = resp.Header.Get("Mcp-Session-Id")
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	in := c.events(resp)
	answer, err := untilAnswer(in, heard)
	if err == nil {
		_, err = io.Copy(io.Discard, in.in) // it ends after the answer
	}
	return answer, err
}

func (c *httpTalker) notify(ctx context.Context, message string) error {
	resp, err := c.request(ctx, http.MethodPost, "/mcp", message, c.headers())
	return accepted(resp, err)
}

// accepted checks the reply to what has no answer.
func accepted(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusAccepted {
		return refused(resp)
	}
	return resp.Body.Close()
}

func (c *httpTalker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	if resp, err := c.request(ctx, http.MethodDelete, "/mcp", "", c.headers()); err == nil {
		resp.Body.Close()
	}
}

// sseTalker speaks HTTP+SSE.
type sseTalker struct {
	*site
	in     *stream
	post   string
	cancel context.CancelFunc // of the stream
}

// openSSE opens the stream and reads its first event (SS1).
func (s *site) openSSE(ctx context.Context) (*sseTalker, error) {
	c := &sseTalker{site: s}
	var life context.Context
	life, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, c.cancel)()
	resp, err := s.request(life, http.MethodGet, "/sse", "", nil)
	switch {
	case err != nil:
		c.cancel()
		return nil, err
	case resp.StatusCode != http.StatusOK:
		defer c.cancel()
		return nil, refused(resp)
	}
	c.in = s.events(resp)
	first, err := c.in.next()
	if err == nil && first.name != "endpoint" {
		err = fmt.Errorf("the stream begins with %+v, want an endpoint", first)
	}
	var base, to *url.URL
	if err == nil {
		base, err = url.Parse(s.base + "/sse")
	}
	if err == nil {
		to, err = base.Parse(first.data)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	c.post = to.String()
	return c, nil
}

func (c *sseTalker) exchange(ctx context.Context, request string, heard func(string)) (string, error) {
	// A stream of net/http has no deadline of its own.
	defer context.AfterFunc(ctx, c.cancel)()
	if err := c.notify(ctx, request); err != nil {
		return "", err
	}
	return untilAnswer(c.in, heard)
}

func (c *sseTalker) notify(ctx context.Context, message string) error {
	return accepted(c.request(ctx, http.MethodPost, c.post, message, nil))
}

func (c *sseTalker) close() {
	c.cancel()
	if c.in != nil {
		c.in.body.Close()
	}
}

// wsTalker speaks over a WebSocket.
type wsTalker struct{ conn *websocket.Conn }

func (s *site) openWS(ctx context.Context) (*wsTalker, error) {
	conn, resp, err := websocket.Dial(ctx, s.base+"/ws", &websocket.DialOptions{HTTPClient: s.client, HTTPHeader: s.header, Subprotocols: []string{"mcp"}})
	if err != nil && resp != nil && resp.StatusCode >= 400 {
		return nil, refused(resp)
	}
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(-1)
	return &wsTalker{conn}, nil
}

func (c *wsTalker) exchange(ctx context.Context, request string, heard func(string)) (string, error) {
	if err := c.notify(ctx, request); err != nil {
		return "", err
	}
	for {
		_, data, err := c.conn.Read(ctx)
		switch {
		case err != nil:
			return "", err
		case isAnswer(string(data)):
			return string(data), nil
		case heard != nil:
			heard(string(data))
		}
	}
}

func (c *wsTalker) notify(ctx context.Context, message string) error {
	return c.conn.Write(ctx, websocket.MessageText, []byte(message))
}

func (c *wsTalker) close() { _ = c.conn.Close(websocket.StatusNormalClosure, "") }

// lineTalker speaks in lines over a socket.
type lineTalker struct {
	conn net.Conn
	in   *bufio.Reader
}

// openLines connects to a Unix socket.
func openLines(ctx context.Context, path string) (*lineTalker, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return &lineTalker{conn, bufio.NewReader(conn)}, nil
}

func (c *lineTalker) exchange(ctx context.Context, request string, heard func(string)) (string, error) {
	defer context.AfterFunc(ctx, func() { c.conn.Close() })()
	if err := c.notify(ctx, request); err != nil {
		return "", err
	}
	for {
		line, err := c.in.ReadBytes('\n')
		line = bytes.TrimSuffix(line, []byte("\n"))
		switch {
		case err != nil:
			return "", errors.Join(err, ctx.Err())
		case isAnswer(string(line)):
			return string(line), nil
		case heard != nil:
			heard(string(line))
		}
	}
}

func (c *lineTalker) notify(_ context.Context, message string) error {
	_, err := io.WriteString(c.conn, message+"\n")
	return err
}

func (c *lineTalker) close() { c.conn.Close() }

// mustLines connects and shakes hands.
func mustLines(t testing.TB, path string) *lineTalker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	c, err := openLines(ctx, path)
	bridgetest.Must(t, err)
	t.Cleanup(c.close)
	if _, err := greet(ctx, c, "2025-06-18"); err != nil {
		t.Fatal(err)
	}
	return c
}
