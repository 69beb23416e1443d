// Package sockstate knows when a small write to a connection does not wait, and cuts
// short one that does all the same. It also knows of a peer that has hung up while
// nobody reads.
package sockstate

import (
	"net"
	"syscall"
	"time"
)

// Small is the size, in bytes, of what every connection takes at once that holds
// nothing which its peer has not taken yet.
const Small = 4 << 10

// Patience is how long a small write to such a connection may take at most. One
// that takes longer has a peer that is up to no good, by a window of a few bytes
// say, and the writer may be one that others wait for.
const Patience = time.Second

// Of returns a function that reports whether the peer has taken all that was
// written to a connection (over TCP: its system has); false also if that cannot
// be told. It does not wait, and any number of goroutines may call it. nil: it can
// never be told of this one.
//
// What stands before a connection of the operating system says so by a method
// NetConn() net.Conn, as a *tls.Conn does.
func Of(c net.Conn) func() bool {
	raw := Raw(c)
	if raw == nil {
		return nil
	}
	return of(raw)
}

// HungUp returns a function that tells of the end of a connection's peer without
// reading: nil as long as nothing is known of that, io.EOF once it sends nothing more,
// net.ErrClosed once it is gone, or c closed. Over TCP a peer that has closed looks
// like one that sends nothing more, until it is sent something. The function does not
// wait, and any number of goroutines may call it. nil: it can never be told of this
// connection.
func HungUp(c net.Conn) func() error {
	raw := Raw(c)
	if raw == nil {
		return nil
	}
	return hungUp(raw)
}

// Raw returns the connection of the operating system that c is or stands before;
// nil: it cannot be found. What c does to the bytes, as TLS does, is not done to
// those that are written there.
func Raw(c net.Conn) syscall.RawConn {
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
