package main

import (
	"reflect"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/config"
)

// TestSettingsAreFlags: each key of a configuration file that names a flag is that flag:
// serve has it, it defaults to the same, and it changes what servers get.
func TestSettingsAreFlags(t *testing.T) {
	plain := new(serveFlags)
	plain.flagSet()
	if have, want := plain.settings(), config.DefaultSettings(); !reflect.DeepEqual(have, want) {
		t.Errorf("the flags default to\n%+v\nand the keys to\n%+v", have, want)
	}
	values := map[string]string{"string": "modern", "int": "7", "bool": "true", "duration": "7s", "stringArray": "x", "size": "7"}
	for key, flag := range config.Flags() {
		f := new(serveFlags)
		fs := f.flagSet()
		known := fs.Lookup(flag)
		if known == nil {
			t.Errorf("%s is --%s, which serve does not have", key, flag)
			continue
		}
		if err := fs.Set(flag, values[known.Value.Type()]); err != nil {
			t.Errorf("--%s: %v", flag, err)
			continue
		}
		if reflect.DeepEqual(f.settings(), plain.settings()) {
			t.Errorf("--%s changes nothing of what servers get", flag)
		}
	}
}

// Of those who may wait for a process, 0 says that nobody may, or not at all.
func TestNobodyWaits(t *testing.T) {
	var s config.Settings
	if spec := newHubSpec("x", s, hclog.NewNullLogger()); spec.Queue >= 0 || spec.QueueTimeout >= 0 {
		t.Errorf("0 is Queue %d and QueueTimeout %v, which are defaults unless they are negative", spec.Queue, spec.QueueTimeout)
	}
}
