package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/sockstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// defaultConnectTimeout is Socket.ConnectTimeout by default.
const defaultConnectTimeout = 10 * time.Second

// closeWait is how long the peer of a socket may take to finish, at Close, once it was
// told that nothing more comes.
const closeWait = time.Second

// keepAlive has the system probe an idle TCP connection, so that within a minute a
// dead peer is noticed.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 10 * time.Second, Count: 3}

// Socket is a bridge.Dialer that connects to a server which takes its lines
// over a Unix socket or TCP. Each Dial makes a connection, and a connection is
// a session: when it is lost, the session has ended and is not begun anew, as
// with a child. Dial may be called concurrently.
type Socket struct {
	// Network is "unix" or "tcp".
	Network string

	// Address is the path of the Unix socket (on Linux, one that begins with
	// '@' is a name in the abstract namespace), or HOST:PORT. Windows has Unix
	// sockets since version 10 (1803); they do not cross into WSL or containers.
	Address string

	// ConnectTimeout bounds Dial, beside the ctx of Dial. 0 means
	// 10 s, negative means no limit.
	ConnectTimeout time.Duration

	// Options are those of the Conn; its Peer is Server, whatever they say.
	Options Options
}

// ParseSocket reads unix:PATH or tcp:HOST:PORT. An IPv6 address is written in
// brackets. The error says what is wrong and how it is written.
func ParseSocket(text string) (Socket, error) {
	network, address, _ := strings.Cut(text, ":")
	network = strings.ToLower(network)
	var wrong string
	switch network {
	case "unix":
		wrong = checkPath(address)
	case "tcp":
		wrong = checkHostPort(address)
	default:
		return Socket{}, fmt.Errorf("%q is no socket; write unix:PATH or tcp:HOST:PORT", text)
	}
	if wrong != "" {
		return Socket{}, fmt.Errorf("%q: %s", text, wrong)
	}
	return Socket{Network: network, Address: address}, nil
}

// maxSocketPath is the longest path of a Unix socket, in bytes, that fits everywhere
// into the operating system's address, with the NUL at its end (macOS: 104 bytes,
// others 108).
const maxSocketPath = 103

// checkPath returns what is wrong with the path of a Unix socket; "": nothing.
func checkPath(path string) string {
	switch {
	case path == "":
		return "the path is missing; write unix:PATH"
	case strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"):
		return "no slashes belong between unix: and the path; write unix:PATH"
	case strings.IndexByte(path, 0) >= 0:
		return "a path cannot hold a NUL"
	case len(path) > maxSocketPath:
		return fmt.Sprintf("the path has %d bytes; a Unix socket's may have %d", len(path), maxSocketPath)
	}
	return ""
}

// checkHostPort returns what is wrong with the address of a TCP socket; "": nothing.
func checkHostPort(address string) string {
	if strings.HasPrefix(address, "//") {
		return "no slashes belong between tcp: and the host; write tcp:HOST:PORT"
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "a host and a port are needed (an IPv6 address in brackets); write tcp:HOST:PORT"
	}
	if host == "" || strings.ContainsAny(host, " /@") {
		return "the host is missing or no host name; write tcp:HOST:PORT"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "the port must be a number from 1 to 65535"
	}
	return ""
}

// String returns the socket as ParseSocket reads it.
func (s Socket) String() string { return s.Network + ":" + s.Address }

// Dial connects. Receive on the Conn returns io.EOF when the server has closed
// the connection, and an error when it was lost: either way the server answers
// nothing more. Close tells the server that no more requests come, gives it a
// second to finish, and closes the connection.
//
// A TCP server that is dead is noticed within a minute when the connection is
// idle, and within two while something is on its way to it. (The latter on
// Linux; other systems have their own patience, on Windows shorter.)
func (s Socket) Dial(ctx context.Context) (bridge.Conn, error) {
	if s.Network != "unix" && s.Network != "tcp" {
		return nil, fmt.Errorf("stdio: a socket's network is unix or tcp, not %q", s.Network)
	}
	d := net.Dialer{Timeout: s.ConnectTimeout, KeepAliveConfig: keepAlive}
	switch {
	case d.Timeout == 0:
		d.Timeout = defaultConnectTimeout
	case d.Timeout < 0:
		d.Timeout = 0
	}
	nc, err := d.DialContext(ctx, s.Network, s.Address)
	if err != nil {
		return nil, &connectError{socket: s, err: err}
	}
	opts := s.Options
	opts.Peer = Server
	return newSocketConn(nc, opts), nil
}

// connectError is the error of Socket.Dial: why there is no connection.
type connectError struct {
	socket Socket // the socket that was to be connected to
	err    error  // the error of the network
}

// Error returns the text for the log, with the socket's address: that may be the path
// of a file.
func (e *connectError) Error() string { return e.text(e.socket.String()) }

// PublicError returns the text that clients may see: without the path of a Unix
// socket.
func (e *connectError) PublicError() string {
	if e.socket.Network == "unix" {
		return e.text("the server's Unix socket")
	}
	return e.text(e.socket.String())
}

// Unwrap returns the network's error.
func (e *connectError) Unwrap() error { return e.err }

// text returns the text of the error, with a hint what to check. where names the
// socket.
func (e *connectError) text(where string) string {
	hint := "is the server running?"
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(e.err, fs.ErrPermission):
		hint = "may this user connect to it?"
	case errors.As(e.err, &dns):
		hint = "is the host name right?"
	case errors.As(e.err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("cannot connect to %s: no answer in time; %s", where, hint)
	}
	return fmt.Sprintf("cannot connect to %s: %v; %s", where, withoutAddress(e.err), hint)
}

// withoutAddress returns the cause in an error of the network, without the addresses
// that it is said with: that of a Unix socket is a path.
func withoutAddress(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// socketConn is the bridge.Conn over a network connection, of a SocketServer or of
// Socket.Dial.
type socketConn struct {
	*Conn
	nc        net.Conn       // the network connection
	closeWait time.Duration  // the const closeWait; shorter in tests
	peerWatch *deadPeerWatch // ends the Conn when the peer of a TCP connection is gone; nil: it is no TCP connection
}

// newSocketConn makes a Conn of nc, which the Conn closes. The deadlines of nc must
// work.
func newSocketConn(nc net.Conn, opts Options) *socketConn {
	c := &socketConn{nc: nc, closeWait: closeWait}
	c.Conn = newConn(nc, nc, c.closeGently, opts, false)
	c.peerWatch = watchPeer(nc, func() { c.fail(errDeadPeer) })
	return c
}

// Receive implements bridge.Conn. If the peer is a client and the system can tell that it has hung up, Receive also ends when
// sink goes on taking nothing after that (bridge.StallWatch). What a server has sent waits for sink as long as it takes.
func (c *socketConn) Receive(ctx context.Context, sink bridge.Sink) error {
	hungUp := c.peerHungUp()
	return c.receive(ctx, sink, hungUp, func(_ context.Context, err error) error {
		if err == io.EOF && hungUp != nil && hungUp() == net.ErrClosed {
			return errClosedBothWays
		}
		return networkError(err)
	})
}

// errClosedBothWays is the error of Receive when a client has closed its connection in
// both directions, so that nobody waits for what is owed to it.
var errClosedBothWays = errors.New("the client has closed the connection")

// peerHungUp returns a function for a StallWatch, which asks without waiting whether
// the client has hung up. It returns net.ErrClosed if the client has closed both ways, or
// the Conn has ended; io.EOF if the client only sends nothing more; nil if no end is known.
// The function itself is nil if the system cannot tell, and if the peer is a server: what a
// server sent before its end is still handed on without haste.
func (c *socketConn) peerHungUp() func() error {
	if c.opts.Peer != Client {
		return nil
	}
	closed := sockstate.PeerClosedFunc(c.nc)
	if closed == nil {
		return nil
	}
	return func() error {
		if err := c.end.endError(context.Background()); err != nil {
			return net.ErrClosed
		}
		return closed()
	}
}

// Send implements bridge.Conn: it sends a message to the peer. Its errors have no addresses.
func (c *socketConn) Send(ctx context.Context, m jsonrpc.Message) error {
	c.peerWatch.noteSending()
	return networkError(c.Conn.Send(ctx, m))
}

// TrySend implements bridge.Conn: it sends a message that the peer takes at once; false: it has sent nothing. peerWatch
// then looks whether the peer acknowledges the message.
func (c *socketConn) TrySend(m jsonrpc.Message) bool {
	if c.out.try.limit == 0 {
		return false
	}
	c.peerWatch.noteSending()
	return c.Conn.TrySend(m)
}

// networkError returns err without addresses, so that a client may see it: an error of
// the network becomes "the connection was lost" and its cause. Other errors, and nil,
// stay.
func networkError(err error) error {
	if err == nil {
		return nil
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("the connection was lost: %w", op.Err)
	}
	return err
}

// closeGently is the closer of the Conn. It tells the peer that nothing more comes,
// and waits until the peer closes its end too, for no longer than closeWait: if a
// connection is closed while it holds unread input, the system throws away what was
// sent.
func (c *socketConn) closeGently() error {
	c.peerWatch.stop()
	c.in.mu.Lock() // Receive reads no more; what still comes is ours
	defer c.in.mu.Unlock()
	half, ok := c.nc.(interface{ CloseWrite() error })
	if ok && half.CloseWrite() == nil && c.nc.SetReadDeadline(time.Now().Add(c.closeWait)) == nil {
		io.Copy(io.Discard, c.nc)
	}
	return c.nc.Close()
}
