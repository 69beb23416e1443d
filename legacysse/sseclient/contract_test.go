package sseclient

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse"
)

// The client keeps the contract of bridge.Conn, and so does a session of a
// legacysse.Handler, as each other's peers over real HTTP.
func TestContract(t *testing.T) {
	bridgetest.TestConn(t, func(t *testing.T) (a, b bridge.Conn, stop func()) { return newContractPair(t) }, bridgetest.Options{
		NoEOFAt:     "a", // a client gets a new session when one has ended
		LateSendsAt: "a", // which takes what it sends
		GoneAt:      "b", // a client whose stream has ended cannot be sent to
	})
}

const (
	initializeText  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	initializedText = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func initializeResult(version string) []byte {
	return []byte(`{"protocolVersion":"` + version + `","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`)
}

var msg = bridgetest.Parse

// mux serves a Handler at /sse and /message.
func mux(h *legacysse.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/sse", h.ServeSSE)
	mux.HandleFunc("/message", h.ServeMessage)
	return mux
}

// newContractPair returns a client and the session that it has opened.
func newContractPair(t testing.TB) (client, session bridge.Conn, stop func()) {
	sessions := make(chan bridge.Conn, 100)
	done := make(chan struct{}) // the test receives nothing more
	handler := legacysse.NewHandler(bridge.HandlerFunc(func(_ context.Context, conn bridge.Conn) error {
		sessions <- conn
		<-done // and not ctx: what was accepted is dropped when ServeConn returns
		return nil
	}), legacysse.HandlerOptions{})
	server := httptest.NewServer(mux(handler))
	client, err := (&Client{URL: server.URL + "/sse"}).Dial(t.Context())
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
	send(session, jsonrpc.NewResult(new(recv(session)).ID(), initializeResult("2024-11-05")))
	recv(client)
	accepted := make(chan struct{})
	go func() { // the session has to take it before the client is done
		defer close(accepted)
		send(client, msg(initializedText))
	}()
	recv(session)
	<-accepted
	return client, session, func() {
		close(done)
		handler.Close()
		server.Close()
	}
}
