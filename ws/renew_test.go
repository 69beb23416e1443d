package ws

import (
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// LE5, ST9: who asks for it is told, once the session was renewed, that what it
// listens for may have changed.
func TestTellRenewed(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	c := dialClient(t, s.url(), ClientOptions{TellRenewed: true})
	old := s.open(t, c)
	ask(t, c, old, `{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"a"}}`)
	old.wire.cut()
	session := <-s.sessions
	m := recv(t, session)
	send(t, session, jsonrpc.NewResult(m.ID(), []byte(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"prompts":{}}}`)))
	recv(t, session) // notifications/initialized
	send(t, session, msg(`{"jsonrpc":"2.0","method":"notifications/early"}`))
	m = recv(t, session)
	send(t, session, jsonrpc.NewResult(m.ID(), nil))
	wantText(t, recv(t, c), `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	wantText(t, recv(t, c), `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a"}}`)
	wantText(t, recv(t, c), `{"jsonrpc":"2.0","method":"notifications/early"}`)
	ask(t, c, session, `{"jsonrpc":"2.0","id":6,"method":"tools/list"}`)
	c.Close()
}
