package tests

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestServeCrash: ST9. A child dies in mid-call: every owed request gets an
// error at once, with the exit status and the end of stderr; the session is
// gone; a new one has a fresh child; another session notices nothing.
func TestServeCrash(t *testing.T) {
	t.Parallel()
	for _, version := range revisions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			record := filepath.Join(t.TempDir(), "stdin")
			s := serve(t, nil, "-record", record)
			crashed, other := s.open(version), s.open(version)
			otherPid := other.answer(`{"jsonrpc":"2.0","id":1,"method":"pid"}`)
			streaming := crashed.background(progressCall(`"streaming"`, "hang", 0))
			waiting := crashed.background(`{"jsonrpc":"2.0","id":9007199254740993,"method":"hang"}`)
			waitFile(t, record, func(s string) bool { return strings.Count(s, `"hang"`) == 2 })

			began := time.Now()
			killer := crashed.background(`{"jsonrpc":"2.0","id":"killer","method":"exit","params":{"code":3,"lines":["first line","the disk is on fire"]}}`)
			for id, reply := range map[string]<-chan []string{`"streaming"`: streaming, "9007199254740993": waiting, `"killer"`: killer} {
				msgs := recv(t, reply)
				if len(msgs) == 0 {
					t.Errorf("request %s got no answer", id)
					continue
				}
				gotID, code, text := errorOf(t, msgs[len(msgs)-1])
				if gotID != id || code >= 0 {
					t.Errorf("request %s was answered with id %s and code %d", id, gotID, code)
				}
				if !strings.Contains(text, "3") || !strings.Contains(text, "the disk is on fire") {
					t.Errorf("the error names neither exit status 3 nor the end of stderr: %s", text)
				}
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the errors came after %v, want at once", took)
			}
			// Until all that ends with the process has ended, a call is answered with an error.
			harness.WaitUntil(t, "the session to be gone (404)", func() bool {
				return crashed.post(`{"jsonrpc":"2.0","id":2,"method":"ping"}`) == http.StatusNotFound
			})
			if got := s.open(version).answer(`{"jsonrpc":"2.0","id":1,"method":"pid"}`); got == otherPid {
				t.Errorf("the new session has the other session's child: %s", got)
			}
			if got := other.answer(`{"jsonrpc":"2.0","id":1,"method":"pid"}`); got != otherPid {
				t.Errorf("the other session's child was %s and is %s", otherPid, got)
			}
		})
	}
}

// TestServeCrashOnGetStream: a dead child ends the session's GET stream too.
func TestServeCrashOnGetStream(t *testing.T) {
	t.Parallel()
	c := serve(t, nil).open("2025-11-25")
	get := c.listen(t.Context(), "")
	defer get.body.Close()
	c.call(`{"jsonrpc":"2.0","id":1,"method":"exit","params":{"code":1}}`)
	for {
		e, err := get.next()
		if err != nil {
			return
		}
		if e.data != "" {
			t.Errorf("the stream carried %q", e.data)
		}
	}
}

// TestServeEnvironment: ST16. The child has our environment, less the
// bridge's own secrets, as the flags say.
func TestServeEnvironment(t *testing.T) {
	t.Parallel()
	env := []string{"FIXTURE_VALUE=a=b c", "MCP_BRIDGE_TOKEN=secret", "EMPTY="}
	for _, c := range []struct {
		flags []string
		name  string
		want  string
	}{
		{nil, "FIXTURE_VALUE", `{"set":true,"value":"a=b c"}`},
		{nil, "EMPTY", `{"set":true,"value":""}`},
		{nil, "MCP_BRIDGE_TOKEN", `{"set":false,"value":""}`},
		{[]string{"--pass-env", "safe"}, "FIXTURE_VALUE", `{"set":false,"value":""}`},
		{[]string{"--pass-env", "PATH,FIXTURE_VALUE"}, "FIXTURE_VALUE", `{"set":true,"value":"a=b c"}`},
		{[]string{"--pass-env", "PATH"}, "FIXTURE_VALUE", `{"set":false,"value":""}`},
		{[]string{"--env", "FIXTURE_VALUE=other=1"}, "FIXTURE_VALUE", `{"set":true,"value":"other=1"}`},
		{[]string{"--pass-env", "safe", "--env", "NEW=x"}, "NEW", `{"set":true,"value":"x"}`},
	} {
		t.Run(fmt.Sprint(c.flags, c.name), func(t *testing.T) {
			t.Parallel()
			argv := append([]string{bridgeBin, "serve", "--listen", "127.0.0.1:0"}, c.flags...)
			s := serveArgv(t, env, append(argv, "--", childBin)...)
			got := s.open("2025-06-18").answer(`{"jsonrpc":"2.0","id":1,"method":"env","params":{"text":"` + c.name + `"}}`)
			if want := `{"jsonrpc":"2.0","id":1,"result":` + c.want + `}`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}
