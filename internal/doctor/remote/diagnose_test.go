package remote

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
)

var quiet = log.New(io.Discard, "", 0)

// TestFaults: every fault is named, and its twin is not.
func TestFaults(t *testing.T) {
	for _, f := range fixtures {
		t.Run(f.code+" "+f.name, func(t *testing.T) {
			t.Parallel()
			wantFinding(t, f.fault(t), f.code, f.severity, f.says)
		})
		if f.twin != nil {
			t.Run(f.code+" not "+f.name, func(t *testing.T) {
				t.Parallel()
				wantHealthy(t, f.twin(t), f.notes...)
			})
		}
	}
}

// tries is how often a site is diagnosed that does not give what is wanted: the doctor measures time,
// and on a machine that is busy a healthy server is slow, and checks are left out for lack of time.
const tries = 3

// wantFinding fails unless the site has the fault.
func wantFinding(t *testing.T, s site, code string, severity doctor.Severity, says string) {
	t.Helper()
	var text string
	for range tries {
		var r *doctor.Report
		r, text = diagnose(t, s)
		for _, f := range r.Findings() {
			if f.Code == code && f.Severity == severity && strings.Contains(f.Title+" "+f.Evidence+" "+f.Advice, says) {
				if f.Title == "" || f.Evidence == "" || f.Consequence == "" || f.Advice == "" {
					t.Errorf("%s says too little:\n%s", code, text)
				}
				return
			}
		}
	}
	t.Errorf("want %s %s with %q, got\n%s", severity, code, says, text)
}

// wantHealthy fails if there are findings, but for notes of these codes.
func wantHealthy(t *testing.T, s site, notes ...string) (text string) {
	t.Helper()
	for range tries {
		var r *doctor.Report
		r, text = diagnose(t, s)
		if !slices.ContainsFunc(r.Findings(), func(f doctor.Finding) bool {
			return f.Severity != doctor.Note || !slices.Contains(notes, f.Code)
		}) {
			return text
		}
	}
	t.Errorf("a finding of a healthy server:\n%s", text)
	return text
}

// TestHealthy: the bridge itself has no finding, whatever it speaks, and the report says
// what that is.
func TestHealthy(t *testing.T) {
	eras := func(e era.Eras) func(*hub.Spec) { return func(s *hub.Spec) { s.Clients = e } }
	for _, c := range []struct {
		name, says string
		site       func(t *testing.T) site
	}{
		{"both eras", "2026-07-28, 2025-11-25", func(t *testing.T) site { return at(t, "/mcp", newBridge(t, access.Policy{})) }},
		{"legacy", "with sessions", func(t *testing.T) site { return at(t, "/mcp", newBridge(t, access.Policy{}, eras(era.OnlyLegacy))) }},
		{"modern", "without sessions", func(t *testing.T) site { return at(t, "/mcp", newBridge(t, access.Policy{}, eras(era.OnlyModern))) }},
		{"HTTP+SSE", "HTTP+SSE", func(t *testing.T) site { return at(t, "/sse", newBridge(t, access.Policy{})) }},
		{"behind a proxy", "with sessions", func(t *testing.T) site { return at(t, "/mcp", proxy(t, func(*http.Response) {})) }},
		{"events", "as text/event-stream", func(t *testing.T) site {
			return at(t, "/mcp", asEvents(t, func(_, m string) string { return "event: message\ndata: " + m + "\n\n" }))
		}},
		{"streams that can be resumed", "resumption ", func(t *testing.T) site {
			return at(t, "/mcp", newBridge(t, access.Policy{}, eras(era.OnlyLegacy), slowly))
		}},
		{"no ping", "tools", func(t *testing.T) site {
			return at(t, "/mcp", only(after(t, func(_ *http.Request, request string, rec *httptest.ResponseRecorder) {
				if strings.Contains(request, `"ping"`) && rec.Code == 200 {
					setBody(rec, typeJSON, `{"jsonrpc":"2.0",`+request[strings.Index(request, `"id"`):strings.Index(request, `,"jsonrpc"`)]+`,"error":{"code":-32601,"message":"Method not found"}}`)
				}
			})))
		}},
		{"slow, and one at a time", "with sessions", func(t *testing.T) site {
			var one sync.Mutex
			return at(t, "/mcp", before(t, func(http.ResponseWriter, *http.Request) bool {
				one.Lock()
				defer one.Unlock()
				beSlow(300 * time.Millisecond)
				return false
			}))
		}},
		{"no GET", "none (405)", func(t *testing.T) site {
			return at(t, "/mcp", before(t, func(w http.ResponseWriter, r *http.Request) bool {
				return isGet(r) && respond(w, 405, "text/plain", "")
			}))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// What is only sometimes seen may stay unseen on a busy machine: the bridge may have had no
			// need to begin a stream, or the check no time.
			var text string
			for range 3 {
				if text = wantHealthy(t, c.site(t)); strings.Contains(text, c.says) && strings.Contains(text, "tools ") {
					return
				}
			}
			t.Errorf("the report says nothing of %q, or of tools:\n%s", c.says, text)
		})
	}
}
