// Package sdk lets the clients of the official SDKs talk to their servers
// through the bridge. Each pair runs one script (see plan_test.go), first
// directly and then through the bridge, and must see the same both times.
package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
	"github.com/mcp-bridge/mcp-bridge/tests/interop/script"
)

// patience bounds each wait of a script.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { peers.Main(m) }

type (
	plan       = script.Plan
	target     = script.Target
	transcript = script.Transcript
)

// A client of an SDK that can run the script.
type client struct {
	name, sdk string
	version   string // the revision that it is pinned to; "" is not at all
}

var (
	goPinned          = client{"go-2025-11-25", "go", "2025-11-25"}
	goModern          = client{"go-2026-07-28", "go", "2026-07-28"}
	goNewest          = client{"go", "go", ""}
	typeScript        = client{"typescript", "typescript", ""}
	typeScript2       = client{"typescript2-2025-11-25", "typescript 2", "2025-11-25"}
	typeScript2Modern = client{"typescript2-2026-07-28", "typescript 2", "2026-07-28"}
	typeScript2Newest = client{"typescript2", "typescript 2", ""}
)

// clients are those of the SDKs for revisions that have sessions. The
// TypeScript SDK 1.x knows no others, and proposes 2025-11-25. See eraGuests for
// the newest revision.
var clients = []client{
	goPinned,
	{"go-2025-06-18", "go", "2025-06-18"},
	{"go-2025-03-26", "go", "2025-03-26"},
	typeScript,
	typeScript2,
}

// argv is the command line of the client, but for its jobs.
func (c client) argv(t testing.TB) []string {
	if c.sdk == "go" {
		return peers.GoPeer(t)
	}
	if c.sdk == "typescript 2" {
		return []string{peers.Node(t), "client2.mjs"}
	}
	return []string{peers.Node(t), "client.mjs"}
}

// run runs the script and returns what the client saw.
func (c client) run(t *testing.T, to target, p plan) transcript {
	t.Helper()
	to.N = 1
	out := play(t, c.argv(t), p, []script.Job{{To: to, Version: c.version}})[0]
	if out.Error != "" {
		t.Error(out.Error)
	}
	return out.Transcript
}

// compare runs the script without and with the bridge, and fails for what
// differs.
func (c client) compare(t *testing.T, p plan, direct, bridged target) {
	t.Helper()
	c.argv(t) // is built once, and here
	var a, b transcript
	var both sync.WaitGroup
	both.Go(func() { a = c.run(t, direct, p) })
	both.Go(func() { b = c.run(t, bridged, p) })
	both.Wait()
	if missing := incomplete(p, a, direct.Drop); missing != nil {
		t.Errorf("without the bridge these steps did not work: %q", missing)
	}
	for _, d := range differences(a, b) {
		t.Error(d)
	}
}

// play lets one process run the script for all jobs at once.
func play(t *testing.T, argv []string, p plan, jobs []script.Job) []script.Outcome {
	for i := range jobs {
		jobs[i].Plan = p.Of(jobs[i].To.N)
	}
	out, err := playJobs(t.Context(), argv, jobs)
	if err != nil {
		err = fmt.Errorf("%s: %w", filepath.Base(argv[len(argv)-1]), err)
		return slices.Repeat([]script.Outcome{{Error: err.Error()}}, len(jobs))
	}
	for i := range out {
		out[i].Transcript = out[i].Transcript.Anonymous(jobs[i].To, p)
	}
	return out
}

func playJobs(ctx context.Context, argv []string, jobs []script.Job) (out []script.Outcome, err error) {
	arg, err := json.Marshal(jobs)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], string(arg))...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, err
	}
	if len(out) != len(jobs) {
		return nil, fmt.Errorf("%d clients were started and %d have ended", len(jobs), len(out))
	}
	return out, nil
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
				c := newCutter(t, server.serve(t, argv))
				client.compare(t, server.plan, target{Command: argv, Drop: true},
					target{URL: c.url, Cut: c.control, Drop: true})
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
				c := newCutter(t, server.url(t))
				bridged := connect(t, c.url)
				bridged.Cut, bridged.Drop = c.control, server.drop
				client.compare(t, server.plan, target{URL: server.url(t), Drop: server.drop}, bridged)
				if server.drop && c.cuts() == 0 {
					t.Error("no connection was cut: nothing was resumed")
				}
			})
		}
	}
}
