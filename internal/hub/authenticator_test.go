package hub_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

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
	return r.WithContext(access.Sender{Name: "ann", TokenContext: s.token}.Context(r.Context())), nil
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
			spec.Pump.ShutdownGrace = -1
			_, url := start(t, hub.Options{Guard: access.Policy{Authenticator: somebody{token: token}}, SingleServer: true}, spec)
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

// flood is a server that never stops talking, once it is asked anything.
func flood() {
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(0)
	}()
	text := `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"logging":{}},"serverInfo":{"name":"flood","version":"1"}}}` + "\n"
	for {
		if _, err := os.Stdout.WriteString(text); err != nil {
			os.Exit(0)
		}
		text = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"more"}}` + "\n"
	}
}

// When the token of a connection expires, it ends, although its server never stops talking.
func TestBusyExpiry(t *testing.T) {
	t.Parallel()
	const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	for _, transport := range []string{"mcp", "sse", "ws"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			token, expire := context.WithCancelCause(t.Context())
			spec := demoSpec(t, "flood")
			spec.Upstream.Command.Env = append(spec.Upstream.Command.Env, "HUB_TEST_FLOOD=1")
			_, url := start(t, hub.Options{Guard: access.Policy{Authenticator: somebody{token: token}}, SingleServer: true}, spec)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			// until reads lines that the client gets, as far as one with this in it; "": to their end.
			var lines *bufio.Scanner
			until := func(want string) (line string) {
				t.Helper()
				for lines.Scan() {
					if want != "" && strings.Contains(lines.Text(), want) {
						return lines.Text()
					}
				}
				if want != "" || ctx.Err() != nil {
					t.Fatalf("the stream has ended with %v, want %q", lines.Err(), want)
				}
				return ""
			}
			get := func(path string, header ...string) {
				t.Helper()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
				bridgetest.Must(t, err)
				r.Header.Set("Accept", "text/event-stream")
				for i := 0; i < len(header); i += 2 {
					r.Header.Set(header[i], header[i+1])
				}
				resp, err := http.DefaultClient.Do(r)
				bridgetest.Must(t, err)
				t.Cleanup(func() { resp.Body.Close() })
				lines = bufio.NewScanner(resp.Body)
			}
			switch transport {
			case "mcp":
				id := session(t, url+"/mcp")
				get("/mcp", "Mcp-Session-Id", id)
				do(t, http.MethodPost, url+"/mcp", initialized, "Mcp-Session-Id", id)
			case "sse":
				get("/sse")
				path := strings.TrimPrefix(until("sessionId="), "data: ")
				do(t, http.MethodPost, url+path, hello)
				do(t, http.MethodPost, url+path, initialized)
			case "ws":
				socket, _, err := websocket.Dial(ctx, strings.Replace(url, "http", "ws", 1)+"/ws", nil)
				bridgetest.Must(t, err)
				defer socket.CloseNow()
				for _, text := range []string{hello, initialized} {
					bridgetest.Must(t, socket.Write(ctx, websocket.MessageText, []byte(text)))
				}
				lines = bufio.NewScanner(&frames{ctx: ctx, socket: socket})
			}
			until(`"more"`)
			expire(access.ErrExpired)
			until("")
		})
	}
}

// frames reads the messages of a WebSocket as lines.
type frames struct {
	ctx    context.Context
	socket *websocket.Conn
	rest   []byte
}

func (f *frames) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		_, text, err := f.socket.Read(f.ctx)
		if err != nil {
			return 0, err
		}
		f.rest = append(text, '\n')
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
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
