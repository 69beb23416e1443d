package sdk

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// resumePlan is for servers that have the tool "slow" and nothing else.
var resumePlan = plan{
	Progress:  use("slow", args{"steps": 3, "seconds": 0.3}),
	Steps:     3,
	Slow:      use("slow", args{"steps": 20, "seconds": 2}),
	SlowSteps: 20,
}

// TestConnectResumes: a call's connection between `mcp-bridge connect` and a
// server of either SDK is cut, and the bridge resumes it. The everything
// servers cannot show this: that of the Go SDK keeps no events, and that of
// npm replays the events of all streams and then forgets which one it resumed.
func TestConnectResumes(t *testing.T) {
	for _, server := range []struct {
		name string
		url  func(testing.TB) string
	}{{"go", goResumable}, {"typescript", typeScriptResumable}} {
		for _, client := range clients {
			t.Run(server.name+"/"+client.name, func(t *testing.T) {
				t.Parallel()
				c := newCutter(t, server.url(t))
				bridged := connect(t, c.url)
				bridged.Cut, bridged.Drop = c.control, true
				client.compare(t, resumePlan, target{URL: server.url(t), Drop: true}, bridged)
				if c.cuts() == 0 {
					t.Error("no connection was cut: nothing was resumed")
				}
			})
		}
	}
}

// TestServeURLResumes: a call is cut on both sides of `mcp-bridge serve URL` at
// once; the bridge resumes it at the server, and the client at the bridge.
func TestServeURLResumes(t *testing.T) {
	for _, server := range []struct {
		name string
		url  func(testing.TB) string
	}{{"go", goResumable}, {"typescript", typeScriptResumable}} {
		for _, client := range []client{goPinned, typeScript} {
			t.Run(server.name+"/"+client.name, func(t *testing.T) {
				t.Parallel()
				far := newCutter(t, server.url(t))
				near := newCutter(t, peers.Serve(t, far.url), far)
				client.compare(t, resumePlan, target{URL: server.url(t), Drop: true},
					target{URL: near.url, Cut: near.control, Drop: true})
				if near.cuts() == 0 || far.cuts() == 0 {
					t.Error("no connection was cut: nothing was resumed")
				}
			})
		}
	}
}

func typeScriptResumable(t testing.TB) string {
	return peers.StartAndListen(t, []string{peers.Node(t), "server.mjs"})
}

func goResumable(t testing.TB) string {
	type args struct {
		Steps   int     `json:"steps"`
		Seconds float64 `json:"seconds"`
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "resumable", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "slow"}, func(ctx context.Context, r *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
		tick := time.NewTicker(time.Duration(a.Seconds * float64(time.Second) / float64(a.Steps)))
		defer tick.Stop()
		for i := range a.Steps {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
			r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1), Total: float64(a.Steps)})
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
	})
	s := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}
