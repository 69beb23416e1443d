package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// forgetful is an older server at a URL whose session has a number, which it
// forgets when that changes.
type forgetful struct{ session atomic.Int32 }

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, err := jsonrpc.Parse(body)
	session := fmt.Sprint(f.session.Load())
	switch {
	case r.Method == http.MethodDelete:
	case r.Method != http.MethodPost || err != nil:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Method() == "initialize":
		w.Header().Set("Mcp-Session-Id", session)
		f.result(w, m, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true}},"serverInfo":{"name":"old","version":"1"}}`)
	case r.Header.Get("Mcp-Session-Id") != session:
		w.WriteHeader(http.StatusNotFound)
	case m.Kind() == jsonrpc.Request:
		f.result(w, m, `{"content":[]}`)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (f *forgetful) result(w http.ResponseWriter, m jsonrpc.Message, result string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID(), result)
}

// C.3, ST9, LE5: when the session of a remote server was renewed, modern clients
// are told that all they listen for may have changed, and nothing else.
func TestListenersHearOfARenewal(t *testing.T) {
	site := new(forgetful)
	h := httptest.NewServer(site)
	t.Cleanup(h.Close)
	s, err := New(Spec{URL: h.URL, Protocol: era.OnlyLegacy})
	bridgetest.Must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	listens := party(t, t.Context(), s.modernHandler(bridge.PumpOptions{}))
	next := func() jsonrpc.Message {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		m, err := bridgetest.Recv(ctx, listens)
		bridgetest.Must(t, err)
		return m
	}
	send(t, listens, `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:b"]},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	if m := next(); m.Method() != "notifications/subscriptions/acknowledged" {
		t.Fatalf("received %s", m.Bytes())
	}
	site.session.Add(1)
	if m := ask(t, party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{})), modernCall); m.IsError() {
		t.Fatalf("the call got %s", m.Bytes())
	}
	for _, want := range []string{
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b","_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`,
	} {
		if m := next(); string(m.Bytes()) != want {
			t.Errorf("received %s, want %s", m.Bytes(), want)
		}
	}
}
