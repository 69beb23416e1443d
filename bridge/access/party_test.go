package access_test

import (
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
)

// A client counts as its principal, or else as where it comes from: one site
// cannot count as many by changing ports or the addresses of its network.
func TestParty(t *testing.T) {
	policy := access.Policy{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for _, test := range []struct{ from, forwarded, name, want string }{
		{from: "192.0.2.1:1000", want: "peer 192.0.2.1"},
		{from: "[::ffff:192.0.2.1]:2000", want: "peer 192.0.2.1"},
		{from: "127.0.0.1:5", want: "peer 127.0.0.1"},
		{from: "[::1]:5", want: "peer ::1"},
		{from: "[2001:db8:1:2:3::4]:80", want: "peer 2001:db8:1:2::/64"},
		{from: "[fe80::1%eth0]:80", want: "peer fe80::/64"},
		{from: "10.0.0.1:80", forwarded: "198.51.100.7, 192.0.2.9:4711", want: "peer 192.0.2.9"},
		{from: "10.0.0.1:80", forwarded: "2001:db8:1:2::9", want: "peer 2001:db8:1:2::/64"},
		{from: "192.0.2.1:1000", forwarded: "198.51.100.7", want: "peer 192.0.2.1"},
		{from: "192.0.2.1:1000", name: "ann", want: "ann"},
		{from: "@", want: "peer @"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = test.from
		if test.forwarded != "" {
			r.Header.Set("X-Forwarded-For", test.forwarded)
		}
		if test.name != "" {
			r = access.WithPrincipal(r, test.name)
		}
		if got := policy.Party(r); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
