package tests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A balancer stands before a server as a load balancer with sticky sessions
// does: who sends no cookie of its own is a new client to it, and gets one.
type balancer struct {
	*httptest.Server

	mu     sync.Mutex
	minted int
	served map[string]int // requests by their cookie
}

func newBalancer(t testing.TB, backend string) *balancer {
	target, err := url.Parse(backend)
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{served: map[string]int{}}
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { harness.ReadBody(r); r.SetURL(target) }, FlushInterval: -1, Transport: transport}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		if c, err := r.Cookie("sticky"); err == nil {
			b.served[c.Value]++
		} else {
			b.minted++
			w.Header().Set("Set-Cookie", fmt.Sprintf("sticky=backend-%d; Path=/; HttpOnly", b.minted))
		}
		b.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		b.CloseClientConnections()
		b.Close()
		transport.CloseIdleConnections()
	})
	return b
}

// check says that there were so many clients, as far as the balancer can tell,
// and that each has been served again, unless it had but one request to make.
func (b *balancer) check(t testing.TB, clients int, again bool) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.minted != clients || again && len(b.served) != clients {
		t.Errorf("the balancer took the requests for those of %d clients, and %v were served again, want %d clients", b.minted, b.served, clients)
	}
}

// TestCookies: LE17. The cookies of a remote server go back to it, so that a
// load balancer finds the session's own backend; each session has its own, and
// neither a client nor the log sees any.
func TestCookies(t *testing.T) {
	t.Parallel()
	for _, far := range transports {
		t.Run(far, func(t *testing.T) {
			t.Parallel()
			remote := serve(t, []string{"--client-protocol", "legacy"})
			b := newBalancer(t, strings.TrimSuffix(remote.url, "/mcp"))
			url := b.URL + "/" + far
			if far == "ws" {
				url = "ws" + strings.TrimPrefix(url, "http")
			}
			var flags []string
			if far == "sse" {
				flags = []string{"--transport", "sse-only"} // it does not try another transport first
			}
			p := connect(t, url, flags...)
			p.handshake("2025-06-18")
			s := serveURL(t, url, flags...)
			front := s.site()
			var talkers []talker
			for _, near := range transports {
				talkers = append(talkers, front.mustOpen(t, near))
			}
			for _, c := range append(talkers, stdioTalker{p}) {
				for range 2 {
					mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}`)
				}
			}
			b.check(t, 4, far != "ws") // a WebSocket is one request
			if answer := front.ask(t, http.MethodPost, "/mcp", initialize("2025-06-18"), nil); answer.status != http.StatusOK || answer.header.Get("Set-Cookie") != "" {
				t.Errorf("the client got status %d and %v", answer.status, answer.header)
			}
			if log := s.Log() + p.Log(); strings.Contains(log, "backend-") {
				t.Errorf("the log tells a cookie: %s", log)
			}
		})
	}
}

// TestCookiesModern: LE17. Requests of 2026-07-28 know no session: who shares
// the connection to the server shares its cookies.
func TestCookiesModern(t *testing.T) {
	t.Parallel()
	remote := serve(t, nil, "-speak", "modern")
	b := newBalancer(t, strings.TrimSuffix(remote.url, "/mcp"))
	c := &modernTalker{serveURL(t, b.URL+"/mcp").site()}
	for range 5 {
		mustAnswer(t, c, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{%q:%q,%q:{}}}}`, metaVersion, modernVersion, metaCaps))
	}
	b.check(t, 2, false) // the question which revision it speaks is asked for everybody
}
