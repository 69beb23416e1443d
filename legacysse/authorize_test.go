package legacysse

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
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
		// Nothing of a batch that is forbidden is taken: an answer to the server, which is broken here, may
		// come again, and whoever has asked hears of it then.
		c.session.says(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-03-26"}}`, `{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		broken := `{"jsonrpc":"2.0","id":"q","result":1,"error":2}`
		c.post(`[`+broken+`,{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}]`).want(http.StatusForbidden, "no calls")
		c.session.getsNothing()
		p = c.post(`[` + broken + `]`)
		if m, err := bridgetest.Recv(t.Context(), c.session); err != nil || m.Lookup("error") == nil {
			t.Errorf("whoever has asked hears %s, %v", m.Bytes(), err)
		}
		synctest.Wait()
		p.want(http.StatusAccepted, "")
		p = c.post(note)
		c.session.gets(note)
		p.want(http.StatusAccepted, "")
	})
}

// When the token of a stream expires, what is in progress is answered before the stream ends. What is POSTed meanwhile, or
// was not taken before, is refused at once.
func TestExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token, expire := context.WithCancelCause(t.Context())
		s := newSite(t, HandlerOptions{Guard: access.Policy{Authenticator: noCalls{token}}}, nil)
		finish := make(chan struct{})
		s.serve = func(ctx context.Context, p *server) error {
			<-ctx.Done()
			if why := context.Cause(ctx); why != access.ErrExpired {
				t.Errorf("the conversation ends for %v", why)
			}
			<-finish
			return p.Send(context.WithoutCancel(ctx), jsonrpc.NewResult(jsonrpc.IntID(3), []byte(`{}`)))
		}
		c := s.open()
		first := c.post(`{"jsonrpc":"2.0","id":4,"method":"ping"}`) // which the server does not take
		second := c.post(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
		expire(access.ErrExpired)
		for _, p := range []*reply{first, second, c.post(`{"jsonrpc":"2.0","id":6,"method":"ping"}`)} {
			p.want(http.StatusNotFound, "begin anew")
		}
		close(finish)
		c.hears(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		synctest.Wait()
		if !c.finished() || s.h.Sessions() != 0 {
			t.Error("the session has not ended")
		}
	})
}
