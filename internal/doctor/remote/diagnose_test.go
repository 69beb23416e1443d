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

// wantFinding fails unless the site has the fault.
func wantFinding(t *testing.T, s site, code string, severity doctor.Severity, says string) {
	t.Helper()
	isWanted := func(f doctor.Finding) bool {
		return f.Code == code && f.Severity == severity && strings.Contains(f.Title+" "+f.Evidence+" "+f.Advice, says)
	}
	ok, r, text := diagnoseUntil(t, s, func(r *doctor.Report, _ string) bool { return slices.ContainsFunc(r.Findings(), isWanted) })
	if !ok {
		t.Errorf("want %s %s with %q, got\n%s", severity, code, says, text)
		return
	}
	f := r.Findings()[slices.IndexFunc(r.Findings(), isWanted)]
	if f.Title == "" || f.Evidence == "" || f.Consequence == "" || f.Advice == "" {
		t.Errorf("%s says too little:\n%s", code, text)
	}
}

// wantHealthy fails if there are findings, but for notes of these codes.
func wantHealthy(t *testing.T, s site, notes ...string) {
	t.Helper()
	ok, _, text := diagnoseUntil(t, s, func(r *doctor.Report, _ string) bool { return isHealthy(r, notes...) })
	if !ok {
		t.Errorf("a finding of a healthy server:\n%s", text)
	}
}

// isHealthy says whether there are no findings, but for notes of these codes.
func isHealthy(r *doctor.Report, notes ...string) bool {
	return !slices.ContainsFunc(r.Findings(), func(f doctor.Finding) bool {
		return f.Severity != doctor.Note || !slices.Contains(notes, f.Code)
	})
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
			// What is only sometimes seen may stay unseen: the bridge may have had no need to begin a stream.
			says := func(r *doctor.Report, text string) bool {
				return isHealthy(r) && strings.Contains(text, c.says) && strings.Contains(text, "tools ")
			}
			if ok, _, text := diagnoseUntil(t, c.site(t), says); !ok {
				t.Errorf("there is a finding, or the report says nothing of %q, or of tools:\n%s", c.says, text)
			}
		})
	}
}
