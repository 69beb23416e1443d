package legacysse_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse"
)

// Whoever reads a request knows the trace that its HTTP request belongs to.
func TestTraceContext(t *testing.T) {
	got := make(chan jsonrpc.Message, 1)
	h := legacysse.NewHandler(bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		m, err := bridgetest.Recv(ctx, c)
		got <- m
		return err
	}), legacysse.HandlerOptions{})
	mux := http.NewServeMux()
	mux.HandleFunc("/sse", h.ServeSSE)
	mux.HandleFunc("/message", h.ServeMessage)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	defer h.Close()
	resp, err := http.Get(srv.URL + "/sse")
	bridgetest.Must(t, err)
	defer resp.Body.Close()
	var endpoint string
	for lines := bufio.NewScanner(resp.Body); endpoint == "" && lines.Scan(); {
		endpoint, _ = strings.CutPrefix(lines.Text(), "data: ")
		if !strings.HasPrefix(endpoint, "/") {
			endpoint = ""
		}
	}
	req, err := http.NewRequest(http.MethodPost, srv.URL+endpoint, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	bridgetest.Must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", "00-1-2-01")
	posted, err := http.DefaultClient.Do(req)
	bridgetest.Must(t, err)
	posted.Body.Close()
	m := <-got
	if mark := m.Mark(); mark == nil || mark.Traceparent != "00-1-2-01" {
		t.Errorf("%s belongs to the trace %+v", m.Bytes(), mark)
	}
}
