// Package conformance runs the official MCP conformance suite against the
// bridge: its server scenarios through `mcp-bridge serve` in front of a stdio
// server and in front of a Streamable HTTP server, its client scenarios
// through `mcp-bridge connect` behind a stdio client. The same peers without
// the bridge are the yardstick.
package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

func TestMain(m *testing.M) { peers.Main(m) }

// want is how many scenarios the pinned suite has for each revision. A suite
// that silently runs fewer proves nothing.
var want = map[string]struct{ server, client int }{
	"2025-06-18": {server: 27, client: 2},
	"2025-11-25": {server: 33, client: 5},
}

// checks maps each check of a scenario to the worst status it had.
type checks map[string]string

// results maps scenario to checks.
type results map[string]checks

// rank orders the suite's statuses from harmless to bad.
var rank = map[string]int{"": 0, "INFO": 1, "SKIPPED": 1, "SUCCESS": 2, "WARNING": 3, "FAILURE": 4}

func TestServer(t *testing.T) {
	for version, n := range want {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			// The exceptions call the legs so.
			urls := map[string]string{
				"direct":     peers.GoHTTP(t),
				"server":     peers.Serve(t, "--", peers.GoEverything(t)),
				"server-url": peers.Serve(t, peers.GoHTTP(t)),
			}
			all := runServerSuites(t, urls, version)
			direct := all["direct"]
			delete(all, "direct")
			if len(direct) != n.server {
				t.Errorf("the suite ran %d scenarios, want %d", len(direct), n.server)
			}
			for leg, bridged := range all {
				judge(t, leg, version, direct, bridged)
			}
		})
	}
}

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
				direct := runClientScenario(t, client, scenario, version)
				bridged := runClientScenario(t, client+" "+peers.Bridge(t)+" connect", scenario, version)
				judge(t, "client", version, direct, bridged)
			})
		}
	}
}

// judge fails for every failed check, for every warning that the direct run
// did not give, and for every check that succeeded directly and is not even
// reported through the bridge, save the exceptions of exceptions.json. It also
// fails for an exception that is not needed.
func judge(t *testing.T, leg, version string, direct, bridged results) {
	t.Helper()
	passed := 0
	for _, scenario := range slices.Sorted(maps.Keys(direct)) {
		got, ran := bridged[scenario]
		if !ran {
			t.Errorf("%s did not run through the bridge", scenario)
			continue
		}
		bad := problems(direct[scenario], got)
		for _, e := range exceptions(t, leg, version, scenario) {
			if bad[e.Check] != e.Status {
				t.Errorf("%s: exceptions.json excuses %s %s, but it was %q: remove the exception", scenario, e.Check, e.Status, bad[e.Check])
			}
			delete(bad, e.Check)
		}
		for _, check := range slices.Sorted(maps.Keys(bad)) {
			t.Errorf("%s: check %s was %q directly and is %q through the bridge", scenario, check, direct[scenario][check], bad[check])
		}
		if len(bad) == 0 {
			passed++
		}
	}
	t.Logf("%s %s: %d of %d scenarios passed", leg, version, passed, len(direct))
}

func problems(direct, bridged checks) map[string]string {
	bad := map[string]string{}
	for check, status := range bridged {
		if status == "FAILURE" || status == "WARNING" && rank[direct[check]] < rank["WARNING"] {
			bad[check] = status
		}
	}
	for check, status := range direct {
		// INFO is a verdict too: "valid, but nothing to test here". The suite
		// gives it where a server answers with JSON instead of SSE.
		if _, reported := bridged[check]; status == "SUCCESS" && !reported {
			bad[check] = "MISSING"
		}
	}
	return bad
}

// exception excuses one check. Status is what the bridged run gives: FAILURE,
// WARNING, or MISSING for a check that is no longer reported.
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

// runServerSuites runs every server scenario of a revision against each URL,
// at the same time.
func runServerSuites(t *testing.T, urls map[string]string, version string) map[string]results {
	t.Helper()
	type ended struct {
		leg string
		results
		error
	}
	all := make(chan ended)
	for leg, url := range urls {
		argv := suite(t, "server", "--url", url, "--suite", "all", "--spec-version", version)
		go func() {
			res, err := runSuite(t, argv)
			all <- ended{leg, res, err}
		}()
	}
	out := map[string]results{}
	for range urls {
		e := <-all
		if e.error != nil {
			t.Errorf("%s: %v", e.leg, e.error)
		}
		out[e.leg] = e.results
	}
	return out
}

// runClientScenario lets the suite start command, with its server's URL added,
// as the client of one scenario.
func runClientScenario(t *testing.T, command, scenario, version string) results {
	t.Helper()
	res, err := runSuite(t, suite(t, "client", "--command", command, "--scenario", scenario, "--spec-version", version))
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// suite is a command line of the suite.
func suite(t *testing.T, args ...string) []string {
	t.Helper()
	return append(peers.Conformance(t), args...)
}

// runSuite leaves the verdict to judge: the suite's exit status is only the
// presence of failures. What cannot be read back is an error.
func runSuite(t *testing.T, argv []string) (results, error) {
	leg, dir := argv[2], t.TempDir()
	argv = append(argv, "-o", dir)
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	files, _ := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
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
	var list []struct{ ID, Status string }
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	out := checks{}
	for _, c := range list {
		if rank[c.Status] == 0 {
			return nil, fmt.Errorf("%s: unknown status %q", file, c.Status)
		}
		if rank[c.Status] > rank[out[c.ID]] {
			out[c.ID] = c.Status
		}
	}
	return out, nil
}

var listed = regexp.MustCompile(`(?m)^  - (\S+) \[`)

// clientScenarios asks the suite for the client scenarios of a revision and
// leaves out those that are about authorization.
func clientScenarios(t *testing.T, version string) []string {
	t.Helper()
	argv := append(peers.Conformance(t), "list", "--client", "--spec-version", version)
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatal(fmt.Errorf("listing the suite's scenarios: %w", err))
	}
	var names []string
	for _, m := range listed.FindAllSubmatch(out, -1) {
		if name := string(m[1]); !strings.HasPrefix(name, "auth/") {
			names = append(names, name)
		}
	}
	return names
}
