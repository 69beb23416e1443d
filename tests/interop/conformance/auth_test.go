package conformance

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// extension stands for the scenarios that belong to no revision.
const extension = "extension"

// wantAuth is how many scenarios about authorization the pinned suite has for each revision.
var wantAuth = map[string]int{"2025-03-26": 2, "2025-06-18": 3, "2025-11-25": 14, modern: 25, extension: 6}

var listedExtension = regexp.MustCompile(`(?m)^  - (auth/\S+) \[extension\]`)

// authAtOnce bounds how many of them run at a time: they wait for processes to start, most of all.
var authAtOnce = make(chan struct{}, 6)

// TestAuth runs the client scenarios about authorization through "mcp-bridge connect", which signs in: with a client of
// the revision, and for the newest one and the extensions with a legacy one, too. No check may fail, or warn.
func TestAuth(t *testing.T) {
	client, bridge := peers.StdioClient(t), peers.Bridge(t)
	for version, n := range wantAuth {
		scenarios := authScenarios(t, version)
		if len(scenarios) != n {
			t.Errorf("%s: the suite has the auth scenarios %q, want %d", version, scenarios, n)
		}
		revisions := []string{version}
		if version == modern || version == extension {
			revisions = []string{modern, "2025-11-25"}
		}
		for _, scenario := range scenarios {
			for _, revision := range revisions {
				t.Run(version+"/"+strings.TrimPrefix(scenario, "auth/")+"/"+revision, func(t *testing.T) {
					t.Parallel()
					authAtOnce <- struct{}{}
					defer func() { <-authAtOnce }()
					argv := suite(t, "client", "--command", client+" -revision "+revision+" "+bridge+" connect", "--scenario", scenario)
					if version != extension {
						argv = append(argv, "--spec-version", version)
					}
					got, err := runSuite(t, argv, "BROWSER="+client+" -browse")
					if err != nil {
						t.Fatal(err)
					}
					judgeAuth(t, got)
				})
			}
		}
	}
}

// authScenarios asks the suite for the scenarios about authorization.
func authScenarios(t *testing.T, version string) []string {
	t.Helper()
	if version == extension {
		return listScenarios(t, listedExtension)
	}
	return slices.DeleteFunc(listScenarios(t, listed, "--spec-version", version), func(name string) bool { return !isAuth(name) })
}

// judgeAuth fails for each check that failed or warned, and for a scenario in which none succeeded.
func judgeAuth(t *testing.T, got results) {
	t.Helper()
	good := 0
	for scenario, all := range got {
		for check, status := range all {
			switch status {
			case "SUCCESS":
				good++
			case "FAILURE", "WARNING":
				t.Errorf("%s: check %s is %q", scenario, check, status)
			}
		}
	}
	if good == 0 {
		t.Error("no check succeeded")
	}
}
