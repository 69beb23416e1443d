package sdk

import (
	"fmt"
	"os"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// bridged says whether the bridge speaks 2026-07-28 already.
var bridged = os.Getenv("TEST_ERAS") != ""

// The clients of 2026-07-28, and the SDK's that go with them.
var (
	goModern          = client{"go-2026-07-28", "go", "2026-07-28", "2026-07-28"}
	typeScript2       = client{"typescript2-2025-11-25", "typescript 2", "2025-11-25", "2025-11-25"}
	typeScript2Modern = client{"typescript2-2026-07-28", "typescript 2", "2026-07-28", "2026-07-28"}
	typeScript2Newest = client{"typescript2", "typescript 2", "", ""}
)

// measuredBy says whether a client has to see what another one sees directly:
// the same SDK in the same era. One that is not pinned finds, at a bridge that
// speaks both eras, the newest.
func (c client) measuredBy(yardstick client) bool {
	modern := c.version == "2026-07-28" || bridged && c.version == "" && c.sdk != "typescript"
	return c.sdk == yardstick.sdk && modern == (yardstick.version == "2026-07-28")
}

// A face is a server as clients of one era find it without the bridge.
type face func(t testing.TB) target

func goCommand(t testing.TB) target { return target{Command: peers.GoStdio(t)} }

func tsCommand(mode string) face {
	return func(t testing.TB) target { return target{Command: peers.TypeScript(t, "sdkserver.mjs", mode)} }
}

func goURL(transport string) face {
	return func(t testing.TB) target { return target{URL: peers.GoServer(t, transport)} }
}

func tsURL(t testing.TB) target { return target{URL: peers.TypeScriptHTTP(t, "sdkserver.mjs")} }

// eraServers are the servers of both SDKs in both eras. What is legacy is so
// because it knows no better, or because the bridge is told so.
var eraServers = []struct {
	name           string
	pages          int
	legacy, modern face // what clients of each era find without the bridge
	behind         face // what the bridge stands in front of
	flags          []string
	own            bool // a stdio server of an era that does not say to which call a question belongs
	deaf           bool // the server does not notice that a call is given up
}{
	{name: "go stdio modern", pages: 3, legacy: goCommand, modern: goCommand, behind: goCommand},
	{name: "go stdio legacy", pages: 3, legacy: goCommand, modern: goCommand, behind: goCommand, flags: []string{"--protocol", "legacy"}, own: true},
	{name: "go HTTP modern", pages: 3, legacy: goURL("http"), modern: goURL("http-modern"), behind: goURL("http-modern"), deaf: true},
	{name: "go HTTP legacy", pages: 3, legacy: goURL("http"), modern: goCommand, behind: goURL("http")},
	{name: "typescript 2 stdio modern", pages: 1, legacy: tsCommand("stdio"), modern: tsCommand("stdio"), behind: tsCommand("stdio")},
	{name: "typescript 2 stdio legacy", pages: 1, legacy: tsCommand("stdio"), modern: tsCommand("stdio"), behind: tsCommand("legacy"), own: true},
	{name: "typescript 2 HTTP modern", pages: 1, legacy: tsURL, modern: tsURL, behind: tsURL},
	{name: "typescript 2 HTTP legacy", pages: 1, legacy: tsURL, modern: tsURL, behind: tsURL, flags: []string{"--protocol", "legacy"}},
}

// TestEras: clients of both SDKs in both eras, with servers of both SDKs in
// both eras, over every transport of the clients. A client sees what it sees
// when it reaches the same server in its own era without the bridge.
func TestEras(t *testing.T) {
	for _, server := range eraServers {
		t.Run(server.name, func(t *testing.T) {
			p := sdkPlan
			p.Pages = server.pages
			if server.deaf {
				p.Cancelled = nil
			}
			legacy, modern := server.legacy(t), server.modern(t)
			direct := map[client]target{goPinned: legacy, typeScript: legacy, typeScript2: legacy, goModern: modern, typeScript2Modern: modern}
			if !bridged {
				party(t, p, direct)
				return
			}
			args := append(server.flags, behind(server.behind(t))...)
			e := serveAll(t, args...)
			guests := []guest{
				{typeScript, "WebSocket", target{URL: e.ws}},
				{typeScript, "Streamable HTTP", target{URL: e.http}},
				{goPinned, "Streamable HTTP", target{URL: e.http}},
				{goPinned, "HTTP+SSE", target{URL: e.sse, Via: "sse"}},
				{goPinned, "a Unix socket", target{URL: e.unix}},
				{goPinned, "connect", connect(t, args...)},
				{goPinned, "connect to Streamable HTTP", connect(t, e.http)},
				{typeScript2, "WebSocket", target{URL: e.ws}},
				{typeScript2, "Streamable HTTP", target{URL: e.http}},
				{typeScript2, "connect", connect(t, args...)},
			}
			for i, g := range []struct {
				client
				over string
				to   func(endpoints) target
			}{
				{goModern, "Streamable HTTP", func(e endpoints) target { return target{URL: e.http} }},
				{goModern, "a Unix socket", func(e endpoints) target { return target{URL: e.unix} }},
				{goModern, "connect", func(endpoints) target { return connect(t, args...) }},
				{goModern, "connect to Streamable HTTP", func(e endpoints) target { return connect(t, e.http) }},
				{goNewest, "Streamable HTTP", func(e endpoints) target { return target{URL: e.http} }},
				{typeScript2Modern, "WebSocket", func(e endpoints) target { return target{URL: e.ws} }},
				{typeScript2Modern, "Streamable HTTP", func(e endpoints) target { return target{URL: e.http} }},
				{typeScript2Modern, "connect", func(endpoints) target { return connect(t, args...) }},
				{typeScript2Modern, "connect to WebSocket", func(e endpoints) target { return connect(t, e.ws) }},
				{typeScript2Newest, "Streamable HTTP", func(e endpoints) target { return target{URL: e.http} }},
			} {
				if server.own {
					// Nobody says who they are, so they would share a server that
					// does not say to which of their calls a question belongs.
					e = serveAll(t, args...)
				}
				guests = append(guests, guest{g.client, fmt.Sprintf("%s (%d)", g.over, i), g.to(e)})
			}
			party(t, p, direct, guests...)
		})
	}
}
