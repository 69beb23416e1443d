// Package sockstate asks the operating system about a connection: whether the peer has
// taken all that was written, so that a small write does not wait, and whether the peer
// has hung up, without reading. Linux knows; on other systems nothing can be told.
package sockstate

import (
	"net"
	"syscall"
	"time"
)

// MaxInlineBytes is how many bytes a connection takes at once when the peer has taken all
// that was written before. It is a limit for writes by a goroutine that must not wait.
const MaxInlineBytes = 4 << 10

// InlineWriteTimeout is how long a write of up to MaxInlineBytes may take. A peer can make
// it wait all the same, by a receive window of a few bytes; such a peer is cut off, because
// others may wait for the goroutine that writes.
const InlineWriteTimeout = time.Second

// OutputDrainedFunc returns a function that reports whether the peer has taken all that was
// written to a connection (over TCP: the peer's system has). The function returns false
// if the system gives an error. It does not wait, and any number of goroutines may call
// it. OutputDrainedFunc returns nil if c is no connection of the operating system, or if the
// system cannot tell (any but Linux).
//
// A net.Conn that wraps another one shows it by a method NetConn() net.Conn, as a
// *tls.Conn does.
func OutputDrainedFunc(c net.Conn) func() bool {
	raw := RawConn(c)
	if raw == nil {
		return nil
	}
	return outputDrainedFunc(raw)
}

// PeerClosedFunc returns a function that tells of the end of a connection's peer without
// reading: nil while no end is known, io.EOF once the peer sends nothing more,
// net.ErrClosed once the peer is gone or c is closed. Over TCP a peer that has closed looks
// like a peer that sends nothing more, until it is sent something. The function does not
// wait, and any number of goroutines may call it. PeerClosedFunc returns nil if c is no
// connection of the operating system, or if the system cannot tell (any but Linux).
func PeerClosedFunc(c net.Conn) func() error {
	raw := RawConn(c)
	if raw == nil {
		return nil
	}
	return peerClosedFunc(raw)
}

// RawConn returns the connection of the operating system that c is or wraps; nil if there
// is none. Bytes written to it go past c, that is past TLS.
func RawConn(c net.Conn) syscall.RawConn {
	for c != nil {
		switch v := c.(type) {
		case syscall.Conn:
			raw, err := v.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		case interface{ NetConn() net.Conn }:
			c = v.NetConn()
		default:
			return nil
		}
	}
	return nil
}
