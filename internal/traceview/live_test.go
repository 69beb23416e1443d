package traceview

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func TestMain(m *testing.M) { bridgetest.CheckLeaks(m) }

// What comes in another order than it happened is printed as it happened, and a request is
// printed again once it has no answer for 10 seconds.
func TestLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		var out bytes.Buffer
		s := Viewer{Out: bufio.NewWriter(&out), Err: io.Discard}
		done := make(chan error)
		go func() { done <- s.Live(t.Context(), r) }()
		put := func(seq uint64, kind trace.Kind, hop, dir string, id int64) {
			_, err := w.Write(trace.Append(nil, &trace.Record{
				Seq: seq, Time: time.Now(), Kind: kind, Session: "s1", Hop: hop, Dir: dir, Method: "ping", ID: jsonrpc.IntID(id),
			}))
			bridgetest.Must(t, err)
		}
		put(1, trace.Request, trace.Downstream, trace.ToServer, 1)
		put(3, trace.Response, trace.Upstream, trace.ToClient, 1)
		put(2, trace.Request, trace.Upstream, trace.ToServer, 1)
		put(4, trace.Response, trace.Downstream, trace.ToClient, 1)
		put(5, trace.Request, trace.Downstream, trace.ToServer, 2)
		time.Sleep(30 * time.Second)
		bridgetest.Must(t, w.Close())
		bridgetest.Must(t, <-done)
		var got []string
		for line := range strings.Lines(out.String()) {
			_, line, _ = strings.Cut(line, "s1  ")
			got = append(got, strings.TrimSpace(line))
		}
		want := "→|    ping #1 0 B\n|→  ping #1 0 B\n|←  ping #1 ok 0 B\n←|    ping #1 ok 0 B\n→|    ping #2 0 B\n→|    ping #2 no answer for 10s 0 B"
		if strings.Join(got, "\n") != want {
			t.Errorf("printed:\n%s\nwant:\n%s", strings.Join(got, "\n"), want)
		}
	})
}

// What waited before we looked is shown at once, and not again, but when it becomes late. What has an answer,
// or will have none, waits no more.
func TestLiveEarlier(t *testing.T) {
	const first = "→|    ping #1 no answer for 12s (began before this trace: only this end of it is known)\n→|    ping #2 no answer for 5s (began before this trace: only this end of it is known)\n→|    ping #3 no answer for 5s (began before this trace: only this end of it is known)"
	const ends = "\n←|    ping #2 ok 6s 9 B\n→|    note unanswered ping #3 for 6s: it has ended"
	for words, want := range map[string]string{
		"":               first + "\n→|    ping #4 no answer for 400ms (began before this trace: only this end of it is known)" + ends + "\n→|    ping #4 no answer for 10s (began before this trace: only this end of it is known)",
		"status:pending": first + "\n→|    ping #4 no answer for 1.4s (began before this trace: only this end of it is known)\n→|    ping #4 no answer for 10s (began before this trace: only this end of it is known)",
		"status:late":    "→|    ping #1 no answer for 12s (began before this trace: only this end of it is known)\n→|    ping #4 no answer for 10s (began before this trace: only this end of it is known)",
	} {
		t.Run(words, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				var out bytes.Buffer
				s := Viewer{Out: bufio.NewWriter(&out), Err: io.Discard}
				var err error
				s.Filter, err = ParseFilter(strings.Fields(words))
				bridgetest.Must(t, err)
				done := make(chan error)
				go func() { done <- s.Live(t.Context(), r) }()
				put := func(r trace.Record) {
					r.Session, r.Hop, r.Method = "s1", trace.Downstream, "ping"
					_, err := w.Write(trace.Append(nil, &r))
					bridgetest.Must(t, err)
				}
				for id, age := range []time.Duration{0, 12 * time.Second, 5 * time.Second, 5 * time.Second, 400 * time.Millisecond} {
					if id > 0 {
						put(trace.Record{Kind: trace.Request, Dir: trace.ToServer, ID: jsonrpc.IntID(int64(id)), Earlier: true, Duration: age, Time: time.Now().Add(-age)})
					}
				}
				time.Sleep(time.Second)
				put(trace.Record{Seq: 1, Kind: trace.Response, Dir: trace.ToClient, ID: jsonrpc.IntID(2), Duration: 6 * time.Second, Size: 9, Time: time.Now()})
				put(trace.Record{Seq: 2, Kind: trace.Note, Dir: trace.ToServer, ID: jsonrpc.IntID(3), Duration: 6 * time.Second, Time: time.Now(),
					Event: &trace.Event{Code: "unanswered", Text: "it has ended"}})
				time.Sleep(30 * time.Second)
				bridgetest.Must(t, w.Close())
				bridgetest.Must(t, <-done)
				var got []string
				for line := range strings.Lines(out.String()) {
					if _, line, ok := strings.Cut(line, "s1  "); ok { // no new day
						got = append(got, strings.TrimSpace(line))
					}
				}
				if strings.Join(got, "\n") != want {
					t.Errorf("printed:\n%s\nwant:\n%s", strings.Join(got, "\n"), want)
				}
			})
		})
	}
}

// A file is printed in the order in which things happened.
func TestOrder(t *testing.T) {
	file, err := os.ReadFile(recorded)
	bridgetest.Must(t, err)
	var out bytes.Buffer
	s := Viewer{Out: bufio.NewWriter(&out), Err: io.Discard}
	correlation, err := s.ReadAll(bytes.NewReader(file))
	bridgetest.Must(t, err)
	if s.Filter, err = ParseFilter([]string{"id:6"}); err != nil {
		t.Fatal(err)
	}
	bridgetest.Must(t, s.PrintAll(bytes.NewReader(file), correlation))
	bridgetest.Must(t, s.Out.Flush())
	if n := strings.Count(out.String(), "\n"); n != 4 || strings.Index(out.String(), "|→") > strings.Index(out.String(), "|←") {
		t.Errorf("printed:\n%s", out.String())
	}
}

// With --json all lines of a running bridge are printed as they came, as soon as they have come; those that are none are
// told of.
func TestLiveLines(t *testing.T) {
	record := func(seq uint64, text string) string {
		return string(trace.Append(nil, &trace.Record{Seq: seq, Kind: trace.Note, Reason: text}))
	}
	long := record(4, strings.Repeat("x", copyBufferSize))
	for name, c := range map[string]struct {
		lines      []string
		want, told string
		fails      bool
	}{
		"records":       {[]string{record(1, ""), "\n", record(2, "") + record(3, "")}, record(1, "") + record(2, "") + record(3, ""), "", false},
		"a long one":    {[]string{record(1, ""), long, record(5, "")}, record(1, "") + long + record(5, ""), "", false},
		"no record":     {[]string{record(1, ""), "oops\n", record(2, "")}, record(1, "") + record(2, ""), "it is no record", false},
		"all at once":   {[]string{record(1, ""), record(2, "") + record(2, "") + "\n" + record(3, "") + "oops\n" + record(4, "")}, record(1, "") + record(2, "") + record(2, "") + record(3, "") + record(4, ""), "it is no record", false},
		"a newer one":   {[]string{record(1, ""), `{"v":2,"kind":"note"}` + "\n"}, record(1, ""), "newer mcp-bridge", false},
		"it is cut off": {[]string{record(1, ""), record(2, "")[:20]}, record(1, ""), "ends inside", false},
		"nothing else":  {[]string{"oops\n"}, "", "it is no record", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				var out, told bytes.Buffer
				s := Viewer{Out: bufio.NewWriter(&out), Err: &told, JSON: true}
				done := make(chan error)
				go func() { done <- s.Live(t.Context(), r) }()
				for i, line := range c.lines {
					_, err := io.WriteString(w, line)
					bridgetest.Must(t, err)
					if synctest.Wait(); i == 0 && line != "oops\n" && out.String() != line {
						t.Errorf("printed %q at first", out.String())
					}
				}
				bridgetest.Must(t, w.Close())
				if err := <-done; (err != nil) != c.fails {
					t.Error(err)
				}
				if out.String() != c.want || !strings.Contains(told.String(), c.told) || c.told == "" && told.Len() > 0 {
					t.Errorf("printed %.200q, and told %q", out.String(), told.String())
				}
			})
		})
	}
}
