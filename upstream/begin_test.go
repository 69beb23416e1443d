package upstream

import (
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
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
	s := serverOf(t, f, Spec{Protocol: era.OnlyModern, MaxUnits: 1})
	var clients [3]bridge.Conn
	var parties [3]late
	for i := range clients {
		parties[i] = late{make(chan struct{}, 1), make(chan struct{})}
		clients[i] = party(t, &bridge.PartyContext{Context: t.Context(), Client: parties[i]}, s.Exchange(bridge.PumpOptions{}))
		send(t, clients[i], modernCall)
		<-parties[i].asked // so it has found no process
	}
	for i := range clients {
		close(parties[i].tell)
		if m, err := clients[i].Recv(t.Context()); err != nil || m.IsError() {
			t.Errorf("client %d: %s %v", i, m.Bytes(), err)
		}
	}
	f.wait(t, 1, 1)
}
