package matrix

import (
	"context"
	"net"
	"sync"
	"testing"
)

// A client is the client's end of one session.
type client struct {
	*end
	wire clientWire
}

// clientWire is how one transport carries a client's messages. It delivers
// what comes to the end that it was made with, and checks what the transport
// demands of a server.
type clientWire interface {
	// send sends a message or a batch. It does not wait for answers.
	send(t testing.TB, text string)
	// reject sends a text that must be refused with this code and no id, or one
	// of ids, and returns when it was.
	reject(t testing.TB, text string, code int, ids ...string)
	// hangUp ends the session as clients of this transport do.
	hangUp(t testing.TB)
	// ended checks that the server has ended the session as servers of this
	// transport do. gone says that the server is not there any more.
	ended(t testing.TB, gone bool)
	// cut lets go of everything, for the end of a test.
	cut()
}

// say sends a message, or a batch, as it stands.
func (c *client) say(t testing.TB, text string) {
	t.Helper()
	c.said(text)
	c.wire.send(t, text)
}

// dialer makes connections that can be cut.
type dialer struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		d.mu.Lock()
		d.conns = append(d.conns, conn)
		d.mu.Unlock()
	}
	return conn, err
}

// cut breaks every connection, as a lost network does.
func (d *dialer) cut() { d.each(abort) }

// drop closes every connection, as the operating system does when a process
// is killed.
func (d *dialer) drop() { d.each(func(conn net.Conn) { conn.Close() }) }

func (d *dialer) each(f func(net.Conn)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.conns {
		f(conn)
	}
	d.conns = nil
}

// abort closes a connection so that the peer sees it as broken, if it can.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}
