package spans

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// busy is a Conn that takes nothing at once.
type busy struct{ bridge.Conn }

func (busy) Send(ctx context.Context, _ jsonrpc.Message) error { return ctx.Err() }
func (busy) TrySend(jsonrpc.Message) bool                      { return false }
func (busy) Close(error) error                                 { return nil }

// A request that a server was offered, and that is never sent, leaves no span behind.
func TestOffered(t *testing.T) {
	var o observe.Observer
	s := newSpans(newExporter(tracetest.NewNoopExporter(), func(error, int) {}), resource.Empty(), false)
	defer s.Close()
	defer s.Watch(&o)()
	c := o.OpenUnannounced("files", "").Conn(busy{}, observe.Upstream)
	for id := range 300 {
		c.TrySend(jsonrpc.NewRequest(jsonrpc.IntID(int64(id)), "tools/list", nil))
	}
	m := jsonrpc.NewRequest(jsonrpc.IntID(299), "tools/list", nil)
	bridgetest.Must(t, c.Send(t.Context(), m))
	bridgetest.Must(t, c.Close(nil))
	if n := s.openSpanCount.Load(); n != 0 || len(s.openBySession) != 0 {
		t.Errorf("%d spans of %d sessions are left", n, len(s.openBySession))
	}
}
