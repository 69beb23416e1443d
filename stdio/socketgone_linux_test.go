package stdio

import (
	"context"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A client that has closed its socket both ways, as one that was killed has, reads no answer
// any more: its calls are cancelled at once, and not waited for.
func TestServerClientKilledIsNotWaitedFor(t *testing.T) {
	s := serve(t, ServerOptions{})
	c := s.connect(t)
	c.say(ping)
	server := <-s.servers
	wantRecv(t, server, ping)
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // less than a Pump waits after the end of input
	defer cancel()
	m, err := bridgetest.Recv(ctx, server)
	if err != nil || m.Method() != "notifications/cancelled" || m.CancelledID() != jsonrpc.IntID(1) {
		t.Errorf("the server received %s, %v; want a cancellation", m.Bytes(), err)
	}
}
