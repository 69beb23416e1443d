package stdio

import (
	"context"
	"io"
	"time"
)

// A destination is where a Conn writes its bytes; one goroutine at a time.
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

// newDestination chooses how to write to w. abort is called when a write that nothing
// else can end has to end.
func newDestination(w io.Writer, abort func(error)) destination {
	d, ok := w.(interface{ SetWriteDeadline(time.Time) error })
	if !ok || d.SetWriteDeadline(time.Time{}) != nil {
		return &abortingWriter{w: w, abort: abort}
	}
	return &deadlineWriter{w: w, in: interrupter{setDeadline: d.SetWriteDeadline}}
}

// deadlineWriter is interrupted by a deadline.
type deadlineWriter struct {
	w  io.Writer
	in interrupter
}

func (s *deadlineWriter) write(ctx context.Context, p []byte) (int, error) {
	if !s.in.watch(ctx) {
		return 0, errInterrupted
	}
	n, err := s.w.Write(p)
	return n, interruption(err)
}

func (s *deadlineWriter) rearm() { s.in.rearm() }

func (s *deadlineWriter) close() { s.in.shut() }

// abortingWriter writes to what has no deadlines: a blocked write ends only when the stream is
// closed. So it ends the whole Conn when the ctx of a write ends.
type abortingWriter struct {
	w     io.Writer
	abort func(error) // Conn.abort
}

func (s *abortingWriter) write(ctx context.Context, p []byte) (int, error) {
	if ctx.Done() == nil {
		return s.w.Write(p)
	}
	stop := context.AfterFunc(ctx, func() { s.abort(cutOffError(ctx.Err())) })
	defer stop()
	return s.w.Write(p)
}

func (s *abortingWriter) rearm() {}

func (s *abortingWriter) close() {}
