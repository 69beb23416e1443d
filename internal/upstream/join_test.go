package upstream

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/probe"
)

// watched is a context that calls at whenever somebody asks whether it is done.
type watched struct {
	context.Context
	at func()
}

func (w watched) Err() error {
	w.at()
	return w.Context.Err()
}

// C.7: a client that comes while what it would share ends, because the server speaks
// another protocol by now, is told so, and not that something could not be started.
func TestJoinWhatEnds(t *testing.T) {
	s := serverOf(t, &fleet{kind: modernServer}, Spec{Protocol: era.OnlyModern})
	var once sync.Once
	end := func() {
		if shared := s.pool.Servers(); len(shared) > 0 {
			once.Do(func() { // between entering it and its Mux
				shared[0].Shutdown(probe.ErrChanged)
				s.pool.Wait()
			})
		}
	}
	client := party(t, t.Context(), bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		return s.ExchangeHandler(bridge.PumpOptions{}).ServeConn(watched{ctx, end}, c)
	}))
	m := ask(t, client, modernCall)
	if text := string(m.Lookup("error", "message")); !strings.Contains(text, "has changed its protocol; try again") {
		t.Errorf("the client is told: %s", m.Bytes())
	}
	again := party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{}))
	if m := ask(t, again, modernCall); m.IsError() {
		t.Errorf("trying again: %s", m.Bytes())
	}
}
