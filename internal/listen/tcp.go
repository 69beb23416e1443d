package listen

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// deadAfter is how long a TCP peer may be without a sign of life: it answers no
// probe (an idle connection), or acknowledges nothing that it was sent. Its
// session would otherwise keep a server running.
const deadAfter = time.Minute

// listenTCP opens a TCP socket whose connections notice that a peer is dead.
func listenTCP(addr string) (net.Listener, error) {
	const probes = 4
	config := net.ListenConfig{
		Control: setUserTimeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: deadAfter / probes, Interval: deadAfter / probes, Count: probes - 1,
		},
	}
	return config.Listen(context.Background(), networkOf(addr), addr)
}

// networkOf returns "tcp4" for an address of IPv4: 0.0.0.0 does not mean all
// addresses of IPv6, too, although Go would take it so.
func networkOf(addr string) string {
	if at, err := netip.ParseAddrPort(addr); err == nil && at.Addr().Is4() {
		return "tcp4"
	}
	return "tcp"
}
