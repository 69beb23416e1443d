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
		s := Show{Out: bufio.NewWriter(&out), Err: io.Discard}
		done := make(chan error)
		go func() { done <- s.Live(t.Context(), r) }()
		put := func(seq uint64, kind trace.Kind, hop, dir string, id int64) {
			_, err := w.Write(trace.Append(nil, &trace.Record{
				Seq: seq, Time: time.Now(), Kind: kind, Session: "s1", Hop: hop, Dir: dir, Method: "ping", ID: jsonrpc.IntID(id),
			}))
			bridgetest.Must(t, err)
		}
		put(1, trace.Request, trace.Down, trace.ToServer, 1)
		put(3, trace.Response, trace.Up, trace.ToClient, 1)
		put(2, trace.Request, trace.Up, trace.ToServer, 1)
		put(4, trace.Response, trace.Down, trace.ToClient, 1)
		put(5, trace.Request, trace.Down, trace.ToServer, 2)
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

// A file is printed in the order in which things happened.
func TestOrder(t *testing.T) {
	file, err := os.ReadFile(recorded)
	bridgetest.Must(t, err)
	var out bytes.Buffer
	s := Show{Out: bufio.NewWriter(&out), Err: io.Discard}
	story, err := s.Story(bytes.NewReader(file))
	bridgetest.Must(t, err)
	if s.Filter, err = ParseFilter([]string{"id:6"}); err != nil {
		t.Fatal(err)
	}
	bridgetest.Must(t, s.All(bytes.NewReader(file), story))
	bridgetest.Must(t, s.Out.Flush())
	if n := strings.Count(out.String(), "\n"); n != 4 || strings.Index(out.String(), "|→") > strings.Index(out.String(), "|←") {
		t.Errorf("printed:\n%s", out.String())
	}
}
