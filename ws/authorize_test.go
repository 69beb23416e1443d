package ws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
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

// A3: what a client may not send is answered with an error, and the server does not get it.
func TestAuthorizer(t *testing.T) {
	got := make(chan string, 10)
	server := func(ctx context.Context, c bridge.Conn) error {
		for {
			m, err := bridgetest.Recv(ctx, c)
			if err != nil {
				return err
			}
			got <- m.Method()
		}
	}
	s := &site{answer: server}
	s.start(t, HandlerOptions{Guard: access.Policy{Authenticator: noCalls{}}})
	c := s.dialRaw(t, nil)
	c.write(frame(fin|opText, []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)))
	c.write(frame(fin|opText, []byte(`{"jsonrpc":"2.0","id":8,"method":"ping"}`)))
	if text := c.text(); !strings.Contains(text, `"id":7`) || !strings.Contains(text, "no calls") {
		t.Errorf("answer %s", text)
	}
	if method := <-got; method != "ping" {
		t.Errorf("the server got %s", method)
	}
}

// When the token of a connection expires, its call is answered before the connection ends. What comes
// meanwhile, or was not taken before, is answered with an error.
func TestExpired(t *testing.T) {
	token, expire := context.WithCancelCause(t.Context())
	taken, draining, finish := make(chan struct{}), make(chan struct{}), make(chan struct{})
	server := func(ctx context.Context, c bridge.Conn) error {
		m, err := bridgetest.Recv(ctx, c)
		if err != nil {
			return err
		}
		close(taken)
		<-ctx.Done()
		if why := context.Cause(ctx); why != access.ErrExpired {
			t.Errorf("the conversation ends for %v", why)
		}
		close(draining)
		<-finish
		return c.Send(context.WithoutCancel(ctx), jsonrpc.NewResult(m.ID(), []byte(`{}`)))
	}
	s := &site{answer: server}
	s.start(t, HandlerOptions{Guard: access.Policy{Authenticator: noCalls{token}}})
	c := s.dialRaw(t, nil)
	asks := func(id string) {
		c.write(frame(fin|opText, []byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`)))
	}
	hears := func(want ...string) {
		t.Helper()
		text := c.text()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("heard %s, want %s", text, w)
			}
		}
	}
	asks("1")
	asks("2") // which the server does not take
	c.write(frame(fin|opText, []byte(`{"jsonrpc":"2.0","id":"a","method":7}`)))
	hears(`"id":"a"`) // so both have come
	<-taken
	expire(access.ErrExpired)
	<-draining
	c.write(frame(fin|opText, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)))
	asks("3")
	hears(`"id":3`, `{"reason":"token_expired"}`, "connect again with a new one")
	close(finish)
	hears(`"id":1`, `"result"`)
	hears(`"id":2`, `{"reason":"token_expired"}`)
	if reason := c.wantClose(1008); !strings.Contains(reason, "expired") {
		t.Errorf("the connection ends with %q", reason)
	}
}

// A message for which there was no room when the token expired is answered as those are that had some.
func TestExpiredWithoutRoom(t *testing.T) {
	token, expire := context.WithCancelCause(t.Context())
	opened, finish := make(chan *session, 1), make(chan struct{})
	h := NewHandler(bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		m, err := bridgetest.Recv(ctx, c)
		if err != nil {
			return err
		}
		opened <- c.(*session)
		<-ctx.Done()
		<-finish
		return c.Send(context.WithoutCancel(ctx), jsonrpc.NewResult(m.ID(), []byte(`{}`)))
	}), HandlerOptions{})
	defer h.Close()
	s := &site{srv: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(access.Sender{Name: "ann", TokenContext: token}.Context(r.Context())))
	}))}
	defer s.srv.Close()
	c := s.dialRaw(t, nil)
	asks := func(id int, text string) {
		c.write(frame(fin|opText, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"ping","params":{"a":%q}}`, id, text)))
	}
	asks(1, "")
	session := <-opened
	asks(2, strings.Repeat("x", maxQueuedBytes)) // which the server does not take
	c.write(frame(fin|opText, []byte(`{"jsonrpc":"2.0","id":"a","method":7}`)))
	if text := c.text(); !strings.Contains(text, `"id":"a"`) { // so it has come
		t.Fatal(text)
	}
	asks(3, "")
	for session.delivering.TryLock() { // until it waits for room
		session.delivering.Unlock()
		runtime.Gosched()
	}
	expire(access.ErrExpired)
	<-session.ctx.Done()
	close(finish)
	if text := c.text(); !strings.Contains(text, `"id":1`) || !strings.Contains(text, `"result"`) {
		t.Errorf("heard %s", text)
	}
	both := c.text() + c.text() // in any order
	for _, want := range []string{`"id":2`, `"id":3`} {
		if !strings.Contains(both, want) {
			t.Errorf("%s is not answered: %s", want, both)
		}
	}
	if n := strings.Count(both, `{"reason":"token_expired"}`); n != 2 {
		t.Errorf("heard %s", both)
	}
	c.wantClose(1008)
}

// When the token of a connection is revoked, the client is told so (1008), also where the bridge closes the Conn as soon as
// Receive has ended. The log has no warning of it.
func TestRevoked(t *testing.T) {
	for range 20 {
		token, revoke := context.WithCancelCause(t.Context())
		s := &site{answer: func(ctx context.Context, c bridge.Conn) error {
			_, err := bridgetest.Recv(ctx, c)
			_ = c.Close(err)
			return err
		}}
		var log bytes.Buffer
		s.start(t, HandlerOptions{Guard: access.Policy{Authenticator: noCalls{token}}, Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn})})
		c := s.dialRaw(t, nil)
		revoke(errors.New("revoked"))
		if reason := c.wantClose(1008); reason != errTokenGone.Error() {
			t.Fatalf("the connection ends with %q", reason)
		}
		c.conn.Close()
		s.h.Close()
		if log.Len() > 0 {
			t.Fatalf("the log has %s", &log)
		}
	}
}
