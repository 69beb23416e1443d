package matrix

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A world is one row of the matrix of eras: a server of one, and how clients
// of one reach it.
type world struct {
	ingress, egress            string
	modernClient, modernServer bool
	floor                      bool // there is no bridge
	pt                         testing.TB
	v                          *server
	h                          *host
	bridge                     *proc // nil: each client has its own, or there is none
	base                       string

	main  *visitor // nil: none, or it is broken
	all   []*visitor
	marks int
}

func newWorld(t testing.TB, modernClient bool, ingress string, modernServer bool, egress string, floor bool) *world {
	w := &world{ingress: ingress, egress: egress, modernClient: modernClient, modernServer: modernServer, floor: floor, pt: t}
	switch {
	case egress == "stdio":
		w.v = stdioServer(t)
	case egress == "http" && modernServer:
		w.v = newModernServer(t)
	case egress == "http":
		w.v = newHTTPServer(t)
	case egress == "sse":
		w.v = newSSEServer(t)
	case egress == "ws":
		w.v = wsServer(t)
	case egress == "unix":
		w.v = unixServer(t)
	}
	w.h = newHost(w.v, modernServer)
	w.h.relayed = modernClient
	return w
}

// serve starts a bridge that listens.
func (w *world) serve(t testing.TB, grace time.Duration, flags ...string) (p *proc, base string) {
	t.Helper()
	argv := append([]string{bridgeBin, "serve", "--listen", "127.0.0.1:0", "--grace", grace.String()}, flags...)
	p = start(w.pt, t, nil, nil, append(argv, w.v.target...)...)
	return p, p.waitLog(t, listening)[1]
}

// dial makes a client, with a bridge of its own where the transport wants it so.
func (w *world) dial(t testing.TB) *visitor {
	t.Helper()
	if !w.floor && w.ingress != "stdio" && w.bridge == nil {
		w.bridge, w.base = w.serve(t, grace)
	}
	return w.dialTo(t, w.modernClient, w.bridge, w.base, grace)
}

// apart makes a client of a bridge of its own.
func (w *world) apart(t testing.TB, grace time.Duration, flags ...string) *visitor {
	t.Helper()
	var bridge *proc
	var base string
	if w.ingress != "stdio" {
		bridge, base = w.serve(t, grace, flags...)
	}
	return w.dialTo(t, w.modernClient, bridge, base, grace, flags...)
}

// dialTo makes a client of a bridge that listens, or of one with that grace
// and those flags.
func (w *world) dialTo(t testing.TB, modern bool, bridge *proc, base string, grace time.Duration, flags ...string) *visitor {
	t.Helper()
	k := &visitor{world: w, modern: modern, name: fmt.Sprintf("client %d of %s to %s", len(w.all)+1, w.ingress, w.egress), bridge: bridge, next: 1000, level: "info", caps: legacyCaps}
	if modern {
		k.level, k.caps = "", modernCaps
	}
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
		lines := startLines(w.pt, t, e, argv...)
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
	w.all = append(w.all, k)
	return k
}

// open makes a client that has said hello.
func (w *world) open(t testing.TB) *visitor {
	t.Helper()
	k := w.dial(t)
	k.begin(t)
	return k
}

// abandon lets go of what a failed step has left, so that it can fail no other.
func (w *world) abandon() {
	for _, k := range w.all {
		if k != w.main {
			k.c.wire.cut()
			k.c.update(func() { k.c.pardon, k.c.faults = true, nil })
		}
	}
	w.v.mu.Lock()
	all := slices.Clone(w.v.all)
	w.v.faults = nil
	w.v.mu.Unlock()
	for _, one := range all {
		one.update(func() { one.faults = nil })
	}
	w.h.update(func() { w.h.calls, w.h.shift = nil, false })
}
