package access

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// TestIsLoopbackAddr is the bind rule, A9: what this calls loopback may be
// served without authorization.
func TestIsLoopbackAddr(t *testing.T) {
	tests := []struct {
		addr string
		want bool
	}{
		{"127.0.0.1:8080", true},
		{"127.0.0.1", true},
		{"localhost:0", true},
		{"[::1]:8080", true},
		{":8080", false},
		{"", false},
		{"0.0.0.0:8080", false},
		{"[::]:8080", false},
		{"192.168.0.7:8080", false},
		{"example.com:8080", false},
		{"localhost:http", false},
	}
	for _, tt := range tests {
		if got := IsLoopbackAddr(tt.addr); got != tt.want {
			t.Errorf("IsLoopbackAddr(%q) = %v", tt.addr, got)
		}
	}
}

func TestIsLoopbackHost(t *testing.T) {
	for _, host := range []string{"::1", "[::1]", "127.0.0.1", "localhost", "LOCALHOST.", "a.b.localhost"} {
		if !isLoopbackHost(host) {
			t.Errorf("isLoopbackHost(%q) = false", host)
		}
	}
	for _, host := range []string{"", ".", "::", "[localhost]", "[127.0.0.1]", "::1%lo", "[::1%lo]", "[", "[]",
		"::ffff:127.0.0.1", "localhost:80", "127.0.0.1:80", "xlocalhost", ".localhost", "localhost\x00"} {
		if isLoopbackHost(host) {
			t.Errorf("isLoopbackHost(%q) = true", host)
		}
	}
}

// FuzzLoopback asks a second opinion about everything that is taken for
// loopback: whatever else it is, it must be an address or a name that cannot
// lead to another machine.
func FuzzLoopback(f *testing.F) {
	for _, s := range []string{"localhost:80", "[::1]:1", "127.0.0.1", "a.localhost.", "127.1", "localho\u017ft",
		"localhost@evil", "[::1%a]", "127.0.0.1.nip.io", "http://localhost", "https://[::1]:8", "evil.com#.localhost"} {
		f.Add(s)
	}
	p := &Policy{Loopback: true}
	f.Fuzz(func(t *testing.T, s string) {
		if isLoopbackHost(s) && !plainLoopback(strings.Trim(s, "[]")) {
			t.Errorf("host %q is called loopback", s)
		}
		if IsLoopbackAddr(s) && !plainLoopback(withoutPort(s)) {
			t.Errorf("address %q is called loopback", s)
		}
		r := httptest.NewRequest("POST", "/", nil)
		r.Host = s
		if p.Check(r) == nil != IsLoopbackAddr(s) {
			t.Errorf("Host %q: Check and IsLoopbackAddr differ", s)
		}
		r.Host = "localhost"
		r.Header["Origin"] = []string{s}
		if p.Check(r) == nil {
			low := strings.ToLower(s)
			rest, isHTTP := strings.CutPrefix(low, "http://")
			rest2, isHTTPS := strings.CutPrefix(low, "https://")
			if !isHTTP && !isHTTPS || isHTTP && !plainLoopback(withoutPort(rest)) || isHTTPS && !plainLoopback(withoutPort(rest2)) {
				t.Errorf("origin %q is served", s)
			}
		}
	})
}

// withoutPort and plainLoopback share no code with the package.
func withoutPort(s string) string {
	if strings.HasPrefix(s, "[") {
		return strings.Trim(s[:strings.LastIndex(s, "]")+1], "[]")
	}
	host, _, _ := strings.Cut(s, ":")
	return host
}

func plainLoopback(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsLoopback() && addr.Zone() == "" && !addr.Is4In6()
	}
	for _, r := range host {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", r) {
			return false
		}
	}
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	return labels[len(labels)-1] == "localhost" && !strings.Contains(host, "..") && labels[0] != ""
}

func TestCheckDoesNotAllocate(t *testing.T) {
	p := &Policy{Loopback: true, AllowOrigins: []string{"https://app.example"}, AllowHosts: []string{"mcp.example"}}
	for _, host := range []string{"127.0.0.1:8080", "localhost:8080", "[::1]:8080"} {
		r, w := request("POST", host), httptest.NewRecorder()
		n := testing.AllocsPerRun(100, func() {
			if p.Check(r) != nil || p.handleCORS(w, r) {
				t.Fatal("refused")
			}
		})
		if n > 0 {
			t.Errorf("%s: %v allocations", host, n)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	p := &Policy{Loopback: true}
	for name, r := range map[string][]string{"NoOrigin": nil, "Origin": {"Origin", "http://localhost:6274"}} {
		b.Run(name, func(b *testing.B) {
			r := request("POST", "127.0.0.1:8080", r...)
			b.ReportAllocs()
			for b.Loop() {
				p.Check(r)
			}
		})
	}
}
