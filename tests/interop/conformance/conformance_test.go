// Package conformance runs the official MCP conformance suite against the
// bridge: its server scenarios through `mcp-bridge serve` in front of stdio
// and Streamable HTTP servers of both eras, its client scenarios through
// `mcp-bridge connect` behind stdio clients of both eras. The same peers
// without the bridge are the yardstick.
package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

func TestMain(m *testing.M) { peers.Main(m) }

// want is how many scenarios the pinned suite has for each revision. A suite
// that silently runs fewer proves nothing.
var want = map[string]struct{ server, client int }{
	"2025-06-18": {server: 27, client: 2},
	"2025-11-25": {server: 33, client: 5},
	modern:       {server: 40, client: 8},
}

const modern = "2026-07-28"

// checks maps each check of a scenario to the worst status it had.
type checks map[string]string

// results maps scenario to checks.
type results map[string]checks

// rank orders the suite's statuses from harmless to bad.
var rank = map[string]int{"": 0, "INFO": 1, "SKIPPED": 1, "SUCCESS": 2, "WARNING": 3, "FAILURE": 4}

// A leg is a bridge with a server behind it. The exceptions call it by its name.
type leg struct {
	name   string
	direct string // the yardstick: the server's SDK
	serve  func(t testing.TB) []string
	since  string // the first revision that it is for; "" for all of them
}

const everything = "everything.mjs"

func tsCommand(t testing.TB, mode string) []string {
	return append([]string{"--"}, peers.TypeScript(t, everything, mode)...)
}

func goCommand(t testing.TB) []string { return []string{"--", peers.GoEverything(t)} }

// The servers of both SDKs that speak both eras are legacy or modern because
// the bridge is told so; by itself, it speaks with them as its client does.
var legs = []leg{
	{name: "legacy go", direct: "go", serve: func(t testing.TB) []string { return append([]string{"--protocol", "legacy"}, goCommand(t)...) }},
	{name: "legacy go url", direct: "go", serve: func(t testing.TB) []string { return []string{peers.GoHTTP(t)} }},
	{name: "legacy typescript", direct: "typescript", since: modern, serve: func(t testing.TB) []string { return tsCommand(t, "legacy") }},
	{name: "modern go", direct: "go", serve: func(t testing.TB) []string { return append([]string{"--protocol", "modern"}, goCommand(t)...) }},
	{name: "modern go url", direct: "go", since: modern, serve: func(t testing.TB) []string { return []string{peers.GoModernHTTP(t)} }},
	{name: "modern typescript", since: "2025-11-25", direct: "typescript", serve: func(t testing.TB) []string { return append([]string{"--protocol", "modern"}, tsCommand(t, "stdio")...) }},
	{name: "modern typescript url", since: "2025-11-25", direct: "typescript", serve: func(t testing.TB) []string {
		return []string{"--protocol", "modern", peers.TypeScriptHTTP(t, everything)}
	}},
	{name: "both eras", since: "2025-11-25", direct: "go", serve: goCommand},
	{name: "demo", since: "2025-11-25", direct: "go", serve: func(t testing.TB) []string { return []string{"--", peers.DemoEverything(t)} }},
}

// A suite waits half a second for some things, and on a busy machine they come later. So few suites run at a time, and one with
// a wrong check runs again while no other does. The Go SDK's server also passes one check by chance on stdio, that of
// notifications/prompts/list_changed on a subscription: the end of a session's older subscription ends its newer one, too, if the
// server sees it later.
var (
	atOnce  = make(chan struct{}, 3) // holds an element for each suite that runs among others
	running sync.RWMutex             // is read-locked by each suite that runs among others, and locked by one that runs alone
)

const tries = 4 // how often a suite runs at most

// TestServer runs the server scenarios: directly, which must leave nothing to
// be desired but what exceptions.json lists, and through the bridge.
func TestServer(t *testing.T) {
	for version, n := range want {
		t.Run(version, func(t *testing.T) {
			direct := runDirectly(t, version)
			for sdk, res := range direct {
				if len(res) != n.server {
					t.Errorf("the suite ran %d scenarios against %s, want %d", len(res), sdk, n.server)
				}
			}
			for _, l := range legs {
				if version < l.since {
					continue
				}
				t.Run(l.name, func(t *testing.T) {
					t.Parallel()
					url := peers.Serve(t, l.serve(t)...)
					if version == modern && strings.HasPrefix(l.name, "legacy") {
						warm(t, url)
					}
					runAndJudge(t, l.name, version, direct[l.direct], func() (results, error) { return serverSuite(t, url, version) })
				})
			}
		})
	}
}

// runDirectly runs the server scenarios without the bridge, by SDK.
func runDirectly(t *testing.T, version string) map[string]results {
	t.Helper()
	goURL := peers.GoHTTP
	if version == modern {
		goURL = peers.GoModernHTTP
	}
	all := map[string]results{}
	for sdk, url := range map[string]string{"go": goURL(t), "typescript": peers.TypeScriptHTTP(t, everything)} {
		all[sdk] = runAndJudge(t, "direct "+sdk, version, nil, func() (results, error) { return serverSuite(t, url, version) })
	}
	return all
}

// A clientLeg is a client on stdio with `mcp-bridge connect` behind it.
type clientLeg struct{ name, revision, flags string }

func clientLegs(version string) []clientLeg {
	if version == modern {
		return []clientLeg{
			{"modern client", modern, ""},
			{"legacy client", "2025-11-25", "--protocol modern "},
			{"legacy client auto", "2025-11-25", ""},
		}
	}
	return []clientLeg{{"legacy client", version, ""}, {"modern client", modern, ""}}
}

// TestClient runs the client scenarios: with a client of the suite's revision
// directly, and through the bridge with clients of both eras.
func TestClient(t *testing.T) {
	for version, n := range want {
		scenarios := clientScenarios(t, version)
		if len(scenarios) != n.client {
			t.Errorf("%s: the suite has the non-auth client scenarios %q, want %d", version, scenarios, n.client)
		}
		for _, scenario := range scenarios {
			// Not parallel: sse-retry measures time, to 200 ms.
			t.Run(version+"/"+scenario, func(t *testing.T) {
				client := peers.StdioClient(t)
				runLeg := func(leg, command string, direct results) results {
					return runAndJudge(t, leg, version, direct, func() (results, error) { return runClientScenario(t, command, scenario, version) })
				}
				direct := runLeg("direct client", client, nil)
				for _, l := range clientLegs(version) {
					command := client + " -revision " + l.revision + " " + peers.Bridge(t) + " connect " + l.flags
					runLeg(l.name, strings.TrimSpace(command), direct)
				}
			})
		}
	}
}

// runAndJudge runs a suite until judge finds nothing wrong, tries times at most, and returns the results of the last run. What is
// wrong in that one fails the test; what was wrong before is logged.
func runAndJudge(t *testing.T, leg, version string, direct results, run func() (results, error)) results {
	t.Helper()
	res, err := runAmongOthers(run)
	for try := 1; err == nil; try++ {
		wrong, summary := judge(t, leg, version, direct, res)
		if len(wrong) == 0 || try == tries {
			for _, text := range wrong {
				t.Error(text)
			}
			t.Log(summary)
			return res
		}
		t.Logf("once more, alone: %s", strings.Join(wrong, "\n"))
		res, err = runAlone(run)
	}
	t.Fatal(err)
	return nil
}

func runAmongOthers(run func() (results, error)) (results, error) {
	running.RLock()
	defer running.RUnlock()
	atOnce <- struct{}{}
	defer func() { <-atOnce }()
	return run()
}

func runAlone(run func() (results, error)) (results, error) {
	running.Lock()
	defer running.Unlock()
	return run()
}

// judge returns a text for each failed check, for each warning that the direct run
// did not give, and for each check that succeeded directly and is skipped or
// not even reported through the bridge, save the exceptions of exceptions.json;
// and one for each exception that is not needed. summary counts the scenarios. The direct run itself has
// no yardstick: direct is nil then.
func judge(t *testing.T, leg, version string, direct, bridged results) (wrong []string, summary string) {
	t.Helper()
	note := func(format string, args ...any) { wrong = append(wrong, leg+": "+fmt.Sprintf(format, args...)) }
	passed, excused := 0, 0
	all := direct
	if direct == nil {
		all = bridged
	}
	for _, scenario := range slices.Sorted(maps.Keys(all)) {
		got, ran := bridged[scenario]
		if !ran {
			note("%s did not run", scenario)
			continue
		}
		bad := problems(direct[scenario], got)
		excuses := exceptions(t, leg, version, scenario)
		for _, e := range excuses {
			if bad[e.Check] != e.Status {
				note("%s: exceptions.json excuses %s %s, but it was %q: remove the exception", scenario, e.Check, e.Status, bad[e.Check])
			}
			delete(bad, e.Check)
		}
		for _, check := range slices.Sorted(maps.Keys(bad)) {
			note("%s: check %s is %q; directly %q", scenario, check, bad[check], direct[scenario][check])
		}
		switch {
		case len(bad) > 0:
		case len(excuses) > 0:
			excused++
		default:
			passed++
		}
	}
	return wrong, fmt.Sprintf("%s %s: %d of %d scenarios passed, %d with exceptions", leg, version, passed, len(all), excused)
}

func problems(direct, bridged checks) map[string]string {
	bad := map[string]string{}
	for check, status := range bridged {
		if status == "FAILURE" || status == "WARNING" && rank[direct[check]] < rank["WARNING"] {
			bad[check] = status
		}
	}
	for check, status := range direct {
		if status != "SUCCESS" {
			continue
		}
		// INFO is a verdict too: "valid, but nothing to test here". The suite
		// gives it where a server answers with JSON instead of SSE.
		switch bridged[check] {
		case "":
			bad[check] = "MISSING"
		case "SKIPPED":
			bad[check] = "SKIPPED"
		}
	}
	return bad
}

// exception excuses one check. Status is what the run gives: FAILURE, WARNING,
// or, through the bridge, SKIPPED or MISSING for a check that succeeds directly.
type exception struct {
	Leg, Version, Scenario, Check, Status, Reason string
}

func exceptions(t *testing.T, leg, version, scenario string) []exception {
	t.Helper()
	data, err := os.ReadFile("exceptions.json")
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var all []exception
	if err := dec.Decode(&all); err != nil {
		t.Fatalf("exceptions.json: %v", err)
	}
	return slices.DeleteFunc(all, func(e exception) bool {
		if e.Reason == "" {
			t.Errorf("exceptions.json: %s %s has no reason", e.Scenario, e.Check)
		}
		return e.Leg != leg || e.Version != version || e.Scenario != scenario
	})
}

// warm lets the bridge start the processes of an older server, one for each set
// of capabilities, or open its sessions. The suite waits 600 ms for some calls: on
// a busy machine no process starts in that time.
func warm(t *testing.T, url string) {
	t.Helper()
	for _, capabilities := range []string{`{}`, `{"elicitation":{}}`, `{"sampling":{}}`, `{"elicitation":{},"sampling":{},"roots":{}}`} {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modern +
			`","io.modelcontextprotocol/clientCapabilities":` + capabilities + `}}}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"MCP-Protocol-Version": modern, "Mcp-Method": "tools/list"} {
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("with the capabilities %s the bridge answered %s", capabilities, resp.Status)
		}
	}
}

// serverSuite runs every server scenario of a revision against a URL.
func serverSuite(t *testing.T, url, version string) (results, error) {
	t.Helper()
	return runSuite(t, suite(t, "server", "--url", url, "--suite", "all", "--spec-version", version))
}

// runClientScenario lets the suite start command, with its server's URL added,
// as the client of one scenario.
func runClientScenario(t *testing.T, command, scenario, version string) (results, error) {
	t.Helper()
	return runSuite(t, suite(t, "client", "--command", command, "--scenario", scenario, "--spec-version", version))
}

// suite is a command line of the suite.
func suite(t *testing.T, args ...string) []string {
	t.Helper()
	return append(peers.Conformance(t), args...)
}

// runSuite leaves the verdict to judge: the suite's exit status is only the
// presence of failures. What cannot be read back is an error.
func runSuite(t *testing.T, argv []string, env ...string) (results, error) {
	leg, dir := argv[2], t.TempDir()
	argv = append(argv, "-o", dir)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	files, _ := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	inFolder, _ := filepath.Glob(filepath.Join(dir, "*", "*", "checks.json")) // of "auth/..."
	files = append(files, inFolder...)
	if len(files) == 0 {
		return nil, fmt.Errorf("the suite left no result (%v):\n%s", err, out)
	}
	if err != nil {
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("conformance %s: %v\n%s", strings.Join(argv[2:], " "), err, tail(out))
			}
		})
	}
	res := results{}
	for _, file := range files {
		if res[scenarioOf(leg, file)], err = readChecks(file); err != nil {
			return nil, err
		}
	}
	return res, nil
}

func tail(out []byte) []byte {
	const most = 12 << 10
	return out[max(0, len(out)-most):]
}

var stamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT[\d-]+Z$`)

// scenarioOf undoes the suite's naming of result folders.
func scenarioOf(leg, file string) string {
	name := stamp.ReplaceAllString(filepath.Base(filepath.Dir(file)), "")
	if leg == "server" {
		name = strings.TrimPrefix(name, "server-")
	}
	return name
}

func readChecks(file string) (checks, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list []struct{ ID, Name, Status string }
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	out := checks{}
	for _, c := range list {
		if rank[c.Status] == 0 {
			return nil, fmt.Errorf("%s: unknown status %q", file, c.Status)
		}
		// One id has many checks of different names.
		check := c.ID + " " + c.Name
		if rank[c.Status] > rank[out[check]] {
			out[check] = c.Status
		}
	}
	return out, nil
}

var listed = regexp.MustCompile(`(?m)^  - (\S+) \[`)

// clientScenarios asks the suite for the client scenarios of a revision and
// leaves out those that are about authorization.
func clientScenarios(t *testing.T, version string) []string {
	t.Helper()
	return slices.DeleteFunc(listScenarios(t, listed, "--spec-version", version), isAuth)
}

func isAuth(scenario string) bool { return strings.HasPrefix(scenario, "auth/") }

// listScenarios asks the suite for client scenarios; what finds the names.
func listScenarios(t *testing.T, what *regexp.Regexp, args ...string) []string {
	t.Helper()
	argv := append(append(peers.Conformance(t), "list", "--client"), args...)
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatal(fmt.Errorf("listing the suite's scenarios: %w", err))
	}
	var names []string
	for _, m := range what.FindAllSubmatch(out, -1) {
		names = append(names, string(m[1]))
	}
	return names
}
