//go:build unix

package stdio

import (
	"context"
	"io"
	"syscall"
)

// polled reads a file that the runtime polls, in the caller's goroutine. It
// takes a buffer only once there is something to read, so that a Conn that
// waits holds no memory.
type polled struct {
	raw syscall.RawConn
	in  *interrupter
	try func(fd uintptr) bool // made once, because a closure is an allocation

	// what try works with during fill
	l   *lines
	n   int
	err error
}

func newPolled(r io.Reader, in *interrupter) source {
	c, ok := r.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	s := &polled{raw: raw, in: in}
	s.try = s.read
	return s
}

func (s *polled) fill(ctx context.Context, l *lines) (int, error) {
	if !s.in.watch(ctx) {
		return 0, errInterrupted
	}
	s.l, s.n, s.err = l, 0, nil
	if err := s.raw.Read(s.try); err != nil {
		return 0, interruption(err)
	}
	return s.n, s.err
}

// read is called when the file may be readable. It reports whether the reading is over.
func (s *polled) read(fd uintptr) bool {
	n, err := retry(syscall.Read, fd, s.l.space())
	switch {
	case err == syscall.EAGAIN:
		s.l.release()
		return false
	case err == syscall.EIO: // how a terminal says that the other side is gone
		s.err = io.EOF
	case err != nil:
		s.err = err
	case n == 0:
		s.err = io.EOF
	default:
		s.n = n
	}
	return true
}

func (s *polled) close() { s.in.shut() }
func (s *polled) wait()  {}

// polledSink writes to a file that the runtime polls.
type polledSink struct {
	raw syscall.RawConn
	in  *interrupter
	try func(fd uintptr) bool

	// what try works with during write
	ctx     context.Context
	p       []byte
	err     error
	watched bool
}

func newPolledSink(w io.Writer, in *interrupter) sink {
	c, ok := w.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	s := &polledSink{raw: raw, in: in}
	s.try = s.push
	return s
}

func (s *polledSink) write(ctx context.Context, p []byte) (int, error) {
	s.ctx, s.p, s.err, s.watched = ctx, p, nil, false
	err := s.raw.Write(s.try)
	if s.watched {
		s.in.unwatch()
	}
	if err == nil {
		err = s.err
	}
	n := len(p) - len(s.p)
	s.ctx, s.p = nil, nil
	return n, interruption(err)
}

// push is called when the file may be writable. It reports whether the
// writing is over. Only when it has to wait does it look at the context.
func (s *polledSink) push(fd uintptr) bool {
	for len(s.p) > 0 {
		n, err := retry(syscall.Write, fd, s.p)
		if n > 0 {
			s.p = s.p[n:]
			continue
		}
		if err == syscall.EAGAIN {
			s.watched = true
			if s.in.watch(s.ctx) {
				return false
			}
			err = errInterrupted
		}
		if err == nil {
			err = io.ErrUnexpectedEOF // cannot be: nothing written, nothing wrong
		}
		s.err = err
		return true
	}
	return true
}

func (s *polledSink) close() { s.in.shut() }

func retry(call func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := call(int(fd), p)
		if err != syscall.EINTR {
			return n, err
		}
	}
}
