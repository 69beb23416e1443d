package streamhttp_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// noCalls lets everybody in as ann, and forbids tools/call.
type noCalls struct{ token context.Context }

func (a noCalls) Authenticate(_ http.Header, r *http.Request) (*http.Request, *access.Refusal) {
	return r.WithContext(access.Sender{Name: "ann", TokenContext: a.token}.Context(r.Context())), nil
}

func (noCalls) Authorize(h http.Header, _ *http.Request, messages ...jsonrpc.Message) *access.Refusal {
	for _, m := range messages {
		if m.Method() == "tools/call" {
			h.Set("WWW-Authenticate", "Bearer error=\"insufficient_scope\"")
			return &access.Refusal{Status: http.StatusForbidden, Rule: "A3", Reason: "no calls"}
		}
	}
	return nil
}

func (noCalls) Forbidden(_ *http.Request, m jsonrpc.Message) (jsonrpc.Message, bool) {
	if m.Method() != "tools/call" {
		return jsonrpc.Message{}, false
	}
	return jsonrpc.NewError(m.ID(), -32600, "no calls", nil), true
}

// A3: what a client may not send is answered 403 with the challenge, in both eras, and in a batch too;
// the server does not get it.
func TestServerAuthorizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{Guard: access.Policy{Authenticator: noCalls{}}})
		old, p := s.open("2025-03-26")
		call := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`
		for name, r := range map[string]*reply{
			"modern": u.ask26("7", "tools/call", `"name":"t"`), "legacy": old.post(call),
			"batch": old.post(`[` + ping + `,` + call + `]`),
		} {
			id := "7"
			if name == "batch" {
				id = "null"
			}
			r.isError(http.StatusForbidden, -32600, id)
			if r.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: no challenge", name)
			}
		}
		r := old.post(ping)
		p.gets()
		p.says(result("1"))
		r.is(http.StatusOK)
	})
}

// When a token expires, the call that came with it is finished.
func TestServerExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token, expire := context.WithCancelCause(t.Context())
		s, u := newModern(t, streamhttp.HandlerOptions{Guard: access.Policy{Authenticator: noCalls{token}}})
		r := u.ask26("1", "tools/list", "")
		p := s.server()
		p.gets()
		expire(access.ErrExpired)
		synctest.Wait()
		p.answers(result("1"))
		r.isJSON(result("1"))
	})
}

// A subscription ends with its token, also one whose server has always something to say.
func TestServerListenExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token, expire := context.WithCancelCause(t.Context())
		s, u := newModern(t, streamhttp.HandlerOptions{Guard: access.Policy{Authenticator: noCalls{token}}})
		r := u.ask26("7", "subscriptions/listen", `"notifications":{}`)
		p := s.server()
		p.gets()
		p.says(listChanged)
		r.isModern().gets(listChanged).open()
		expire(access.ErrExpired)
		synctest.Wait()
		if err := p.Send(t.Context(), message(listChanged)); err == nil {
			t.Error("an event was sent when the token had expired")
		}
		p.cancelled("7")
		p.quits(nil)
		r.gets().over()
	})
}
