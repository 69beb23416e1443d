package ws

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// LE5, ST9: who asks for it is told, once the session was renewed, that what it
// listens for may have changed.
func TestNotifyAfterRenewal(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	c := dialClient(t, s.url(), ClientOptions{NotifyAfterRenewal: true})
	old := s.open(t, c)
	ask(t, c, old, `{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"a"}}`)
	old.wire.closeNow()
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
	c.Close(nil)
}

// LE17: what the handshake has set as a cookie goes along with that of the
// renewal.
func TestRenewCookies(t *testing.T) {
	cookies := make(chan string, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cookies <- r.Header.Get("Cookie")
		w.Header().Set("Set-Cookie", "sticky=a; Path=/")
		socket, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer socket.CloseNow()
		_, data, err := socket.Read(t.Context())
		if err != nil || r.Header.Get("Cookie") != "" {
			return // this one is enough
		}
		answer := jsonrpc.NewResult(new(msg(string(data))).ID(), []byte(`{"protocolVersion":"2025-06-18","capabilities":{}}`))
		if err := socket.Write(t.Context(), websocket.MessageText, answer.Bytes()); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	c := dialClient(t, "ws"+server.URL[len("http"):], ClientOptions{})
	send(t, c, msg(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}`))
	if got := <-cookies; got != "" {
		t.Errorf("the first handshake had the cookies %q", got)
	}
	recv(t, c)
	if got := <-cookies; got != "sticky=a" {
		t.Errorf("the renewal's handshake had the cookies %q", got)
	}
	c.Close(nil)
}
