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

// newSource returns a directSource of r if its read deadlines work, else a
// backgroundSource. mayAbandon is for the latter: Close need not wait for a blocked
// read.
func newSource(r io.Reader, mayAbandon bool) source {
	d, ok := r.(interface{ SetReadDeadline(time.Time) error })
	if !ok || d.SetReadDeadline(time.Time{}) != nil {
		return &backgroundSource{r: r, mayAbandon: mayAbandon, requests: make(chan []byte), results: make(chan readResult, 1),
			done: make(chan struct{}), ended: make(chan struct{})}
	}
	return &directSource{r: r, in: interrupter{setDeadline: d.SetReadDeadline}}
}

// directSource reads in the caller's goroutine; a blocked read is ended by a deadline.
type directSource struct {
	r  io.Reader   // the file or connection that is read
	in interrupter // ends reads by the file's read deadline
}

// fill implements source. It returns errInterrupted once ctx has ended or close was
// called.
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

// close implements source: it ends reads, now and for good.
func (s *directSource) close() { s.in.shut() }

// wait implements source. There is nothing to wait for.
func (s *directSource) wait() {}

// interruption returns errInterrupted for the error of a deadline, and any other error
// as it is.
func interruption(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errInterrupted
	}
	return err
}

// backgroundSource reads r in a goroutine of its own (run), because nothing else than
// closing r, and perhaps not even that, ends a blocked read. The goroutine starts with
// the first read and ends with close, or, where the read cannot be ended, with the
// process.
type backgroundSource struct {
	r          io.Reader       // the stream that is read
	mayAbandon bool            // wait does not wait for a read that goes on
	requests   chan []byte     // the space that run is to read to next, one element for each read
	results    chan readResult // what the reads that were asked for have returned

	mu      sync.Mutex    // guards started, reading and closed
	started bool          // the goroutine that reads (run) was started
	reading bool          // a read was asked for, and its result was not taken yet
	closed  bool          // close was called
	done    chan struct{} // closed by close: nothing more is wanted
	ended   chan struct{} // closed by run when it returns
}

// readResult is what one Read has returned.
type readResult struct {
	n   int   // how many bytes the Read has read
	err error // the error of the Read
}

// fill implements source. It returns errInterrupted when ctx ends or close is called;
// the read goes on then, and the next fill waits for it.
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

// startRead has the goroutine read into the free space of l, unless a read goes on
// already. It returns false after close.
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

// run is the goroutine that reads, until close.
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

// close implements source: fill returns errInterrupted from now on, and the goroutine
// ends after the read that goes on.
func (s *backgroundSource) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
}

// wait implements source: it waits until the goroutine has ended; with mayAbandon, not
// for a read that goes on.
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
	setDeadline func(time.Time) error // sets the file's deadline, for reads or for writes

	mu          sync.Mutex      // guards the fields below; held while setDeadline is called
	watchedDone <-chan struct{} // the Done of the context that is watched; nil: none is
	stopWatch   func() bool     // ends the watching of the context; nil: none is watched
	expired     bool            // the deadline is in the past, because the watched context has ended
	closed      bool            // shut was called: the deadline is in the past for good
}

// longAgo is a deadline that has passed, which ends a read or write at once.
var longAgo = time.Unix(1, 0)

// watch is called before a read or write: from now on the end of ctx ends it. It
// returns false after shut: then nothing may be read or written.
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

// expire is called when a context that was watched has ended; done is its Done. It ends reads and writes, unless
// another context is watched by now.
func (i *interrupter) expire(done <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.watchedDone == done && !i.closed { // else it came too late
		i.expired = true
		i.setDeadline(longAgo)
	}
}

// rearm takes away the deadline that the end of an earlier ctx has set, so that a
// write which uses no ctx works.
func (i *interrupter) rearm() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.expired && !i.closed {
		i.unwatch()
	}
}

// unwatch ends the watching of the last ctx, and takes away the deadline that its end
// has set. It is called with mu held.
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

// shut ends the read or write that goes on, and all later ones. Only the first call does
// anything: a later one leaves alone a deadline that whoever closes the file has set meanwhile.
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
