package hub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/demo"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// TestMain makes this program a server too: the demo, or one that never stops talking.
func TestMain(m *testing.M) {
	if os.Getenv("HUB_TEST_FLOOD") != "" {
		flood()
	}
	if os.Getenv("HUB_TEST_DEMO") != "" {
		if file := os.Getenv("HUB_TEST_IF"); file != "" {
			if _, err := os.Stat(file); err != nil {
				os.Exit(3)
			}
		}
		if err := demo.Serve(context.Background(), os.Stdin, os.Stdout, os.Stderr); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	bridgetest.CheckLeaks(m)
}

// demoSpec is a server that runs the demo.
func demoSpec(t *testing.T, name string) hub.Spec {
	t.Helper()
	self, err := os.Executable()
	bridgetest.Must(t, err)
	return hub.Spec{
		Name: name,
		Pump: bridge.PumpOptions{ShutdownGrace: 5 * time.Second},
		Upstream: upstream.Spec{Name: name, Command: supervisor.Spec{
			Name: name, Path: self, Env: append(os.Environ(), "HUB_TEST_DEMO=1"),
		}},
	}
}

// start serves the hub with these servers.
func start(t *testing.T, o hub.Options, specs ...hub.Spec) (*hub.Hub, string) {
	t.Helper()
	h := hub.New(o)
	t.Cleanup(func() { _ = h.Close() })
	bridgetest.Must(t, h.Apply(specs))
	srv := httptest.NewUnstartedServer(h)
	srv.Config.BaseContext = func(net.Listener) context.Context { return observe.NewContext(context.Background(), o.Observer) }
	srv.Start()
	t.Cleanup(srv.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return h, srv.URL
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// do makes one request and returns status, headers and body.
func do(t *testing.T, method, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	bridgetest.Must(t, err)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	bridgetest.Must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	bridgetest.Must(t, err)
	return resp.StatusCode, resp.Header, string(text)
}

// session opens a session at an endpoint and returns its id.
func session(t *testing.T, url string) string {
	t.Helper()
	status, header, body := do(t, http.MethodPost, url, hello)
	if status != http.StatusOK || header.Get("Mcp-Session-Id") == "" {
		t.Fatalf("initialize at %s: %d %s", url, status, body)
	}
	return header.Get("Mcp-Session-Id")
}

func echo(t *testing.T, url, session string) (int, string) {
	t.Helper()
	status, _, body := do(t, http.MethodPost, url,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hi"}}}`, "Mcp-Session-Id", session)
	return status, body
}

func end(t *testing.T, url, session string) {
	t.Helper()
	if status, _, body := do(t, http.MethodDelete, url, "", "Mcp-Session-Id", session); status/100 != 2 {
		t.Errorf("DELETE: %d %s", status, body)
	}
}

// Which path leads where, alone and among many.
func TestPaths(t *testing.T) {
	_, one := start(t, hub.Options{SingleServer: true, PathPrefix: "/tools"}, demoSpec(t, "demo"))
	_, many := start(t, hub.Options{}, demoSpec(t, "demo"), demoSpec(t, "My Server"))
	_, behind := start(t, hub.Options{PathPrefix: "/servers"}, demoSpec(t, "demo"))
	tests := []struct {
		url    string
		status int // of a GET
	}{
		{behind + "/servers/demo/mcp", 406}, {behind + "/servers/servers/demo/mcp", 406},
		{one + "/mcp", 406}, {one + "/mcp/", 406}, {one + "/tools/mcp", 406}, {one + "/toolsmcp", 404}, {one + "/tools", 404},
		{one + "/ws", 426}, {one + "/message", 405}, {one + "/servers", 404}, {one + "/", 404}, {one + "/nothing", 404},
		{one + "/healthz", 200}, {one + "/readyz", 200}, {one + "/tools/healthz", 200},
		{many + "/servers/demo/mcp", 406}, {many + "/servers/My%20Server/mcp", 406}, {many + "/servers/demo/message", 405},
		{many + "/servers/demo", 404}, {many + "/servers/demo/", 404}, {many + "/servers/other/mcp", 404}, {many + "/servers/demo/mcp/x", 404},
		{many + "/mcp", 404}, {many + "/servers", 200}, {many + "/readyz", 200},
	}
	for _, tt := range tests {
		if status, _, body := do(t, http.MethodGet, tt.url, "", "Accept", "application/json"); status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.url, status, body, tt.status)
		}
	}
	if status, header, _ := do(t, http.MethodPost, many+"/servers", "{}"); status != 405 || header.Get("Allow") == "" {
		t.Errorf("POST /servers: %d, Allow %q", status, header.Get("Allow"))
	}
	id := session(t, many+"/servers/My%20Server/mcp")
	if status, _ := echo(t, many+"/servers/demo/mcp", id); status != http.StatusNotFound {
		t.Errorf("a session of another server: %d", status)
	}
	if status, body := echo(t, many+"/servers/My%20Server/mcp", id); status != 200 || !strings.Contains(body, "hi") {
		t.Errorf("%d %s", status, body)
	}
}

// The index names the servers in the order of the configuration, and the paths
// as clients must write them.
func TestIndex(t *testing.T) {
	_, url := start(t, hub.Options{PathPrefix: "/tools"}, demoSpec(t, "b"), demoSpec(t, "a b"))
	session(t, url+"/servers/a%20b/mcp")
	_, _, body := do(t, http.MethodGet, url+"/servers", "")
	var index struct {
		Servers []struct {
			Name      string
			Endpoints map[string]string
			Sessions  int
			Ready     bool
			Running   int
		}
	}
	if err := json.Unmarshal([]byte(body), &index); err != nil || len(index.Servers) != 2 {
		t.Fatalf("%v: %s", err, body)
	}
	second := index.Servers[1]
	if index.Servers[0].Name != "b" || second.Name != "a b" || second.Sessions != 1 || second.Running != 1 || !second.Ready ||
		second.Endpoints["sse"] != "/tools/servers/a%20b/sse" {
		t.Errorf("%s", body)
	}
}

// SS1: an SSE client is told the path with the prefix that the proxy has put
// in front.
func TestMessageURL(t *testing.T) {
	_, url := start(t, hub.Options{PathPrefix: "/tools"}, demoSpec(t, "a b"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+"/servers/a%20b/sse", nil)
	resp, err := http.DefaultClient.Do(req)
	bridgetest.Must(t, err)
	defer resp.Body.Close()
	first := make([]byte, 80)
	n, _ := io.ReadAtLeast(resp.Body, first, 70)
	if want := "event: endpoint\ndata: /tools/servers/a%20b/message?sessionId="; !strings.HasPrefix(string(first[:n]), want) {
		t.Errorf("the stream begins %q, want %q", first[:n], want)
	}
}

// Tokens are asked for everywhere but where the process is watched; there,
// nobody learns the servers' names.
func TestTokens(t *testing.T) {
	tokens, err := access.ParseTokens("ann 0123456789abcdef0123456789abcdef")
	bridgetest.Must(t, err)
	_, url := start(t, hub.Options{Guard: access.Policy{Tokens: tokens}}, demoSpec(t, "demo"))
	for _, path := range []string{"/servers", "/servers/demo/mcp", "/servers/demo/sse", "/servers/demo/message", "/servers/demo/ws", "/servers/none/mcp", "/x"} {
		status, header, _ := do(t, http.MethodGet, url+path, "")
		if status != http.StatusUnauthorized || !strings.HasPrefix(header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s without a token: %d, WWW-Authenticate %q", path, status, header.Get("WWW-Authenticate"))
		}
	}
	status, _, body := do(t, http.MethodGet, url+"/readyz", "")
	if status != http.StatusOK || strings.Contains(body, "demo") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	status, _, body = do(t, http.MethodGet, url+"/servers", "", "Authorization", "Bearer 0123456789abcdef0123456789abcdef")
	if status != http.StatusOK || !strings.Contains(body, "demo") {
		t.Errorf("/servers with a token: %d %s", status, body)
	}
}

// As many processes as may be: the next client waits, and is told 503 with
// Retry-After when none has ended in time. (What a connection is told that is
// there already: TestNoPlace.)
func TestMaxChildren(t *testing.T) {
	spec := demoSpec(t, "demo")
	spec.MaxChildren, spec.Queue, spec.QueueTimeout = 1, -1, time.Minute
	_, url := start(t, hub.Options{SingleServer: true}, spec)
	id := session(t, url+"/mcp")
	status, h, text := do(t, http.MethodPost, url+"/mcp", hello)
	if status != http.StatusServiceUnavailable || h.Get("Retry-After") == "" || !strings.Contains(text, "too many clients") {
		t.Errorf("%d, Retry-After %q, %s", status, h.Get("Retry-After"), text)
	}
	end(t, url+"/mcp", id)
	spec.Queue, spec.Fingerprint = 1, "2"
	_, url = start(t, hub.Options{SingleServer: true}, spec)
	id = session(t, url+"/mcp")
	second := make(chan string)
	go func() { second <- session(t, url+"/mcp") }()
	end(t, url+"/mcp", id)
	end(t, url+"/mcp", <-second)
	spec.Queue, spec.QueueTimeout, spec.Fingerprint = 0, -1, "3" // nobody waits
	_, url = start(t, hub.Options{SingleServer: true}, spec)
	id = session(t, url+"/mcp")
	begun := time.Now()
	status, _, text = do(t, http.MethodPost, url+"/mcp", hello)
	if status != http.StatusServiceUnavailable || time.Since(begun) >= hub.DefaultQueueTimeout {
		t.Errorf("without a queue timeout: %d after %v, %s", status, time.Since(begun), text)
	}
	end(t, url+"/mcp", id)
}

// TestIdleProcessMakesRoom: a process that clients of 2026-07-28 share, and
// nobody uses, keeps no other client out.
func TestIdleProcessMakesRoom(t *testing.T) {
	spec := demoSpec(t, "a")
	spec.MaxChildren, spec.QueueTimeout, spec.Upstream.Protocol = 2, 20*time.Second, era.OnlyLegacy
	_, url := start(t, hub.Options{SingleServer: true}, spec)
	for _, caps := range []string{`{}`, `{"roots":{}}`, `{"sampling":{}}`} {
		status, _, body := do(t, http.MethodPost, url+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`+caps+`}}}`,
			"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")
		if status != http.StatusOK || !strings.Contains(body, "echo") {
			t.Fatalf("%s: %d %s", caps, status, body)
		}
	}
	for range 2 {
		session(t, url+"/mcp")
	}
}

// A new configuration leaves what it does not change alone; what is gone
// finishes its calls first.
func TestApply(t *testing.T) {
	stays, goes := demoSpec(t, "stays"), demoSpec(t, "goes")
	goes.Pump.ShutdownGrace = 10 * time.Millisecond // which is for the end of all
	h, url := start(t, hub.Options{}, stays, goes)
	kept, lost := session(t, url+"/servers/stays/mcp"), session(t, url+"/servers/goes/mcp")

	answered := make(chan string)
	begun := make(chan struct{})
	go func() {
		body := `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":1,"steps":4},"_meta":{"progressToken":"p"}}}`
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/servers/goes/mcp", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Mcp-Session-Id", lost)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			close(begun)
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		close(begun) // the reply has begun, so the call is in progress
		var all bytes.Buffer
		_, _ = io.Copy(&all, resp.Body)
		answered <- all.String()
	}()
	<-begun
	bridgetest.Must(t, h.Apply([]hub.Spec{stays}))
	if names := fmt.Sprint(h.NamesInUse()); names != "[stays goes]" {
		t.Errorf("in use are %s", names)
	}
	if status, _ := echo(t, url+"/servers/goes/mcp", lost); status != http.StatusNotFound {
		t.Errorf("a server that is gone: %d", status)
	}
	if status, body := echo(t, url+"/servers/stays/mcp", kept); status != 200 {
		t.Errorf("a session of an unchanged server: %d %s", status, body)
	}
	if text := <-answered; !strings.Contains(text, `"id":9,"result"`) {
		t.Errorf("the call in progress at the removed server: %s", text)
	}
	for deadline := time.After(30 * time.Second); len(h.NamesInUse()) != 1; runtime.Gosched() {
		select {
		case <-deadline:
			t.Fatalf("in use are %q", h.NamesInUse())
		default:
		}
	}

	stays.Description = "said anew"
	bridgetest.Must(t, h.Apply([]hub.Spec{stays}))
	if _, _, index := do(t, http.MethodGet, url+"/servers", ""); !strings.Contains(index, "said anew") {
		t.Errorf("the index: %s", index)
	}
	if status, body := echo(t, url+"/servers/stays/mcp", kept); status != 200 {
		t.Errorf("a session of a server that is described anew: %d %s", status, body)
	}

	stays.Fingerprint = "changed"
	bridgetest.Must(t, h.Apply([]hub.Spec{stays}))
	if status, _ := echo(t, url+"/servers/stays/mcp", kept); status != http.StatusNotFound {
		t.Errorf("a session of a changed server: %d, want 404, so that the client begins anew", status)
	}
	session(t, url+"/servers/stays/mcp")

	bad := demoSpec(t, "bad")
	bad.Upstream.Tools.Ignore = []string{"["}
	if err := h.Apply([]hub.Spec{stays, bad}); err == nil || !strings.Contains(err.Error(), `"bad"`) {
		t.Errorf("a server that cannot be: %v", err)
	}
	if err := h.Apply([]hub.Spec{stays, stays}); err == nil {
		t.Error("two servers of one name")
	}
	if names := fmt.Sprint(slices.Collect(maps.Keys(h.States()))); names != "[stays]" {
		t.Errorf("after errors there are %s", names)
	}
}

// /readyz is for everybody who reaches the port, but not for other sites'
// pages (LI1, LI2), and says nothing private.
func TestHealth(t *testing.T) {
	broken := demoSpec(t, "broken")
	broken.Upstream.Command.Path = "no-such-command"
	_, url := start(t, hub.Options{SingleServer: true}, broken)
	status, _, body := do(t, http.MethodGet, url+"/readyz", "")
	if status != http.StatusServiceUnavailable || strings.Contains(body, "no-such-command") || !strings.Contains(body, `"lastError"`) {
		t.Errorf("/readyz of a command that does not exist: %d %s", status, body)
	}
	_, many := start(t, hub.Options{}, broken, demoSpec(t, "demo"))
	if status, _, body := do(t, http.MethodGet, many+"/readyz", ""); status != http.StatusOK {
		t.Errorf("/readyz with one of two: %d %s", status, body)
	}
	for _, path := range []string{"/healthz", "/readyz", "/servers", "/other"} {
		if status, _, _ := do(t, http.MethodGet, many+path, "", "Origin", "https://evil.example"); status != http.StatusForbidden {
			t.Errorf("%s for a foreign Origin: %d", path, status)
		}
	}
}

// A token that is taken away ends what its owner has open, on every transport,
// and nothing of others.
func TestWithdrawnToken(t *testing.T) {
	const ann, bob = "0123456789abcdef-of-ann", "0123456789abcdef-of-bob"
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		t.Helper()
		bridgetest.Must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("ann " + ann + "\nbob " + bob + "\n")
	tokens, err := access.LoadTokens(file)
	bridgetest.Must(t, err)
	h, url := start(t, hub.Options{SingleServer: true, Guard: access.Policy{Tokens: tokens}}, demoSpec(t, "demo"))

	ended := make(chan string)
	for _, token := range []string{ann, bob} {
		key := http.Header{"X-Api-Key": {token}}
		name := strings.TrimPrefix(token, "0123456789abcdef-of-")
		_, header, _ := do(t, http.MethodPost, url+"/mcp", hello, "X-API-Key", token)
		socket, _, err := websocket.Dial(t.Context(), strings.Replace(url, "http", "ws", 1)+"/ws", &websocket.DialOptions{HTTPHeader: key})
		bridgetest.Must(t, err)
		defer socket.CloseNow()
		go func() {
			_, _, err := socket.Read(t.Context())
			ended <- fmt.Sprint(name, " ws ", websocket.CloseStatus(err))
		}()
		for _, path := range []string{"/mcp", "/sse"} {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
			req.Header = http.Header{"X-Api-Key": {token}, "Mcp-Session-Id": {header.Get("Mcp-Session-Id")}}
			resp, err := http.DefaultClient.Do(req)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %v %v", path, err, resp)
			}
			go func() {
				defer resp.Body.Close()
				_, err := io.Copy(io.Discard, resp.Body)
				ended <- fmt.Sprint(name, " ", path, " ", err)
			}()
		}
	}
	// Another token for ann: what the old one has opened ends, since others may
	// know it. Her session over Streamable HTTP, which has many connections, stays.
	write("ann 0123456789abcdef-the-next\nbob " + bob + "\n")
	bridgetest.Must(t, tokens.Reload())
	got := []string{<-ended, <-ended, <-ended}
	slices.Sort(got)
	if want := []string{"ann /mcp <nil>", "ann /sse <nil>", "ann ws StatusPolicyViolation"}; !slices.Equal(got, want) {
		t.Errorf("ended: %q, want %q", got, want)
	}
	for h.Sessions() != 4 { // bob's 3 and one of ann's, once the others have ended
		runtime.Gosched()
	}
	write("bob " + bob + "\n")
	bridgetest.Must(t, tokens.Reload())
	for h.Sessions() != 3 { // it ends in a goroutine of its own
		runtime.Gosched()
	}
	if status, _, _ := do(t, http.MethodGet, url+"/mcp", "", "X-API-Key", ann); status != http.StatusUnauthorized {
		t.Errorf("a request with the token: %d", status)
	}
	go func() { _ = h.Close() }()
	for range 3 {
		if who := <-ended; !strings.HasPrefix(who, "bob") {
			t.Errorf("ended: %s", who)
		}
	}
}
