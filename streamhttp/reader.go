package streamhttp

import "sync"

// reader is the HTTP exchange by which a client reads a stream: what waits on the stream is
// written as its reply.
type reader struct {
	wake       chan struct{} // has a token when there may be something to do
	superseded chan struct{} // closed when another connection took the stream over
	held       bool          // wakeUnlessHeld does nothing: whoever set held calls answerAndWake after it has let go of the lock

	mu      sync.Mutex  // held while answer is called
	answer  func() bool // writes the whole answer to a POST, see setAnswer; nil: not now
	written bool        // it has
}

func newReader() *reader {
	return &reader{wake: make(chan struct{}, 1), superseded: make(chan struct{})}
}

// wakeUnlessHeld makes the exchange look at its stream. The caller holds the session's lock.
func (r *reader) wakeUnlessHeld() {
	if !r.held {
		r.signal()
	}
}

func (r *reader) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// setAnswer lets whoever brings the response write the reply (answer) while the
// exchange waits; setAnswer(nil) takes that back. It reports whether the reply has
// been written.
func (r *reader) setAnswer(answer func() bool) (written bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
	return r.written
}

// answerAndWake writes the answer in the place of the exchange, if that waits for it, and wakes it.
func (r *reader) answerAndWake() {
	if r.mu.TryLock() {
		if r.answer != nil && !r.written {
			r.written = r.answer()
		}
		r.mu.Unlock()
	}
	r.signal()
}
