package streamhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// What serves one POST has a call in progress from its beginning to its end, also
// while the server has got nothing of it but the bridge's own initialize: it is not
// ended for others.
func TestServerAloneIsInUse(t *testing.T) {
	h := streamhttp.NewHandler(bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		defer admission.MarkUnused(ctx)() // as far as it knows
		for {
			m, err := bridgetest.Recv(ctx, client)
			if err != nil {
				return nil
			}
			if m.Kind() != jsonrpc.Request {
				continue
			}
			if admission.HolderOf(ctx).Reclaim() {
				t.Errorf("%s is in progress, and the place was given up", m.Method())
			}
			if err := client.Send(ctx, jsonrpc.NewResult(m.ID(), nil)); err != nil {
				return err
			}
			if m.Method() == "initialize" && admission.HolderOf(ctx).Reclaim() {
				t.Error("the place was given up before the server had the call")
			}
		}
	}), streamhttp.HandlerOptions{Stateless: true})
	defer h.Close()
	srv := httptest.NewServer(h)
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	bridgetest.Must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := srv.Client().Do(req)
	bridgetest.Must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s", resp.Status)
	}
}
