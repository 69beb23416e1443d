package remote

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
)

// subscriptions/listen is begun again by itself when it ends, for clients of either era: nobody signs in for it, as for a request that
// a client waits for.
func TestListenIsUnattended(t *testing.T) {
	server := httptest.NewServer(status(http.StatusUnauthorized))
	t.Cleanup(server.Close)
	asked := make(chan bool, 2)
	d := &Dialer{URL: server.URL, Options: Options{Authorize: func(base http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			asked <- httpdial.IsUnattended(r.Context())
			return base.RoundTrip(r)
		})
	}}}
	conn, err := d.ModernDialer().Dial(t.Context())
	bridgetest.Must(t, err)
	c := &client{t, conn}
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	for method, want := range map[string]bool{"subscriptions/listen": true, "tools/list": false} {
		c.send(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + meta + `,"notifications":{}}}`)
		c.answerTo("1")
		if got := <-asked; got != want {
			t.Errorf("%s is unattended: %v", method, got)
		}
	}
	bridgetest.Must(t, conn.Close(nil))
}
