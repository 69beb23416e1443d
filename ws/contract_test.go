package ws

import (
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Both sides keep the contract of bridge.Conn, as each other's peers over TCP:
// a client that renews its session, one that does not, and one connection.
func TestContract(t *testing.T) {
	defer func(d time.Duration) { closeWait = d }(closeWait)
	closeWait = 500 * time.Millisecond // the peers of some Conns take nothing any more
	t.Run("renewing", func(t *testing.T) {
		bridgetest.TestConn(t, pairMaker(ClientOptions{}), bridgetest.Options{
			NoEOFAt:     "a", // it connects again, and nobody notices
			LateSendsAt: "a",
			GoneAt:      "b", // a client that has closed the connection cannot be sent to
		})
	})
	t.Run("not renewing", func(t *testing.T) {
		bridgetest.TestConn(t, pairMaker(ClientOptions{NoRenew: true}), bridgetest.Options{
			NoEOFAt: "a", // it gets ErrSessionLost
			GoneAt:  "b",
		})
	})
}

// pairMaker makes a client and the session that it has opened.
func pairMaker(o ClientOptions) bridgetest.PairFunc {
	return func(t *testing.T) (client, server bridge.Conn, stop func()) {
		s := newSite(t, HandlerOptions{})
		s.hold = make(chan struct{})
		client, err := (&Client{URL: s.url(), Options: o}).Dial(t.Context())
		bridgetest.Must(t, err)
		session := s.open(t, client)
		return client, session, func() {
			close(s.hold)
			s.h.Close()
			s.srv.Close()
		}
	}
}

func (s *site) url() string { return "ws" + strings.TrimPrefix(s.srv.URL, "http") + "/ws" }

// open initializes, and returns the server that the client then has.
func (s *site) open(t *testing.T, client bridge.Conn) *session {
	t.Helper()
	send(t, client, msg(initializeText))
	session := <-s.sessions
	answer := jsonrpc.NewResult(new(recv(t, session)).ID(), []byte(`{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`))
	send(t, session, answer)
	wantText(t, recv(t, client), string(answer.Bytes()))
	send(t, client, msg(initializedText))
	wantText(t, recv(t, session), initializedText)
	return session
}
