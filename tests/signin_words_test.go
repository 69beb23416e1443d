package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// TestSignInCannotBegin: what stands in the way of a sign-in reaches the client as one error that says what, where and what
// to do. The servers are hostile or broken.
func TestSignInCannotBegin(t *testing.T) {
	t.Parallel()
	const prm, meta = "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"
	text := func(format string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, strings.ReplaceAll(format, "SELF", "http://"+r.Host))
		}
	}
	const resource = `{"resource":"SELF/mcp","authorization_servers":["%s"]}`
	const server = `{"issuer":"SELF","authorization_endpoint":"%s","token_endpoint":"%s","code_challenge_methods_supported":["S256"]}`
	for name, x := range map[string]struct {
		challenge string // with SELF; "": without an address
		prm, meta http.HandlerFunc
		says      []string
	}{
		"resource of another server": {prm: text(`{"resource":"https://evil.example/mcp","authorization_servers":["SELF"]}`),
			says: []string{prm, "https://evil.example/mcp", "use the address that it names"}},
		"metadata of another issuer": {meta: text(`{"issuer":"https://evil.example"}`), says: []string{meta, "https://evil.example", "--issuer-alias"}},
		"metadata in a circle": {meta: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) },
			says: []string{meta, "redirects more than 3 times", "tell the operator"}},
		"metadata without end": {meta: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for range 100 << 10 { // 100 MiB, if somebody reads them
				if _, err := fmt.Fprintf(w, "%1024s", ""); err != nil {
					return
				}
			}
		}, says: []string{meta, "larger than 1 MiB", "tell the operator"}},
		"script":                    {meta: text(fmt.Sprintf(server, "javascript:alert(1)", "SELF/token")), says: []string{meta, "authorization_endpoint", "javascript"}},
		"file":                      {meta: text(fmt.Sprintf(server, "SELF/authorize", "file:///etc/passwd")), says: []string{meta, "token_endpoint", "file"}},
		"cloud's metadata, named":   {prm: text(fmt.Sprintf(resource, "https://169.254.169.254")), says: []string{"169.254.169.254", "not allowed", "metadata service"}},
		"cloud's metadata, in IPv6": {challenge: "https://[::ffff:169.254.169.254]/prm", says: []string{"not allowed", "metadata service"}},
		"cloud's metadata, led to": {meta: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		},
			says: []string{meta, "redirects", "not allowed"}},
		"no way to register": {meta: text(fmt.Sprintf(server, "SELF/authorize", "SELF/token")), says: []string{"/callback", "--client-id"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == prm && x.prm != nil:
					x.prm(w, r)
				case r.URL.Path == prm:
					text(fmt.Sprintf(resource, "SELF"))(w, r)
				case r.URL.Path == meta && x.meta != nil:
					x.meta(w, r)
				case r.URL.Path == "/mcp":
					challenge := `Bearer error="invalid_token`
					if x.challenge != "" {
						challenge = `Bearer resource_metadata="` + x.challenge + `"`
					}
					w.Header().Set("WWW-Authenticate", challenge)
					w.WriteHeader(http.StatusUnauthorized)
				default:
					http.NotFound(w, r)
				}
			}))
			defer s.Close()
			p := start(t, nil, bridgeBin, "connect", "--auth-prompt", "error", "--auth-dir", filepath.Join(t.TempDir(), "auth"), s.URL+"/mcp")
			p.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
			var answer struct {
				ID    int
				Error struct{ Message string }
			}
			line := p.line()
			if err := json.Unmarshal([]byte(line), &answer); err != nil || answer.ID != 1 {
				t.Errorf("answered was %s", line)
			}
			for _, part := range x.says {
				if !strings.Contains(answer.Error.Message, part) {
					t.Errorf("%q is not in %q", part, answer.Error.Message)
				}
			}
			p.Stdin.Close()
			p.wait()
		})
	}
}
