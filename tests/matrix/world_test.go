package matrix

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// What goes into the matrix.
var (
	ingresses = []string{"stdio", "http", "sse", "ws"}
	egresses  = []string{"stdio", "http", "sse", "ws", "unix"}
)

// paths are where serve answers.
var paths = map[string]string{"http": "/mcp", "sse": "/sse", "ws": "/ws"}

// A pair is a transport and an era for each side.
type pair struct {
	ingress, egress            string
	modernClient, modernServer bool
	floor                      bool // there is no bridge
}

var eraNames = map[bool]string{false: "legacy ", true: "modern "}

// String names the row.
func (p pair) String() string {
	if p.floor {
		return "floor " + eraNames[p.modernServer] + p.egress
	}
	return eraNames[p.modernClient] + p.ingress + " > " + eraNames[p.modernServer] + p.egress
}

// speaks reports whether a transport exists in an era: HTTP+SSE is legacy.
func speaks(transport string, modern bool) bool { return transport != "sse" || !modern }

// floors is each transport of an era without a bridge.
func floors(modern bool) (out []pair) {
	for _, egress := range egresses {
		if speaks(egress, modern) {
			out = append(out, pair{egress, egress, modern, modern, true})
		}
	}
	return out
}

// pairs is every transport of the client's era with every one of the server's. Where the eras
// are the same, floors come first.
func pairs(modernClient, modernServer bool) (out []pair) {
	if modernClient == modernServer {
		out = floors(modernServer)
	}
	for _, ingress := range ingresses {
		for _, egress := range egresses {
			if speaks(ingress, modernClient) && speaks(egress, modernServer) {
				out = append(out, pair{ingress, egress, modernClient, modernServer, false})
			}
		}
	}
	return out
}

// A world is one row of the matrix: a server, and how its clients reach it.
type world struct {
	pair
	pt     testing.TB // the row
	v      *server
	h      *host         // what plays the server, where the eras differ; else the script does
	bridge *harness.Proc // nil: each client has its own, or there is none
	base   string        // of the bridge: HOST:PORT

	bytes *bytesSession // the main client of the script "bytes"; nil: none, or it is broken
	main  *eraClient    // that of the script "eras"
	peers []*peer       // all clients there were
	marks int
}

func newWorld(t testing.TB, p pair, hosted bool) *world {
	w := &world{pair: p, pt: t}
	switch {
	case p.egress == "stdio":
		w.v = stdioServer(t)
	case p.egress == "http" && p.modernServer:
		w.v = newModernServer(t)
	case p.egress == "http":
		w.v = newHTTPServer(t)
	case p.egress == "sse":
		w.v = newSSEServer(t)
	case p.egress == "ws":
		w.v = wsServer(t)
	case p.egress == "unix":
		w.v = unixServer(t)
	}
	if hosted {
		w.h = newHost(w.v, p.modernServer)
		w.h.relayed = p.modernClient
	}
	return w
}

// What calls get when the bridge is told to stop. The longer one is for where
// nothing may take that long.
const shortGrace, grace = 2 * time.Second, 20 * time.Second

var listening = regexp.MustCompile(`listening.*?http://([0-9.]+:[0-9]+)`)

// start runs a program that ends with the row.
func (w *world) start(t testing.TB, o harness.Options, argv ...string) *harness.Proc {
	t.Helper()
	o.Owner, o.Check = w.pt, discreet
	return harness.Start(t, o, argv...)
}

// discreet wants a log to quote no messages.
func discreet(t testing.TB, log string) {
	if strings.Contains(log, "9007199254740993") || strings.Contains(log, "zwj") {
		t.Error("the log quotes messages")
	}
}

// serve starts a bridge that listens.
func (w *world) serve(t testing.TB, grace time.Duration, flags ...string) (p *harness.Proc, base string) {
	t.Helper()
	argv := append([]string{bridgeBin, "serve", "--listen", "127.0.0.1:0", "--grace", grace.String()}, flags...)
	p = w.start(t, harness.Options{NullStdio: true}, append(argv, w.v.target...)...)
	return p, p.WaitLog(t, listening)[1]
}

// dial makes a client, with a bridge of its own where the transport wants it so.
func (w *world) dial(t testing.TB) *peer {
	t.Helper()
	if !w.floor && w.ingress != "stdio" && w.bridge == nil {
		w.bridge, w.base = w.serve(t, grace)
	}
	return w.dialTo(t, w.modernClient, w.bridge, w.base, grace)
}

// apart makes a client of a bridge of its own.
func (w *world) apart(t testing.TB, grace time.Duration, flags ...string) *peer {
	t.Helper()
	var bridge *harness.Proc
	var base string
	if w.ingress != "stdio" {
		bridge, base = w.serve(t, grace, flags...)
	}
	return w.dialTo(t, w.modernClient, bridge, base, grace, flags...)
}

// A peer is a client, as every script has it.
type peer struct {
	*world
	modern bool
	name   string
	c      *client
	bridge *harness.Proc
	next   int // for ids
}

// dialTo makes a client of a bridge that listens, or of one with that grace
// and those flags.
func (w *world) dialTo(t testing.TB, modern bool, bridge *harness.Proc, base string, grace time.Duration, flags ...string) *peer {
	t.Helper()
	k := &peer{world: w, modern: modern, name: fmt.Sprintf("client %d of %s to %s", len(w.peers)+1, w.ingress, w.egress), bridge: bridge, next: 1000}
	e := newEnd(k.name)
	url := "http://" + base + paths[w.ingress]
	if w.floor {
		url = w.v.target[0]
	}
	var wire clientWire
	switch {
	case w.ingress == "stdio":
		argv := append(append([]string{bridgeBin, "connect", "--grace", grace.String()}, flags...), w.v.target...)
		if w.floor {
			argv = w.v.target[1:]
		}
		lines := newLines(e, w.start(t, harness.Options{}, argv...))
		k.bridge, wire = lines.p, lines
	case w.ingress == "unix":
		wire = dialLines(t, e, "unix", strings.TrimPrefix(url, "unix:"))
	case w.ingress == "http" && modern:
		wire = newModernClient(e, url, !w.floor)
	case w.ingress == "http":
		wire = newHTTPClient(e, url, !w.floor)
	case w.ingress == "sse":
		wire = dialSSE(t, e, url, !w.floor)
	case w.ingress == "ws":
		wire = dialWS(t, e, strings.Replace(url, "http:", "ws:", 1))
	}
	w.pt.Cleanup(wire.cut)
	k.c = &client{e, wire}
	w.peers = append(w.peers, k)
	return k
}

// on is the stream on which a client gets what is about a request: over
// Streamable HTTP each has its own.
func (k *peer) on(id string) string {
	if k.ingress == "http" {
		return id
	}
	return ""
}

// id returns a new id.
func (k *peer) id() string {
	k.next++
	return fmt.Sprint(k.next)
}

// isMain reports whether a client is the row's main one, and served whether a session of the
// server may be that client's: a bridge shares one session among several clients where eras differ.
func (w *world) isMain(k *peer) bool {
	return w.bytes != nil && w.bytes.peer == k || w.main != nil && w.main.peer == k
}

func (w *world) served(s *session) bool { return w.h != nil || w.bytes != nil && w.bytes.s == s }

// abandon lets go of what a failed step has left, so that it can fail no other.
func (w *world) abandon() {
	for _, k := range w.peers {
		if !w.isMain(k) {
			k.c.wire.cut()
			k.c.update(func() { k.c.pardon, k.c.faults = true, nil })
		}
	}
	w.v.mu.Lock()
	all := slices.Clone(w.v.all)
	w.v.faults = nil
	w.v.mu.Unlock()
	for _, one := range all {
		one.update(func() { one.faults, one.pardon = nil, one.pardon || !w.served(one) })
	}
	if w.h != nil {
		w.h.update(func() { w.h.calls, w.h.shift = nil, false })
	}
}

// stop ends what clients there are, and the bridge.
func (w *world) stop(t testing.TB) {
	t.Helper()
	for _, k := range w.peers {
		k.c.wire.cut()
	}
	if w.bridge != nil {
		stop(t, w.bridge)
	}
}

// stop ends a bridge, which must have nothing to complain of.
func stop(t testing.TB, bridge *harness.Proc) {
	t.Helper()
	bridge.Signal(t, syscall.SIGTERM)
	if status := bridge.Wait(t); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

// awaitEnds waits until all that the server had of the bridge has ended: connections, sessions, processes.
func (w *world) awaitEnds(t testing.TB) {
	t.Helper()
	w.v.mu.Lock()
	all := slices.Clone(w.v.all)
	w.v.mu.Unlock()
	for _, one := range all {
		harness.WaitUntil(t, "the end of "+one.who, func() bool { _, over, _ := one.peek(); return over != "" })
		if one.pid != 0 {
			harness.WaitUntil(t, "the end of its process", func() bool { return !harness.Alive(one.pid) })
		}
	}
}
