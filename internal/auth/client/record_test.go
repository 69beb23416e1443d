package client

import (
	"fmt"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// TestRecordOfManyProcesses: what several processes learn of a server at the same moment is remembered together: the scopes
// that its challenges name, each sign-in, and that it has taken a token.
func TestRecordOfManyProcesses(t *testing.T) {
	t.Parallel()
	for range 10 {
		w := newWorld(t)
		var wg sync.WaitGroup
		const processes = 4
		for i := range processes {
			c := w.credential(t, w.options())
			w.sign(t, c, 0)
			h, err := c.renewer.usableSnapshot(t.Context())
			bridgetest.Must(t, err)
			wg.Go(func() {
				if err := c.record.noteDemand(t.Context(), auth.Demand{Scopes: []string{fmt.Sprint("s", i)}}, nil, false); err != nil {
					t.Error(err)
				}
				if err := c.record.noteSignIn(t.Context()); err != nil {
					t.Error(err)
				}
				c.responder.noteTokenAccepted(t.Context(), h)
			})
		}
		wg.Wait()
		got, err := w.credential(t, w.options()).record.storedDemands(t.Context())
		bridgetest.Must(t, err)
		if len(got.SignInTimes) != processes || len(got.Scopes) != processes || !got.IsTokenAccepted {
			t.Fatalf("of %d processes is remembered: %d sign-ins, the scopes %q, a token was taken: %t", processes, len(got.SignInTimes), got.Scopes, got.IsTokenAccepted)
		}
	}
}
