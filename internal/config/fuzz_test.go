package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// FuzzParse: no input makes a panic, an error has places that exist, and what
// loads keeps the promises of Config.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/clients/*.json", "testdata/broken/*.json"} {
		files, err := filepath.Glob(pattern)
		bridgetest.Must(f, err)
		for _, file := range files {
			data, err := os.ReadFile(file)
			bridgetest.Must(f, err)
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse("x.json", data, Options{Lookup: env("HOME=/h")}, nil)
		if c == nil {
			t.Fatal("no Config")
		}
		var problems Problems
		if err != nil && (!errors.As(err, &problems) || len(problems) == 0) {
			t.Fatalf("an error that is no Problems: %v", err)
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, p := range append(problems, c.Notices...) {
			if p.Line < 1 || p.Line > lines || p.Column < 1 || p.Column > len(data)+1 || p.Text == "" || strings.Contains(p.Text, "\n") {
				t.Errorf("a problem without a place in the file: %+v", p)
			}
		}
		names := map[string]bool{}
		for _, s := range c.Servers {
			if checkName(s.Name) != "" || names[s.Name] {
				t.Errorf("a server is called %q", s.Name)
			}
			names[s.Name] = true
			if !s.Disabled && (s.Command == "") == (s.URL == "") {
				t.Errorf("server %q has command %q and URL %q", s.Name, s.Command, s.URL)
			}
			if s.MaxSessions < 1 || s.MaxMessageSize < 1 || s.Grace < 0 {
				t.Errorf("server %q has settings %+v", s.Name, s.Settings)
			}
		}
	})
}

// marker is what must stand in no message. It cannot be the name of a
// variable: those are shown.
const marker = "s3cret-m4rker"

// FuzzSecrets: the values of env and headers, arguments and URLs stand in no
// error and no notice, wherever the file breaks off and whatever is put into it.
func FuzzSecrets(f *testing.F) {
	f.Add("", "", uint(0), "")
	f.Add("${", "}", uint(1000), "")
	f.Add("${", ":-", uint(1000), "")
	f.Add("a\n", "\x00", uint(70), "\n")
	f.Add("$", " $A", uint(120), "'")
	f.Add("%zz://", "#", uint(90), "\\")
	f.Add("~/", "=", uint(200), `"`)
	f.Fuzz(func(t *testing.T, before, after string, at uint, junk string) {
		encoded, err := json.Marshal(before + marker + after)
		if err != nil || strings.Contains(junk, "4") {
			t.Skip()
		}
		text := fmt.Sprintf(`{"mcpServers": {
			"a": {"command": "x", "env": {"A": %[1]s, "B": [%[1]s], "C": 7}, "args": [%[1]s]},
			"b": {"url": %[1]s, "headers": {"A": %[1]s, "B": {"x": %[1]s}}, "mcp-bridge": {"headerFile": "x"}},
			"c": {"url": "https://h/?k=%[2]s#%[2]s", "headers": %[1]s, "env": %[1]s},
			"d": {"command": %[1]s, "args": %[1]s, "url": %[1]s}
		}}`, encoded, marker)
		for _, text := range []string{text, text[:at%uint(len(text))] + junk, text[:at%uint(len(text))] + junk + text[at%uint(len(text)):]} {
			c, err := parse("x.json", []byte(text), Options{Lookup: env()}, nil)
			said := fmt.Sprint(err)
			for _, n := range c.Notices {
				said += "\n" + n.String()
			}
			if strings.Contains(said, marker) && !keyed(text) {
				t.Fatalf("the secret is shown:\n%s\nof\n%s", said, text)
			}
		}
	})
}

// keyed reports whether what was put into the file has made the secret a key:
// keys are shown.
func keyed(text string) bool {
	return strings.Contains(strings.NewReplacer(" ", "", "\t", "", "\n", "", "\r", "").Replace(text), marker+`":`)
}
