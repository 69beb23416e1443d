package httpguard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// LI2: a connection to a loopback address shows by itself that a Host from
// elsewhere is DNS rebinding, whatever the listener is bound to.
func TestHostOnLoopbackConnection(t *testing.T) {
	var p Policy
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if no := p.Check(r); no != nil {
			w.WriteHeader(no.Status)
		}
	}))
	defer srv.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(srv.URL, "http://"), ":")
	for host, want := range map[string]int{"evil.example:" + port: 403, "localhost:" + port: 200, "127.0.0.1:" + port: 200} {
		req, _ := http.NewRequest(http.MethodGet, srv.URL, nil)
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("Host %s: status %d, want %d", host, resp.StatusCode, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
