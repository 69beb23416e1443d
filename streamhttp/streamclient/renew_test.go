package streamclient

import (
	"net/http"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// LE5, ST9: who asks for it is told, once the session was renewed, that what it
// listens for may have changed; after the first session nobody is.
func TestNotifyAfterRenewal(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		o.NotifyAfterRenewal = true
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() != "initialize" {
				return false
			}
			s.mu.Lock()
			s.sessions++
			s.session = "announcing"
			s.mu.Unlock()
			w.Header().Set(wire.HeaderSession, "announcing")
			writeJSON(w, result(m, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}`))
			return true
		}
	}, func(t *clientTest) {
		t.send(initializeText)
		t.recv()
		t.send(initializedText)
		t.send(`{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{"uri":"a:1"}}`)
		t.recv()
		t.wantNothing(time.Minute)
		t.server.forget()
		t.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
		seen := map[string]int{}
		for range 4 { // the answer may come before them
			seen[string(new(t.recv()).Bytes())]++
		}
		for _, want := range []string{
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1"}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"echo":"tools/call"}}`,
		} {
			if seen[want] != 1 {
				t.Errorf("received %v, not %s", seen, want)
			}
		}
		t.wantNothing(time.Minute)
	})
}
