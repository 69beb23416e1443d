package sdk

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
	"github.com/mcp-bridge/mcp-bridge/tests/interop/script"
)

// A slot is one client of a party.
type slot struct {
	client
	over string // for people
	to   target
}

// endpoints are those of one `mcp-bridge serve`.
type endpoints struct{ http, sse, ws, unix string }

// serveAll starts `mcp-bridge serve ARGS` on a TCP port and a Unix socket.
func serveAll(t testing.TB, args ...string) endpoints {
	t.Helper()
	socket := "unix:" + socketPath(t)
	url := peers.Serve(t, append([]string{"--listen", socket}, args...)...)
	base := strings.TrimSuffix(url, "/mcp")
	return endpoints{url, base + "/sse", "ws" + strings.TrimPrefix(base, "http") + "/ws", socket}
}

// few is a client for each transport that an SDK has a client for.
func (e endpoints) few() []slot {
	return []slot{
		{typeScript, "HTTP+SSE", target{URL: e.sse, Via: "sse"}},
		{typeScript, "WebSocket", target{URL: e.ws}},
		{typeScript, "Streamable HTTP", target{URL: e.http}},
		{goPinned, "HTTP+SSE", target{URL: e.sse, Via: "sse"}},
		{goPinned, "Streamable HTTP", target{URL: e.http}},
		{goPinned, "a Unix socket", target{URL: e.unix}},
	}
}

// everybody is few, and more of each transport.
func (e endpoints) everybody() []slot {
	return append(e.few(),
		slot{typeScript2, "HTTP+SSE", target{URL: e.sse, Via: "sse"}},
		slot{typeScript2, "WebSocket", target{URL: e.ws}},
		slot{typeScript2, "Streamable HTTP", target{URL: e.http}},
		slot{goPinned, "HTTP+SSE, too", target{URL: e.sse, Via: "sse"}},
		slot{goPinned, "Streamable HTTP, too", target{URL: e.http}},
		slot{goPinned, "a Unix socket, too", target{URL: e.unix}},
	)
}

// connect is how a client on stdio reaches a server through the bridge.
func connect(t testing.TB, args ...string) target {
	return target{Command: append([]string{peers.Bridge(t), "connect"}, args...)}
}

// party runs the script with all clients at once, and with one client of each
// SDK that goes directly to the server: every slot must see what that one
// sees, and nothing that is meant for another.
func party(t *testing.T, p plan, direct map[client]target, clients ...slot) {
	t.Helper()
	var byYardstick sync.WaitGroup
	n := 0
	for _, yardstick := range []client{goPinned, typeScript, goModern, typeScript2, typeScript2Modern} {
		own := []slot{{yardstick, "nothing", direct[yardstick]}}
		if _, ok := direct[yardstick]; !ok {
			continue // nobody comes with it
		}
		for _, g := range clients {
			if g.measuredBy(yardstick) {
				own = append(own, g)
			}
		}
		var jobs []script.Job
		for _, g := range own {
			n++
			g.to.N = n
			jobs = append(jobs, script.Job{To: g.to, Version: g.version})
		}
		argv := yardstick.argv(t)
		byYardstick.Go(func() {
			out := play(t, argv, p, jobs)
			for i, g := range own {
				for _, e := range wrong(p, out[0], out[i]) {
					t.Errorf("%s over %s: %s", g.name, g.over, e)
				}
			}
		})
	}
	byYardstick.Wait()
}

// wrong lists what is wrong with an outcome.
func wrong(p plan, direct, bridged script.Outcome) []string {
	if bridged.Error != "" {
		return []string{bridged.Error}
	}
	var out []string
	if missing := incomplete(p, bridged.Transcript, false); missing != nil {
		out = append(out, fmt.Sprintf("these steps did not work: %q", missing))
	}
	if direct.Error == "" {
		out = append(out, differences(direct.Transcript, bridged.Transcript)...)
	}
	return out
}

// socketPath is a free path, short enough for a socket.
func socketPath(t testing.TB) string {
	dir, err := os.MkdirTemp("", "mcp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "socket")
}
