package sdk

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// TestPings: a server of the Go SDK that pings its client, in whichever revision,
// and ends when nobody answers, works on a call for longer than that. Clients of
// both eras get the result, whether the bridge translates or not.
func TestPings(t *testing.T) {
	server := append([]string{"--"}, peers.GoPings(t)...)
	for _, protocol := range []string{"auto", "modern"} {
		for _, c := range []client{goPinned, goModern} {
			args := append([]string{"--protocol", protocol}, server...)
			t.Run(c.name+" connect "+protocol, func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command(peers.Bridge(t), append([]string{"connect"}, args...)...)
				cmd.Stderr = os.Stderr
				c.outlasts(t, &mcp.CommandTransport{Command: cmd})
			})
			t.Run(c.name+" serve "+protocol, func(t *testing.T) {
				t.Parallel()
				c.outlasts(t, &mcp.StreamableClientTransport{Endpoint: peers.Serve(t, args...)})
			})
		}
	}
}

// outlasts calls the tool that takes longer than a server lives whose pings nobody
// answers.
func (c client) outlasts(t *testing.T, to mcp.Transport) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, nil).
		Connect(ctx, to, &mcp.ClientSessionOptions{ProtocolVersion: c.version})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "outlast", Arguments: map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := result.Content[0].(*mcp.TextContent); !ok || text.Text != "done" || result.IsError {
		t.Errorf("got %v", result.Content)
	}
}
