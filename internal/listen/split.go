package listen

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// silence is how long a connection may take to send its first byte.
const silence = time.Minute

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
		l: l, log: log, done: make(chan struct{}),
		http: make(chan accepted), lines: make(chan accepted),
		sniffing: make(map[net.Conn]struct{}),
	}
	s.wg.Go(s.accept)
	return &half{s, s.http}, &half{s, s.lines}
}

type splitter struct {
	l           net.Listener
	log         hclog.Logger
	http, lines chan accepted
	done        chan struct{}
	once        sync.Once
	closeErr    error
	wg          sync.WaitGroup // accept, and one for each connection in sniffing

	mu       sync.Mutex
	sniffing map[net.Conn]struct{} // nil when closed
}

type accepted struct {
	conn net.Conn
	err  error
}

// half is one of the two listeners of Split.
type half struct {
	s  *splitter
	in chan accepted
}

func (h *half) Accept() (net.Conn, error) {
	select {
	case a := <-h.in:
		return a.conn, a.err
	case <-h.s.done:
		return nil, net.ErrClosed
	}
}

func (h *half) Addr() net.Addr { return h.s.l.Addr() }

func (h *half) Close() error {
	s := h.s
	s.once.Do(func() {
		close(s.done)
		s.closeErr = s.l.Close()
		s.mu.Lock()
		conns := s.sniffing
		s.sniffing = nil
		s.mu.Unlock()
		for c := range conns {
			_ = c.Close()
		}
	})
	s.wg.Wait()
	return s.closeErr
}

func (s *splitter) accept() {
	for {
		conn, err := s.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files: http.Server pauses before its next Accept
			if !s.hand(s.http, accepted{err: err}) {
				return
			}
			continue
		}
		if s.enter(conn) {
			s.wg.Go(func() { s.sniff(conn) })
		}
	}
}

// hand gives a to the Accept that reads from in. It returns false after Close.
func (s *splitter) hand(in chan accepted, a accepted) bool {
	select {
	case in <- a:
		return true
	case <-s.done:
		return false
	}
}

func (s *splitter) enter(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sniffing == nil {
		_ = conn.Close()
		return false
	}
	s.sniffing[conn] = struct{}{}
	return true
}

// removeSniffed removes the connection from sniffing. It returns false if Close has closed the
// connection.
func (s *splitter) removeSniffed(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ours := s.sniffing[conn]
	delete(s.sniffing, conn)
	return ours
}

// sniff reads the first byte and hands the connection on.
func (s *splitter) sniff(conn net.Conn) {
	peeked := &peekedConn{Conn: conn, have: true}
	_ = conn.SetReadDeadline(time.Now().Add(silence))
	_, err := conn.Read(peeked.first[:])
	if !s.removeSniffed(conn) {
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
	if !s.hand(in, accepted{conn: peeked}) {
		_ = conn.Close()
	}
}

func beginsMessage(c byte) bool {
	switch c {
	case '{', '[', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// peekedConn is a connection with its first byte put back.
type peekedConn struct {
	net.Conn
	mu    sync.Mutex
	first [1]byte
	have  bool
}

func (c *peekedConn) Read(p []byte) (int, error) {
	if len(p) > 0 {
		c.mu.Lock()
		if c.have {
			c.have = false
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

// CloseWrite ends the direction to the client; the other direction stays open.
func (c *peekedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
