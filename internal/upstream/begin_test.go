package upstream

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/era"
)

// late is a client whose party is not told before the test wants it to be.
type late struct{ asked, tell chan struct{} }

func (l late) Party() string {
	select {
	case l.asked <- struct{}{}:
	default:
	}
	<-l.tell
	return "p"
}

// D.1: of clients that come at the same moment and share a process one starts it, and the
// others do not end it, nor are they refused because there may be no other.
func TestBeginTogether(t *testing.T) {
	f := &fleet{kind: modernServer}
	s := serverOf(t, f, Spec{Protocol: era.OnlyModern, MaxShared: 1})
	var clients [3]bridge.Conn
	var parties [3]late
	for i := range clients {
		parties[i] = late{make(chan struct{}, 1), make(chan struct{})}
		clients[i] = party(t, &identity.PartyContext{Context: t.Context(), Client: parties[i]}, s.ExchangeHandler(bridge.PumpOptions{}))
		send(t, clients[i], modernCall)
		<-parties[i].asked // so it has found no process
	}
	for i := range clients {
		close(parties[i].tell)
		if m, err := bridgetest.Recv(t.Context(), clients[i]); err != nil || m.IsError() {
			t.Errorf("client %d: %s %v", i, m.Bytes(), err)
		}
	}
	f.wait(t, 1, 1)
}

// D.3: where all processes that clients share have calls in progress, a client that
// needs one of its own waits as long as --queue-timeout says, and is served when one of
// them is done.
func TestSharedUnitsQueue(t *testing.T) {
	for _, ends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := serverOf(t, &fleet{}, Spec{
				Protocol: era.OnlyLegacy, MaxShared: 1, MaxQueued: 1, QueueTimeout: time.Minute,
			})
			hangup, cancel := context.WithCancel(identity.WithPrincipal(t.Context(), "ann"))
			defer cancel()
			ann := party(t, hangup, s.ExchangeHandler(bridge.PumpOptions{}))
			bob := party(t, identity.WithPrincipal(t.Context(), "bob"), s.ExchangeHandler(bridge.PumpOptions{}))
			send(t, ann, strings.Replace(modernCall, "tools/call", "hang", 1))
			synctest.Wait()
			began := time.Now()
			send(t, bob, modernCall)
			if ends {
				time.Sleep(30 * time.Second)
				_ = ann.Close(nil)
				cancel()
			}
			m, err := bridgetest.Recv(t.Context(), bob)
			if err != nil || m.IsError() == ends {
				t.Errorf("the call before it ends: %t; bob is answered %s, %v", ends, m.Bytes(), err)
			}
			if waited := time.Since(began); ends && waited > 40*time.Second || !ends && waited != time.Minute {
				t.Errorf("the call before it ends: %t; bob is answered after %v", ends, waited)
			}
		})
	}
}
