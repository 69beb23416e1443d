package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// measuredBy says whether a client has to see what another one sees directly:
// the same SDK in the same era. One that is not pinned finds, at a bridge that
// speaks both eras, the newest.
func (c client) measuredBy(yardstick client) bool {
	modern := c.version == "2026-07-28" || c.version == "" && c.sdk != "typescript"
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

func tsPlain(t testing.TB) target { return target{URL: peers.TypeScriptPlain(t, "sdkserver.mjs")} }

// eraServers are the servers of both SDKs in both eras. What speaks both is
// legacy or modern because the bridge is told so; one that begins no sessions
// is a modern one for all.
var eraServers = []struct {
	name           string
	pages          int
	legacy, modern face // what clients of each era find without the bridge
	behind         face // what the bridge stands in front of
	flags          []string
	own            bool // each client has a bridge, and so a server process, of its own
	without        func(*plan)
}{
	{name: "go stdio modern", pages: 3, legacy: goCommand, modern: goCommand, behind: goCommand, flags: toModern, own: true},
	{name: "go stdio modern, shared", pages: 3, legacy: goCommand, modern: goCommand, behind: goCommand, flags: toModern, without: logs},
	{name: "go stdio legacy", pages: 3, legacy: goCommand, modern: goCommand, behind: goCommand, flags: toLegacy, own: true},
	{name: "go HTTP modern", pages: 3, legacy: goURL("http"), modern: goURL("http-modern"), behind: goURL("http-modern"), flags: toModern, without: hearing},
	{name: "go HTTP legacy", pages: 3, legacy: goURL("http"), modern: goCommand, behind: goURL("http")},
	{name: "typescript 2 stdio modern", pages: 1, legacy: tsCommand("stdio"), modern: tsCommand("stdio"), behind: tsCommand("stdio"), flags: toModern, own: true},
	{name: "typescript 2 stdio modern, shared", pages: 1, legacy: tsCommand("stdio"), modern: tsCommand("stdio"), behind: tsCommand("stdio"), flags: toModern, without: logs},
	{name: "typescript 2 stdio legacy", pages: 1, legacy: tsCommand("stdio"), modern: tsCommand("stdio"), behind: tsCommand("legacy"), own: true},
	{name: "typescript 2 HTTP without sessions", pages: 1, legacy: tsURL, modern: tsURL, behind: tsPlain},
	{name: "typescript 2 HTTP legacy", pages: 1, legacy: tsURL, modern: tsURL, behind: tsURL, flags: toLegacy},
}

var (
	toModern = []string{"--protocol", "modern"}
	toLegacy = []string{"--protocol", "legacy"}
)

// logs are of nobody where many calls at once of one process have asked for
// them: they do not say to which call they belong.
func logs(p *plan) { p.Log, p.Logs = nil, 0 }

// hearing that a call is given up is beyond the Go SDK's server in the modern
// era of HTTP.
func hearing(p *plan) { p.Cancelled = nil }

// eraGuests are clients of both eras over each transport that their SDK has. A
// Unix socket speaks in lines, as the Go SDK does over any connection; the
// TypeScript SDK 2.x has no WebSocket, but takes one.
var eraGuests = []struct {
	client
	over string
	to   func(t testing.TB, e endpoints, args []string) target
}{
	{typeScript, "WebSocket", overWS},
	{typeScript, "Streamable HTTP", overHTTP},
	{goPinned, "Streamable HTTP", overHTTP},
	{goPinned, "HTTP+SSE", func(_ testing.TB, e endpoints, _ []string) target { return target{URL: e.sse, Via: "sse"} }},
	{goPinned, "a Unix socket", overUnix},
	{goPinned, "connect", overStdio},
	{goPinned, "connect to Streamable HTTP", connectToHTTP},
	{typeScript2, "WebSocket", overWS},
	{typeScript2, "Streamable HTTP", overHTTP},
	{typeScript2, "connect", overStdio},
	{goModern, "Streamable HTTP", overHTTP},
	{goModern, "a Unix socket", overUnix},
	{goModern, "connect", overStdio},
	{goModern, "connect to Streamable HTTP", connectToHTTP},
	{goNewest, "Streamable HTTP", overHTTP},
	{typeScript2Modern, "WebSocket", overWS},
	{typeScript2Modern, "Streamable HTTP", overHTTP},
	{typeScript2Modern, "connect", overStdio},
	{typeScript2Modern, "connect to WebSocket", func(t testing.TB, e endpoints, _ []string) target { return connect(t, e.ws) }},
	{typeScript2Newest, "Streamable HTTP", overHTTP},
}

func overHTTP(_ testing.TB, e endpoints, _ []string) target      { return target{URL: e.http} }
func overWS(_ testing.TB, e endpoints, _ []string) target        { return target{URL: e.ws} }
func overUnix(_ testing.TB, e endpoints, _ []string) target      { return target{URL: e.unix} }
func overStdio(t testing.TB, _ endpoints, args []string) target  { return connect(t, args...) }
func connectToHTTP(t testing.TB, e endpoints, _ []string) target { return connect(t, e.http) }

// TestEras: clients of both SDKs in both eras, with servers of both SDKs in
// both eras, over every transport of the clients. A client sees what it sees
// when it reaches the same server in its own era without the bridge.
func TestEras(t *testing.T) {
	for _, server := range eraServers {
		t.Run(server.name, func(t *testing.T) {
			p := sdkPlan
			p.Pages = server.pages
			if server.without != nil {
				server.without(&p)
			}
			legacy, modern := server.legacy(t), server.modern(t)
			direct := map[client]target{goPinned: legacy, typeScript: legacy, typeScript2: legacy, goModern: modern, typeScript2Modern: modern}
			args := append(server.flags, behind(server.behind(t))...)
			e := serveAll(t, args...)
			var clients []slot
			for i, g := range eraGuests {
				if server.own && i > 0 {
					e = serveAll(t, args...)
				}
				g := slot{g.client, g.over, g.to(t, e, args)}
				clients = append(clients, g)
			}
			party(t, p, direct, clients...)
		})
	}
}

// TestOldServer: clients of 2026-07-28 with a server that has never heard of
// it, npm's everything server. What it says outside of calls reaches nobody:
// the log messages on a subscription. And it asks for roots soon after
// initialize: if there is a call by then, that will be stopped to ask for them,
// and a progress notification may fall into that time.
func TestOldServer(t *testing.T) {
	p := nodePlan
	p.Logs, p.Roots = 0, nil
	direct := map[string]transcript{}
	for _, c := range []client{goPinned, typeScript2} {
		direct[c.sdk] = inLegacyWords(t, c.run(t, target{Command: peers.NodeEverything(t)}, p))
	}
	command := behind(target{Command: peers.NodeEverything(t)})
	for _, g := range []struct {
		client
		over string
		args []string
		to   func(t testing.TB, e endpoints, args []string) target
	}{
		{goModern, "Streamable HTTP", command, overHTTP},
		{goModern, "a Unix socket", command, overUnix},
		{goModern, "connect", command, overStdio},
		{goModern, "connect to HTTP+SSE", []string{peers.NodeSSE(t)}, overStdio},
		{goModern, "connect to Streamable HTTP", []string{peers.NodeHTTP(t)}, overStdio},
		{typeScript2Modern, "WebSocket", command, overWS},
		{typeScript2Modern, "Streamable HTTP", command, overHTTP},
	} {
		t.Run(g.name+"/"+g.over, func(t *testing.T) {
			got := g.run(t, g.to(t, serveAll(t, g.args...), g.args), p)
			if missing := incomplete(p, got, false); missing != nil {
				t.Errorf("these steps did not work: %q", missing)
			}
			for _, d := range differences(direct[g.sdk], inLegacyWords(t, got)) {
				t.Error(d)
			}
		})
	}
}

// inLegacyWords takes out what 2026-07-28 adds to each result, and tasks, of
// which it has none.
func inLegacyWords(t *testing.T, of transcript) transcript {
	t.Helper()
	of.Version = ""
	of.Caps = without(t, of.Caps, "tasks")
	for i, tool := range of.Tools {
		of.Tools[i] = without(t, tool, "execution")
	}
	for _, result := range []*string{&of.Result, &of.Echo, &of.Elicit, &of.Sample} {
		*result = without(t, *result, "_meta", "resultType")
	}
	return of
}

// without is an object in order, less some of its members.
func without(t *testing.T, object string, names ...string) string {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal([]byte(object), &members); err != nil {
		t.Errorf("%q: %v", object, err)
	}
	for _, name := range names {
		delete(members, name)
	}
	return whole(members)
}

func whole(x any) string {
	data, err := json.Marshal(x)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// TestDiscoverGivenUp: a client that goes away while it waits for
// server/discover does not spoil the server for those who come after it. A
// server on the TypeScript SDK 2.x takes a cancellation, if it hears of one
// before any other request, for the beginning of a session of an older
// revision, and keeps to that.
func TestDiscoverGivenUp(t *testing.T) {
	url := peers.Serve(t, append(toModern, behind(tsCommand("stdio")(t))...)...)
	gone, goAway := context.WithCancel(t.Context())
	_, err := discover(httptrace.WithClientTrace(gone, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { goAway() },
	}), url)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the first server/discover gave %v", err)
	}
	for range 2 {
		if answer, err := discover(t.Context(), url); err != nil || !strings.Contains(answer, "supportedVersions") {
			t.Errorf("server/discover gave %q, %v", answer, err)
		}
	}
}

func discover(ctx context.Context, url string) (string, error) {
	const body = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{
		"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("MCP-Protocol-Version", "2026-07-28")
	req.Header.Set("Mcp-Method", "server/discover")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return string(answer), err
}
