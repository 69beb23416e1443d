package remote

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
)

// The stored credential goes to other paths of the site only where it is for them; a header that the user gives goes to all of them.
func TestStoredStaysWithin(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		stored   bool
		resource string // after the origin
		want     string // the paths that get it
	}{
		"this address":    {true, "/tools", "/tools"},
		"nobody knows":    {true, "?", "/tools"},
		"all of the site": {true, "", "/ /mcp /sse /tools"},
		"below":           {true, "/mcp/", "/mcp /tools"},
		"given":           {false, "", "/ /mcp /sse /tools"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			got := map[string]bool{}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if r.Header.Get("Authorization") != "" {
					got[r.URL.Path] = true
				}
				http.NotFound(w, r)
			}))
			defer s.Close()
			o := Options{Header: http.Header{"Authorization": {"Bearer given"}}, UsesStoredCredential: x.stored, CredentialResource: s.URL + x.resource}
			if x.resource == "?" {
				o.CredentialResource = ""
			}
			bridgetest.Must(t, Diagnose(t.Context(), s.URL+"/tools", o, doctor.NewReport("x")))
			var paths []string
			for _, path := range []string{"/", "/mcp", "/sse", "/tools"} {
				if got[path] {
					paths = append(paths, path)
				}
			}
			if all := strings.Join(paths, " "); all != x.want {
				t.Errorf("the token went to %s, want %s", all, x.want)
			}
		})
	}
}

// What doctor says of a sign-in can be done: the command has the flags that say which one is meant, and no part of the query; where
// the stored token is bound to a key, or the client needs no person, nobody is told to sign in.
func TestLoginAdvice(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer s.Close()
	for path, o := range map[string]Options{
		`"mcp-bridge login --profile work ` + s.URL + `/mcp"`:                {LoginCommand: "mcp-bridge login --profile work"},
		`"mcp-bridge login --profile work URL, with the URL that doctor was`: {LoginCommand: "mcp-bridge login --profile work"},
		`connect uses the stored sign-in`:                                    {IsCredentialBound: true, NoCredentialReason: "bound"},
		`do: Nobody signs in for this client`:                                {NeedsNoPerson: true, NoCredentialReason: "refused"},
	} {
		query := ""
		if strings.Contains(path, "URL, with") {
			query = "?key=canary"
		}
		report := doctor.NewReport("x")
		bridgetest.Must(t, Diagnose(t.Context(), s.URL+"/mcp"+query, o, report))
		var text strings.Builder
		bridgetest.Must(t, report.WriteText(&text))
		joined := strings.Join(strings.Fields(text.String()), " ")
		if !strings.Contains(joined, path) || strings.Contains(joined, "canary") || (o.IsCredentialBound || o.NeedsNoPerson) && strings.Contains(joined, "mcp-bridge login") {
			t.Errorf("want %s:\n%s", path, text.String())
		}
	}
}
