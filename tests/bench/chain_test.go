package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
	"github.com/mcp-bridge/mcp-bridge/internal/remote"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// These benchmarks are the same chain as the program measures, but with the
// bridge in this process, where profiles and the count of allocations see it:
// a raw client, TCP or a socket, the hub with all its handlers, the pump, and a
// child process that answers at once.
//
// x-floor is how many times the floor of Streamable HTTP something takes, on
// whatever transport: one round trip over the pipe of such a child, and one
// over bare net/http. Both are measured here too, in turn with the bridge.

// TestMain lets this program be the child as well.
func TestMain(m *testing.M) {
	if role := os.Getenv("BENCH_ROLE"); role != "" {
		runRole(role)
		return
	}
	bridgetest.CheckLeaks(m)
}

// serve starts a hub for one server, on TCP and on a Unix socket.
func serve(tb testing.TB, up upstream.Spec) *bridgeAddr {
	tb.Helper()
	up.Name = "bench"
	h := hub.New(hub.Options{SingleServer: true})
	tb.Cleanup(func() { _ = h.Close() })
	bridgetest.Must(tb, h.Apply([]hub.Spec{{Name: up.Name, Upstream: up}}))
	srv := httptest.NewServer(h)
	tb.Cleanup(srv.Close)
	tb.Cleanup(transport.CloseIdleConnections)
	at := &bridgeAddr{url: srv.URL}
	if runtime.GOOS != "windows" {
		dir, err := os.MkdirTemp("", "mb") // tb.TempDir's path may be too long for a socket
		bridgetest.Must(tb, err)
		tb.Cleanup(func() { os.RemoveAll(dir) })
		at.socketPath = filepath.Join(dir, "s")
		l, err := net.Listen("unix", at.socketPath)
		bridgetest.Must(tb, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = h.ServeLines(l)
		}()
		tb.Cleanup(func() { l.Close(); <-done })
	}
	return at
}

// child is our stdio server as a process, in one of its roles.
func child(tb testing.TB, role string) upstream.Spec {
	tb.Helper()
	self, err := os.Executable()
	bridgetest.Must(tb, err)
	return upstream.Spec{Command: supervisor.Spec{Path: self, Env: append(os.Environ(), "BENCH_ROLE="+role)}}
}

// open opens a session that ends with the test.
func open(tb testing.TB, k kind, at *bridgeAddr) client {
	tb.Helper()
	c, err := k.open(at)
	bridgetest.Must(tb, err)
	tb.Cleanup(func() {
		if err := c.close(); err != nil {
			tb.Errorf("closing: %v", err)
		}
	})
	return c
}

// floor is what everything is compared with.
type floor struct {
	pipe client
	http client
	hops int // round trips over net/http
}

func newFloor(tb testing.TB, hops int) *floor {
	tb.Helper()
	pipe, err := startPipe(roleCommand("stdio"))
	bridgetest.Must(tb, err)
	tb.Cleanup(func() { _ = pipe.close() })
	srv := httptest.NewServer(http.HandlerFunc(answerBare))
	tb.Cleanup(srv.Close)
	tb.Cleanup(transport.CloseIdleConnections)
	return &floor{linkClient{link: pipe}, &peer{url: srv.URL}, hops}
}

func (f *floor) call(body []byte) error {
	err := f.pipe.call(body)
	for i := 0; i < f.hops && err == nil; i++ {
		err = f.http.call(body)
	}
	return err
}

// BenchmarkCall is one call after the other on one session, over each transport.
func BenchmarkCall(b *testing.B) {
	f, at := newFloor(b, 1), serve(b, child(b, "stdio"))
	for _, k := range kinds() {
		b.Run(k.name, func(b *testing.B) { benchCalls(b, open(b, k, at), f) })
	}
}

// BenchmarkNotifications is what gets to a client of what a server sends in
// one go.
func BenchmarkNotifications(b *testing.B) {
	f, at := newFloor(b, 1), serve(b, child(b, "stdio"))
	for _, k := range kinds() {
		b.Run(k.name, func(b *testing.B) { benchNotes(b, open(b, k, at), f) })
	}
}

// BenchmarkServeURL is a bridge whose server is another bridge; the floor has
// a round trip over net/http for each.
func BenchmarkServeURL(b *testing.B) {
	f, last := newFloor(b, 2), serve(b, child(b, "stdio"))
	for _, c := range chains() {
		b.Run(c.name, func(b *testing.B) {
			mode, err := remote.ParseTransportMode(c.mode)
			bridgetest.Must(b, err)
			session := open(b, c.kind, serve(b, upstream.Spec{URL: last.url + c.path, Remote: remote.Options{TransportMode: mode}}))
			benchCalls(b, session, f)
			b.Run("notifications", func(b *testing.B) { benchNotes(b, session, f) })
		})
	}
}

// caller makes calls of one size.
type caller struct {
	body []byte
	id   int64
}

func newCaller(f messageForm, size int) *caller {
	c := &caller{id: 1e9} // all ids have as many digits
	c.body = f.request(c.id, size)
	return c
}

// next returns the next call. It is good until the one after it.
func (c *caller) next() []byte {
	c.id++
	strconv.AppendInt(c.body[:len(`{"jsonrpc":"2.0","id":`)], c.id, 10)
	return c.body
}

// timed makes n calls and appends how long each took.
func (c *caller) timed(b *testing.B, call func([]byte) error, n int, times []time.Duration) []time.Duration {
	for range n {
		body := c.next()
		begin := time.Now()
		bridgetest.Must(b, call(body))
		times = append(times, time.Since(begin))
	}
	return times
}

func benchCalls(b *testing.B, session client, f *floor) {
	for _, size := range sizes {
		b.Run(size.name, func(b *testing.B) {
			b.ReportAllocs()
			b.StopTimer()
			calls := newCaller(session.messageForm(), size.size)
			calls.timed(b, session.call, 5, nil) // warms up
			calls.timed(b, f.call, 5, nil)
			turn := 20 // calls of the bridge, and then of the floor
			if size.size >= 1_000_000 {
				turn = 2
			}
			var all []time.Duration
			var ratios []float64
			for left := b.N; left > 0; left -= turn {
				n := min(left, turn)
				b.StartTimer()
				all = calls.timed(b, session.call, n, all)
				b.StopTimer()
				bare := calls.timed(b, f.call, n, nil)
				ratios = append(ratios, float64(median(all[len(all)-n:]))/float64(median(bare)))
			}
			b.ReportMetric(float64(median(all))/1e3, "p50-µs")
			b.ReportMetric(median(ratios), "x-floor")
		})
	}
}

func benchNotes(b *testing.B, session client, f *floor) {
	b.ReportAllocs()
	b.ResetTimer()
	bridgetest.Must(b, session.notes(b.N))
	b.StopTimer()
	took := b.Elapsed()
	begin := time.Now()
	bridgetest.Must(b, f.http.notes(b.N))
	b.ReportMetric(float64(b.N)/took.Seconds(), "msgs/s")
	b.ReportMetric(float64(took)/float64(time.Since(begin)), "x-floor")
}

// TestTransports: every client gets an answer of every size, and each note, of
// a server of either era.
func TestTransports(t *testing.T) {
	for _, role := range []string{"stdio", "modern"} {
		at := serve(t, child(t, role))
		for f, all := range map[messageForm][]kind{legacy: kinds(), modern: modernKinds()} {
			for _, k := range all {
				t.Run(fmt.Sprintf("%s/%d/%s", role, f, k.name), func(t *testing.T) {
					c := open(t, k, at)
					for _, size := range sizes {
						if err := c.call(f.request(ids.Add(1), size.size)); err != nil {
							t.Error(err)
						}
					}
					if err := c.notes(1000); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// TestWrongAnswers: what is wrong does not look like what is fast.
func TestWrongAnswers(t *testing.T) {
	const (
		note   = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0}}` + "\n"
		result = `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n"
		no     = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server cannot be reached just now, alas"}}` + "\n"
	)
	for name, c := range map[string]struct {
		answer string
		call   func(client) error
	}{
		"an error":       {no, func(c client) error { return c.call(legacy.request(1, 100)) }},
		"a short answer": {result, func(c client) error { return c.call(legacy.request(1, 100)) }},
		"the end":        {"", func(c client) error { return c.call(legacy.request(1, 100)) }},
		"a note less":    {note + result, func(c client) error { return c.notes(2) }},
		"a note more":    {note + note + note + result, func(c client) error { return c.notes(2) }},
		"no notes":       {no, func(c client) error { return c.notes(2) }},
	} {
		over := newLines(strings.NewReader(c.answer), io.Discard, func() error { return nil })
		if err := c.call(linkClient{link: over}); err == nil {
			t.Errorf("%s is taken for the right answer", name)
		}
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.answer) }))
		if err := c.call(&peer{url: web.URL}); err == nil {
			t.Errorf("%s over HTTP is taken for the right answer", name)
		}
		transport.CloseIdleConnections()
		web.Close()
	}
}

// BenchmarkEras is one call after the other, where client and server are of the
// same era and where they are not. What translation adds is the difference.
func BenchmarkEras(b *testing.B) {
	f := newFloor(b, 1)
	at := map[string]*bridgeAddr{"2025": serve(b, child(b, "stdio")), "2026": serve(b, child(b, "modern"))}
	for _, server := range []string{"2025", "2026"} {
		for i, k := range kinds() {
			b.Run("2025 to "+server+"/"+k.name, func(b *testing.B) { benchCalls(b, open(b, k, at[server]), f) })
			if i < len(modernKinds()) {
				k := modernKinds()[i]
				b.Run("2026 to "+server+"/"+k.name, func(b *testing.B) { benchCalls(b, open(b, k, at[server]), f) })
			}
		}
	}
}

// TestTranslationAllocates: what a call of 100 B allocates more when client and
// server are of different eras, than when both are of 2026-07-28.
func TestTranslationAllocates(t *testing.T) {
	const most = 20
	older, newer := serve(t, child(t, "stdio")), serve(t, child(t, "modern"))
	count := func(k kind, at *bridgeAddr) float64 {
		t.Helper()
		session := open(t, k, at)
		calls := newCaller(session.messageForm(), 100)
		one := func() {
			if err := session.call(calls.next()); err != nil {
				t.Error(err)
			}
		}
		for range 100 { // until what is kept for later has grown
			one()
		}
		return testing.AllocsPerRun(1000, one)
	}
	for _, k := range modernKinds() {
		before := kinds()[0]
		for _, other := range kinds() {
			if other.name == k.name {
				before = other
			}
		}
		same, down, up := count(k, newer), count(k, older), count(before, newer)
		t.Logf("%s: %.0f allocations; to a legacy server %+.0f, from a legacy client %+.0f", k.name, same, down-same, up-same)
		if down-same > most || up-same > most {
			t.Errorf("over %s translation adds %.0f and %.0f allocations to a call, want at most %d", k.name, down-same, up-same, most)
		}
	}
}
