package httpdial

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// LE17: the cookies that a server sets go back to it, as their paths and their
// ages have it, also those that come with a redirect or an error, and behind
// those that the user has configured; and no other client's.
func TestCookies(t *testing.T) {
	got := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, set := range r.URL.Query()["set"] {
			w.Header().Add("Set-Cookie", set)
		}
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/mcp", http.StatusTemporaryRedirect)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			got <- r.Header.Get("Cookie")
		}
	}))
	defer server.Close()
	transport := NewTransport(TransportOptions{})
	defer transport.CloseIdleConnections()
	base, err := url.Parse(server.URL)
	bridgetest.Must(t, err)
	newPeer := func() *Peer { return NewPeer(base, nil, nil) }
	ask := func(p *Peer, path string, set ...string) {
		t.Helper()
		header := http.Header{"Cookie": {"mine=1"}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path+"?"+url.Values{"set": set}.Encode(), nil)
		bridgetest.Must(t, err)
		req.Header = header
		resp, fault := p.Do(transport, req)
		if fault != nil {
			t.Fatal(fault)
		}
		resp.Body.Close()
		if fmt.Sprint(header) != "map[Cookie:[mine=1]]" {
			t.Errorf("the caller's header is %v", header)
		}
	}
	want := func(p *Peer, path, cookies string) {
		t.Helper()
		ask(p, path)
		if c := <-got; c != cookies {
			t.Errorf("%s got %q, want %q", path, c, cookies)
		}
	}
	p, other := newPeer(), newPeer()
	ask(p, "/moved", "lb=1; Path=/", "deep=1; Path=/other")
	if c := <-got; c != "mine=1; lb=1" {
		t.Errorf("behind the redirect: %q", c)
	}
	want(p, "/mcp", "mine=1; lb=1")
	want(p, "/other/x", "mine=1; deep=1; lb=1")
	want(other, "/mcp", "mine=1")
	ask(p, "/broken", "lb=2; Path=/", "deep=; Max-Age=0; Path=/other", "elsewhere=1; Domain=example.com; Path=/")
	want(p.AtURL(base.JoinPath("message"), nil), "/other", "mine=1; lb=2")
	want(p, "/mcp", "mine=1; lb=2")
}

// LE17: a server cannot make the bridge keep, or send, cookies without a bound.
func TestCookiesAreBounded(t *testing.T) {
	u := &url.URL{Scheme: "http", Host: "h", Path: "/"}
	p := NewPeer(u, nil, nil)
	size := func() int {
		req := &http.Request{URL: u, Header: http.Header{}}
		return len(p.cookies.withCookies(req).Header.Get("Cookie"))
	}
	set := func(cookies ...string) {
		p.cookies.store(u, &http.Response{Header: http.Header{"Set-Cookie": cookies}})
	}
	set("long=" + strings.Repeat("x", 1<<20))
	if n := size(); n != 0 {
		t.Errorf("%d bytes of a cookie of a megabyte were kept", n)
	}
	for i := range 1000 {
		set(fmt.Sprintf("c%d=%s", i, strings.Repeat("x", 4000)))
		if n := size(); n == 0 || n > 64*4096 {
			t.Fatalf("after %d cookies, %d bytes are kept", i+1, n)
		}
	}
	set("lb=1")
	if req := p.cookies.withCookies(&http.Request{URL: u, Header: http.Header{}}); !strings.Contains(req.Header.Get("Cookie"), "lb=1") {
		t.Error("the newest cookie is not kept")
	}
}
