package streamhttp

import "sync"

// reader is the HTTP exchange by which a client reads a stream: what waits on the stream is
// written as its reply.
type reader struct {
	wake       chan struct{} // has a token when there may be something to do
	superseded chan struct{} // closed when another connection took the stream over
	wakeHeld   bool          // wakeUnlessHeld does nothing: whoever set wakeHeld calls answerAndWake after it has let go of the session's lock

	mu            sync.Mutex  // guards what follows; held while answerInline is called
	answerInline  func() bool // writes the whole answer to a POST, and reports whether it has; nil: only the exchange may write it now
	answerWritten bool        // answerInline has written the answer
}

// newReader returns the reader for an HTTP exchange by which a client is about to read a stream: nothing has woken it,
// and no other exchange has taken the stream over.
func newReader() *reader {
	return &reader{wake: make(chan struct{}, 1), superseded: make(chan struct{})}
}

// wakeUnlessHeld makes the exchange look at its stream, unless wakeHeld is set. The caller holds the
// session's lock.
func (r *reader) wakeUnlessHeld() {
	if !r.wakeHeld {
		r.signal()
	}
}

// signal makes the exchange look at its stream. It does not wait.
func (r *reader) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// setInlineAnswer lets whoever brings the response write the reply (answer) while the
// exchange waits; setInlineAnswer(nil) takes that back. It reports whether the reply has
// been written.
func (r *reader) setInlineAnswer(answer func() bool) (written bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answerInline = answer
	return r.answerWritten
}

// answerAndWake calls answerInline, if it is set, so that the answer is written in the place of the
// exchange, and wakes the exchange.
func (r *reader) answerAndWake() {
	if r.mu.TryLock() {
		if r.answerInline != nil && !r.answerWritten {
			r.answerWritten = r.answerInline()
		}
		r.mu.Unlock()
	}
	r.signal()
}
