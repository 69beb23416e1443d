package bridgetest

import (
	"context"
	"net"
	"sync"
)

// Network is one listener in memory and the only way to reach it, Dial. Its connections
// are those of net.Pipe, so it works in a synctest bubble.
type Network struct {
	conns chan net.Conn // hands connections from Dial to Accept
	done  chan struct{} // closed by Close, which ends Dial and Accept
	once  sync.Once     // closes done once, however often Close is called
}

// NewNetwork returns a listener in memory. It listens from now on, until Close.
func NewNetwork() *Network {
	return &Network{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Dial connects to the listener, whatever the address. It fits
// http.Transport.DialContext.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case n.conns <- theirs:
		return ours, nil
	case <-n.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener: it waits for the next Dial.
func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: Accept and Dial fail from now on. It may be called more than once.
func (n *Network) Close() error {
	n.once.Do(func() { close(n.done) })
	return nil
}

// Addr implements net.Listener. It returns an address that is made up.
func (n *Network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }
