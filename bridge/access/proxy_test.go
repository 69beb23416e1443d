package access

import (
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"testing"
)

func from(peer string, header ...string) *http.Request {
	r := request("POST", "localhost", header...)
	if peer == "unix" {
		return onUnix(r)
	}
	r.RemoteAddr = peer
	return r
}

func proxies(t *testing.T, entries string) *Policy {
	t.Helper()
	prefixes, unix, err := ParseProxies(strings.Fields(entries))
	if err != nil {
		t.Fatal(err)
	}
	return &Policy{TrustedProxies: prefixes, TrustUnix: unix}
}

func TestPrefix(t *testing.T) {
	tests := []struct {
		trusted, peer string
		values        []string
		want          string // "400": refused
	}{
		{"127.0.0.0/8", "127.0.0.1:5000", []string{"/a"}, "/a"},
		{"127.0.0.0/8", "127.0.0.1:5000", []string{"/a/b-c_d.e~1/"}, "/a/b-c_d.e~1"},
		{"127.0.0.0/8", "127.0.0.1:5000", []string{"/"}, ""},
		{"127.0.0.0/8", "127.0.0.1:5000", []string{""}, ""},
		{"127.0.0.0/8", "127.0.0.1:5000", nil, ""},
		{"127.0.0.0/8", "[::ffff:127.0.0.1]:5000", []string{"/a"}, "/a"},
		{"fd00::/8", "[fd00::1%eth0]:5000", []string{"/a"}, "/a"},
		{"unix", "unix", []string{"/a"}, "/a"},

		{"", "127.0.0.1:5000", []string{"/a"}, ""},
		{"", "127.0.0.1:5000", []string{"//evil.example"}, ""},
		{"10.0.0.0/8", "127.0.0.1:5000", []string{"/a"}, ""},
		{"unix", "127.0.0.1:5000", []string{"/a"}, ""},
		{"0.0.0.0/0 ::/0", "unix", []string{"/a"}, ""},
		{"0.0.0.0/0", "", []string{"/a"}, ""},

		{"127.0.0.1", "127.0.0.1:5000", []string{"//evil.example"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"//"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"https://evil.example"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"a"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"/a//b"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"/a/.."}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"/../a"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"/./a"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"/%2e%2e/a"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"/a?b"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"/a#b"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"/a b"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"/a, /b"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"/a\nb"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{`/\evil`}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"/\u00e9"}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"/" + strings.Repeat("a", 256)}, "400"},
		{"127.0.0.1", "127.0.0.1:5000", []string{"/a", "/b"}, "400"},
	}
	for _, tt := range tests {
		p, r := proxies(t, tt.trusted), from(tt.peer)
		if tt.values != nil {
			r.Header["X-Forwarded-Prefix"] = tt.values
		}
		_, no, _ := enter(p, r)
		got := p.Prefix(r)
		if no != nil {
			if got != "" || no.Status != http.StatusBadRequest {
				t.Errorf("%+v: refused with %d, and prefix %q", tt, no.Status, got)
			}
			got = "400"
		}
		if got != tt.want {
			t.Errorf("%+v: prefix %q", tt, got)
		}
	}
}

func TestRemoteAddr(t *testing.T) {
	tests := []struct {
		trusted, peer string
		forwarded     []string
		want          string
	}{
		{"", "192.0.2.1:5000", []string{"203.0.113.9"}, "192.0.2.1:5000"},
		{"10.0.0.0/8", "192.0.2.1:5000", []string{"203.0.113.9"}, "192.0.2.1:5000"},
		{"10.0.0.0/8", "10.0.0.1:5000", nil, "10.0.0.1:5000"},
		{"10.0.0.0/8", "10.0.0.1:5000", []string{"203.0.113.9"}, "203.0.113.9"},
		{"10.0.0.0/8", "10.0.0.1:5000", []string{"1.1.1.1, 203.0.113.9"}, "203.0.113.9"},
		{"10.0.0.0/8", "10.0.0.1:5000", []string{"1.1.1.1, 203.0.113.9, 10.0.0.2 ,10.0.0.3"}, "203.0.113.9"},
		{"10.0.0.0/8", "10.0.0.1:5000", []string{"1.1.1.1,203.0.113.9", "10.0.0.2"}, "203.0.113.9"},
		{"10.0.0.0/8", "10.0.0.1:5000", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"10.0.0.0/8", "10.0.0.1:5000", []string{"203.0.113.9:4711"}, "203.0.113.9"},
		{"10.0.0.0/8", "10.0.0.1:5000", []string{"[2001:db8::1]:4711"}, "2001:db8::1"},
		{"10.0.0.0/8", "10.0.0.1:5000", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"10.0.0.0/8", "10.0.0.1:5000", []string{"2001:db8::1"}, "2001:db8::1"},
		{"10.0.0.0/8", "10.0.0.1:5000", []string{"1.1.1.1, ::ffff:10.0.0.2"}, "1.1.1.1"},
		{"10.0.0.0/8", "10.0.0.1:5000", []string{"1.1.1.1, unknown"}, "10.0.0.1:5000"},
		{"10.0.0.0/8", "10.0.0.1:5000", []string{"1.1.1.1, x\ny, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.0/8", "10.0.0.1:5000", []string{""}, "10.0.0.1:5000"},
		{"unix", "unix", []string{"203.0.113.9"}, "203.0.113.9"},
		{"unix", "unix", nil, "unix"},
		{"", "unix", []string{"203.0.113.9"}, "unix"},
	}
	for _, tt := range tests {
		r := from(tt.peer)
		if tt.forwarded != nil {
			r.Header["X-Forwarded-For"] = tt.forwarded
		}
		if got := proxies(t, tt.trusted).RemoteAddr(r); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

func TestParseProxies(t *testing.T) {
	for _, bad := range []string{"", "x", "10.0.0.0/33", "10.0.0.1:80", "*", "::ffff:10.0.0.0/104", "fe80::1%eth0", "Unix"} {
		if _, _, err := ParseProxies([]string{"10.0.0.1", bad}); err == nil || !strings.Contains(err.Error(), "trusted proxy 2") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
	local := proxies(t, "loopback")
	for peer, want := range map[string]bool{"127.8.0.1:1": true, "[::1]:1": true, "10.0.0.1:1": false} {
		if got := local.fromProxy(from(peer)); got != want {
			t.Errorf("with loopback, %s trusted: %v", peer, got)
		}
	}
	p := &Policy{TrustedProxies: []netip.Prefix{{}}}
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "trusted proxy 1") {
		t.Errorf("Validate: %v", err)
	}
	p = proxies(t, "10.0.0.5/8 2001:db8::/32 ::1")
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	for peer, want := range map[string]bool{"10.9.9.9:1": true, "[::1]:1": true, "[::2]:1": false, "11.0.0.1:1": false} {
		if got := p.fromProxy(from(peer)); got != want {
			t.Errorf("%s trusted: %v", peer, got)
		}
	}
}

func FuzzRemoteAddr(f *testing.F) {
	f.Add("1.1.1.1, 10.0.0.2")
	f.Add("[::1]:5, , unknown")
	f.Fuzz(func(t *testing.T, forwarded string) {
		p := &Policy{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
		r := from("10.0.0.1:5000")
		r.Header["X-Forwarded-For"] = []string{forwarded}
		got := p.RemoteAddr(r)
		if _, err := netip.ParseAddr(got); err != nil && got != r.RemoteAddr {
			t.Errorf("%q became %q", forwarded, got)
		}
	})
}

// FuzzIsCleanPath: a clean path means itself, alone and in front of others.
func FuzzIsCleanPath(f *testing.F) {
	for _, s := range []string{"/a", "/a/b.c", "//", "/..", "/a/../b", "/%2e", "/a?b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !IsCleanPath(s) {
			return
		}
		u, err := url.Parse("http://localhost" + s + "/message")
		if err != nil || u.Host != "localhost" || u.EscapedPath() != s+"/message" || path.Clean(s) != s {
			t.Errorf("%q: %v, %v", s, u, err)
		}
	})
}
