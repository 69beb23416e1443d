package streamclient

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// The client keeps the contract of bridge.Conn, and so does a session of the
// Handler, as each other's peers over real HTTP.
func TestContract(t *testing.T) {
	bridgetest.TestConn(t, newContractPair, bridgetest.Options{
		NoEOFAt:     "a", // a session that ends is an HTTP status of the next request
		LateSendsAt: "a", // which gets a new session
		GoneAt:      "b", // a deleted session has no client to send to
	})
}

// newContractPair returns a client and the session that it has opened.
func newContractPair(t *testing.T) (client, session bridge.Conn, stop func()) {
	sessions := make(chan bridge.Conn, 100)
	handler := streamhttp.NewHandler(bridge.HandlerFunc(func(ctx context.Context, conn bridge.Conn) error {
		sessions <- conn
		<-ctx.Done()
		return nil
	}), streamhttp.HandlerOptions{})
	server := httptest.NewServer(handler)
	client, err := (&Client{URL: server.URL}).Dial(t.Context())
	bridgetest.Must(t, err)
	send := func(c bridge.Conn, m jsonrpc.Message) {
		bridgetest.Must(t, c.Send(t.Context(), m))
	}
	recv := func(c bridge.Conn) jsonrpc.Message {
		m, err := bridgetest.Recv(t.Context(), c)
		bridgetest.Must(t, err)
		return m
	}
	send(client, msg(initializeText))
	session = <-sessions
	send(session, msg(result(recv(session), `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`)))
	recv(client)
	accepted := make(chan struct{})
	go func() { // the session has to take it before the client is done
		defer close(accepted)
		send(client, msg(initializedText))
	}()
	recv(session)
	<-accepted
	// What the session sends now may wait for the standalone stream.
	send(session, jsonrpc.NewNotification("notifications/ready", nil))
	recv(client)
	return client, session, func() {
		handler.Close()
		server.Close()
	}
}
