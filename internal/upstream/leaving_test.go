package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

const (
	leavingKind  = "UPSTREAM_TEST_LEAVING"       // how the child leaves, and its era
	leavingCalls = "UPSTREAM_TEST_LEAVING_CALLS" // the file to which it appends a line for each call that it reads
)

// leave is a server that goes, with status 0, after its first call: kind says how.
//
//	stdin   it closes its stdin, answers, and goes a little later
//	unread  it answers, reads nothing more, and goes a little later
//	read    it reads one more call, and goes without an answer
func leave(kind string, modern bool) {
	say := func(id json.RawMessage, result string) {
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result)
	}
	calls := 0
	for {
		var line []byte
		for b := make([]byte, 1); !bytes.HasSuffix(line, []byte("\n")); line = append(line, b...) { // nothing is read ahead
			if n, _ := os.Stdin.Read(b); n == 0 {
				return
			}
		}
		var m struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.Unmarshal(line, &m)
		switch {
		case m.Method == "server/discover" && modern:
			say(m.ID, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
		case m.Method == "initialize":
			say(m.ID, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
		case m.Method == "tools/call":
			calls++
			f, _ := os.OpenFile(os.Getenv(leavingCalls), os.O_APPEND|os.O_WRONLY, 0)
			fmt.Fprintln(f, os.Getpid())
			f.Close()
			if calls == 2 {
				return
			}
			if kind == "stdin" {
				os.Stdin.Close()
			}
			say(m.ID, fmt.Sprintf(`{"resultType":"complete","content":[],"pid":%d}`, os.Getpid()))
			if kind == "read" {
				continue
			}
			time.Sleep(100 * time.Millisecond)
			return
		case m.ID != nil:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
		}
	}
}

// leavingServer returns a server of such processes. readCalls tells how many calls they have read in all.
func leavingServer(t *testing.T, kind, era string) (s *Server, readCalls func() int) {
	self, err := os.Executable()
	bridgetest.Must(t, err)
	record := filepath.Join(t.TempDir(), "calls")
	bridgetest.Must(t, os.WriteFile(record, nil, 0o600))
	s, err = New(Spec{
		Name:    "leaving",
		Command: supervisor.Spec{Name: "leaving", Path: self, Args: []string{"-test.run=^TestServerThatLeaves$"}, Env: append(os.Environ(), leavingKind+"="+kind+" "+era, leavingCalls+"="+record, "GORACE=atexit_sleep_ms=0")},
	})
	bridgetest.Must(t, err)
	t.Cleanup(func() { bridgetest.Must(t, s.Close()) })
	return s, func() int {
		text, err := os.ReadFile(record)
		bridgetest.Must(t, err)
		return bytes.Count(text, []byte("\n"))
	}
}

// ST9: a call that comes just when a shared process leaves, with status 0. If the process cannot have got it, the next
// one gets it, and the client notices nothing. Otherwise it is answered with an error at once and no process gets it
// again, and the next call has the next process.
func TestServerThatLeaves(t *testing.T) {
	if kind, era, ok := strings.Cut(os.Getenv(leavingKind), " "); ok {
		leave(kind, era == "modern")
		os.Exit(0)
	}
	t.Parallel()
	for _, era := range []string{"modern", "legacy"} {
		for kind, passedOn := range map[string]bool{"stdin": true, "unread": false, "read": false} {
			t.Run(era+"/"+kind, func(t *testing.T) {
				t.Parallel()
				if runtime.GOOS == "windows" && kind == "stdin" {
					t.Skip("a pipe without a reader is noticed in another way")
				}
				s, readCalls := leavingServer(t, kind, era)
				client := party(t, t.Context(), s.Handler(true, bridge.PumpOptions{}))
				pidOf := func(m jsonrpc.Message) string { return string(m.Lookup("result", "pid")) }
				first := pidOf(ask(t, client, modernCall))
				began := time.Now()
				m := ask(t, client, modernCall)
				want := 2
				if passedOn {
					if pid := pidOf(m); pid == "" || pid == first {
						t.Errorf("the second call, after process %s: %s", first, m.Bytes())
					}
				} else {
					if text := string(m.Bytes()); !m.IsError() || !strings.Contains(text, "-32603") || !strings.Contains(text, `"reason":"server_ended"`) || !strings.Contains(text, "exit status 0") {
						t.Errorf("the second call: %s", text)
					}
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("the error came after %v", took)
					}
					if kind == "unread" {
						want = 1
					}
				}
				if n := readCalls(); n != want {
					t.Errorf("%d calls were read, want %d", n, want)
				}
				if pid := pidOf(ask(t, client, modernCall)); pid == "" || pid == first {
					t.Errorf("the third call was answered by %q, after process %s", pid, first)
				}
			})
		}
	}
}
