package resource

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
)

// TestCause: whoever keeps the log is told why a request is refused, in words that have no part of the token, and the refusal
// has them too.
func TestCause(t *testing.T) {
	t.Parallel()
	told := ""
	p, as, _ := setup(t, func(_ *provider, o *Options) {
		o.OnDenied = func(_ *http.Request, cause string, _ error) { told = cause }
	})
	with := func(name string, value any) string { return "Bearer " + as.token(t, map[string]any{name: value}) }
	for want, sent := range map[string]string{
		"no credential":       "",
		"expired":             with("exp", start.Add(-time.Hour).Unix()),
		"not valid yet":       with("nbf", start.Add(time.Hour).Unix()),
		"audience":            with("aud", "https://canary.example/mcp"),
		"issuer":              with("iss", "https://canary.example"),
		"binding":             with("cnf", map[string]any{"canary": "x"}),
		"scope":               with("scope", "canary"),
		"malformed":           "Bearer canary",
		"signature":           "Bearer " + as.ForgedTokens(as.claims(nil))["another key"],
		"unknown key":         "Bearer " + as.Sign(strings.Replace(authtest.AccessTokenHeader, "k1", "canary", 1), as.claims(nil)),
		"not an access token": "Bearer " + as.Sign(strings.Replace(authtest.AccessTokenHeader, "at+jwt", "canary", 1), as.claims(nil)),
	} {
		_, no := p.Authenticate(http.Header{}, request(http.MethodPost, "/mcp", sent))
		if no == nil || told != want || no.Cause != want {
			t.Errorf("%s: told was %q; refused: %+v", want, told, no)
		}
	}
}

// TestPrincipalInDocs: the principal of the example in docs/log.md is the one that the page shows.
func TestPrincipalInDocs(t *testing.T) {
	t.Parallel()
	if got := principalOf("https://id.example.com", "ann", "c1"); got != "oauth:T4dHnNMVp7rvLTmIU6cHIY3ULRHHL1v-DLzeR-10_0U" {
		t.Errorf("it is %s", got)
	}
}
