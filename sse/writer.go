package sse

import (
	"net/http"
	"time"
)

// largeEventSize is the size from which Line writes data as they are, and does not copy them
// into the buffer. A buffer of this size does not wait for Flush.
const largeEventSize = 16 << 10

// writeChunkSize is written under one deadline, so that a slow reader of a large
// message is told from one that reads nothing.
const writeChunkSize = 256 << 10

// Writer writes a stream of events as the reply to one HTTP request. Events
// wait in a buffer until Flush, or until there is much of them: many go out in
// one write.
//
// The first error stays: what is written afterwards goes nowhere, and Flush
// says so. A Writer belongs to one goroutine, ends with the request, and needs
// no closing.
type Writer struct {
	w            http.ResponseWriter
	rc           *http.ResponseController
	stallTimeout time.Duration // 0 or less: none
	deadline     time.Time     // the write deadline that is set; zero: none
	buf          []byte        // what waits for Flush
	unflushed    bool          // something was written since the last Flush
	err          error         // the first that there was
}

// NewWriter makes a Writer for the reply w. A reader that takes nothing for
// stall while something is being written is cut off; 0 or less waits for ever,
// as does a ResponseWriter that has no deadlines.
func NewWriter(w http.ResponseWriter, stall time.Duration) *Writer {
	return &Writer{w: w, rc: http.NewResponseController(w), stallTimeout: stall}
}

// Begin sends the status 200 and the headers of an event stream, which nobody
// on the way shall keep, change, or hold back (LI26). They go out with the next Flush.
func (w *Writer) Begin() {
	h := w.w.Header()
	h["Content-Type"] = valueContentType
	h["Cache-Control"] = valueNoCache
	h["X-Accel-Buffering"] = valueNoBuffer
	w.w.WriteHeader(http.StatusOK)
	w.unflushed = true
}

// Values shared by all replies; net/http does not change them.
var (
	valueContentType = []string{"text/event-stream"}
	valueNoCache     = []string{"no-cache, no-transform"}
	valueNoBuffer    = []string{"no"}
)

// Event writes e, as AppendEvent does.
func (w *Writer) Event(e Event) {
	w.buf = AppendEvent(w.buf, e)
	w.writeIfLarge()
}

// Line writes e with line as its data, which is not empty and holds no line
// break; e.Data is ignored. A large line is not copied; nobody may change it
// before Line returns.
func (w *Writer) Line(e Event, line []byte) {
	// The line is no part of e because it may get to the ResponseWriter: e
	// would have to be allocated along with it, for every event.
	if len(line) < largeEventSize {
		e.Data = line
		w.Event(e)
		return
	}
	w.buf = AppendHead(w.buf, e)
	w.writeBuffer()
	w.writeThrough(line)
	w.buf = append(w.buf, Tail...)
}

// Comment writes text as a comment, as AppendComment does: it keeps a silent connection alive,
// and finds out whether the connection still is.
func (w *Writer) Comment(text string) {
	w.buf = AppendComment(w.buf, text)
	w.writeIfLarge()
}

// Write writes p as it is, behind the events that wait, and without waiting
// for Flush. It is for replies that are no event stream but are to have the
// same deadlines.
func (w *Writer) Write(p []byte) (int, error) {
	w.writeBuffer()
	n := w.writeThrough(p)
	return n, w.err
}

// Flush sends everything on its way and returns the first error there was.
func (w *Writer) Flush() error {
	w.writeBuffer()
	if cap(w.buf) > 4*largeEventSize {
		w.buf = nil
	}
	if w.unflushed && w.err == nil {
		w.extendDeadline() // what is written may wait in net/http until now
		w.err = w.rc.Flush()
		w.unflushed = false
	}
	if !w.deadline.IsZero() {
		// Nothing is being written now. Over HTTP/2 a deadline that passes
		// resets the stream all the same.
		w.deadline = time.Time{}
		_ = w.rc.SetWriteDeadline(w.deadline)
	}
	return w.err
}

// writeIfLarge writes the buffer when there is enough for a write of its own.
func (w *Writer) writeIfLarge() {
	if len(w.buf) >= largeEventSize {
		w.writeBuffer()
	}
}

// writeBuffer writes the buffer.
func (w *Writer) writeBuffer() {
	w.writeThrough(w.buf)
	w.buf = w.buf[:0]
}

// writeThrough writes p to the connection, past the buffer, until an error.
func (w *Writer) writeThrough(p []byte) (written int) {
	for len(p) > 0 && w.err == nil {
		w.unflushed = true
		w.extendDeadline()
		var n int
		n, w.err = w.w.Write(p[:min(len(p), writeChunkSize)])
		written += n
		p = p[n:]
	}
	return written
}

// extendDeadline puts the deadline off when much of it has passed.
func (w *Writer) extendDeadline() {
	if w.stallTimeout <= 0 {
		return
	}
	if now := time.Now(); w.deadline.Sub(now) < w.stallTimeout/2 {
		w.deadline = now.Add(w.stallTimeout)
		if w.rc.SetWriteDeadline(w.deadline) != nil { // not every ResponseWriter can
			w.deadline, w.stallTimeout = time.Time{}, 0
		}
	}
}
