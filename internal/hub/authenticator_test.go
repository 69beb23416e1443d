package hub_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
)

// nobody lets nobody in.
type nobody struct{}

func (nobody) Authenticate(h http.Header, r *http.Request) (*http.Request, *access.Refusal) {
	h.Set("WWW-Authenticate", "Bearer")
	return r, &access.Refusal{Status: http.StatusUnauthorized, Rule: "A2", Reason: "nobody comes in"}
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
