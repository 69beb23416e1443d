package access

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
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

// LI2: who says by which names the bridge is called has them checked on every address. There, the address
// itself is one, which health checks ask for, and a Unix socket has none, as no browser reaches it.
func TestHostOnOtherAddresses(t *testing.T) {
	tcp := func(addr string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)) }
	named := &Policy{AllowHosts: []string{"mcp.example"}}
	for _, c := range []struct {
		policy *Policy
		local  net.Addr
		host   string
		want   int
	}{
		{named, tcp("192.0.2.7:8080"), "mcp.example:8080", 0},
		{named, tcp("192.0.2.7:8080"), "localhost:8080", 0},
		{named, tcp("192.0.2.7:8080"), "127.0.0.1:3000", 0},
		{named, tcp("192.0.2.7:8080"), "192.0.2.7:8080", 0},
		{named, tcp("[::ffff:192.0.2.7]:8080"), "192.0.2.7", 0},
		{named, tcp("[2001:db8::7]:8080"), "[2001:db8::7]:8080", 0},
		{named, tcp("192.0.2.7:8080"), "evil.example:8080", 403},
		{named, tcp("192.0.2.7:8080"), "192.0.2.8:8080", 403},
		{named, tcp("192.0.2.7:8080"), "0.0.0.0:8080", 403},
		{named, tcp("192.0.2.7:8080"), "", 400},
		{named, tcp("127.0.0.1:8080"), "evil.example:8080", 403},
		{named, &net.UnixAddr{Name: "/run/s", Net: "unix"}, "evil.example", 0},
		{&Policy{}, tcp("192.0.2.7:8080"), "evil.example:8080", 0},
		{&Policy{}, tcp("127.0.0.1:8080"), "evil.example:8080", 403},
	} {
		r := request("GET", c.host)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, c.local))
		if got := status(c.policy, r); got != c.want {
			t.Errorf("Host %q at %v with %q: status %d, want %d", c.host, c.local, c.policy.AllowHosts, got, c.want)
		}
	}
}
