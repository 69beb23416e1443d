package legacysse

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// noCalls lets everybody in as ann, and forbids tools/call.
type noCalls struct{ token context.Context }

func (a noCalls) Authenticate(_ http.Header, r *http.Request) (*http.Request, *access.Refusal) {
	return r.WithContext(access.Sender{Name: "ann", Token: a.token}.Context(r.Context())), nil
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

// A3: what a client may not send is answered 403 with the challenge, and the server does not get it.
func TestAuthorizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{Guard: access.Policy{Authenticator: noCalls{}}}, nil)
		c := s.open()
		p := c.post(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)
		p.want(http.StatusForbidden, "no calls")
		if p.header.Get("WWW-Authenticate") == "" {
			t.Error("no challenge")
		}
		p = c.post(note)
		c.session.gets(note)
		p.want(http.StatusAccepted, "")
	})
}

var _ access.Authorizer = noCalls{}
