package streamclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// asModern answers what is no request of 2026-07-28 as a server of that does.
func asModern(status int, text string) func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
	return func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
		writeStatus(w, status, strings.Replace(text, "ID", m.ID().String(), 1))
		return true
	}
}

const (
	namesNew     = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"2025-06-18"}}}`
	namesOld     = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"no","data":{"supported":["2025-06-18"]}}}`
	saysMismatch = `{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"no"}}`
	noMethod     = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"no"}}`
	badParams    = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no"}}`
	notFound     = `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`
)

// ED9: a server that refuses to renew a session as one of 2026-07-28 does is asked
// about; if it is one, the call is answered and the Conn ends.
func TestUpgraded(t *testing.T) {
	for name, c := range map[string]struct {
		stateless         bool
		status, reStatus  int // to the call, and to initialize
		refusal, renewing string
	}{
		"forgotten, -32022":     {false, 404, 400, notFound, namesNew},
		"forgotten, -32020":     {false, 404, 400, notFound, saysMismatch},
		"forgotten, -32601":     {false, 404, 404, notFound, noMethod},
		"forgotten, 200":        {false, 404, 200, notFound, namesNew},
		"in a session, -32022":  {false, 400, 400, namesNew, namesNew},
		"in a session, -32020":  {false, 400, 400, saysMismatch, saysMismatch},
		"without one, -32022":   {true, 400, 400, namesNew, namesNew},
		"without one, -32020":   {true, 400, 400, saysMismatch, saysMismatch},
		"forgotten, -32602":     {false, 404, 400, notFound, badParams},
		"forgotten, plain":      {false, 404, 400, notFound, "Bad Request"},
		"mismatch, then -32601": {false, 400, 404, saysMismatch, noMethod},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			testClient(t, func(s *fakeServer, o *Options) {
				s.stateless = c.stateless
				o.ConfirmUpgrade = func(_ context.Context, m jsonrpc.Message) bool {
					asked = append(asked, string(m.Lookup("error", "code")))
					return true
				}
			}, func(t *clientTest) {
				t.open()
				t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					if m.Method() == "initialize" {
						return asModern(c.reStatus, c.renewing)(w, r, m)
					}
					return asModern(c.status, c.refusal)(w, r, m)
				})
				t.send(request("1", "tools/call"))
				t.wantError("1", "session_lost", "forgotten")
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if m, err := bridgetest.Recv(ctx, t.conn); !errors.Is(err, ErrUpgraded) {
					t.Errorf("received %s, %v", m.Bytes(), err)
				}
				if len(asked) != 1 || !strings.Contains(c.renewing, asked[0]) {
					t.Errorf("asked about %q", asked)
				}
			})
		})
	}
}

// ED9, LE5: where it is none, the Conn goes on trying, and where nobody wants to
// know, and the session lives on where the server names no new version.
func TestNotUpgraded(t *testing.T) {
	for name, upgraded := range map[string]func(context.Context, jsonrpc.Message) bool{
		"no": func(context.Context, jsonrpc.Message) bool { return false }, "not asked": nil,
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) { o.ConfirmUpgrade = upgraded }, func(t *clientTest) {
				t.open()
				t.server.forget()
				t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					return m.Method() == "initialize" && asModern(404, noMethod)(w, r, m)
				})
				t.send(request("1", "tools/call"))
				t.wantError("1", "session_lost")
				t.server.script(nil)
				time.Sleep(time.Minute)
				t.call("2", "tools/call")
			})
		})
	}
	t.Run("no new version", func(t *testing.T) {
		testClient(t, func(s *fakeServer, o *Options) {
			o.ConfirmUpgrade = func(context.Context, jsonrpc.Message) bool { return true }
		}, func(t *clientTest) {
			t.open()
			t.server.script(asModern(400, namesOld))
			t.send(request("1", "tools/call"))
			if m := t.recv(); string(m.Lookup("error", "code")) != "-32022" {
				t.Errorf("received %s", m.Bytes())
			}
			t.server.script(nil)
			t.call("2", "tools/call")
			if n := len(t.server.requests("initialize")); n != 1 {
				t.Errorf("%d times initialize, want 1", n)
			}
		})
	})
}

// ED9: which refusals are those of a server that does not speak 2026-07-28. The
// client gets the server's own error all the same (ME9).
func TestModernForeign(t *testing.T) {
	for name, c := range map[string]struct {
		status  int
		body    string
		foreign bool
	}{
		"-32000 without an id":      {400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`, true},
		"-32600 with another id":    {400, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Missing session ID"}}`, true},
		"-32600 with the id":        {400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"no"}}`, true},
		"-32601 without an id":      {404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no"}}`, true},
		"-32602 without an id":      {400, `{"jsonrpc":"2.0","error":{"code":-32602,"message":"no"}}`, true},
		"session":                   {404, notFound, true},
		"plain":                     {400, `Bad Request`, true},
		"empty":                     {405, ``, true},
		"-32601 with the id":        {404, noMethod, false},
		"-32602 with the id":        {400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`, false},
		"-32603 with the id":        {400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}`, false},
		"-32020":                    {400, saysMismatch, false},
		"-32021":                    {400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"no"}}`, false},
		"-32022":                    {400, namesOld, false}, // whose list says it
		"not let in":                {401, ``, false},
		"forbidden":                 {403, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}`, false},
		"too large":                 {413, ``, false},
		"too many":                  {429, ``, false},
		"down":                      {502, ``, false},
		"-32600 with success":       {200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"no"}}`, false},
		"a page instead of a reply": {-1, `<html>`, true},
	} {
		t.Run(name, func(t *testing.T) {
			var foreign int
			testModern(t, func(s *fakeServer, o *ModernOptions) {
				o.OnForeignRefusal = func() { foreign++ }
				s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					if c.status < 0 {
						w.Header().Set("Content-Type", "text/html")
						io.WriteString(w, c.body)
						return true
					}
					return asModern(c.status, c.body)(w, r, m)
				}
			}, func(t *modernTest) {
				t.send(modern("1", "prompts/get", `"name":"x"`))
				m := t.recv()
				if own := msgOr(c.body); !m.IsError() || own.IsError() && c.status != 403 && string(m.Lookup("error", "code")) != string(own.Lookup("error", "code")) {
					t.Errorf("received %s", m.Bytes())
				}
				if (foreign > 0) != c.foreign {
					t.Errorf("foreign: %d times, want %v", foreign, c.foreign)
				}
			})
		})
	}
}

// msgOr returns the message in text, an invalid one if there is none.
func msgOr(text string) jsonrpc.Message {
	m, _ := jsonrpc.Parse([]byte(strings.Replace(text, "ID", "1", 1)))
	return m
}

// ED9: the question whether a server speaks 2026-07-28 is no reason to ask it.
func TestDiscoverIsNotForeign(t *testing.T) {
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		o.OnForeignRefusal = func() { t.Error("it is called") }
		s.onPost = asModern(400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}`)
	}, func(t *modernTest) {
		t.client.Discover(t.Context())
		synctest.Wait()
	})
}
