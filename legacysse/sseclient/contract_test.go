package sseclient

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse"
)

// The client keeps the contract of bridgetest.PullConn, and so does a session of a
// legacysse.Handler, as each other's peers over real HTTP.
func TestContract(t *testing.T) {
	bridgetest.TestConn(t, bridgetest.Pushed(func(t *testing.T) (a, b bridgetest.PullConn, stop func()) { return newContractPair(t) }), bridgetest.Options{
		NoEOF:     "a", // a client gets a new session when one has ended
		LateSends: "a", // which takes what it sends
		Gone:      "b", // a client whose stream has ended cannot be sent to
	})
}

const (
	initializeText  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	initializedText = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func initializeResult(version string) []byte {
	return []byte(`{"protocolVersion":"` + version + `","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`)
}

func msg(text string) jsonrpc.Message {
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return m
}

// mux serves a Handler at /sse and /message.
func mux(h *legacysse.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/sse", h.ServeSSE)
	mux.HandleFunc("/message", h.ServeMessage)
	return mux
}

// newContractPair returns a client and the session that it has opened.
func newContractPair(t testing.TB) (client, session bridgetest.PullConn, stop func()) {
	sessions := make(chan bridgetest.PullConn, 100)
	handler := legacysse.NewHandler(bridgetest.PullHandler(func(ctx context.Context, conn bridgetest.PullConn) error {
		sessions <- conn
		<-ctx.Done()
		return nil
	}), legacysse.HandlerOptions{})
	server := httptest.NewServer(mux(handler))
	client, err := bridgetest.PullDialed((&Client{URL: server.URL + "/sse"}).Dial(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	send := func(c bridgetest.PullConn, m jsonrpc.Message) {
		if err := c.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	recv := func(c bridgetest.PullConn) jsonrpc.Message {
		m, err := c.Recv(t.Context())
		if err != nil {
			t.Fatal(err)
		}
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
		handler.Close()
		server.Close()
	}
}
