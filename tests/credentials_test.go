package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// guarded is an upstream that wants a token, with its authorization server, which issues one to the client "c1" with the
// secret "secret-canary".
type guarded struct {
	*upstream
	dir string // for credentials and secrets

	mu    sync.Mutex
	other []string // requests that are not for the MCP server
}

const grantedToken = "access-canary"

func newGuarded(t *testing.T) *guarded {
	g := &guarded{dir: t.TempDir()}
	g.upstream = unstarted(t)
	g.before = g.guard
	g.Start()
	return g
}

func (g *guarded) guard(w http.ResponseWriter, r *http.Request, body string) bool {
	if r.URL.Path != "/" && r.URL.Path != "/mcp" {
		g.mu.Lock()
		g.other = append(g.other, r.Method+" "+r.URL.Path)
		g.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/oauth-protected-resource/mcp":
		fmt.Fprintf(w, `{"resource":"%s/mcp","authorization_servers":["%[1]s"]}`, g.URL)
	case "/.well-known/oauth-authorization-server":
		fmt.Fprintf(w, `{"issuer":"%s","authorization_endpoint":"%[1]s/authorize","token_endpoint":"%[1]s/token","registration_endpoint":"%[1]s/register",`+
			`"code_challenge_methods_supported":["S256"],"response_types_supported":["code"]}`, g.URL)
	case "/token":
		if id, secret, _ := r.BasicAuth(); id != "c1" || secret != "secret-canary" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"invalid_client"}`)
			return true
		}
		fmt.Fprintf(w, `{"access_token":"%s","token_type":"Bearer","expires_in":3600}`, grantedToken)
	case "/", "/mcp":
		if r.Header.Get("Authorization") == "Bearer "+grantedToken {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		w.WriteHeader(http.StatusUnauthorized)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
	return true
}

// requests returns what was asked beside the MCP server, and forgets it.
func (g *guarded) requests() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.other
	g.other = nil
	return all
}

// machine returns the flags of a client that needs no person.
func (g *guarded) machine(t *testing.T) []string {
	t.Helper()
	file := filepath.Join(g.dir, "secret")
	if err := os.WriteFile(file, []byte("secret-canary\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--auth-dir", filepath.Join(g.dir, "auth"), "--auth", "client-credentials", "--client-id", "c1", "--client-secret-file", file}
}

// reasonOf returns data of an error response.
func reasonOf(t *testing.T, line string) (data struct{ Reason, URL string }, text string) {
	t.Helper()
	var m struct {
		Error struct {
			Code    int
			Message string
			Data    json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil || m.Error.Code != -32603 || json.Unmarshal(m.Error.Data, &data) != nil {
		t.Errorf("%s is not the error of a bridge (%v)", line, err)
	}
	return data, m.Error.Message
}

// A client is told that somebody must sign in, in each of its requests; the log is told once, and the bridge stays.
// So it is in both eras, and with serve, whose clients see no 401.
func TestConnectSignInNeeded(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for name, one := range map[string]struct{ first, flags string }{
		"legacy":      {initialize("2025-11-25"), ""},
		"modern":      {`{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, ""},
		"HTTP+SSE":    {initialize("2024-11-05"), "--transport=sse-only"},
		"sse-first":   {initialize("2025-11-25"), "--transport=sse-first"},
		"with client": {initialize("2025-11-25"), "--client-id=c9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			argv := []string{bridgeBin, "connect", "--auth-prompt", "error", "--auth-dir", filepath.Join(g.dir, strings.ReplaceAll(name, " ", "-"))}
			client := "" // in the command that the error advises
			if one.flags != "" {
				argv = append(argv, one.flags)
			}
			if name == "with client" {
				client = "--client-id c9 "
			}
			p := start(t, nil, append(argv, g.URL+"/mcp")...)
			for range 3 {
				p.send(one.first)
				data, text := reasonOf(t, p.line())
				if data.Reason != "authorization_required" || !strings.Contains(text, "Sign-in needed for "+g.URL+"/mcp: run: mcp-bridge login "+client+g.URL+"/mcp") {
					t.Errorf("the answer is %+v %q", data, text)
				}
			}
			p.Stdin.Close()
			p.wait()
			if n := strings.Count(p.Log(), "Sign-in needed"); n != 1 {
				t.Errorf("the log has it %d times:\n%s", n, p.Log())
			}
		})
	}
	t.Run("serve", func(t *testing.T) {
		t.Parallel()
		s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--auth-prompt", "error", "--auth-dir", filepath.Join(g.dir, "serve"), g.URL+"/mcp")
		resp := s.do(t.Context(), http.MethodPost, initialize("2025-11-25"), http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer client-canary"}})
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Www-Authenticate") != "" {
			t.Errorf("status %d, %v", resp.StatusCode, resp.Header)
		}
	})
	t.Cleanup(func() {
		for _, r := range g.saw() {
			if r.header.Get("Authorization") != "" {
				t.Errorf("the server was sent %s", r.header.Get("Authorization"))
			}
		}
	})
}

// A credential is got without a person, kept, and used by the next process, which makes no request but those of MCP.
// What the user gives goes before it, and neither the log nor the trace has the token.
func TestConnectCredential(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	url := g.URL + "/mcp"
	session := func(argv ...string) *proc {
		p := start(t, nil, append([]string{bridgeBin}, argv...)...)
		p.handshake("2025-11-25")
		p.send(`{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}`)
		p.line()
		p.Stdin.Close()
		p.wait()
		return p
	}
	trace := filepath.Join(g.dir, "trace.jsonl")
	first := session(slices.Concat([]string{"connect", "--log-level", "trace", "--trace", trace}, g.machine(t), []string{url})...)
	if got := g.requests(); !slices.Contains(got, "POST /token") {
		t.Errorf("the first process asked for %q", got)
	}
	session(slices.Concat([]string{"connect"}, g.machine(t), []string{url})...)
	if got := g.requests(); len(got) > 0 {
		t.Errorf("with a stored credential a process asks for %q", got)
	}
	file := filepath.Join(g.dir, "config.json")
	text := fmt.Sprintf(`{"mcpServers":{"far":{"url":%q,"mcp-bridge":{"auth":{"mode":"client-credentials","clientId":"c1","clientSecretFile":"secret"}}}}}`, url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	session("connect", "--auth-dir", filepath.Join(g.dir, "auth"), "--config", file, "far")
	if got := g.requests(); len(got) > 0 {
		t.Errorf("with the credential of the same server in a file a process asks for %q", got)
	}
	traced, err := os.ReadFile(trace)
	if err != nil || !strings.Contains(string(traced), `401`) {
		t.Errorf("the trace lacks the exchange that was refused: %v", err)
	}
	for where, text := range map[string]string{"log": first.Log(), "trace": string(traced)} {
		for _, secret := range []string{grantedToken, "secret-canary"} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s has %s", where, secret)
			}
		}
	}
	p := start(t, nil, slices.Concat([]string{bridgeBin, "connect", "--header", "Authorization: Bearer mine"}, g.machine(t), []string{url})...)
	p.send(initialize("2025-11-25"))
	if _, text := reasonOf(t, p.line()); !strings.Contains(text, "--header") {
		t.Errorf("with a header of the user's the answer is %q", text)
	}
	if got := g.requests(); len(got) > 0 {
		t.Errorf("with a header of the user's a process asks for %q", got)
	}
}
