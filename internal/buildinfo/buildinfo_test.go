package buildinfo

import (
	"encoding/json"
	"runtime/debug"
	"testing"
)

// What the program was built from says its version, and there always is one.
func TestVersion(t *testing.T) {
	built := func(path, version string, deps ...*debug.Module) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Path: path, Version: version}, Deps: deps}
	}
	for name, c := range map[string]struct {
		info          *debug.BuildInfo
		release, want string
	}{
		"a release":                {built(module, "(devel)"), "v1.2.3", "v1.2.3"},
		"installed":                {built(module, "v1.2.3"), "", "v1.2.3"},
		"go run":                   {built(module, "(devel)"), "", "(devel)"},
		"without a version":        {built(module, ""), "", "(devel)"},
		"without build info":       {nil, "", "(devel)"},
		"a part of something else": {built("example.org/x", "v9.0.0", &debug.Module{Path: module, Version: "v1.2.3"}), "", "v1.2.3"},
	} {
		if got := versionIn(c.info, c.release); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if Version() == "" {
		t.Error("there is no version")
	}
}

func TestImplementation(t *testing.T) {
	var i struct{ Name, Version string }
	if err := json.Unmarshal(Implementation(), &i); err != nil || i.Name != "mcp-bridge" || i.Version != Version() {
		t.Errorf("%s, %v", Implementation(), err)
	}
}
