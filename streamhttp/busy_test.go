package streamhttp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// everybody is let in with a token.
type everybody struct{ token context.Context }

func (a everybody) Authenticate(_ http.Header, r *http.Request) (*http.Request, *access.Refusal) {
	return r.WithContext(access.Sender{Name: "ann", TokenContext: a.token}.Context(r.Context())), nil
}

func (everybody) Authorize(http.Header, *http.Request, ...jsonrpc.Message) *access.Refusal {
	return nil
}

func (everybody) Forbidden(*http.Request, jsonrpc.Message) (jsonrpc.Message, bool) {
	return jsonrpc.Message{}, false
}

// busyWriter is a client whose server has said something more whenever it has taken what there was.
type busyWriter struct {
	nowhere
	again func()
}

func (w *busyWriter) Flush() { w.again() }

func progressOf(token string) string {
	return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":1}}`
}

// A stream that always has something to write ends with its token, too. Only a call whose token has expired goes on to its
// answer.
func TestServerBusyStreamEnds(t *testing.T) {
	t.Parallel()
	const (
		expireAt = 5  // writes
		answerAt = 10 // if there is a call
		enough   = 20 // for one that goes on for ever
	)
	for _, c := range []struct {
		name, method string
		why          error
		writes       int
	}{
		{"GET, expired", http.MethodGet, access.ErrExpired, expireAt},
		{"GET, revoked", http.MethodGet, errors.New("removed"), expireAt},
		{"POST, expired", http.MethodPost, access.ErrExpired, answerAt + 1},
		{"POST, revoked", http.MethodPost, errors.New("removed"), expireAt},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			token, expire := context.WithCancelCause(t.Context())
			conns := make(chan bridge.Conn, 1)
			h := NewHandler(bridge.HandlerFunc(func(ctx context.Context, conn bridge.Conn) error {
				m, err := bridgetest.Recv(ctx, conn)
				bridgetest.Must(t, err)
				bridgetest.Must(t, conn.Send(ctx, jsonrpc.NewResult(m.ID(), []byte(`{"protocolVersion":"2025-11-25"}`))))
				m, err = bridgetest.Recv(ctx, conn) // notifications/initialized
				bridgetest.Must(t, err)
				conns <- conn
				if m, err := bridgetest.Recv(ctx, conn); err == nil { // the first progress makes the reply a stream
					bridgetest.Must(t, conn.Send(ctx, bridgetest.Parse(progressOf(m.ID().String()))))
				}
				<-ctx.Done()
				return ctx.Err()
			}), HandlerOptions{Guard: access.Policy{Authenticator: everybody{token}}})
			defer h.Close()
			session := ""
			ask := func(w http.ResponseWriter, method, body string) {
				r := httptest.NewRequestWithContext(t.Context(), method, "/mcp", strings.NewReader(body))
				r.Header.Set("Accept", "application/json, text/event-stream")
				r.Header.Set("Content-Type", wire.TypeJSON)
				if session != "" {
					r.Header.Set(wire.HeaderSession, session)
				}
				h.ServeHTTP(w, r)
			}
			opened := httptest.NewRecorder()
			ask(opened, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
			session = opened.Header().Get(wire.HeaderSession)
			ask(httptest.NewRecorder(), http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			conn := <-conns
			says := func(text string) { bridgetest.Must(t, conn.Send(t.Context(), bridgetest.Parse(text))) }
			note, body := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, ""
			if c.method == http.MethodPost {
				note = progressOf("7")
				body = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":7}}}`
			}
			writes := 0
			w := &busyWriter{nowhere: nowhere{header: http.Header{}}}
			w.again = func() {
				switch writes++; {
				case writes == expireAt:
					expire(c.why)
				case writes == answerAt && body != "":
					says(`{"jsonrpc":"2.0","id":7,"result":{}}`)
					return
				case writes >= enough:
					return
				}
				says(note)
			}
			ask(w, c.method, body)
			if writes != c.writes {
				t.Errorf("%d writes, want %d", writes, c.writes)
			}
		})
	}
}
