package observe_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// What a client says of itself does not stay in memory, however long it is.
func TestLongNames(t *testing.T) {
	var o observe.Observer
	s := o.OpenSession("files", "stdio")
	a, b := bridge.Pipe()
	defer a.Close(nil)
	c := s.Conn(b, observe.Downstream)
	long := strings.Repeat("ä", 1<<20)
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientInfo":{"name":"` + long + `","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + long +
			`","io.modelcontextprotocol/clientInfo":{"name":"` + long + `","version":"1"}}}}`,
	} {
		m, err := jsonrpc.Parse([]byte(text))
		bridgetest.Must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Send(t.Context(), m) }()
		_ = c.Receive(ctx, bridgetest.SinkFunc(func(context.Context, jsonrpc.Message) error {
			cancel()
			return nil
		}))
		bridgetest.Must(t, <-done)
		if got := s.Client(); !strings.HasPrefix(long, got.Name) || got.Name == "" || len(got.Name) > 1000 || got.Version != "1" || len(s.Revision()) > 1000 {
			t.Errorf("%d bytes of the name, version %q, %d bytes of the revision are kept", len(got.Name), got.Version, len(s.Revision()))
		}
	}
}
