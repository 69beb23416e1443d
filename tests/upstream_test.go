package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// An upstream is a remote MCP server that records what reaches it and answers
// with exactly the bytes that a test gives it.
type upstream struct {
	*httptest.Server
	t testing.TB

	// answer handles a POSTed request other than initialize. nil echoes.
	answer func(w http.ResponseWriter, r *http.Request, body string)
	// get handles GET. nil is 405.
	get http.HandlerFunc
	// before sees every request first; true means that it has answered.
	before func(w http.ResponseWriter, r *http.Request, body string) bool

	mu       sync.Mutex
	requests []seen
	sessions map[string]bool
	minted   int
}

// seen is one HTTP request as it came.
type seen struct {
	method, body string
	header       http.Header
}

func newUpstream(t testing.TB) *upstream {
	t.Helper()
	u := unstarted(t)
	u.Start()
	return u
}

func unstarted(t testing.TB) *upstream {
	u := &upstream{t: t, sessions: map[string]bool{}}
	u.Server = httptest.NewUnstartedServer(u)
	t.Cleanup(func() {
		u.CloseClientConnections()
		u.Close()
	})
	return u
}

// listenOn starts u at an address that was free before.
func (u *upstream) listenOn(addr string) {
	u.t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		u.t.Fatal(err)
	}
	u.Listener.Close()
	u.Listener = l
	u.Start()
}

// ServeHTTP answers like a plain server with sessions.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	body := string(data)
	u.mu.Lock()
	u.requests = append(u.requests, seen{r.Method, body, r.Header.Clone()})
	live := u.sessions[r.Header.Get("Mcp-Session-Id")]
	u.mu.Unlock()
	if u.before != nil && u.before(w, r, body) {
		return
	}
	method, _ := envelope(body)
	switch {
	case method == "initialize":
		u.initialize(w, body)
	case !live:
		http.Error(w, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`, http.StatusNotFound)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet && u.get != nil:
		u.get(w, r)
	case r.Method == http.MethodGet:
		w.Header().Set("Allow", "POST, DELETE")
		w.WriteHeader(http.StatusMethodNotAllowed)
	case method == "" || strings.HasPrefix(method, "notifications/"):
		w.WriteHeader(http.StatusAccepted)
	case u.answer != nil:
		u.answer(w, r, body)
	default:
		echo(w, r, body)
	}
}

func (u *upstream) initialize(w http.ResponseWriter, body string) {
	var m struct {
		Params struct{ ProtocolVersion string }
	}
	json.Unmarshal([]byte(body), &m)
	u.mu.Lock()
	u.minted++
	id := fmt.Sprintf("session-%d", u.minted)
	u.sessions[id] = true
	u.mu.Unlock()
	_, msgID := envelope(body)
	w.Header().Set("Mcp-Session-Id", id)
	reply(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{},"serverInfo":{"name":"upstream","version":"1"}}}`, msgID, m.Params.ProtocolVersion))
}

// echo answers with the request's params as they are spelled.
func echo(w http.ResponseWriter, _ *http.Request, body string) {
	var m struct{ ID, Params json.RawMessage }
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, m.Params))
}

func reply(w http.ResponseWriter, msg string) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, msg)
}

// forget ends every session without a word.
func (u *upstream) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.sessions)
}

// saw returns what came so far.
func (u *upstream) saw() []seen {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.requests)
}

// bodies returns the bodies of the requests that ok wants.
func (u *upstream) bodies(ok func(seen) bool) []string {
	var out []string
	for _, r := range u.saw() {
		if ok(r) {
			out = append(out, r.body)
		}
	}
	return out
}

// envelope returns method and id of a message, as spelled. It does not read on
// when it has both: the rest may be long.
func envelope(body string) (method, id string) {
	d := json.NewDecoder(strings.NewReader(body))
	d.Token()
	for d.More() && (method == "" || id == "") {
		key, err := d.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			break
		}
		switch key {
		case "method":
			json.Unmarshal(value, &method)
		case "id":
			id = string(value)
		}
	}
	return method, id
}

func isMethod(name string) func(seen) bool {
	return func(r seen) bool { method, _ := envelope(r.body); return method == name }
}

func isHTTP(method string) func(seen) bool {
	return func(r seen) bool { return r.method == method }
}

// sse begins a streamed reply; each call of the result writes one event.
func sse(w http.ResponseWriter) func(format string, args ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	return func(format string, args ...any) {
		fmt.Fprintf(w, format+"\n\n", args...)
		w.(http.Flusher).Flush()
	}
}

// connect starts `mcp-bridge connect FLAGS URL`.
func connect(t testing.TB, url string, flags ...string) *proc {
	t.Helper()
	return start(t, nil, append(append([]string{bridgeBin, "connect"}, flags...), url)...)
}

// connected is connect after the handshake.
func connected(t testing.TB, u *upstream, flags ...string) *proc {
	t.Helper()
	p := connect(t, u.URL, flags...)
	p.handshake("2025-11-25")
	return p
}

func (p *proc) handshake(version string) {
	p.t.Helper()
	p.send(initialize(version))
	if got := p.line(); !strings.Contains(got, `"result"`) || !strings.Contains(got, version) {
		p.t.Fatalf("initialize was answered with %q", got)
	}
	p.send(initialized)
}
