package bridgetest

import (
	"net"
	"runtime"
	"testing"
)

// No two hosts are the same, and nobody connects from them.
func TestFreeAddr(t *testing.T) {
	given := make(map[string]bool)
	for range 600 {
		addr := FreeAddr(t)
		host, _, err := net.SplitHostPort(addr)
		Must(t, err)
		l, err := net.Listen("tcp", addr)
		Must(t, err)
		c, err := net.Dial("tcp", addr)
		Must(t, err)
		from, _, err := net.SplitHostPort(c.LocalAddr().String())
		Must(t, err)
		if runtime.GOOS == "linux" && (given[host] || from == host) {
			t.Errorf("%s was given before: %t; who connects to it comes from %s", host, given[host], from)
		}
		given[host] = true
		c.Close()
		l.Close()
	}
}
