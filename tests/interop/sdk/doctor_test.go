package sdk

import (
	"encoding/json"
	"errors"
	"os/exec"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// TestDoctorFindsNothingInHealthyCommands: real servers of both eras have no fault. That they
// round or refuse ids above 2^53 is a note.
func TestDoctorFindsNothingInHealthyCommands(t *testing.T) {
	for name, command := range map[string][]string{
		"demo":                     {peers.Bridge(t), "demo"},
		"demo, everything":         {peers.DemoEverything(t)},
		"go":                       peers.GoStdio(t),
		"go, everything":           {peers.GoEverything(t)},
		"typescript 1, everything": peers.NodeEverything(t),
		"typescript 2":             peers.TypeScript(t, "sdkserver.mjs", "stdio"),
		"typescript 2, legacy":     peers.TypeScript(t, "sdkserver.mjs", "legacy"),
		"typescript 2, everything": peers.TypeScript(t, "../conformance/everything.mjs", "stdio"),
		"typescript 2, old":        peers.TypeScript(t, "../conformance/everything.mjs", "legacy"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command(peers.Bridge(t), append([]string{"doctor", "--json", "--"}, command...)...).Output()
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				t.Errorf("%v\n%s", err, exit.Stderr)
			} else if err != nil {
				t.Fatal(err)
			}
			var report struct {
				DurationMs int
				Findings   []struct{ Code, Severity string }
			}
			if err := json.Unmarshal(out, &report); err != nil {
				t.Fatal(err)
			}
			for _, f := range report.Findings {
				if f.Code != "C9" || f.Severity != "note" {
					t.Errorf("%s, %s, in\n%s", f.Code, f.Severity, out)
				}
			}
			if report.DurationMs > 20_000 {
				t.Errorf("it took %d ms", report.DurationMs)
			}
			t.Logf("it took %d ms", report.DurationMs)
		})
	}
}
