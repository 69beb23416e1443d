package metrics

import (
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// While a server comes and goes, its gauge does not go wrong, its messages go on to be counted, and in the end no series stays.
func TestForgettingRaces(t *testing.T) {
	var inUse atomic.Bool
	m := New(Options{NamesInUse: func() []string {
		if inUse.Load() {
			return []string{"x"}
		}
		return nil
	}})
	var o observe.Observer
	defer m.Watch(&o)()
	scrape := func() string {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
	const openStreams, requests = `mcp_bridge_streams{server="x"} `, `mcp_bridge_messages_total{dir="c2s",hop="down",kind="request",server="x"} `
	valueOf := func(series string) string {
		_, rest, _ := strings.Cut(scrape(), series)
		value, _, _ := strings.Cut(rest, "\n")
		return value
	}
	stream := func(action string) { o.Event(observe.Stream{Server: "x", Hop: observe.Downstream, Action: action}) }
	var work sync.WaitGroup
	for range 4 {
		call := calling(t, &o)
		work.Go(func() {
			for i := range 300 {
				inUse.Store(i%3 == 0)
				stream("opened")
				call()
				m.forget(m.endedServers())
				stream("closed")
				m.forget(m.endedServers())
				call()
			}
		})
	}
	work.Wait()
	inUse.Store(true)
	stream("opened")
	if n := valueOf(openStreams); n != "1" {
		t.Errorf("%s streams are open, and not 1", n)
	}
	stream("closed")
	call := calling(t, &o)
	call()
	before := valueOf(requests)
	if call(); before == "" || valueOf(requests) == before {
		t.Errorf("after %q requests they are not counted any more", before)
	}
	inUse.Store(false)
	if scrape(); strings.Contains(scrape(), `server="x"`) {
		t.Error("series stay")
	}
}
