package upstream

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/sharing"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// D.1: requests that have a process each wait for a place, in the queue that there
// is for places; --max-children does not refuse them at once.
func TestAloneUnitsQueue(t *testing.T) {
	place := make(chan struct{}, 1)
	waits := make(chan struct{}, 10)
	f := &fleet{kind: legacyServer}
	s := serverOf(t, f, Spec{Isolation: PerRequest, Protocol: era.OnlyLegacy, MaxShared: 1, AcquirePlace: func(ctx context.Context) (func(), error) {
		waits <- struct{}{}
		select {
		case place <- struct{}{}:
			return func() { <-place }, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	while, leave := context.WithCancel(t.Context())
	first := party(t, while, s.ExchangeHandler(bridge.PumpOptions{}))
	send(t, first, strings.Replace(modernCall, "tools/call", "hang", 1))
	f.wait(t, 1, 1)
	<-waits
	second := party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{}))
	send(t, second, modernCall)
	select {
	case <-waits: // it is in the queue
	case <-time.After(20 * time.Second):
		t.Fatal("it does not ask for a place")
	}
	leave()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if m, err := bridgetest.Recv(ctx, second); err != nil || m.IsError() {
		t.Errorf("%s, %v", m.Bytes(), err)
	}
}

// D12: those that clients share are bounded as ever, whoever is alone beside them.
func TestSharedUnitsAreBounded(t *testing.T) {
	s := serverOf(t, &fleet{}, Spec{MaxShared: 2})
	join := func(key sharing.Key) error {
		_, err := s.pool.Join(t.Context(), key, nil, false)
		return err
	}
	for i := range 5 {
		if err := join(sharing.Key{Exclusive: uint64(i) + 1}); err != nil {
			t.Error(err)
		}
	}
	for i, principal := range []string{"a", "b", "c"} {
		if err := join(sharing.Key{Principal: principal}); errors.Is(err, bridge.ErrBusy) != (i == 2) {
			t.Errorf("%s: %v", principal, err)
		}
	}
	for _, shared := range s.pool.Servers() {
		if shared.Key.Principal == "a" {
			shared.Shutdown(probe.ErrChanged)
		}
	}
	if err := join(sharing.Key{Principal: "c"}); err != nil {
		t.Errorf("where there is room again: %v", err)
	}
}

// ED9: where a server has answered initialize, but begun no session, and cannot be
// had with 2026-07-28, its client goes on as it has begun.
func TestSessionlessStays(t *testing.T) {
	s := serverOf(t, &fleet{kind: dual}, Spec{})
	s.prober.NoteEra(true)
	s.sessionless.Store(true)
	tries := 0
	f := &probe.Fallback{Prober: s.prober, Sessionless: s.sessionless.Load, Legacy: s.clientDialer(true), Modern: dialFunc(func(context.Context) (bridge.Conn, error) {
		tries++
		return nil, bridge.ErrBusy
	})}
	client := party(t, t.Context(), bridge.Serve(f, bridge.PumpOptions{}))
	if m := ask(t, client, initialize); m.IsError() {
		t.Fatalf("initialize: %s", m.Bytes())
	}
	if m := ask(t, client, legacyCall); m.IsError() {
		t.Errorf("a call: %s", m.Bytes())
	}
	if tries != 1 {
		t.Errorf("%d tries to do better, want 1", tries)
	}
}

// ED9: a server that has refused initialize, and is closed so that there is a place to ask it
// what it speaks, is found out all the same; and its client hears of the refusal if it is none
// of 2026-07-28.
func TestRefusedAndAsked(t *testing.T) {
	for _, modern := range []bool{true, false} {
		place := make(chan struct{}, 1)
		s := scripted(t, Spec{AcquirePlace: func(ctx context.Context) (func(), error) {
			select {
			case place <- struct{}{}:
				return func() { <-place }, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}, func(m jsonrpc.Message) []string {
			if modern && m.Method() == "server/discover" {
				return []string{`{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}`}
			}
			return []string{`{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"Method not found"}}`}
		})
		client := party(t, t.Context(), s.LegacyHandler(true, bridge.PumpOptions{}))
		if m := ask(t, client, initialize); m.IsError() == modern {
			t.Errorf("modern %t: %s", modern, m.Bytes())
		}
	}
}

// A process that clients share is kept for IdleTimeout after the last has left it, however
// often that was put off, and for as long as one is there.
func TestIdleUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{kind: modernServer}
		s := serverOf(t, f, Spec{Protocol: era.OnlyModern, IdleTimeout: time.Hour})
		call := func() {
			t.Helper()
			if m := ask(t, party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{})), modernCall); m.IsError() {
				t.Fatalf("%s", m.Bytes())
			}
		}
		runsUntil := func(last time.Duration) {
			t.Helper()
			for _, step := range []struct {
				wait    time.Duration
				running int
			}{{last - time.Nanosecond, 1}, {time.Nanosecond, 0}} {
				time.Sleep(step.wait)
				synctest.Wait()
				f.mu.Lock()
				if f.running != step.running {
					t.Errorf("%d servers run, want %d", f.running, step.running)
				}
				f.mu.Unlock()
			}
		}
		call()
		for range 5 {
			time.Sleep(40 * time.Minute)
			call()
		}
		if n := f.count(); n != 1 {
			t.Errorf("%d servers were started, want 1", n)
		}
		runsUntil(time.Hour)

		call()
		there, err := s.pool.Join(t.Context(), s.keys.modernKey(""), nil, false)
		bridgetest.Must(t, err)
		time.Sleep(150 * time.Minute)
		_ = there.Close(nil)
		runsUntil(time.Hour)
	})
}
