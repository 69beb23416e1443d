package remote

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/demo"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// TestMain makes this program a server too: the demo.
func TestMain(m *testing.M) {
	if os.Getenv("DOCTOR_TEST_DEMO") != "" {
		var out io.Writer = os.Stdout
		if os.Getenv("DOCTOR_TEST_DEMO") == "slow" {
			out = slow{out}
		}
		if err := demo.Serve(context.Background(), os.Stdin, out, os.Stderr); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	bridgetest.CheckLeaks(m)
}

// slow answers so late that the bridge has begun an event stream.
type slow struct{ io.Writer }

func (s slow) Write(b []byte) (int, error) {
	beSlow(80 * time.Millisecond)
	return s.Writer.Write(b)
}

// slowly has the demo do so.
func slowly(s *hub.Spec) {
	s.Upstream.Command.Env = append(os.Environ(), "DOCTOR_TEST_DEMO=slow")
}

// A site is a server to diagnose.
type site struct {
	url  string
	opts Options
}

// newBridge returns the bridge with the demo server, at /mcp and /sse.
func newBridge(t *testing.T, guard access.Policy, change ...func(*hub.Spec)) http.Handler {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec := hub.Spec{Name: "demo", Pump: bridge.PumpOptions{ShutdownGrace: 5 * time.Second}, Upstream: upstream.Spec{Name: "demo",
		Command: supervisor.Spec{Name: "demo", Path: self, Env: append(os.Environ(), "DOCTOR_TEST_DEMO=1")}}}
	for _, c := range change {
		c(&spec)
	}
	h := hub.New(hub.Options{SingleServer: true, Guard: guard})
	t.Cleanup(func() { _ = h.Close() })
	if err := h.Apply([]hub.Spec{spec}); err != nil {
		t.Fatal(err)
	}
	return h
}

// serve serves a handler until the test ends.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

// at returns the site of a handler, and its path.
func at(t *testing.T, path string, h http.Handler, header ...string) site {
	t.Helper()
	s := site{url: serve(t, h).URL + path, opts: Options{Header: http.Header{}}}
	for i := 0; i+1 < len(header); i += 2 {
		s.opts.Header.Set(header[i], header[i+1])
	}
	return s
}

// before puts f before the bridge: it answers a request and returns true, or changes it
// and returns false.
func before(t *testing.T, f func(w http.ResponseWriter, r *http.Request) (done bool)) http.Handler {
	t.Helper()
	h := newBridge(t, access.Policy{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f(w, r) {
			h.ServeHTTP(w, r)
		}
	})
}

// after has the bridge's whole reply to POST changed, unless it is an event stream.
func after(t *testing.T, f func(r *http.Request, request string, reply *httptest.ResponseRecorder)) http.Handler {
	t.Helper()
	h := newBridge(t, access.Policy{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("Mcp-Method") == "subscriptions/listen" {
			h.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if lines := strings.Split(rec.Body.String(), "\ndata: "); strings.HasPrefix(rec.Header().Get("Content-Type"), typeSSE) {
			setBody(rec, typeJSON, strings.TrimSpace(lines[len(lines)-1])) // the answer was slow: a loaded machine
		}
		f(r, string(body), rec)
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})
}

// setBody replaces the body of a reply.
func setBody(rec *httptest.ResponseRecorder, mediaType, body string) {
	rec.Body.Reset()
	rec.Body.WriteString(body)
	rec.Header().Del("Content-Length")
	rec.Header().Set("Content-Type", mediaType)
}

// diagnose runs the doctor and returns its report as text too.
func diagnose(t *testing.T, s site) (*doctor.Report, string) {
	t.Helper()
	r := doctor.NewReport(s.url)
	if err := Diagnose(t.Context(), s.url, s.opts, r); err != nil {
		t.Fatal(err)
	}
	r.Finish()
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	return r, text.String()
}

// alone is held for writing by a test that diagnoses while no other does, and for reading by all others that diagnose.
var alone sync.RWMutex

// diagnoseUntil diagnoses a site until the report is as wanted, at most three times, and returns the last report with its text.
// The doctor measures time: on a busy machine a healthy server is slow, and checks are left out for lack of time. So the second and
// the third time no other test diagnoses, and there is more time for all checks together.
func diagnoseUntil(t *testing.T, s site, wanted func(*doctor.Report, string) bool) (ok bool, r *doctor.Report, text string) {
	t.Helper()
	alone.RLock()
	r, text = diagnose(t, s)
	alone.RUnlock()
	for range 2 {
		if wanted(r, text) {
			return true, r, text
		}
		alone.Lock()
		s.opts.TimeSpent -= time.Minute
		r, text = diagnose(t, s)
		alone.Unlock()
	}
	return wanted(r, text), r, text
}

// beSlow is for the servers of the tests: what is slow is their fault. No test waits with it
// for something to happen.
func beSlow(d time.Duration) { <-time.After(d) }
