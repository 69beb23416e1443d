package stdio

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// newSource chooses how to read r. If a blocked read cannot be ended,
// mayAbandon says that Close need not wait for it.
func newSource(r io.Reader, mayAbandon bool) source {
	d, ok := r.(interface{ SetReadDeadline(time.Time) error })
	if !ok || d.SetReadDeadline(time.Time{}) != nil {
		return &backgroundSource{r: r, mayAbandon: mayAbandon, requests: make(chan []byte), results: make(chan readResult, 1),
			done: make(chan struct{}), ended: make(chan struct{})}
	}
	return &directSource{r: r, in: interrupter{setDeadline: d.SetReadDeadline}}
}

// directSource reads in the caller's goroutine and is interrupted by a deadline.
type directSource struct {
	r  io.Reader
	in interrupter
}

func (s *directSource) fill(ctx context.Context, l *lines) (int, error) {
	if !s.in.watch(ctx) {
		return 0, errInterrupted
	}
	n, err := s.r.Read(l.freeSpace())
	if errors.Is(err, syscall.EIO) { // how a terminal says that nobody is there any more
		err = io.EOF
	}
	return n, interruption(err)
}

func (s *directSource) close() { s.in.shut() }
func (s *directSource) wait()  {}

// interruption tells the errors of deadlines from all others.
func interruption(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errInterrupted
	}
	return err
}

// backgroundSource reads in a goroutine of its own, because nothing else than
// closing it, and perhaps not even that, ends a blocked read of r. The
// goroutine starts with the first read and ends with close, or, where the
// read cannot be ended, with the process.
type backgroundSource struct {
	r          io.Reader
	mayAbandon bool            // see newSource
	requests   chan []byte     // where run is to read to, one read for each
	results    chan readResult // of those reads

	mu      sync.Mutex
	started bool
	reading bool // a read was asked for, and its result was not taken yet
	closed  bool
	done    chan struct{} // closed by close
	ended   chan struct{} // closed when the goroutine has ended
}

// readResult is what one Read has returned.
type readResult struct {
	n   int
	err error
}

func (s *backgroundSource) fill(ctx context.Context, l *lines) (int, error) {
	if !s.startRead(l) {
		return 0, errInterrupted
	}
	select {
	case res := <-s.results:
		s.mu.Lock()
		s.reading = false
		s.mu.Unlock()
		return res.n, res.err
	case <-ctx.Done():
	case <-s.done:
	}
	// The read goes on, into space that stays where it is until it ends.
	return 0, errInterrupted
}

// startRead asks for a read unless one is under way. It is false after the end of the source.
func (s *backgroundSource) startRead(l *lines) (reading bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return false
	case s.reading:
		return true
	case !s.started:
		s.started = true
		go s.run()
	}
	s.reading = true
	s.requests <- l.freeSpace() // run waits for it
	return true
}

func (s *backgroundSource) run() {
	defer close(s.ended)
	for {
		select {
		case <-s.done:
			return
		case p := <-s.requests:
			n, err := s.r.Read(p)
			s.results <- readResult{n, err}
		}
	}
}

func (s *backgroundSource) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
}

func (s *backgroundSource) wait() {
	s.mu.Lock()
	blocked := !s.started || s.reading && s.mayAbandon
	s.mu.Unlock()
	if !blocked {
		<-s.ended
	}
}

// interrupter ends blocked reads or writes of a file when a context ends or
// the Conn is closed, by moving the file's deadline into the past. It goes on
// watching a context from call to call, because registering with one costs
// more than a small read.
type interrupter struct {
	setDeadline func(time.Time) error // of the file, for reads or for writes

	mu          sync.Mutex
	watchedDone <-chan struct{} // of the context that is watched; nil: none
	stopWatch   func() bool     // ends the watch over that context; nil: there is none
	expired     bool            // the deadline is in the past since that context ended
	closed      bool            // the deadline is in the past for good
}

var longAgo = time.Unix(1, 0)

// watch makes the end of ctx end reads and writes from now on. It reports
// whether there is anything left to do: false after shut.
func (i *interrupter) watch(ctx context.Context) bool {
	done := ctx.Done()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || done == i.watchedDone {
		return !i.closed
	}
	i.unwatch()
	if done != nil {
		i.watchedDone = done
		i.stopWatch = context.AfterFunc(ctx, func() { i.expire(done) })
	}
	return true
}

// expire ends reads and writes because the context with this Done has ended.
func (i *interrupter) expire(done <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.watchedDone == done && !i.closed { // else it came too late
		i.expired = true
		i.setDeadline(longAgo)
	}
}

// rearm lets reads and writes work again after the end of the ctx that is watched.
func (i *interrupter) rearm() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.expired && !i.closed {
		i.unwatch()
	}
}

// unwatch undoes watch, and what it has done.
func (i *interrupter) unwatch() {
	if i.stopWatch != nil {
		i.stopWatch()
	}
	i.watchedDone, i.stopWatch = nil, nil
	if i.expired && !i.closed {
		i.setDeadline(time.Time{})
	}
	i.expired = false
}

// shut ends what is going on and forbids everything else. Only the first call
// counts: the closer may want to use the file once more.
func (i *interrupter) shut() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return
	}
	i.unwatch()
	i.closed = true
	i.setDeadline(longAgo)
}
