package sdk

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
	"github.com/mcp-bridge/mcp-bridge/tests/interop/script"
)

// TestReplay: what a client and the demo server have said is recorded. Said to the same server
// again it makes no difference, to another one exactly what differs is found; and
// served in the server's place it is all that the client needs, over every transport.
func TestReplay(t *testing.T) {
	t.Parallel()
	demo := []string{"--", peers.Bridge(t), "demo"}
	// A busy machine takes its time: the cancelled call goes on for much longer than the client needs to cancel it, and
	// what the server is slow to say is not missing.
	steps := demoPlan
	steps.Slow, steps.SlowSteps = use("slow", args{"seconds": 60, "steps": 600}), 600
	replay := func(rest ...string) (report string, status int) {
		return runBridge(t, append(append([]string{"replay", "--wait", "2m"}, rest...), demo...)...)
	}
	for _, c := range []client{goPinned, goModern, typeScript, typeScript2, typeScript2Modern} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "recording")
			var seen transcript
			t.Run("recorded", func(t *testing.T) { // what it starts has ended then
				to := target{Command: append([]string{peers.Bridge(t), "record", file}, demo...)}
				if c == typeScript2Modern { // which starts its server twice, and so two recordings
					to = target{URL: peers.Serve(t, append([]string{"--record", file}, demo...)...)}
				}
				seen = c.run(t, to, steps)
			})
			if missing := incomplete(steps, seen, false); missing != nil {
				t.Fatalf("when it was recorded these steps did not work: %q", missing)
			}
			report, status := replay(file)
			if status != 0 {
				t.Errorf("the same server: exit status %d\n%s", status, report)
			}
			report, status = replay("--ignore-tool", "fail", file)
			want := regexp.MustCompile(`^line \d+: tools/list\n(?:  result.nextCursor .*\n)?  result.tools\[\d\] is gone: \{.*"name":"fail".*\}\n\d+ messages sent, \d+ compared: 1 message differs\n$`)
			if status != 1 || !want.MatchString(report) {
				t.Errorf("a server without a tool: exit status %d\n%s", status, report)
			}
			for _, s := range served(t, file) {
				if !s.measuredBy(c) {
					continue
				}
				s.to.N = 1
				out := play(t, s.argv(t), steps, []script.Job{{To: s.to, Version: s.version}})[0]
				for _, e := range wrong(steps, script.Outcome{Transcript: seen}, out) {
					t.Errorf("served over %s: %s", s.over, e)
				}
			}
		})
	}
}

// served is clients of a recording over each transport that they have.
func served(t *testing.T, file string) []slot {
	socket := "unix:" + socketPath(t)
	url := peers.StartAndListen(t, []string{peers.Bridge(t), "replay", "--serve", "--listen", "127.0.0.1:0", "--listen", socket, file})
	base := strings.TrimSuffix(url, "/mcp")
	e := endpoints{url, base + "/sse", "ws" + strings.TrimPrefix(base, "http") + "/ws", socket}
	stdio := target{Command: []string{peers.Bridge(t), "replay", "--stdio", "--strict", file}}
	all := e.everybody()
	for _, c := range []client{goPinned, goModern, typeScript, typeScript2, typeScript2Modern} {
		all = append(all, slot{c, "stdio", stdio})
	}
	return append(all, slot{goModern, "Streamable HTTP", target{URL: e.http}}, slot{typeScript2Modern, "Streamable HTTP", target{URL: e.http}})
}

// runBridge returns what the bridge prints, and its exit status.
func runBridge(t *testing.T, args ...string) (stdout string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), peers.Bridge(t), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	_ = cmd.Run() // its status says it
	return out.String(), cmd.ProcessState.ExitCode()
}
