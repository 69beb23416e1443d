package remote

import (
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
)

// TestSomeAddresses: H1, where some addresses of a server answer and others do not.
func TestSomeAddresses(t *testing.T) {
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	unreachable := os.NewSyscallError("connect", syscall.ENETUNREACH)
	for _, c := range []struct {
		name, ip string
		err      error
		want     doctor.Severity
	}{
		{"another address is down", "192.0.2.1", refused, doctor.Warning},
		{"localhost is two addresses", "::1", refused, doctor.Note},
		{"there is no IPv6 here", "2001:db8::1", unreachable, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := doctor.NewReport("a server")
			p, err := newProber("http://server.example/mcp", Options{}, r)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if best := (connection{p}).addDialFailures([]*dialAttempt{{ip: netip.MustParseAddr("127.0.0.1")}, {ip: netip.MustParseAddr(c.ip), err: c.err}}); best == nil {
				t.Error("the address that answers is not used")
			}
			var got doctor.Severity
			for _, f := range r.Findings() {
				got = f.Severity
			}
			if got != c.want {
				t.Errorf("severity %q, want %q", got, c.want)
			}
		})
	}
}
