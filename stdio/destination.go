package stdio

import (
	"context"
	"io"
	"time"
)

// A destination is where a Conn writes its bytes. Only one goroutine at a time writes
// to it.
type destination interface {
	// write writes all of p and returns how much of it was written. When ctx ends
	// or after close, a deadlineWriter returns errInterrupted. An abortingWriter can
	// end a write only with the whole Conn, and returns what the Write says then.
	write(ctx context.Context, p []byte) (int, error)
	// rearm undoes what the end of an earlier write's ctx has done. It is for bytes that
	// are written by a tryWriter, past write.
	rearm()
	// close ends a deadlineWriter's writes, now and for good. Those of an
	// abortingWriter end when its stream is closed.
	close()
}

// newDestination returns the destination that w is: a deadlineWriter if its write
// deadlines work, else an abortingWriter, which calls abort when a write has to end.
func newDestination(w io.Writer, abort func(error)) destination {
	d, ok := w.(interface{ SetWriteDeadline(time.Time) error })
	if !ok || d.SetWriteDeadline(time.Time{}) != nil {
		return &abortingWriter{w: w, abort: abort}
	}
	return &deadlineWriter{w: w, in: interrupter{setDeadline: d.SetWriteDeadline}}
}

// deadlineWriter is a destination whose write deadlines work: a write is ended by
// moving the deadline into the past.
type deadlineWriter struct {
	w  io.Writer   // the file or connection that is written to
	in interrupter // ends writes by the file's write deadline
}

// write implements destination. Once ctx has ended, or after close, it returns
// errInterrupted.
func (s *deadlineWriter) write(ctx context.Context, p []byte) (int, error) {
	if !s.in.watch(ctx) {
		return 0, errInterrupted
	}
	n, err := s.w.Write(p)
	return n, interruption(err)
}

// rearm implements destination: writes work again after the end of an earlier write's
// ctx.
func (s *deadlineWriter) rearm() { s.in.rearm() }

// close implements destination: it ends writes, now and for good.
func (s *deadlineWriter) close() { s.in.shut() }

// abortingWriter writes to what has no deadlines: a blocked write ends only when the stream is
// closed. So it ends the whole Conn when the ctx of a write ends.
type abortingWriter struct {
	w     io.Writer   // the stream that is written to
	abort func(error) // Conn.abort, which closes the stream
}

// write implements destination. If ctx ends before it has returned, it ends the Conn.
func (s *abortingWriter) write(ctx context.Context, p []byte) (int, error) {
	if ctx.Done() == nil {
		return s.w.Write(p)
	}
	stop := context.AfterFunc(ctx, func() { s.abort(cutOffError(ctx.Err())) })
	defer stop()
	return s.w.Write(p)
}

// rearm implements destination: there is nothing to undo.
func (s *abortingWriter) rearm() {}

// close implements destination. It does nothing: a write ends when the stream is
// closed.
func (s *abortingWriter) close() {}
