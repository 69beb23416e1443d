package tests

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// LI1, LI2: where the bridge is bound to the unspecified address, clients may call it by that, with its own
// origin or without one. Another program's origin, at another port, is not let in, nor is that of another
// machine; and a bridge that is bound to a loopback address is not called so.
func TestUnspecifiedAddress(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"0.0.0.0:0", "127.0.0.1:0"} {
		s := serveArgv(t, nil, bridgeBin, "serve", "--listen", addr, "--insecure", "--", childBin)
		u, err := url.Parse(s.url)
		bridgetest.Must(t, err)
		port := ":" + u.Port()
		everywhere := addr[0] == '0'
		for _, c := range []struct {
			host, origin string
			served       bool
		}{
			{"0.0.0.0" + port, "", everywhere},
			{"0.0.0.0" + port, "http://0.0.0.0" + port, everywhere},
			{"[::]" + port, "http://[::]" + port, everywhere},
			{"0.0.0.0" + port, "http://localhost:1", everywhere},
			{"127.0.0.1" + port, "http://127.0.0.1" + port, true},
			{"0.0.0.0" + port, "https://0.0.0.0" + port, false},
			{"0.0.0.0" + port, "http://0.0.0.0:1", false},
			{"0.0.0.0" + port, "http://evil.example" + port, false},
			{"0.0.0.0:1", "http://0.0.0.0:1", false},
			{"0.0.0.0", "http://0.0.0.0", false},
			{"localhost" + port, "http://0.0.0.0" + port, false},
			{"[::]" + port, "http://0.0.0.0" + port, false},
			{"evil.example" + port, "http://evil.example" + port, false},
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+port+"/readyz", nil)
			bridgetest.Must(t, err)
			req.Host = c.host
			if c.origin != "" {
				req.Header.Set("Origin", c.origin)
			}
			resp, err := s.client.Do(req)
			bridgetest.Must(t, err)
			resp.Body.Close()
			if served := resp.StatusCode != http.StatusForbidden; served != c.served {
				t.Errorf("--listen %s, Host %s, Origin %q: status %d", addr, c.host, c.origin, resp.StatusCode)
			}
		}
		if everywhere {
			at := newSite(t, "http://0.0.0.0"+port).as("Origin", "http://0.0.0.0"+port)
			for _, transport := range transports {
				mustAnswer(t, at.mustOpen(t, transport), ping)
			}
		}
	}
}
