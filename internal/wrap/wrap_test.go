package wrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tailscale/hujson"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

const program = `/opt/mcp "x" <&>/mcp-bridge`

// samples are configurations with a server a, in the styles that people write.
var samples = map[string]string{
	"compact":      `{"mcpServers":{"a":{"command":"npx","args":["-y","pkg"],"env":{"K":"v"}}}}`,
	"lines":        "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"npx\",\n      \"args\": [\n        \"-y\",\n        \"pkg\"\n      ]\n    }\n  }\n}\n",
	"windows":      "{\r\n\t\"mcpServers\" : {\r\n\t\t\"a\" : { \"args\" : [ \"-y\" ] , \"command\" : \"C:\\\\npx.cmd\" }\r\n}}\r\n",
	"comments":     "// mine\n{\"servers\": {/* a */ \"a\": {\"type\": \"stdio\", \"command\": \"n\\u0070x\" /* why */, \"args\": [ /* none */ \"-y\" /* yes */, // so\n \"pkg\",],}, },}\n// end",
	"no args":      `{"mcpServers":{"a":{"command":"server" /* c */ , "env":{}}}}`,
	"command only": "{\"mcpServers\":{\"a\":{\n\t\"command\": \"server\",\n}}}",
	"last":         `{"mcpServers":{"a":{"env":{},"command":"server"}}}`,
	"empty args":   `{"mcpServers":{"a":{"command":"server","args":[]}}}`,
	"empty spaced": `{"mcpServers":{"a":{"args":[ /* x */ ], "command":"server"}}}`,
	"one argument": `{"mcpServers":{"b":{"command":"x"},"a":{"command":"--","args":["--"]}}}`,
	"dashes":       `{"mcpServers":{"a":{"command":"server","args":["connect","--name=z","http://x"]}}}`,
	"mark":         "\xef\xbb\xbf" + `{"mcpServers":{"a":{"command":"x"}}}`,
	"key escaped":  `{"mcpServers":{"\u0061":{"comm\u0061nd":"x","args":["é","\ud83d\ude00"]}}}`,
}

// plain returns a configuration without comments, decoded.
func plain(t *testing.T, text []byte) map[string]any {
	t.Helper()
	text, err := hujson.Standardize(append(bytes.TrimPrefix(bytes.Clone(text), []byte(byteOrderMark)), 10))
	bridgetest.Must(t, err)
	var v map[string]any
	bridgetest.Must(t, json.Unmarshal(text, &v))
	return v
}

// server returns the server a, and the rest without its command and args.
func server(v map[string]any) (command string, args []any, rest map[string]any) {
	all, ok := v["mcpServers"].(map[string]any)
	if !ok {
		all = v["servers"].(map[string]any)
	}
	a := all["a"].(map[string]any)
	command, _ = a["command"].(string)
	args, _ = a["args"].([]any)
	delete(a, "command")
	delete(a, "args")
	return command, args, v
}

// The command becomes the bridge's, all else stays; and unwrapped it is what it was, byte
// for byte.
func TestThereAndBack(t *testing.T) {
	for name, text := range samples {
		t.Run(name, func(t *testing.T) {
			wrapped, err := Wrap([]byte(text), "a", program)
			bridgetest.Must(t, err)
			command, args, rest := server(plain(t, []byte(text)))
			now, nowArgs, nowRest := server(plain(t, wrapped))
			var behind []any
			for i, v := range nowArgs {
				if v == "--" {
					behind = nowArgs[i+1:]
					break
				}
			}
			if want := append([]any{command}, args...); now != program || nowArgs[0] != "connect" || !reflect.DeepEqual(behind, want) || !reflect.DeepEqual(rest, nowRest) {
				t.Errorf("wrapped it is\n%s", wrapped)
			}
			if _, err := Wrap(wrapped, "a", program); !errors.Is(err, ErrAlreadyWrapped) {
				t.Error("wrapped twice:", err)
			}
			back, err := Unwrap(wrapped, "a")
			if err != nil || string(back) != text {
				t.Errorf("%v; it was\n%s\nwrapped\n%s\nand then\n%s", err, text, wrapped, back)
			}
			if _, err := Unwrap(back, "a"); !errors.Is(err, ErrNotWrapped) {
				t.Error("unwrapped twice:", err)
			}
			// A client may write its file anew meanwhile: the meaning comes back.
			compact, err := json.Marshal(plain(t, wrapped))
			bridgetest.Must(t, err)
			if back, err = Unwrap(compact, "a"); err != nil || !reflect.DeepEqual(plain(t, back), plain(t, []byte(text))) {
				t.Errorf("%v: %s", err, back)
			}
		})
	}
}

// Flags that somebody has added for the bridge go with it.
func TestUnwrapFlags(t *testing.T) {
	have, err := Unwrap([]byte(`{"mcpServers":{"a":{"command":"mcp-bridge.exe","args":["connect","--trace","f","--","npx","-y"]}}}`), "a")
	if want := `{"mcpServers":{"a":{"command":"npx","args":["-y"]}}}`; err != nil || string(have) != want {
		t.Error(string(have), err)
	}
}

// A bridge in front of mcp-bridge would show nothing that the one behind it does not.
func TestWrapBridge(t *testing.T) {
	for _, command := range []string{"mcp-bridge", "/usr/bin/mcp-bridge", `C:\\bin\\mcp-bridge.exe`} {
		text := `{"mcpServers":{"a":{"command":"` + command + `","args":["connect","https://host.example/mcp"]}}}`
		if _, err := Wrap([]byte(text), "a", program); !errors.Is(err, ErrIsBridge) {
			t.Errorf("%s: %v", command, err)
		}
		if _, err := Unwrap([]byte(text), "a"); !errors.Is(err, ErrNotWrapped) {
			t.Errorf("%s: unwrap: %v", command, err)
		}
		demo := `{"mcpServers":{"a":{"command":"` + command + `","args":["demo"]}}}`
		if _, err := Wrap([]byte(demo), "a", program); err != nil {
			t.Errorf("%s demo: %v", command, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, "not JSON"},
		{`{"mcpServers":{"a":{"command":"secret}`, "not JSON"},
		{"{\"mcpServers\":{\"a\":\"\xff\"}}", "UTF-8"},
		{strings.Repeat("[", 1e6), "brackets"},
		{`[]`, "an object"},
		{`{}`, "none of the members"},
		{`{"mcpServers":[]}`, "not an object"},
		{`{"mcpServers":{"b":{"command":"x"}}}`, "no such server"},
		{`{"mcpServers":{"a":{"command":"x"},"a":{"command":"y"}}}`, "twice"},
		{`{"mcpServers":{"a":[]}}`, "not an object"},
		{`{"mcpServers":{"a":{"url":"https://secret"}}}`, `write "command": "mcp-bridge", "args": ["connect", "URL"] in place of its URL`},
		{`{"mcpServers":{"a":{"command":["x"]}}}`, "not a string"},
		{`{"mcpServers":{"a":{"command":"x","args":"y"}}}`, "array of strings"},
		{`{"mcpServers":{"a":{"command":"x","args":[1]}}}`, "array of strings"},
		{`{"mcpServers":{"a":{"command":"x","command":"y"}}}`, "twice"},
	} {
		for _, f := range []func() ([]byte, error){
			func() ([]byte, error) { return Wrap([]byte(c.text), "a", program) }, func() ([]byte, error) { return Unwrap([]byte(c.text), "a") },
		} {
			if _, err := f(); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v, want %s", c.text[:min(len(c.text), 100)], err, c.want)
			}
		}
	}
}

func TestChange(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "mcp.json")
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	bridgetest.Must(t, os.WriteFile(file, []byte("old"), 0o640))
	bridgetest.Must(t, os.Chmod(file, 0o640))
	to := func(text string) func([]byte) ([]byte, error) {
		return func([]byte) ([]byte, error) { return []byte(text), nil }
	}
	backup, err := EditFile(file, now, to("new"))
	bridgetest.Must(t, err)
	for name, want := range map[string]struct {
		text string
		mode os.FileMode
	}{file: {"new", 0o640}, backup: {"old", 0o600}} {
		text, err := os.ReadFile(name)
		bridgetest.Must(t, err)
		info, err := os.Stat(name)
		if bridgetest.Must(t, err); string(text) != want.text || runtime.GOOS != "windows" && info.Mode() != want.mode {
			t.Error(name, string(text), info.Mode())
		}
	}
	if backup != file+".bak-20260102-030405.000" {
		t.Error(backup)
	}
	count := func() int {
		all, err := os.ReadDir(dir)
		bridgetest.Must(t, err)
		return len(all)
	}
	before := count()
	refused := func(file, want string, edit func([]byte) ([]byte, error)) {
		t.Helper()
		if _, err := EditFile(file, now.Add(time.Hour), edit); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
		if text, _ := os.ReadFile(filepath.Join(dir, "mcp.json")); string(text) != "new" && string(text) != "theirs" || count() != before {
			t.Errorf("%s: it has left something behind: %s", want, text)
		}
	}
	refused(file, "no such server", func([]byte) ([]byte, error) { return nil, ErrNoServer })
	refused(filepath.Join(dir, "none"), "none", to(""))
	refused(dir, "not a file", to(""))
	refused(file, "somebody else", func([]byte) ([]byte, error) { return []byte("x"), os.WriteFile(file, []byte("theirs"), 0o640) })
	if runtime.GOOS == "windows" {
		return
	}
	link := filepath.Join(dir, "link")
	bridgetest.Must(t, os.Symlink(file, link))
	before++
	refused(link, "symbolic link", to(""))
	if os.Getuid() != 0 {
		bridgetest.Must(t, os.Chmod(file, 0o440))
		refused(file, "permission denied", to(""))
	}
}

// FuzzWrap: whatever can be wrapped is what it was when it is unwrapped.
func FuzzWrap(f *testing.F) {
	for _, text := range samples {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		wrapped, err := Wrap(text, "a", program)
		if err != nil {
			return
		}
		if back, err := Unwrap(wrapped, "a"); err != nil || !bytes.Equal(back, text) {
			t.Fatalf("%v; it was\n%q\nwrapped\n%q\nand then\n%q", err, text, wrapped, back)
		}
	})
}
