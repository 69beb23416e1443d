package upstream

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ED7, ST15: a server that is slow to start, or waits for initialize, is started once for its first modern
// client, which waits for no more than that start, or than the probe. A server that another
// start can help gets one. What a server answers to the bridge's own questions, no client gets.
func TestStartsOfSlowServer(t *testing.T) {
	const probe, hanging = 3 * time.Second, 15 * time.Second
	for name, c := range map[string]struct {
		kind   kind
		slow   time.Duration
		starts int
		took   time.Duration
	}{
		"legacy":                               {legacyServer, 4 * time.Second, 1, 4 * time.Second},
		"legacy, as slow as the patience":      {legacyServer, 14 * time.Second, 1, 14 * time.Second},
		"legacy, slower":                       {legacyServer, 20 * time.Second, 2, hanging + 20*time.Second},
		"legacy, silent to the probe":          {silent, 0, 1, probe},
		"legacy, slow and silent to the probe": {silent, 4 * time.Second, 1, 4 * time.Second},
		"legacy, answers the probe last":       {lateProbe, 0, 1, probe},
		"legacy, slow, ends at the probe":      {exits, 4 * time.Second, 2, 8 * time.Second},
		"legacy, hangs at the probe":           {hangs, 0, 2, hanging},
		"modern":                               {modernServer, 4 * time.Second, 1, 4 * time.Second},
		"modern, slower":                       {modernServer, 20 * time.Second, 2, hanging + 20*time.Second},
		"both":                                 {dual, 4 * time.Second, 1, 4 * time.Second},
	} {
		for client, isolation := range map[string]Isolation{"modern": Auto, "legacy that shares": PerPrincipal} {
			t.Run(name+"/"+client, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &fleet{kind: c.kind, slow: c.slow}
					dropped := ""
					s := serverOf(t, f, Spec{Isolation: isolation, Dropped: func(m jsonrpc.Message, _ string) { dropped = string(m.Bytes()) }})
					began := time.Now()
					conn := party(t, t.Context(), s.Handler(true, bridge.PumpOptions{}))
					first := modernCall
					if client != "modern" {
						first = initialize
					}
					send(t, conn, first)
					m, err := bridgetest.Recv(t.Context(), conn)
					question := parse(t, first)
					if err != nil || m.IsError() || m.ID() != question.ID() {
						t.Fatalf("%s, %v", m.Bytes(), err)
					}
					if n, took := f.count(), time.Since(began); n != c.starts || took != c.took {
						t.Errorf("%d servers were started, and the client has waited for %v; want %d and %v", n, took, c.starts, c.took)
					}
					// What comes late does not disturb what comes next.
					if m := ask(t, conn, strings.Replace(modernCall, `"id":2`, `"id":3`, 1)); m.IsError() || m.ID().String() != "3" {
						t.Errorf("%s", m.Bytes())
					}
					synctest.Wait()
					if f.count() != c.starts || dropped != "" {
						t.Errorf("%d servers were started in the end; dropped: %s", f.count(), dropped)
					}
					if got := s.State().LastError; got != "" {
						t.Errorf("/readyz says %q of a server that works", got)
					}
				})
			})
		}
	}
}

// A process that was opened is used by no client that says something else of itself than its initialize did.
func TestOpenedForOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{kind: silent}
		s := serverOf(t, f, Spec{})
		first := party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{}))
		other := party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{}))
		send(t, first, modernCall)
		synctest.Wait()
		send(t, other, strings.Replace(modernCall, `clientCapabilities":{}`, `clientCapabilities":{"sampling":{}}`, 1))
		for _, conn := range []bridge.Conn{first, other} {
			if m, err := bridgetest.Recv(t.Context(), conn); err != nil || m.IsError() {
				t.Fatalf("%s, %v", m.Bytes(), err)
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		saw := map[bool]int{}
		for _, m := range f.bytes {
			if strings.Contains(m, `"method":"initialize"`) {
				saw[strings.Contains(m, `"sampling"`)]++
			}
		}
		if f.starts != 2 || saw[true] != 1 || saw[false] != 1 {
			t.Errorf("%d servers; initialize with and without the capability: %v\n%s", f.starts, saw, strings.Join(f.bytes, "\n"))
		}
	})
}
