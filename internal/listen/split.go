package listen

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// firstByteTimeout is how long a connection may take to send its first byte.
const firstByteTimeout = time.Minute

// Split makes two listeners of one. The first byte of a connection decides: after '{', '['
// or JSON white space the connection carries newline-delimited messages and goes to
// lines, after any other byte it goes to http. A connection that sends nothing for a
// minute is closed.
//
// The connections that Accept returns still have their first byte. They have CloseWrite
// if those of l have it. The caller must keep accepting on both listeners: a connection
// waits for Accept of its own listener, but not for that of the other.
//
// Close of either listener closes l and both listeners, whose Accept then returns
// net.ErrClosed. Close returns when all connections that were not yet accepted are closed;
// accepted connections belong to the caller. An error of l's Accept is returned by http's.
//
// log gets a debug line for each connection that is closed without a byte; nil logs nothing.
func Split(l net.Listener, log hclog.Logger) (http, lines net.Listener) {
	if log == nil {
		log = hclog.NewNullLogger()
	}
	s := &splitter{
		listener: l, log: log, done: make(chan struct{}),
		http: make(chan acceptResult), lines: make(chan acceptResult),
		sniffing: make(map[net.Conn]struct{}),
	}
	s.wg.Go(s.accept)
	return &splitListener{s, s.http}, &splitListener{s, s.lines}
}

// A splitter is what the two listeners of Split share.
type splitter struct {
	listener  net.Listener      // the listener that Split was given
	log       hclog.Logger      // is told of connections that have ended before they sent anything
	http      chan acceptResult // carries connections and errors to Accept of the listener for HTTP
	lines     chan acceptResult // carries connections to Accept of the listener for messages in lines
	done      chan struct{}     // closed by Close
	closeOnce sync.Once         // Close closes once
	closeErr  error             // what Close returns, once it was called
	wg        sync.WaitGroup    // waits for the goroutine of accept, and for one of each connection in sniffing

	sniffingMu sync.Mutex            // guards sniffing
	sniffing   map[net.Conn]struct{} // connections whose first byte is awaited; nil after Close
}

// acceptResult is what Accept of a splitListener returns: a connection or an error.
type acceptResult struct {
	conn net.Conn // nil if there is an error
	err  error    // an error of Accept of the listener that was split
}

// splitListener is one of the two listeners of Split.
type splitListener struct {
	splitter *splitter         // shared with the other listener
	conns    chan acceptResult // carries what its Accept returns
}

// Accept returns the next connection whose first byte is for this listener; net.ErrClosed after Close. Of the listener for HTTP, it also
// returns the errors of the listener that was split.
func (h *splitListener) Accept() (net.Conn, error) {
	select {
	case a := <-h.conns:
		return a.conn, a.err
	case <-h.splitter.done:
		return nil, net.ErrClosed
	}
}

// Addr returns the address of the listener that was split.
func (h *splitListener) Addr() net.Addr { return h.splitter.listener.Addr() }

// Close closes both listeners of Split, the one that was split, and the connections whose first byte is awaited. It waits for the
// goroutines, and may be called more than once.
func (h *splitListener) Close() error {
	s := h.splitter
	s.closeOnce.Do(func() {
		close(s.done)
		s.closeErr = s.listener.Close()
		s.sniffingMu.Lock()
		conns := s.sniffing
		s.sniffing = nil
		s.sniffingMu.Unlock()
		for c := range conns {
			_ = c.Close()
		}
	})
	s.wg.Wait()
	return s.closeErr
}

// accept is the goroutine that accepts connections until Close, and starts sniff for each. It passes errors to the listener for HTTP.
func (s *splitter) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files: http.Server pauses before its next Accept
			if !s.deliver(s.http, acceptResult{err: err}) {
				return
			}
			continue
		}
		if s.addSniffing(conn) {
			s.wg.Go(func() { s.sniff(conn) })
		}
	}
}

// deliver waits until Accept of the listener that reads from in takes a. It returns false if Close was called before.
func (s *splitter) deliver(in chan acceptResult, a acceptResult) bool {
	select {
	case in <- a:
		return true
	case <-s.done:
		return false
	}
}

// addSniffing adds the connection to sniffing. After Close, it closes the connection and returns false.
func (s *splitter) addSniffing(conn net.Conn) bool {
	s.sniffingMu.Lock()
	defer s.sniffingMu.Unlock()
	if s.sniffing == nil {
		_ = conn.Close()
		return false
	}
	s.sniffing[conn] = struct{}{}
	return true
}

// removeSniffing removes the connection from sniffing. It returns false if Close has closed the
// connection.
func (s *splitter) removeSniffing(conn net.Conn) bool {
	s.sniffingMu.Lock()
	defer s.sniffingMu.Unlock()
	_, ours := s.sniffing[conn]
	delete(s.sniffing, conn)
	return ours
}

// sniff reads the first byte of a connection, and hands the connection on to the listener that the byte is for. It closes a connection that
// sends nothing within firstByteTimeout.
func (s *splitter) sniff(conn net.Conn) {
	peeked := &peekedConn{Conn: conn, hasFirst: true}
	_ = conn.SetReadDeadline(time.Now().Add(firstByteTimeout))
	_, err := conn.Read(peeked.first[:])
	if !s.removeSniffing(conn) {
		return
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		s.log.Debug("a connection ended before it sent anything", "error", err)
		_ = conn.Close()
		return
	}
	in := s.http
	if beginsMessage(peeked.first[0]) {
		in = s.lines
	}
	if !s.deliver(in, acceptResult{conn: peeked}) {
		_ = conn.Close()
	}
}

// beginsMessage reports whether c, the first byte of a connection, begins a message in a line and not an HTTP request.
func beginsMessage(c byte) bool {
	switch c {
	case '{', '[', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// peekedConn is a connection with its first byte put back.
type peekedConn struct {
	net.Conn            // the connection, from which the first byte was read
	mu       sync.Mutex // guards hasFirst
	first    [1]byte    // the first byte, which was read from Conn
	hasFirst bool       // nobody has read first from the peekedConn yet
}

// Read reads the first byte alone, and from then on what Conn has.
func (c *peekedConn) Read(p []byte) (int, error) {
	if len(p) > 0 {
		c.mu.Lock()
		if c.hasFirst {
			c.hasFirst = false
			c.mu.Unlock()
			p[0] = c.first[0]
			return 1, nil
		}
		c.mu.Unlock()
	}
	return c.Conn.Read(p)
}

// NetConn returns the wrapped connection. Writes may go there directly.
func (c *peekedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the direction to the client; the other direction stays open. If Conn cannot do that, the error is errors.ErrUnsupported.
func (c *peekedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
