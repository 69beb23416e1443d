package sdk

import (
	"encoding/json"
	"errors"
	"os/exec"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// TestDoctorFindsNothingAtHealthyURLs: real servers of both eras, with sessions and without,
// have no fault. server-everything has one: it does not answer 404 to a session that it does
// not know.
func TestDoctorFindsNothingAtHealthyURLs(t *testing.T) {
	// In milliseconds, for each. On a quiet machine each takes less than 5 s; here other packages are tested at the same time.
	const limit = 15_000
	resumable := func(t testing.TB) string {
		return peers.StartAndListen(t, []string{peers.Node(t), "server.mjs"})
	}
	for _, c := range []struct {
		name string
		at   func(t testing.TB) string
		has  string // the code of the fault that it has
	}{
		{"demo", func(t testing.TB) string { return peers.Serve(t, "--demo") }, ""},
		{"demo, without sessions", func(t testing.TB) string { return peers.Serve(t, "--demo", "--isolation", "request") }, ""},
		{"go", func(t testing.TB) string { return peers.GoServer(t, "http") }, ""},
		{"go, without sessions", func(t testing.TB) string { return peers.GoServer(t, "http-modern") }, ""},
		{"go, HTTP+SSE", func(t testing.TB) string { return peers.GoServer(t, "sse") }, ""},
		{"go, everything", peers.GoHTTP, ""},
		{"go, everything, without sessions", peers.GoModernHTTP, ""},
		{"typescript 1, resumable", resumable, ""},
		{"typescript 1, everything", peers.NodeHTTP, "H8"},
		{"typescript 1, everything, HTTP+SSE", peers.NodeSSE, ""},
		{"typescript 2", func(t testing.TB) string { return peers.TypeScriptHTTP(t, "sdkserver.mjs") }, ""},
		{"typescript 2, without sessions", func(t testing.TB) string { return peers.TypeScriptPlain(t, "sdkserver.mjs") }, ""},
		{"typescript 2, everything", func(t testing.TB) string { return peers.TypeScriptHTTP(t, "../conformance/everything.mjs") }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := c.at(t)
			out, report := diagnose(t, url)
			// A busy machine takes longer. It is not as busy three times.
			for again := 0; report.DurationMs > limit && again < 2; again++ {
				out, report = diagnose(t, url)
			}
			has := ""
			for _, f := range report.Findings {
				has += f.Code
			}
			if has != c.has {
				t.Errorf("findings %q, want %q:\n%s", has, c.has, out)
			}
			if report.DurationMs > limit {
				t.Errorf("it took %d ms, want at most %d", report.DurationMs, limit)
			}
			t.Logf("it took %d ms", report.DurationMs)
		})
	}
}

// report is what doctor --json says.
type report struct {
	DurationMs int
	Findings   []struct{ Code string }
}

// diagnose has doctor look at the server at a URL: what it prints, and what it says in it.
func diagnose(t *testing.T, url string) ([]byte, report) {
	t.Helper()
	out, err := exec.Command(peers.Bridge(t), "doctor", "--json", url).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() != 1 {
		t.Fatalf("%v\n%s", err, exit.Stderr)
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return out, r
}
