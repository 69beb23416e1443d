package sdk

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// TestSpans: a client of the Go SDK says which trace a call belongs to (SEP-414). The bridge's spans
// join it on both sides: the collector gets one below the client's span and one that the server of
// the Go SDK is told to join.
func TestSpans(t *testing.T) {
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for _, c := range []client{goPinned, goModern} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			sent := make(chan []byte, 100)
			collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				sent <- body
			}))
			t.Cleanup(collector.Close) // after the bridge has ended
			heard := make(chan string, 1)
			server := mcp.NewServer(&mcp.Implementation{Name: "traced", Version: "1"}, nil)
			mcp.AddTool(server, &mcp.Tool{Name: "hear"}, func(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
				parent, _ := r.Params.Meta["traceparent"].(string)
				heard <- parent
				return &mcp.CallToolResult{}, nil, nil
			})
			remote := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
			t.Cleanup(remote.Close)
			url := peers.StartAndListen(t, []string{"env", "OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_BSP_SCHEDULE_DELAY=20",
				peers.Bridge(t), "serve", "--listen", "127.0.0.1:0", remote.URL})
			session, err := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, nil).
				Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: c.version})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			call := &mcp.CallToolParams{Meta: mcp.Meta{"traceparent": "00-" + trace + "-" + span + "-01"}, Name: "hear", Arguments: map[string]any{}}
			if _, err := session.CallTool(ctx, call); err != nil {
				t.Fatal(err)
			}
			parts := strings.Split(<-heard, "-")
			if len(parts) != 4 || parts[1] != trace || parts[2] == span {
				t.Fatalf("the server is told to join %q", parts)
			}
			// What the collector gets has these ids as bytes.
			var all []byte
			for want := []string{trace, span, parts[2]}; !holds(t, all, want); {
				select {
				case body := <-sent:
					all = append(all, body...)
				case <-ctx.Done():
					t.Fatalf("no spans of %q in %d bytes", want, len(all))
				}
			}
		})
	}
}

func holds(t *testing.T, all []byte, ids []string) bool {
	for _, id := range ids {
		raw, err := hex.DecodeString(id)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(all, raw) {
			return false
		}
	}
	return true
}
