package streamclient

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ME3: a server that never answers tools/list costs a call of an unknown tool
// two seconds, and the calls that follow nothing, until a minute after the list
// was given up. One that answers late is heard all the same.
func TestModernListIsNeverAnswered(t *testing.T) {
	testTools(t, []string{regionTool}, func(t *modernTest, s *toolServer) {
		var late atomic.Int64 // after which the list comes, in nanoseconds; 0: never
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/list" {
				d := time.Duration(late.Load())
				if d == 0 {
					<-r.Context().Done()
					return true
				}
				time.Sleep(d)
				return s.serve(w, r, m)
			}
			return false
		})
		call := func(id, name string, most time.Duration) {
			t.Helper()
			began := time.Now()
			t.callTool(id, name, "{}")
			if d := time.Since(began); d != most {
				t.Errorf("call %s of %s has taken %v, not %v", id, name, d, most)
			}
		}
		call("1", "a", modernToolTimeout)
		call("2", "a", 0)
		call("3", "b", 0)
		time.Sleep(modernListTimeout) // the list is given up
		call("4", "a", 0)
		time.Sleep(modernListPause - 5*time.Second)
		call("5", "a", 0)
		t.wantSeen("tools/list", "tools/call", "tools/call", "tools/call", "tools/call", "tools/call")

		time.Sleep(time.Minute)
		const inTime = 5 * time.Second
		late.Store(int64(inTime))
		call("6", "deploy", modernToolTimeout)
		time.Sleep(inTime)
		t.callTool("7", "deploy", `{"region":"r"}`)
		if got := t.server.requests("tools/call")[1].header.Get("Mcp-Param-Region"); got != "r" {
			t.Errorf("the list that came late is not known: the header is %q", got)
		}
		t.wantSeen("tools/list", "tools/call", "tools/call")
	})
}

// ME4: a call that was refused for its headers waits for the list, which is what
// it needs; but not for one that never comes.
func TestModernListIsNeeded(t *testing.T) {
	testTools(t, []string{regionTool}, func(t *modernTest, s *toolServer) {
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/list" {
				time.Sleep(5 * time.Second)
			}
			return s.serve(w, r, m)
		})
		t.callTool("1", "deploy", `{"region":"r"}`)
		t.wantSeen("tools/list", "tools/call", "tools/call")
	})
}
