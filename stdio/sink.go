package stdio

import (
	"context"
	"io"
	"time"
)

// A sink writes bytes; one goroutine at a time.
type sink interface {
	// write writes all of p and returns how much of it was written. It
	// returns errInterrupted when ctx ends or after close.
	write(ctx context.Context, p []byte) (int, error)
	// ready undoes what the end of an earlier write's ctx has done, for one that
	// goes another way.
	ready()
	close()
}

// newSink chooses how to write to w. abort is called when a write that nothing
// else can end has to end.
func newSink(w io.Writer, abort func(error)) sink {
	d, ok := w.(interface{ SetWriteDeadline(time.Time) error })
	if !ok || d.SetWriteDeadline(time.Time{}) != nil {
		return &blockingSink{w: w, abort: abort}
	}
	return &deadlineSink{w: w, in: interrupter{set: d.SetWriteDeadline}}
}

// deadlineSink is interrupted by a deadline.
type deadlineSink struct {
	w  io.Writer
	in interrupter
}

func (s *deadlineSink) write(ctx context.Context, p []byte) (int, error) {
	if !s.in.watch(ctx) {
		return 0, errInterrupted
	}
	n, err := s.w.Write(p)
	return n, interruption(err)
}

func (s *deadlineSink) ready() { s.in.revive() }

func (s *deadlineSink) close() { s.in.shut() }

// blockingSink can be interrupted only by closing what it writes to.
type blockingSink struct {
	w     io.Writer
	abort func(error)
}

func (s *blockingSink) write(ctx context.Context, p []byte) (int, error) {
	if ctx.Done() == nil {
		return s.w.Write(p)
	}
	stop := context.AfterFunc(ctx, func() { s.abort(cutOff(ctx.Err())) })
	defer stop()
	return s.w.Write(p)
}

func (s *blockingSink) ready() {}

func (s *blockingSink) close() {}
