package supervisor

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

// ST16: a secret of the bridge is absent in the child, whatever the policy.
func TestEnvironPolicies(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("names of Unix")
	}
	ours := []string{
		"HOME=/h", "PATH=/bin", "TOKEN=t=1", "MCP_BRIDGE_KEY=secret", "MCP_BRIDGE_PROCESS=x",
		"TERM=() { :; }", "EMPTY=", "USER=u",
	}
	for _, c := range []struct {
		policy string
		extra  []string
		want   string
	}{
		{"all", nil, "HOME=/h PATH=/bin TOKEN=t=1 EMPTY= USER=u"},
		{"safe", nil, "HOME=/h PATH=/bin USER=u"},
		{"none", nil, ""},
		{"TOKEN,ABSENT", nil, "TOKEN=t=1"},
		{"safe, TOKEN", nil, "HOME=/h PATH=/bin TOKEN=t=1 USER=u"},
		{"safe", []string{"PATH=/x", "NEW=a=b", "NEW=c"}, "HOME=/h USER=u PATH=/x NEW=c"},
		{"none", []string{"MCP_BRIDGE_KEY=given"}, "MCP_BRIDGE_KEY=given"},
		{"none", []string{"EMPTY="}, "EMPTY="},
	} {
		got, err := environ(ours, c.policy, c.extra)
		if err != nil || got == nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s %q: %q, %v; want %q", c.policy, c.extra, got, err, c.want)
		}
	}
}

func TestEnvironErrors(t *testing.T) {
	for _, c := range []struct {
		policy string
		extra  []string
		want   []string
	}{
		{"", nil, []string{"item 1", "all, safe, none"}},
		{"safe,A=secret", nil, []string{"item 2"}},
		{"HOME,,PATH", nil, []string{"item 2"}},
		{"MCP_BRIDGE_KEY", nil, []string{"belongs to the bridge", "another name"}},
		{"all", []string{"A=1", "secret"}, []string{"entry 2", "NAME=VALUE"}},
		{"all", []string{"=secret"}, []string{"entry 1", "NAME=VALUE"}},
		{"all", []string{"A=secret\x00"}, []string{"entry 1", "zero byte"}},
	} {
		_, err := Environ(c.policy, c.extra)
		if err == nil {
			t.Errorf("%q %q: no error", c.policy, c.extra)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q %q: %v; want it to say %q", c.policy, c.extra, err, want)
			}
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q %q: the error shows the content: %v", c.policy, c.extra, err)
		}
	}
}

func TestEnvironUsesOurEnvironment(t *testing.T) {
	t.Setenv("SUPERVISOR_TEST_VAR", "v")
	t.Setenv("MCP_BRIDGE_TEST_VAR", "v")
	env, err := Environ("all", nil)
	if err != nil || !slices.Contains(env, "SUPERVISOR_TEST_VAR=v") || slices.Contains(env, "MCP_BRIDGE_TEST_VAR=v") {
		t.Errorf("Environ: %v, %d variables", err, len(env))
	}
}
