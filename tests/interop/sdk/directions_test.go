package sdk

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
	"github.com/mcp-bridge/mcp-bridge/tests/interop/script"
)

// servers of both SDKs, on every transport that they have.
var servers = []struct {
	name string
	plan plan
	at   func(t testing.TB) target // where clients find it without the bridge
}{
	{"typescript stdio", nodePlan, func(t testing.TB) target { return target{Command: peers.NodeEverything(t)} }},
	{"typescript HTTP+SSE", nodePlan, func(t testing.TB) target { return target{URL: peers.NodeSSE(t), Via: "sse"} }},
	{"typescript Streamable HTTP", nodePlan, func(t testing.TB) target { return target{URL: peers.NodeHTTP(t)} }},
	{"go HTTP+SSE", sdkPlan, func(t testing.TB) target { return target{URL: peers.GoServer(t, "sse"), Via: "sse"} }},
	{"go Streamable HTTP", sdkPlan, func(t testing.TB) target { return target{URL: peers.GoServer(t, "http")} }},
	{"go Unix socket", sdkPlan, func(t testing.TB) target { return target{URL: peers.GoServer(t, "unix")} }},
	{"demo", demoPlan, func(t testing.TB) target { return target{Command: []string{peers.Bridge(t), "demo"}} }},
}

// TestEveryDirection: every server behind `mcp-bridge serve`, with clients of
// both SDKs on all its transports at once, and on stdio with `connect` between
// them and serve, or between them and the server.
func TestEveryDirection(t *testing.T) {
	t.Parallel() // one server after the other: each keeps the machine busy
	for _, server := range servers {
		t.Run(server.name, func(t *testing.T) {
			at := server.at(t)
			args := behind(at)
			serve := args
			if server.name == "demo" {
				serve = []string{"--demo"}
			}
			e := serveAll(t, serve...)
			clients := e.everybody()
			if at.Command != nil {
				clients = e.few() // each starts a server
			}
			clients = append(clients,
				slot{typeScript, "connect to WebSocket", connect(t, e.ws)},
				slot{goPinned, "connect to HTTP+SSE", connect(t, "--transport", "sse-only", e.sse)},
				slot{goPinned, "connect to a Unix socket", connect(t, e.unix)},
				slot{goPinned, "connect", connect(t, args...)},
				slot{typeScript, "connect", connect(t, args...)},
				slot{typeScript2, "connect", connect(t, args...)},
			)
			direct := map[client]target{goPinned: at, typeScript: at, typeScript2: at}
			if strings.HasPrefix(at.URL, "unix:") { // of which the TypeScript SDKs know nothing
				http := target{URL: peers.GoServer(t, "http")}
				direct[typeScript], direct[typeScript2] = http, http
			}
			party(t, server.plan, direct, clients...)
		})
	}
}

// behind is the arguments for a bridge in front of a server.
func behind(at target) []string {
	if at.Command != nil {
		return append([]string{"--"}, at.Command...)
	}
	return []string{at.URL}
}

// TestTwoBridges: a server that speaks HTTP+SSE, re-exposed, and re-exposed
// once more over each transport of the first bridge.
func TestTwoBridges(t *testing.T) {
	t.Parallel()
	at := target{URL: peers.NodeSSE(t), Via: "sse"}
	a := serveAll(t, at.URL)
	for _, middle := range []struct {
		name string
		args []string
	}{
		{"WebSocket", []string{a.ws}},
		{"HTTP+SSE", []string{"--transport", "sse-only", a.sse}},
		{"Streamable HTTP", []string{"--transport", "http-only", a.http}},
		{"Unix socket", []string{a.unix}},
	} {
		t.Run(middle.name, func(t *testing.T) {
			b := serveAll(t, middle.args...)
			party(t, nodePlan, map[client]target{goPinned: at, typeScript: at}, append(b.few(),
				slot{typeScript, "connect to WebSocket", connect(t, b.ws)})...)
		})
	}
}

// TestTransportFlag: `connect` and `serve` find the transport of a server, or
// take the one they are told; told the wrong one, they say so.
func TestTransportFlag(t *testing.T) {
	sse := target{URL: peers.GoServer(t, "sse"), Via: "sse"}
	http := target{URL: peers.GoServer(t, "http")}
	for _, c := range []struct {
		name, mode string
		at         target
		refused    bool
	}{
		{"finds HTTP+SSE", "http-first", sse, false},
		{"finds HTTP+SSE at once", "sse-first", sse, false},
		{"HTTP+SSE", "sse-only", sse, false},
		{"not Streamable HTTP", "http-only", sse, true},
		{"finds Streamable HTTP at once", "http-first", http, false},
		{"finds Streamable HTTP", "sse-first", http, false},
		{"Streamable HTTP", "http-only", http, false},
		{"not HTTP+SSE", "sse-only", http, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := []string{"--transport", c.mode, c.at.URL}
			clients := []slot{
				{goPinned, "serve", target{URL: peers.Serve(t, args...)}},
				{goPinned, "connect", connect(t, args...)},
			}
			if !c.refused {
				party(t, sdkPlan, map[client]target{goPinned: c.at}, clients...)
				return
			}
			for _, g := range clients {
				out := play(t, g.argv(t), sdkPlan, []script.Job{{To: g.to, Version: g.version}})[0]
				if !strings.Contains(out.Error, `calling "initialize"`) || !strings.Contains(out.Error, "answered 400 Bad Request") {
					t.Errorf("%s: the client was told %q", g.over, out.Error)
				}
			}
		})
	}
}
