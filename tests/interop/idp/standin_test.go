package idp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// standInVariable makes the test program a stand-in for `mcp-bridge connect URL` that has of it
// only the client library of OAuth: its tool "read" calls that of the server.
const standInVariable = "MCP_BRIDGE_TEST_STANDIN"

func init() {
	if os.Getenv(standInVariable) == "" || os.Getenv(openerVariable) != "" {
		return
	}
	if err := standIn(context.Background(), os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func standIn(ctx context.Context, addr string) error {
	store, err := tokenstore.Open(ctx, tokenstore.Options{Dir: os.Getenv("MCP_BRIDGE_AUTH_DIR")})
	if err != nil {
		return err
	}
	c, err := client.New(client.Options{Store: store, Server: addr, SignIn: signInOrWait,
		Notice: func(err error) { fmt.Fprintln(os.Stderr, "notice:", err) }})
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "stand-in", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: addr, HTTPClient: &http.Client{Transport: &client.Transport{Credential: c}}}, nil)
	if err != nil {
		return err
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "stand-in", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "read"}, func(ctx context.Context, _ *mcp.CallToolRequest, args map[string]any) (*mcp.CallToolResult, any, error) {
		r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "read", Arguments: args})
		return r, nil, err
	})
	return server.Run(ctx, &mcp.StdioTransport{})
}

// signInOrWait signs a person in, or waits for the process that does.
func signInOrWait(ctx context.Context, c *client.Credential, _ client.Required) error {
	f, err := c.Begin(ctx, client.SignInOptions{Browser: program(os.Getenv("BROWSER"))})
	if err == nil {
		return f.Wait(ctx)
	}
	if !errors.Is(err, tokenstore.ErrBusy) {
		return err
	}
	waiting, done := context.WithTimeout(ctx, patience)
	defer done()
	signed := false
	err = c.Follow(waiting, func(in bool) {
		if signed = in; in {
			done()
		}
	})
	if signed {
		return nil
	}
	return err
}

// A program opens addresses.
type program string

func (p program) Open(addr string) error { return exec.Command(string(p), addr).Run() }
