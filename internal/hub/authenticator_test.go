package hub_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// nobody lets nobody in.
type nobody struct{}

func (nobody) Authenticate(h http.Header, r *http.Request) (*http.Request, *access.Refusal) {
	h.Set("WWW-Authenticate", "Bearer")
	return r, &access.Refusal{Status: http.StatusUnauthorized, Rule: "A2", Reason: "nobody comes in"}
}

func (nobody) Authorize(http.Header, *http.Request, ...jsonrpc.Message) *access.Refusal { return nil }

func (nobody) Forbidden(*http.Request, jsonrpc.Message) (jsonrpc.Message, bool) {
	return jsonrpc.Message{}, false
}

// somebody lets everybody in, until a token is not valid any more.
type somebody struct {
	nobody
	token context.Context
}

func (s somebody) Authenticate(_ http.Header, r *http.Request) (*http.Request, *access.Refusal) {
	return r.WithContext(access.Sender{Name: "ann", Token: s.token}.Context(r.Context())), nil
}

// When the token of a connection expires, its calls in progress are answered, although the grace of a
// server that has none says otherwise, and then the connection ends.
func TestExpiry(t *testing.T) {
	t.Parallel()
	const meta = `"_meta":{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	for name, before := range map[string]string{"legacy": hello, "modern": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token, expire := context.WithCancelCause(t.Context())
			spec := demoSpec(t, "demo")
			spec.Pump.Grace = -1
			_, url := start(t, hub.Options{Guard: access.Policy{Authenticator: somebody{token: token}}, Alone: true}, spec)
			socket, _, err := websocket.Dial(t.Context(), strings.Replace(url, "http", "ws", 1)+"/ws", nil)
			bridgetest.Must(t, err)
			defer socket.CloseNow()
			hear := func(want string) {
				t.Helper()
				_, text, err := socket.Read(t.Context())
				if err != nil || !strings.Contains(string(text), want) {
					t.Fatalf("heard %s, %v, want %s", text, err, want)
				}
			}
			if before != "" {
				bridgetest.Must(t, socket.Write(t.Context(), websocket.MessageText, []byte(before)))
				hear(`"result"`)
			}
			call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow","arguments":{"steps":2,"seconds":0.4},` + meta + `}}`
			if before != "" {
				call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow","arguments":{"steps":2,"seconds":0.4},"_meta":{"progressToken":1}}}`
			}
			bridgetest.Must(t, socket.Write(t.Context(), websocket.MessageText, []byte(call)))
			hear("step 1 of 2")
			expire(access.ErrExpired)
			hear("step 2 of 2")
			hear("done: 2 steps")
			if _, _, err := socket.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
				t.Errorf("the connection ends with %v", err)
			}
		})
	}
}

// With an Authenticator, every path wants it, except those that say how to authenticate and whether
// the process lives, which tell no names.
func TestAuthenticator(t *testing.T) {
	t.Parallel()
	metadata := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "metadata of "+r.URL.Path)
	})
	_, url := start(t, hub.Options{Guard: access.Policy{Authenticator: nobody{}}, Metadata: metadata}, demoSpec(t, "secretname"))
	const wellKnown = "/.well-known/oauth-protected-resource"
	for path, want := range map[string]string{
		wellKnown: "metadata of " + wellKnown, wellKnown + "/servers/secretname/mcp": "metadata of " + wellKnown + "/servers/secretname/mcp",
		wellKnown + "x": "", "/servers": "", "/servers/secretname/mcp": "", "/servers/secretname/sse": "", "/servers/secretname/ws": "", "/servers/other/mcp": "",
		"/readyz": "{",
	} {
		resp, err := http.Get(url + path)
		bridgetest.Must(t, err)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		bridgetest.Must(t, err)
		switch {
		case want == "" && (resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("WWW-Authenticate") == ""):
			t.Errorf("%s: %s without a credential", path, resp.Status)
		case want != "" && (resp.StatusCode == http.StatusUnauthorized || !strings.HasPrefix(string(body), want)):
			t.Errorf("%s: %s, %s", path, resp.Status, body)
		case path == "/readyz" && strings.Contains(string(body), "secretname"):
			t.Errorf("names for everybody: %s", body)
		}
	}
}
