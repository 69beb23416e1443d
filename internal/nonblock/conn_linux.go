package nonblock

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// Listener returns a net.Listener whose Accept returns the connections of l as Conn makes them. Close closes l.
func Listener(l net.Listener) net.Listener { return listener{l} }

// listener is the net.Listener of Listener.
type listener struct{ net.Listener }

// Accept waits for the next connection, like that of a net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Conn(c), nil
}

// Conn returns a net.Conn that reads and writes c, a TCP connection or Unix socket, as the package says. It has the methods NetConn, which
// returns c, and CloseWrite. From now on c must not be read or written by others. Conn returns any other c itself.
func Conn(c net.Conn) net.Conn {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return c
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return c
	}
	n := &wrappedConn{Conn: c}
	n.in.init(raw)
	n.out.init(raw)
	return n
}

// wrappedConn is the net.Conn of Conn.
type wrappedConn struct {
	net.Conn        // the connection that is read and written
	in       reader // what Read does
	out      writer // what Write does
}

// NetConn returns the connection that is read and written.
func (c *wrappedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the direction to the peer; the other one stays open.
func (c *wrappedConn) CloseWrite() error {
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// Read implements net.Conn.
func (c *wrappedConn) Read(p []byte) (int, error) {
	n, err := c.in.read(p, c.Conn)
	return n, c.explain("read", err)
}

// Write implements net.Conn.
func (c *wrappedConn) Write(p []byte) (int, error) {
	n, err := c.out.write(p, c.Conn)
	return n, c.explain("write", err)
}

// explain returns the error of a system call as package net tells it. Other errors are returned as they are.
func (c *wrappedConn) explain(op string, err error) error {
	errno, ok := err.(syscall.Errno)
	if !ok {
		return err
	}
	e := &net.OpError{Op: op, Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, errno)}
	if e.Source != nil { // nil: the system has not said it
		e.Net = e.Source.Network()
	}
	return e
}

// reader reads from a socket. init makes it ready for use.
type reader struct {
	raw syscall.RawConn // waits until there is something to be read, and lends its descriptor

	mu   sync.Mutex            // held by read; guards the fields below
	p    []byte                // what the read in progress reads into; nil: there is none
	n    int                   // how many bytes it has read
	err  error                 // the error of its system call, a syscall.Errno or io.EOF
	once func(fd uintptr) bool // readOnce, made once because a method value is an allocation
}

// init makes the reader read from raw.
func (r *reader) init(raw syscall.RawConn) { r.raw, r.once = raw, r.readOnce }

// read reads into p. plain reads the same socket as usual: it is used where p is long, and it returns the error if the socket
// cannot be waited for, because it is closed or its deadline is over. Other errors are io.EOF or a syscall.Errno.
func (r *reader) read(p []byte, plain io.Reader) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(p) == 0 || len(p) > maxSize {
		return plain.Read(p)
	}
	r.p, r.n, r.err = p, 0, nil
	err := r.raw.Read(r.once)
	r.p = nil
	if err != nil {
		return plain.Read(p)
	}
	return r.n, r.err
}

// readOnce makes the system call of the read in progress. It returns false if there is nothing to be read yet.
func (r *reader) readOnce(fd uintptr) bool {
	n, errno := readFD(fd, r.p)
	switch {
	case errno == syscall.EAGAIN:
		return false
	case errno != 0:
		r.err = errno
	case n == 0:
		r.err = io.EOF
	}
	r.n = n
	return true
}

// writer writes to a socket. init makes it ready for use.
type writer struct {
	raw syscall.RawConn // waits until it takes something, and lends its descriptor

	mu  sync.Mutex            // held by write; guards the fields below
	p   []byte                // what the write in progress writes; nil: there is none
	n   int                   // how many bytes of p were written
	err syscall.Errno         // the error of its system call; 0: none
	all func(fd uintptr) bool // writeAll, made once because a method value is an allocation
}

// init makes the writer write to raw.
func (w *writer) init(raw syscall.RawConn) { w.raw, w.all = raw, w.writeAll }

// write writes all of p, unless there is an error. plain writes to the same socket, as plain of reader.read reads.
func (w *writer) write(p []byte, plain io.Writer) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(p) == 0 || len(p) > maxSize {
		return plain.Write(p)
	}
	w.p, w.n, w.err = p, 0, 0
	err := w.raw.Write(w.all)
	w.p = nil
	switch {
	case err != nil:
		more, err := plain.Write(p[w.n:])
		return w.n + more, err
	case w.err != 0:
		return w.n, w.err
	}
	return w.n, nil
}

// writeAll makes the system calls of the write in progress. It returns false if the socket takes no more yet.
func (w *writer) writeAll(fd uintptr) bool {
	for w.n < len(w.p) {
		n, errno := WriteFD(fd, w.p[w.n:])
		w.n += n
		switch {
		case errno == syscall.EAGAIN:
			return false
		case errno != 0:
			w.err = errno
			return true
		case n == 0: // else this would have no end
			w.err = syscall.EIO
			return true
		}
	}
	return true
}
