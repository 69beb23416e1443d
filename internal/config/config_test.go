package config

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func TestMain(m *testing.M) { bridgetest.CheckLeaks(m) }

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file of testdata. Paths in it are relative to
// where the files are.
func golden(t *testing.T, name, text string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		return // other separators, and other words for a file that is not there
	}
	abs, err := filepath.Abs(filepath.Dir(name))
	bridgetest.Must(t, err)
	text = strings.ReplaceAll(text, abs+string(filepath.Separator), "")
	text = strings.ReplaceAll(text, filepath.Dir(name)+string(filepath.Separator), "") + "\n"
	if *update {
		bridgetest.Must(t, os.WriteFile(name, []byte(text), 0o600))
	}
	want, err := os.ReadFile(name)
	bridgetest.Must(t, err)
	if text != string(want) {
		t.Errorf("%s differs:\n%s\nwant:\n%s", name, text, want)
	}
}

func env(vars ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, v := range vars {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
}

// The files of clients load as they are, and say what they ignore.
func TestClientFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/clients/*.json")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		c, err := Load(file, Options{Lookup: env("API_TOKEN=t0ken", "HOME=/home/ann")})
		if err != nil {
			t.Errorf("%s:\n%v", file, err)
			continue
		}
		golden(t, strings.TrimSuffix(file, ".json")+".golden", dump(c))
	}
}

// dump shows all of a Config that differs from the defaults.
func dump(c *Config) string {
	var lines []string
	if c.MaxChildrenTotal != -1 {
		lines = append(lines, "maxChildrenTotal "+quoteAny(c.MaxChildrenTotal))
	}
	if len(c.Scopes) > 0 {
		lines = append(lines, "scopes "+quoteAny(c.Scopes))
	}
	for _, s := range c.Servers {
		lines = append(lines, "server "+printableName(s.Name))
		v := reflect.ValueOf(s)
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Name == "Name" || f.Name == "Settings" || v.Field(i).IsZero() {
				continue
			}
			lines = append(lines, "  "+f.Name+" "+quoteAny(v.Field(i).Interface()))
		}
		got, base := reflect.ValueOf(s.Settings), reflect.ValueOf(DefaultSettings())
		for i := range got.NumField() {
			if !reflect.DeepEqual(got.Field(i).Interface(), base.Field(i).Interface()) {
				lines = append(lines, "  Settings."+got.Type().Field(i).Name+" "+quoteAny(got.Field(i).Interface()))
			}
		}
	}
	for _, n := range c.Notices {
		lines = append(lines, "notice "+n.String())
	}
	return strings.Join(append(lines, "files "+strings.Join(c.Files, " ")), "\n")
}

// Every mistake of a file is told at once, with its place, and no secret is.
func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/broken/*.json")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		c, err := Load(file, Options{Lookup: env()})
		var problems Problems
		if !errors.As(err, &problems) {
			t.Errorf("%s: error %v, want Problems", file, err)
			continue
		}
		if c == nil || len(c.Servers) > 0 || len(c.Files) == 0 {
			t.Errorf("%s: a file with mistakes gives %+v", file, c)
		}
		golden(t, strings.TrimSuffix(file, ".json")+".golden", err.Error())
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error shows a secret:\n%v", file, err)
		}
	}
}

const one = `{"mcpServers": {"a": `

func parseOne(t *testing.T, server string, o Options) Server {
	t.Helper()
	c, err := parse("x.json", []byte(one+server+"}}"), o, nil)
	bridgetest.Must(t, err)
	return c.Servers[0]
}

func TestExpand(t *testing.T) {
	t.Parallel()
	lookup := env("A=1", "EMPTY=", "NESTED=${A}")
	for _, tt := range []struct{ in, want, flaw string }{
		{"", "", ""},
		{"plain $ $A $$ {A}", "plain $ $A $$ {A}", ""},
		{"${A}", "1", ""},
		{"x${A}y${A}z", "x1y1z", ""},
		{"${env:A}", "1", ""},
		{"${env:NONE:-d}", "d", ""},
		{"${NONE:-}", "", ""},
		{"${NONE:-a b$c:-d}", "a b$c:-d", ""},
		{"${EMPTY:-d}", "d", ""},
		{"${EMPTY}", "", ""},
		{"${NESTED}", "${A}", ""}, // once is enough: a value is no template
		{"$${A}", "${A}", ""},
		{"$$${A}", "$${A}", ""},
		{"$${A}${A}", "${A}1", ""},
		{"${NONE}", "", "the environment variable NONE is not set"},
		{"${}", "", "does not begin a variable"},
		{"${A", "", "no closing"},
		{"${1A}", "", "does not begin a variable"},
		{"${A:?no}", "", "does not begin a variable"},
		{"${A-b}", "", "does not begin a variable"},
		{"${input:x}", "", "VS Code asks"},
	} {
		got, flaws := expand(tt.in, lookup)
		switch {
		case tt.flaw == "" && (len(flaws) > 0 || got != tt.want):
			t.Errorf("%q became %q, %v; want %q", tt.in, got, flaws, tt.want)
		case tt.flaw != "" && (len(flaws) != 1 || !strings.Contains(flaws[0].text, tt.flaw)):
			t.Errorf("%q: flaws %v, want %q", tt.in, flaws, tt.flaw)
		}
	}
}

// What is nearer to a server counts: the server, the file's defaults, the
// flags, what is built in.
func TestDefaults(t *testing.T) {
	t.Parallel()
	flags := DefaultSettings()
	flags.Grace, flags.Queue, flags.MaxSessions, flags.PassEnv = 11*time.Second, 12, 13, "all"
	c, err := parse("x.json", []byte(`{
		"mcpServers": {
			"own": {"command": "x", "mcp-bridge": {"grace": "31s", "pty": null}},
			"none": {"command": "x"}
		},
		"mcp-bridge": {"defaults": {"grace": "21s", "queue": 22, "pty": true}}
	}`), Options{Defaults: &flags}, nil)
	bridgetest.Must(t, err)
	for i, grace := range []time.Duration{31 * time.Second, 21 * time.Second} {
		s := c.Servers[i]
		if s.Grace != grace || s.Queue != 22 || s.MaxSessions != 13 || s.PassEnv != "all" || !s.PTY || s.KillWait != 5*time.Second {
			t.Errorf("%s has %+v", s.Name, s.Settings)
		}
	}
	// ST16: a child of the file's gets the safe variables only, if nobody says
	// otherwise.
	if s := parseOne(t, `{"command": "x"}`, Options{}); s.PassEnv != "safe" || !s.Lazy {
		t.Errorf("built in: %+v", s.Settings)
	}
}

// A reload compares servers, which is how it tells which it can leave alone.
func TestEqual(t *testing.T) {
	t.Parallel()
	const text = `{"command": "x", "args": ["${A:-0}"], "env": {"K": "${B:-0}"}, "mcp-bridge": {"queue": 3}}`
	base := parseOne(t, text, Options{Lookup: env()})
	if !reflect.DeepEqual(base, parseOne(t, " /* moved */ "+text, Options{Lookup: env("C=1")})) {
		t.Error("the same server is not equal")
	}
	for name, other := range map[string]Server{
		"a variable in args": parseOne(t, text, Options{Lookup: env("A=1")}),
		"a variable in env":  parseOne(t, text, Options{Lookup: env("B=1")}),
		"a setting":          parseOne(t, strings.Replace(text, "3", "4", 1), Options{Lookup: env()}),
		"disabled":           parseOne(t, strings.Replace(text, "{", `{"disabled": true, `, 1), Options{Lookup: env()}),
	} {
		if reflect.DeepEqual(base, other) {
			t.Errorf("another value of %s makes no difference", name)
		}
	}
}

// The content of files that a server names belongs to it.
func TestFilesOfServers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		bridgetest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	load := func() *Config {
		t.Helper()
		c, err := Load(filepath.Join(dir, "c.json"), Options{Lookup: env("T=token")})
		bridgetest.Must(t, err)
		return c
	}
	put("c.json", "\xef\xbb\xbf"+`{"mcpServers": {
		"child": {"command": "x", "envFile": "e", "env": {"B": "own"}, "cwd": "sub/../w"},
		"far": {"url": "http://h/", "headers": {"x-b": "own"}, "mcp-bridge": {"headerFile": "h"}}}}`)
	put("e", "A=1\nB=file\n")
	put("h", "X-A: ${T}\nX-A: second\nX-B: file\n")
	c := load()
	if got := c.Servers[0].Environ(); !slices.Equal(got, []string{"A=1", "B=own"}) {
		t.Errorf("the child gets %q", got)
	}
	if got := c.Servers[0].Dir; got != filepath.Join(dir, "w") {
		t.Errorf("a relative cwd became %s", got)
	}
	h := c.Servers[1].Header
	if !slices.Equal(h.Values("X-A"), []string{"token", "second"}) || !slices.Equal(h.Values("X-B"), []string{"own"}) {
		t.Errorf("headers are %v", h)
	}
	if want := []string{filepath.Join(dir, "c.json"), filepath.Join(dir, "e"), filepath.Join(dir, "h")}; !slices.Equal(c.Files, want) {
		t.Errorf("files are %q, want %q", c.Files, want)
	}
	put("e", "A=2\n")
	if again := load(); reflect.DeepEqual(again.Servers[0], c.Servers[0]) || !reflect.DeepEqual(again.Servers[1], c.Servers[1]) {
		t.Error("a changed envFile must make a difference to its server, and to no other")
	}
}

// The variable of an argument that only the server's own "env" has is for the program: it is not set where the bridge runs, and
// clients that replace no variables give it to the program as it is written.
func TestVariableOfTheProgram(t *testing.T) {
	t.Parallel()
	text := func(args string) []byte {
		return []byte(`{"mcpServers": {"far": {"command": "npx", "args": ["mcp-remote", ` + args + `], "env": {"AUTH": "Bearer x"}}}}`)
	}
	for args, want := range map[string]string{
		`"Authorization:${AUTH}"`:         "Authorization:${AUTH}",
		`"${HERE}/${AUTH}/${AUTH:-none}"`: "here/${AUTH}/${AUTH}",
		`"${AUTH:-none}"`:                 "none",
	} {
		c, err := parse("c.json", text(args), Options{Lookup: env("HERE=here")}, nil)
		if err != nil || c.Servers[0].Args[1] != want {
			t.Errorf("%s became %v, %v; want %q", args, c, err, want)
		}
	}
	if c, err := parse("c.json", text(`"${AUTH}"`), Options{Lookup: env("AUTH=ours")}, nil); err != nil || c.Servers[0].Args[1] != "ours" {
		t.Errorf("a variable that is set: %v, %v", c, err)
	}
	if _, err := parse("c.json", text(`"${AUTH} ${ELSE}"`), Options{Lookup: env()}, nil); err == nil || !strings.Contains(err.Error(), "ELSE is not set") || strings.Contains(err.Error(), "AUTH") {
		t.Errorf("a variable that nobody has: %v", err)
	}
}

// Who wants one server need not have what the others need.
func TestOnly(t *testing.T) {
	t.Parallel()
	text := []byte(`{"mcpServers": {
		"a": {"command": "${A}"},
		"b": {"command": "${B}", "disabled": true}}}`)
	for _, tt := range []struct {
		only   string
		lookup func(string) (string, bool)
		wrong  string
	}{
		{"a", env("A=1"), ""},
		{"b", env("B=1"), ""},
		{"b", env("A=1"), "x.json:3:20: \"command\": the environment variable B is not set"},
		{"", env("A=1"), ""}, // b is disabled
		{"", env("B=1"), "x.json:2:20: \"command\": the environment variable A is not set"},
	} {
		c, err := parse("x.json", text, Options{Lookup: tt.lookup, OnlyServer: tt.only}, nil)
		switch {
		case tt.wrong == "" && (err != nil || len(c.Notices) != 1):
			t.Errorf("only %q: %v, notices %v; want the other server's variable as a notice", tt.only, err, c.Notices)
		case tt.wrong != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.wrong)):
			t.Errorf("only %q: %v, want %s", tt.only, err, tt.wrong)
		}
	}
}

// Comments as keys are left out where they can be nothing else.
func TestCommentKeys(t *testing.T) {
	t.Parallel()
	c, err := parse("x.json", []byte(`{"//": "servers", "#": 1, "mcpServers": {
		"//": "mine",
		"_files": {"_comment": "x", "command": "x", "url": null, "env": {"_X": "1", "Y": null}, "mcp-bridge": {"//": "", "queue": null}}
	}, "mcp-bridge": null}`), Options{}, nil)
	bridgetest.Must(t, err)
	if len(c.Servers) != 1 || c.Servers[0].Name != "_files" || !slices.Equal(c.Servers[0].Environ(), []string{"_X=1"}) || len(c.Notices) > 0 {
		t.Errorf("%+v", c)
	}
}

func TestServerByName(t *testing.T) {
	t.Parallel()
	c, err := parse("x.json", []byte(`{"mcpServers": {"files": {"command": "x"}, "My Tracker": {"command": "y"}}}`), Options{}, nil)
	bridgetest.Must(t, err)
	if s, err := c.Server("My Tracker"); err != nil || s.Command != "y" {
		t.Error(s, err)
	}
	for name, want := range map[string]string{
		"fiels": `there is no server "fiels": did you mean "files"?`,
		"other": `there is no server "other": the file has "files", "My Tracker"`,
	} {
		if _, err := c.Server(name); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "none.json")
	c, err := Load(file, Options{})
	if !errors.Is(err, os.ErrNotExist) || !slices.Equal(c.Files, []string{file}) {
		t.Errorf("a file that is not there: %+v, %v", c, err)
	}
	bridgetest.Must(t, os.WriteFile(file, make([]byte, maxFileSize+1), 0o600))
	if _, err := Load(file, Options{}); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a huge file: %v", err)
	}
	// The parser of JSON recurses: what is nested without bound must not reach it.
	if _, err := parse("x", []byte(strings.Repeat("[", maxFileSize)), Options{}, nil); err == nil || !strings.Contains(err.Error(), "brackets") {
		t.Errorf("deeply nested: %v", err)
	}
	if _, err := parse("x", []byte(strings.Repeat("[", maxBrackets)), Options{}, nil); err == nil {
		t.Error("deeply nested: no error")
	}
}

func quoteAny(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// "auth" is read as the flags of its keys take it: variables are expanded, and paths begin at the file. What it does
// not know is a mistake, and it has no effect for a command.
func TestAuth(t *testing.T) {
	read := func(text string) (*Config, error) {
		dir := t.TempDir()
		file := filepath.Join(dir, "c.json")
		bridgetest.Must(t, os.WriteFile(file, []byte(text), 0o600))
		return Load(file, Options{Lookup: func(name string) (string, bool) { return "canary", name == "SECRET" }})
	}
	c, err := read(`{"mcpServers":{"a":{"url":"https://h/mcp","mcp-bridge":{"auth":{"mode":"client-credentials","clientId":"c","clientSecret":"${SECRET}",
		"key":"k.pem","scopes":["x","y"],"authorizeParams":{"a":"b"},"redirectPort":4000,"noBrowser":true,"profile":null}}}}}`)
	bridgetest.Must(t, err)
	got := c.Servers[0].Auth
	if path := got["auth-key"]; len(path) != 1 || !filepath.IsAbs(path[0]) || filepath.Base(path[0]) != "k.pem" {
		t.Errorf("the key is %q", path)
	}
	delete(got, "auth-key")
	want := map[string][]string{"auth": {"client-credentials"}, "client-id": {"c"}, AuthSecret: {"canary"}, "scope": {"x", "y"},
		"authorize-param": {"a=b"}, "redirect-port": {"4000"}, "no-browser": {"true"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
	for text, says := range map[string]string{
		`{"clientID":"c"}`: `"clientId"`, `{"scopes":"x"}`: "an array", `{"redirectPort":"1"}`: "whole number", `{"noBrowser":"yes"}`: "true or false", `{"clientSecret":"${NONE}"}`: "NONE", `"auto"`: "object",
	} {
		if _, err := read(`{"mcpServers":{"a":{"url":"https://h/mcp","mcp-bridge":{"auth":` + text + `}}}}`); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	c, err = read(`{"mcpServers":{"a":{"command":"ls","mcp-bridge":{"auth":{"mode":"none"}}}}}`)
	bridgetest.Must(t, err)
	if len(c.Notices) == 0 {
		t.Error("a command is not signed in to, and nobody says so")
	}
}

// A client's next new key stops nobody: it is a notice, at the top and in a server. One that is similar to a key of ours is
// a mistake, and so is every one where the keys are ours.
func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	load := func(text string) (*Config, error) {
		return parse("servers.json", []byte(text), Options{Lookup: env()}, nil)
	}
	c, err := load(`{"brandNew": {"x": 1}, "mcpServers": {"a": {"command": "x", "bogus": 1}}}`)
	bridgetest.Must(t, err)
	if len(c.Notices) != 2 || !strings.Contains(c.Notices[0].String(), `servers.json:1:2: "brandNew" is not known here, and ignored`) ||
		!strings.Contains(c.Notices[1].String(), `"bogus" is not known here, and ignored`) || len(c.Servers) != 1 {
		t.Errorf("%v, %v", c.Servers, c.Notices)
	}
	for text, says := range map[string]string{
		`{"mcpserver": {}, "mcpServers": {"a": {"command": "x"}}}`:                      `did you mean "mcpServers"?`,
		`{"mcpServers": {"a": {"command": "x", "argss": []}}}`:                          `did you mean "args"?`,
		`{"mcpServers": {"a": {"command": "x", "ignoreTool": ["*"]}}}`:                  `did you mean "mcp-bridge": {"ignoreTools": ...}?`,
		`{"mcpServers": {"a": {"command": "x", "mcp-bridge": {"bogus": 1}}}}`:           "remove it",
		`{"mcpServers": {"a": {"command": "x"}}, "mcp-bridge": {"bogus": 1}}`:           "remove it",
		`{"brandNew": {"a": {"command": "x"}}}`:                                         "the file names no servers",
		`{"mcpServers": {"a": {"bogus": "x"}}}`:                                         `neither "command" nor "url"`,
		`{"mcpServers": {"a": {"command": "x"}}, "mcp-bridge": {"defaults": {"q": 1}}}`: "is not a setting of the bridge",
	} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", text, err, says)
		}
	}
}

// A relative command begins at the folder of the file; with a cwd, there, as with clients. A name is looked for in PATH.
func TestRelativeCommand(t *testing.T) {
	t.Parallel()
	abs, err := filepath.Abs("servers.json")
	bridgetest.Must(t, err)
	dir := filepath.Dir(abs)
	for text, want := range map[string]string{
		`"command": "./run"`:               filepath.Join(dir, "run"),
		`"command": "../bin/run"`:          filepath.Join(filepath.Dir(dir), "bin", "run"),
		`"command": "${BIN}/run"`:          filepath.Join(dir, "sub", "run"),
		`"command": "run"`:                 "run",
		`"command": "./run", "cwd": "sub"`: "./run",
	} {
		c, err := parse("servers.json", []byte(`{"mcpServers": {"a": {`+text+`}}}`), Options{Lookup: env("BIN=sub")}, nil)
		bridgetest.Must(t, err)
		if s := c.Servers[0]; s.Command != want || strings.Contains(text, "cwd") && s.Dir != filepath.Join(dir, "sub") {
			t.Errorf("%s: %q in %q; want %q", text, s.Command, s.Dir, want)
		}
	}
}
