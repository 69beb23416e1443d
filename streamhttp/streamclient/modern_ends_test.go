package streamclient

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/toolheader"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// The client and the Handler understand each other, over HTTP/1.1 and HTTP/2:
// names and parameters in headers (ME2, ME3, MI5, MI22), statuses (ME9), streams, and
// cancellation by hanging up (ME5, MI15).
func TestModernBothEnds(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			cancelled := make(chan jsonrpc.Message, 1)
			handler := streamhttp.NewHandler(bridge.HandlerFunc(func(ctx context.Context, conn bridge.Conn) error {
				return errors.New("nobody speaks legacy here")
			}), streamhttp.HandlerOptions{
				Modern: bridge.HandlerFunc(func(ctx context.Context, conn bridge.Conn) error {
					return serveEnds(ctx, conn, cancelled)
				}),
				ToolSchema: func(ctx context.Context, call jsonrpc.Message, tool string) ([]byte, bool) {
					for _, tool := range toolheader.Tools([]byte(`{"tools":[` + regionTool + `]}`)) {
						return tool.InputSchema, true
					}
					return nil, false
				},
			})
			server := httptest.NewUnstartedServer(handler)
			server.EnableHTTP2 = http2
			if http2 {
				server.StartTLS()
			} else {
				server.Start()
			}
			defer server.Close()
			defer handler.Close()
			client := &ModernClient{URL: server.URL, Options: ModernOptions{Transport: server.Client().Transport}}
			if answer, fault := client.Discover(t.Context()); fault != nil || answer.IsError() {
				t.Fatalf("Discover = %s, %v", answer.Bytes(), fault)
			}
			conn, err := client.Dial(t.Context())
			bridgetest.Must(t, err)
			defer conn.Close(nil)
			testEnds(t, conn, cancelled)
		})
	}
}

// serveEnds is a server for one request.
func serveEnds(ctx context.Context, conn bridge.Conn, cancelled chan<- jsonrpc.Message) error {
	m, err := bridgetest.Recv(ctx, conn)
	if err != nil {
		return err
	}
	switch m.Method() {
	case "tools/list":
		return conn.Send(ctx, msg(result(m, `{"tools":[`+regionTool+`]}`)))
	case "subscriptions/listen":
		if err := conn.Send(ctx, msg(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}`)); err != nil {
			return err
		}
		end, err := bridgetest.Recv(ctx, conn)
		cancelled <- end
		return err
	case "vendor/none":
		return conn.Send(ctx, msg(failure(m, "-32601", "no such method")))
	}
	name := m.Lookup("params", "name")
	if name == nil {
		name = []byte("null")
	}
	return conn.Send(ctx, msg(result(m, `{"echo":`+string(name)+`}`)))
}

func testEnds(t *testing.T, conn bridge.Conn, cancelled <-chan jsonrpc.Message) {
	for _, c := range []struct{ request, want string }{
		{modern("1", "tools/call", `"name":"deploy","arguments":{"region":" zażółć ","n":4.20e1}`), `{"jsonrpc":"2.0","id":1,"result":{"echo":"deploy"}}`},
		{modern("2", "prompts/get", `"name":" zażółć "`), `{"jsonrpc":"2.0","id":2,"result":{"echo":" zażółć "}}`},
		{modern("3", "prompts/get", `"name":"=?base64?a?="`), `{"jsonrpc":"2.0","id":3,"result":{"echo":"=?base64?a?="}}`},
		{modern("4", "vendor/none", ""), `{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"no such method"}}`},
		{modern("5", "subscriptions/listen", `"notifications":{}`), `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}`},
	} {
		m := msg(c.request)
		bridgetest.Must(t, conn.Send(t.Context(), m))
		got, err := bridgetest.Recv(t.Context(), conn)
		if err != nil || string(got.Bytes()) != c.want || got.Related() != m.ID() {
			t.Fatalf("%s\nis answered %s, %v\nwant        %s", c.request, got.Bytes(), err, c.want)
		}
	}
	bridgetest.Must(t, conn.Send(t.Context(), msg(cancelOf("5"))))
	if m := <-cancelled; m.Method() != "notifications/cancelled" || m.CancelledID() != jsonrpc.IntID(5) {
		t.Errorf("the server got %s", m.Bytes())
	}
}
