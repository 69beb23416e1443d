// Package sdk lets the clients of the official SDKs talk to their servers
// through the bridge. Each pair runs one script (see plan_test.go), first
// directly and then through the bridge, and must see the same both times.
package sdk

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// patience bounds each wait of a script.
const patience = 30 * time.Second

func TestMain(m *testing.M) { peers.Main(m) }

// A client is one way to run the script.
type client struct {
	name     string
	run      func(*testing.T, target, plan) transcript
	baseline func(*testing.T, target, plan) transcript // without the bridge; nil is run
}

// clients are those of the SDKs. The Go SDK is pinned to each revision that
// has sessions. Left alone it first tries the newest, which has none, and
// falls back; a server that it reaches directly may speak the newest, so its
// yardstick is the pinned client. The TypeScript SDK 1.x proposes 2025-11-25.
var clients = []client{
	{"go", goAt(""), goAt("2025-11-25")},
	{"go-2025-11-25", goAt("2025-11-25"), nil},
	{"go-2025-06-18", goAt("2025-06-18"), nil},
	{"go-2025-03-26", goAt("2025-03-26"), nil},
	{"typescript", runTypeScript, nil},
}

func goAt(version string) func(*testing.T, target, plan) transcript {
	return func(t *testing.T, to target, p plan) transcript { return runGo(t, to, p, version) }
}

// direct runs the client without the bridge.
func (c client) direct(t *testing.T, to target, p plan) transcript {
	if c.baseline != nil {
		return c.baseline(t, to, p)
	}
	return c.run(t, to, p)
}

// runTypeScript runs client.mjs.
func runTypeScript(t *testing.T, to target, p plan) transcript {
	t.Helper()
	arg, err := json.Marshal(map[string]any{"to": to, "plan": p})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, peers.Node(t), "client.mjs", string(arg))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("client.mjs: %v\n%s", err, out)
	}
	var tr transcript
	if err := json.Unmarshal(out, &tr); err != nil {
		t.Fatalf("client.mjs: %v\n%s", err, out)
	}
	return tr
}

// TestServe: every client, over Streamable HTTP, through `mcp-bridge serve` to
// every server on stdio. A call's connection is cut and the client resumes.
func TestServe(t *testing.T) {
	for _, server := range []struct {
		name  string
		plan  plan
		argv  func(*testing.T) []string
		serve func(*testing.T, []string) string
	}{
		{"go", goPlan, func(t *testing.T) []string { return []string{peers.GoEverything(t)} }, serveCommand},
		{"node", nodePlan, func(t *testing.T) []string { return peers.NodeEverything(t) }, serveCommand},
		{"demo", demoPlan, func(t *testing.T) []string { return []string{peers.Bridge(t), "demo"} },
			func(t *testing.T, _ []string) string { return peers.Serve(t, "--demo") }},
	} {
		for _, client := range clients {
			t.Run(server.name+"/"+client.name, func(t *testing.T) {
				t.Parallel()
				argv := server.argv(t)
				direct := client.direct(t, target{Command: argv, Drop: true}, server.plan)
				c := newCutter(t, server.serve(t, argv))
				bridged := client.run(t, target{URL: c.url, Cut: c.control, Drop: true}, server.plan)
				compare(t, server.plan, direct, bridged, true)
				if c.cuts() == 0 {
					t.Error("no connection was cut: nothing was resumed")
				}
			})
		}
	}
}

func serveCommand(t *testing.T, argv []string) string {
	return peers.Serve(t, append([]string{"--"}, argv...)...)
}

// TestConnect: every client, on stdio, through `mcp-bridge connect` to both
// SDKs' HTTP servers, and to the bridge itself as the server.
func TestConnect(t *testing.T) {
	for _, server := range []struct {
		name string
		plan plan
		url  func(testing.TB) string
		drop bool // whether calls of the server can be resumed; see TestConnectResumes
	}{
		{"go", goPlan, peers.GoHTTP, false},
		{"node", nodePlan, peers.NodeHTTP, false},
		{"demo", demoPlan, func(t testing.TB) string { return peers.Serve(t, "--demo") }, true},
	} {
		for _, client := range clients {
			t.Run(server.name+"/"+client.name, func(t *testing.T) {
				t.Parallel()
				direct := client.direct(t, target{URL: server.url(t), Drop: server.drop}, server.plan)
				c := newCutter(t, server.url(t))
				bridge := []string{peers.Bridge(t), "connect", c.url}
				bridged := client.run(t, target{Command: bridge, Cut: c.control, Drop: server.drop}, server.plan)
				compare(t, server.plan, direct, bridged, server.drop)
				if server.drop && c.cuts() == 0 {
					t.Error("no connection was cut: nothing was resumed")
				}
			})
		}
	}
}

// session matches what differs between two sessions of one server.
var session = regexp.MustCompile(` *(from|for) session .*| *- SessionId .*`)

// compare fails for every field of the transcripts that differs.
func compare(t *testing.T, p plan, direct, bridged transcript, drop bool) {
	t.Helper()
	if missing := p.incomplete(direct, drop); missing != nil {
		t.Errorf("without the bridge these steps did not work: %q", missing)
	}
	a, b := reflect.ValueOf(normal(direct)), reflect.ValueOf(normal(bridged))
	for i := range a.NumField() {
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		if name := a.Type().Field(i).Name; !reflect.DeepEqual(x, y) && name != "Version" {
			t.Errorf("%s differs:\ndirectly %v\nbridged  %v", name, x, y)
		}
	}
	// The TypeScript client does not tell the revision on stdio.
	if direct.Version != bridged.Version && direct.Version != "" && bridged.Version != "" {
		t.Errorf("the revision is %q directly and %q through the bridge", direct.Version, bridged.Version)
	}
}

func normal(t transcript) transcript {
	for i, l := range t.Logs {
		t.Logs[i] = session.ReplaceAllString(l, "")
	}
	return t
}
