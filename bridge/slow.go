package bridge

import "errors"

// ErrSlow ends the Conn of a Mux whose client does not read what it is sent (D.2).
var ErrSlow = errors.New("the client does not read what it is sent")

// OnSlow has f called, once or never, when a Conn of a Mux that c is or wraps
// ends with ErrSlow. f must not wait. A Conn that wraps another says so by a
// method Unwrap, and one that wraps several has a method OnSlow of its own.
func OnSlow(c PullConn, f func()) {
	for {
		switch v := c.(type) {
		case interface{ OnSlow(f func()) }:
			v.OnSlow(f)
			return
		case interface{ Unwrap() PullConn }:
			c = v.Unwrap()
		default:
			return
		}
	}
}
