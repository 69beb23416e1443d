package harness

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMain lets this program be the one that the tests start.
func TestMain(m *testing.M) {
	switch os.Getenv("HARNESS_ROLE") {
	case "waits":
		os.Stderr.WriteString("ready 7\n")
		os.Stdin.Read(make([]byte, 1)) // until its end
		os.Exit(3)
	case "panics":
		panic("at the disco")
	case "races": // what it says is what the test says
		os.Stderr.WriteString(os.Getenv("HARNESS_TEXT"))
		os.Exit(0)
	}
	Main(m)
}

// recorder is a test that notes what it is told, in place of failing.
type recorder struct {
	testing.TB
	errors []string
	ends   []func()
}

func (r *recorder) Errorf(format string, args ...any) { r.errors = append(r.errors, format) }
func (r *recorder) Logf(string, ...any)               {}
func (r *recorder) Failed() bool                      { return len(r.errors) > 0 }
func (r *recorder) Cleanup(f func())                  { r.ends = append(r.ends, f) }

// TestProc: a program can be heard and waited for, and ends with the test that owns it.
func TestProc(t *testing.T) {
	t.Parallel()
	owner := &recorder{TB: t}
	p := Start(t, Options{Env: []string{"HARNESS_ROLE=waits"}, Owner: owner}, os.Args[0])
	if m := p.WaitLog(t, regexp.MustCompile(`ready (\d)`)); m[1] != "7" {
		t.Errorf("WaitLog: %q", m)
	}
	p.Stdin.Close()
	if status := p.Wait(t); status != 3 {
		t.Errorf("status %d, want 3", status)
	}
	q := Start(t, Options{Env: []string{"HARNESS_ROLE=waits"}, Owner: owner}, os.Args[0])
	for _, end := range owner.ends {
		end()
	}
	if Alive(q.Cmd.Process.Pid) {
		t.Error("the program outlives its test")
	}
	if owner.Failed() {
		t.Errorf("the owner failed: %q", owner.errors)
	}
}

// TestProcPanics: a panic in a program fails the test that owns it.
func TestProcPanics(t *testing.T) {
	t.Parallel()
	owner := &recorder{TB: t}
	p := Start(t, Options{Env: []string{"HARNESS_ROLE=panics"}, Owner: owner, NullStdio: true}, os.Args[0])
	p.Wait(t)
	owner.ends[0]()
	if !strings.Contains(strings.Join(owner.errors, ""), "panic") {
		t.Errorf("the owner has heard of no panic: %q\n%s", owner.errors, p.Log())
	}
}

// TestReportsAmongTraces: a race or a panic fails the owner also where it is reported after a line that the harness itself
// has asked for, and is shown.
func TestReportsAmongTraces(t *testing.T) {
	t.Parallel()
	for _, report := range []string{"==================\nWARNING: DATA RACE\nRead at 0x00c0 by goroutine 7:\n  main.f()\n", "panic: at the disco\n\ngoroutine 1 [running]:\n"} {
		for _, before := range []string{"2026-11-24T10:00:00.000Z [TRACE] message: text=\n  | {}\n", `{"@level":"debug","@message":"m"}` + "\n", "2026-11-24T10:00:00.000Z [TRACE] cut off here "} {
			owner := &recorder{TB: t}
			p := Start(t, Options{Env: []string{"HARNESS_ROLE=races", "HARNESS_TEXT=" + before + report}, Owner: owner}, os.Args[0], "serve", "--token-file", "/none")
			p.Wait(t)
			owner.ends[0]()
			if !strings.Contains(strings.Join(owner.errors, ""), "race or a panic") {
				t.Errorf("after %q the owner has heard of nothing: %q", before, owner.errors)
			}
			if log := p.Log(); strings.HasSuffix(before, "\n") && log != report {
				t.Errorf("the log is %q, want %q", log, report)
			}
		}
	}
}

// TestSearch: a secret is found however it is spelled, the parts of a signed token too; what is short is not looked for.
func TestSearch(t *testing.T) {
	t.Parallel()
	const secret, token = "a+secret/of\"16bytes", "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm4ifQ-payload.c2lnbmF0dXJl-of-the-token"
	s := newSearcher([]string{secret, token, "short"})
	for text, want := range map[string]string{
		"x " + secret + " y": secret, "a%2Bsecret%2Fof%2216bytes": "a%2Bsecret%2Fof%2216bytes", `{"t":"a+secret/of\"16bytes"}`: `a+secret/of\"16bytes`,
		"c2lnbmF0dXJl-of-the-token": "c2lnbmF0dXJl-of-the-token", "eyJhbGciOiJFUzI1NiJ9.": "", "short": "", "a+secret/of": "",
	} {
		at, length := s.in([]byte(text))
		if got := text[max(0, at):max(0, at+length)]; got != want {
			t.Errorf("%q: found is %q, want %q", text, got, want)
		}
	}
}

// TestSearchEncoded: a secret is found in base64 and hexadecimal, alone and after something else, as Basic has it.
func TestSearchEncoded(t *testing.T) {
	t.Parallel()
	const secret = "\xff\xfe\xfd+a/secret!16b" // 16 bytes
	s := newSearcher([]string{secret})
	for _, text := range []string{secret, url.QueryEscape(secret)} {
		for _, before := range []string{"", "i", "id", "id:", "the-client:"} {
			for _, after := range []string{"", "1", "22", "333"} {
				whole := []byte(before + text + after)
				for _, encoded := range []string{
					base64.StdEncoding.EncodeToString(whole), base64.RawURLEncoding.EncodeToString(whole), hex.EncodeToString(whole), fmt.Sprintf("%X", whole),
				} {
					if at, _ := s.in([]byte(`{"Authorization":"Basic ` + encoded + `"}`)); at < 0 {
						t.Errorf("%q in %q is not found as %s", text, whole, encoded)
					}
				}
			}
		}
	}
	if at, _ := s.in([]byte(base64.StdEncoding.EncodeToString([]byte("another secret of the same length")))); at >= 0 {
		t.Error("something else is found")
	}
}

// TestGivenSecrets: what is searched of all that a bridge is given in flags, variables and its configuration.
func TestGivenSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	secret := map[string]string{}
	for _, name := range []string{"key", "bearer", "variable", "unspaced", "first", "second", "configured", "named", "client", "filed"} {
		secret[name] = name + "-" + rand.Text()
	}
	write("secret", secret["filed"])
	config := write("servers.json", fmt.Sprintf(`{"mcpServers": {"far": {"url": "http://127.0.0.1:1", "headers": {"X-Key": %q, "Authorization": "Bearer ${NAMED}"},
		"auth": {"clientSecret": %q}}, "other": {"url": "http://127.0.0.1:1", "auth": {"clientSecretFile": "secret"}}}}`, secret["configured"], secret["client"]))
	plain := write("plain.json", `{"mcpServers": {"near": {"command": "x"}}}`)
	env := []string{"TOKEN=" + secret["variable"], "NAMED=" + secret["named"], "MCP_BRIDGE_TOKENS=ann " + secret["first"] + ";bob " + secret["second"]}
	givenTo([]string{"mcp-bridge", "serve", "--header", "X-Api-Key: " + secret["key"], "--header=Authorization: Bearer " + secret["bearer"],
		"-H", "X-Other: ${TOKEN}", "--header", "X-Unspaced:" + secret["unspaced"], "--config", config}, env)
	keptTexts.mu.Lock()
	defer keptTexts.mu.Unlock()
	for name, s := range secret {
		if !keptTexts.given[s] {
			t.Errorf("the %s secret is not searched for", name)
		}
	}
	for _, c := range []struct {
		argv []string
		want bool
	}{
		{[]string{"mcp-bridge", "serve", "--config", config}, true}, {[]string{"mcp-bridge", "serve", "--config=" + config}, true},
		{[]string{"mcp-bridge", "connect", config, "far"}, true}, {[]string{"mcp-bridge", "serve", "--config", plain}, false},
	} {
		if _, quiet := watched(c.argv, nil); quiet != c.want {
			t.Errorf("%q logs at the level trace: %v", c.argv, quiet)
		}
	}
}

// TestWrittenFiles: of a trace, the older files are searched, too, and nothing that is beside it.
func TestWrittenFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "trace")
	for _, name := range []string{"", ".1", ".12", ".tokens", "r"} {
		if err := os.WriteFile(file+name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, argv := range [][]string{{"mcp-bridge", "serve", "--trace", file}, {"mcp-bridge", "record", file, "--", "x"}} {
		if got, want := written(argv), []string{file, file + ".1", file + ".12"}; !slices.Equal(got, want) {
			t.Errorf("%q writes %q, want %q", argv, got, want)
		}
	}
}

// TestGiven: which secrets a bridge is given, and where it writes.
func TestGiven(t *testing.T) {
	t.Parallel()
	argv := []string{"mcp-bridge", "serve", "--token-file=/a", "--trace", "/b", "--", "x", "--token-file", "/c"}
	if got := flagValues(argv, secretFiles); len(got) != 1 || got[0] != "/a" {
		t.Errorf("files of secrets: %q", got)
	}
	if got := flagValues(argv, writtenFiles); len(got) != 1 || got[0] != "/b" {
		t.Errorf("files that it writes: %q", got)
	}
	if with, quiet := watched(argv, nil); !quiet || with[2] != "--log-level" || with[3] != "trace" || len(with) != len(argv)+2 {
		t.Errorf("started is %q, %v", with, quiet)
	}
}
