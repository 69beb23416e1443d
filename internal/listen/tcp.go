package listen

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// keepaliveTimeout is how long a TCP peer may be unreachable before its connection ends: a peer that does not answer keep-alive probes, on
// an idle connection, or (on Linux only) does not acknowledge data. Without this limit its session would keep a server running.
const keepaliveTimeout = time.Minute

// listenTCP opens a TCP socket whose connections end when the peer is dead.
func listenTCP(addr string) (net.Listener, error) {
	const probes = 4
	config := net.ListenConfig{
		Control: setSocketOptions,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepaliveTimeout / probes, Interval: keepaliveTimeout / probes, Count: probes - 1,
		},
	}
	config.SetMultipathTCP(false) // it has no TCP_USER_TIMEOUT: Go would open such a socket, and take a plain one when setSocketOptions has failed
	return config.Listen(context.Background(), tcpNetworkOf(addr), addr)
}

// tcpNetworkOf returns the network for net.Listen: "tcp4" for an IPv4 address, else "tcp". With "tcp" Go would take 0.0.0.0 for all
// IPv6 addresses as well.
func tcpNetworkOf(addr string) string {
	if at, err := netip.ParseAddrPort(addr); err == nil && at.Addr().Is4() {
		return "tcp4"
	}
	return "tcp"
}
