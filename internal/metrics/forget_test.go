package metrics_test

import (
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/internal/metrics"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// newForgetting returns Metrics that watch o, and what says whether "files" is in use, as "other" always is.
func newForgetting(t *testing.T, o *observe.Observer) (m *metrics.Metrics, inUse *atomic.Bool) {
	inUse = new(atomic.Bool)
	inUse.Store(true)
	m = metrics.New(metrics.Options{ToolLabels: true, NamesInUse: func() []string {
		if inUse.Load() {
			return []string{"other", "files"}
		}
		return []string{"other"}
	}})
	t.Cleanup(m.Watch(o))
	return m, inUse
}

// filesSeries returns how many series of the server "files" Prometheus would get.
func filesSeries(t *testing.T, m *metrics.Metrics) int {
	t.Helper()
	return strings.Count(scrape(t, m), `server="files"`)
}

// All series of a server that was removed go once nothing of it is in progress, after one more answer, and they begin with 0 if it comes
// back. What is still told of it brings them back for one answer only.
func TestServerIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		m, inUse := newForgetting(t, &o)
		other := observe.Stderr{Server: "other"}
		o.Event(other)
		client, server, end := session(t, &o)
		call(client, server, 1, "add", `"result":{}`)
		stream := observe.Stream{Server: "files", Hop: observe.Downstream, Action: "opened"}
		for _, e := range []observe.Event{
			stream, observe.ProcessStarted{Server: "files", PID: 1 << 30}, observe.ProcessStopping{Server: "files", PID: 1 << 30, Step: "terminate"},
			observe.Stderr{Server: "files"}, observe.Noise{Server: "files"}, observe.Dropped{Server: "files"},
		} {
			o.Event(e)
		}
		inUse.Store(false)
		for _, ending := range []func(){
			func() { end(io.EOF) },
			func() { o.Event(observe.ProcessEnded{Server: "files", PID: 1 << 30}) },
			func() { stream.Action = "closed"; o.Event(stream) },
		} {
			scrape(t, m)
			wants(t, scrape(t, m), `mcp_bridge_child_starts_total{server="files"} 1`)
			ending()
		}
		wants(t, scrape(t, m), `mcp_bridge_child_exits_total{how="exit_0",server="files"} 1`, `mcp_bridge_streams{server="files"} 0`,
			`mcp_bridge_sessions{era="legacy",server="files",transport="http"} 0`)
		text := scrape(t, m)
		if strings.Contains(text, `server="files"`) {
			t.Errorf("there are still series of it:\n%s", text)
		}
		wants(t, text, `mcp_bridge_stderr_lines_total{server="other"} 1`)

		client, server, end = session(t, &o) // late
		call(client, server, 1, "add", `"result":{}`)
		end(io.EOF)
		if filesSeries(t, m) == 0 || filesSeries(t, m) != 0 {
			t.Error("what comes late is not told once, or more than once")
		}

		inUse.Store(true)
		_, _, end = session(t, &o)
		defer end(io.EOF)
		synctest.Wait()
		for range 2 {
			wants(t, scrape(t, m), `mcp_bridge_messages_total{dir="c2s",hop="down",kind="request",server="files"} 1`,
				`mcp_bridge_sessions{era="legacy",server="files",transport="http"} 1`)
		}
	})
}
