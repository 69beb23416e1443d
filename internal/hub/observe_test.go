package hub_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
)

// events is a Watcher that keeps the events of type T.
type events[T observe.Event] struct {
	mu   sync.Mutex
	all  []T
	more chan struct{}
}

func watching[T observe.Event](o *observe.Observer) *events[T] {
	w := &events[T]{more: make(chan struct{}, 1000)}
	o.Watch(w)
	return w
}

func (w *events[T]) Message(*observe.Passed) {}

func (w *events[T]) Event(e observe.Event) {
	if e, ok := e.(T); ok {
		w.mu.Lock()
		w.all = append(w.all, e)
		w.mu.Unlock()
		w.more <- struct{}{}
	}
}

// next returns the next event.
func (w *events[T]) next(t *testing.T) T {
	t.Helper()
	select {
	case <-w.more:
	case <-time.After(20 * time.Second):
		t.Fatal("no event came")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.all[0]
	w.all = w.all[1:]
	return e
}

// While somebody watches, each HTTP exchange is told with its session and the rule that
// refused it; streams work as without a Watcher.
func TestExchanges(t *testing.T) {
	var o observe.Observer
	told := watching[*observe.Exchange](&o)
	_, url := start(t, hub.Options{SingleServer: true, Observer: &o}, demoSpec(t, "demo"))
	id := session(t, url+"/mcp")
	opened := told.next(t)
	if opened.Server != "demo" || opened.Session == nil || opened.Session.Client().Name != "t" || opened.Status != 200 || opened.Method != "POST" ||
		opened.URL != "/mcp" || opened.RequestBytes != int64(len(hello)) || opened.ResponseBytes == 0 || opened.ResponseHeader.Get("Mcp-Session-Id") != id || opened.Duration < opened.FirstByte {
		t.Errorf("initialize is told as %+v", opened)
	}
	do(t, http.MethodGet, url+"/mcp", "", "Accept", "text/html")
	if e := told.next(t); e.Rule != "LI4" || e.Status != http.StatusNotAcceptable || e.Reason == "" {
		t.Errorf("a refusal is told as %+v", e)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/mcp", nil)
	bridgetest.Must(t, err)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", id)
	resp, err := http.DefaultClient.Do(req) // returns only if the headers are flushed
	bridgetest.Must(t, err)
	defer resp.Body.Close()
	status, body := echo(t, url+"/mcp", id)
	if e := told.next(t); status != 200 || e.Session != opened.Session || e.ResponseBytes != int64(len(body)) {
		t.Errorf("a call, %d %s, is told as %+v", status, body, e)
	}
	end(t, url+"/mcp", id)
	_, _ = bufio.NewReader(resp.Body).ReadString(0)
	two := []string{told.next(t).Method, told.next(t).Method}
	if slices.Sort(two); !slices.Equal(two, []string{"DELETE", "GET"}) {
		t.Errorf("at the end there were %v", two)
	}
}

// Whoever is refused is told of with the rule, where it comes from and what it wanted, at
// every path, whether somebody watches messages or not.
func TestRefused(t *testing.T) {
	var o observe.Observer
	w := &events[observe.Refused]{more: make(chan struct{}, 1000)}
	o.WatchEvents(w)
	h := hub.New(hub.Options{Observer: &o, Guard: access.Policy{TrustUnix: true}})
	t.Cleanup(func() { _ = h.Close() })
	bridgetest.Must(t, h.Apply([]hub.Spec{demoSpec(t, "demo")}))
	base := "/servers/demo/"
	const js = "application/json"
	for _, c := range []struct {
		request, body string // method and path
		header        []string
		want          string
	}{
		{"GET /nothing?secret=1", "", nil, " path 404 /nothing"},
		{"GET " + base + "nothing", "", nil, "demo path 404 " + base + "nothing"},
		{"PUT " + base + "mcp", "", nil, "demo LI3 405 " + base + "mcp"},
		{"POST " + base + "mcp", "{}", []string{"Accept", "text/html"}, "demo LI4 406 " + base + "mcp"},
		{"POST " + base + "mcp", "{}", []string{"Content-Type", "text/plain"}, "demo LI5 415 " + base + "mcp"},
		{"POST " + base + "mcp", "{", []string{"Content-Type", js}, "demo J4 400 " + base + "mcp"},
		{"POST " + base + "mcp", hello, []string{"Content-Type", js, "Origin", "http://evil.example"}, "demo LI1 403 " + base + "mcp http://evil.example"},
		{"POST " + base + "mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, []string{"Content-Type", js}, "demo LI21 400 " + base + "mcp"},
		{"POST " + base + "mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, []string{"Content-Type", js, "Mcp-Session-Id", "x"}, "demo LI21 404 " + base + "mcp"},
		{"POST " + base + "mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, []string{"Content-Type", js, "Mcp-Protocol-Version", "2026-07-28"}, "demo MI7 400 " + base + "mcp"},
		{"POST " + base + "sse", "", nil, "demo SS1 405 " + base + "sse"},
		{"POST " + base + "message", "{}", []string{"Content-Type", js}, "demo SS3 400 " + base + "message"},
		{"GET " + base + "ws", "", nil, "demo WS3 426 " + base + "ws"},
		{"POST /servers", "", nil, " path 405 /servers"},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		r, err := http.NewRequestWithContext(observe.NewContext(t.Context(), &o), method, "http://localhost"+path, strings.NewReader(c.body))
		bridgetest.Must(t, err)
		r.RemoteAddr = "192.0.2.1:99"
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Set(c.header[i], c.header[i+1])
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		e := w.next(t)
		got := fmt.Sprint(e.Server, " ", e.Rule, " ", e.Status, " ", e.Path)
		if e.Origin != "" {
			got += " " + e.Origin
		}
		if got != c.want || e.Reason == "" || e.RemoteAddr != "192.0.2.1:99" || e.Method != method {
			t.Errorf("%s is told as %q, %+v, want %q", c.request, got, e, c.want)
		}
	}
}

// A server that fails to start three times in a row is not ready, and is again once one of
// its processes has answered.
func TestReadyAfterFailures(t *testing.T) {
	works := filepath.Join(t.TempDir(), "works")
	spec := demoSpec(t, "demo")
	spec.Upstream.Command.Env = append(spec.Upstream.Command.Env, "HUB_TEST_IF="+works)
	_, url := start(t, hub.Options{SingleServer: true}, spec)
	ready := func(want int, text string) {
		t.Helper()
		if status, _, body := do(t, http.MethodGet, url+"/readyz", ""); status != want || !strings.Contains(body, text) {
			t.Errorf("/readyz: %d %s, want %d and %s", status, body, want, text)
		}
	}
	for i, want := range []int{200, 200, 503, 503} {
		do(t, http.MethodPost, url+"/mcp", hello)
		ready(want, fmt.Sprintf(`"failedStarts":%d`, i+1))
	}
	bridgetest.Must(t, os.WriteFile(works, nil, 0o600))
	end(t, url+"/mcp", session(t, url+"/mcp"))
	ready(200, `"ready":true`)
}

// A remote server that lets nobody in is not ready; calls that wait are told of.
func TestReadyRemote(t *testing.T) {
	var lock atomic.Bool
	_, inner := start(t, hub.Options{SingleServer: true}, demoSpec(t, "demo"))
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lock.Load() {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		to, _ := neturl.Parse(inner)
		httputil.NewSingleHostReverseProxy(to).ServeHTTP(w, r)
	}))
	defer there.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	_, url := start(t, hub.Options{SingleServer: true}, hub.Spec{Name: "far", Upstream: upstream.Spec{Name: "far", URL: there.URL + "/mcp"}})
	ready := func(want int, text string) {
		t.Helper()
		if status, _, body := do(t, http.MethodGet, url+"/readyz", ""); status != want || !strings.Contains(body, text) {
			t.Errorf("/readyz: %d %s, want %d and %s", status, body, want, text)
		}
	}
	ready(200, `"calls":0`)
	lock.Store(true)
	do(t, http.MethodPost, url+"/mcp", hello)
	ready(503, `"lastError"`)
	lock.Store(false)
	id := session(t, url+"/mcp")
	ready(200, `"running":1`)
	lock.Store(true)
	echo(t, url+"/mcp", id)
	ready(503, `"lastError"`)
	lock.Store(false)
	echo(t, url+"/mcp", id)
	ready(200, `"calls":0`)
	end(t, url+"/mcp", id)
}

// The log says which servers a new configuration has added, changed and removed.
func TestChangesInLog(t *testing.T) {
	var log strings.Builder
	h := hub.New(hub.Options{Logger: hclog.New(&hclog.LoggerOptions{Output: &log, DisableTime: true})})
	t.Cleanup(func() { _ = h.Close() })
	stays, changes, goes, comes := demoSpec(t, "stays"), demoSpec(t, "changes"), demoSpec(t, "goes"), demoSpec(t, "comes")
	for _, c := range []struct {
		specs []hub.Spec
		want  string
	}{
		{[]hub.Spec{stays, changes, goes}, ""},
		{[]hub.Spec{stays, {Name: "changes", Upstream: changes.Upstream, Fingerprint: "other"}, comes}, "[INFO]  servers changed: added=comes changed=changes removed=goes\n"},
		{[]hub.Spec{stays, {Name: "changes", Upstream: changes.Upstream, Fingerprint: "other"}, comes}, "[INFO]  the configuration changes no server\n"},
	} {
		log.Reset()
		bridgetest.Must(t, h.Apply(c.specs))
		if got, _, _ := strings.Cut(log.String(), "[INFO]  the server is not configured"); got != c.want {
			t.Errorf("the log has %q, want %q", got, c.want)
		}
	}
}
