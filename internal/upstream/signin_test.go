package upstream

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
)

// signingIn has the question what the server speaks wait for a sign-in, which the client is told.
type signingIn struct{ base http.RoundTripper }

func (s signingIn) RoundTrip(r *http.Request) (*http.Response, error) {
	if tell := httpdial.ProgressOf(r.Context()); tell != nil && r.Header.Get("Mcp-Method") == "server/discover" {
		tell("waiting for sign-in")
	}
	return s.base.RoundTrip(r)
}

// A modern client whose first request has somebody sign in is told so, before it is known what the server speaks.
func TestSignInIsTold(t *testing.T) {
	for name, handler := range map[string]func(*Server) bridge.Handler{
		"one request": func(s *Server) bridge.Handler { return s.ExchangeHandler(bridge.PumpOptions{}) },
		"a stream":    func(s *Server) bridge.Handler { return s.Handler(true, bridge.PumpOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			spec := Spec{}
			spec.Remote.Authorize = func(base http.RoundTripper) http.RoundTripper { return signingIn{base} }
			s := remoteServer(t, newSite(t, &site{modern: true}), spec)
			client := party(t, t.Context(), handler(s))
			const meta = `"_meta":{`
			if !strings.Contains(modernCall, meta) {
				t.Fatal(modernCall)
			}
			bridgetest.Must(t, client.Send(t.Context(), bridgetest.Parse(strings.Replace(modernCall, meta, meta+`"progressToken":"p",`, 1))))
			m, err := bridgetest.Recv(t.Context(), client)
			if err != nil || m.Method() != "notifications/progress" || m.ProgressToken().String() != `"p"` {
				t.Errorf("%s, %v", m.Bytes(), err)
			}
		})
	}
}
