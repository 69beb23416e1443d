package sse

import (
	"net/http"
	"time"
)

// largeEventSize, in bytes: from this size on Writer.Line writes data without copying
// them into the buffer, and a buffer that has reached it is written without waiting
// for Flush.
const largeEventSize = 16 << 10

// writeChunkSize is how many bytes are written under one deadline, so that a slow
// reader of a large message is told from one that reads nothing.
const writeChunkSize = 256 << 10

// Writer writes a stream of events as the reply to one HTTP request. Events
// wait in a buffer until Flush, or until there is much of them: many go out in
// one write.
//
// The first error stays: what is written afterwards goes nowhere, and Flush
// says so. A Writer belongs to one goroutine, ends with the request, and needs
// no closing.
type Writer struct {
	w            http.ResponseWriter      // the reply that the events are written to
	rc           *http.ResponseController // the ResponseController of w, to flush it and set its write deadline
	stallTimeout time.Duration            // how long a reader may take nothing while a chunk is being written; 0 or less: for ever
	deadline     time.Time                // the write deadline that is set for the reply now; zero: none
	buf          []byte                   // events that were not written yet
	unflushed    bool                     // something was written to w since w was last flushed
	err          error                    // the first error of writing or flushing, after which nothing is written; nil: none so far
}

// NewWriter makes a Writer for the reply w. A reader that takes nothing for
// stall while something is being written is cut off; 0 or less waits for ever,
// as does a ResponseWriter that has no deadlines.
func NewWriter(w http.ResponseWriter, stall time.Duration) *Writer {
	return &Writer{w: w, rc: http.NewResponseController(w), stallTimeout: stall}
}

// Begin writes the status 200 and the headers of an event stream, which say that
// nobody on the way shall keep, change, or hold back what comes (LI26). They go out
// with the next Flush or write.
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
	// the Content-Type of an event stream
	valueContentType = []string{"text/event-stream"}
	// the Cache-Control of an event stream
	valueNoCache = []string{"no-cache, no-transform"}
	// the X-Accel-Buffering of an event stream, which tells nginx not to hold it back
	valueNoBuffer = []string{"no"}
)

// Event adds e to what is written, in the form that AppendEvent gives it; it goes out
// at the next Flush, or before if there is much.
func (w *Writer) Event(e Event) {
	w.buf = AppendEvent(w.buf, e)
	w.writeIfLarge()
}

// Line is Event for an event whose data is line, which is not empty and holds no line
// break; e.Data is ignored. A large line is not copied; nobody may change it before
// Line returns.
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

// Comment adds text as a comment (AppendComment), which goes out at the next Flush: it
// keeps a silent connection alive, and finds out whether the connection still is.
func (w *Writer) Comment(text string) {
	w.buf = AppendComment(w.buf, text)
	w.writeIfLarge()
}

// Write writes p as it is, after the events that wait, and does not wait for Flush. It
// is for replies that are no event stream but are to have the same deadlines.
func (w *Writer) Write(p []byte) (int, error) {
	w.writeBuffer()
	n := w.writeThrough(p)
	return n, w.err
}

// Flush writes the events that wait, has net/http send everything on its way, and
// takes the deadline away. It returns the first error that there was since the Writer
// was made.
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

// writeIfLarge writes the buffer if it holds at least largeEventSize.
func (w *Writer) writeIfLarge() {
	if len(w.buf) >= largeEventSize {
		w.writeBuffer()
	}
}

// writeBuffer writes what waits in the buffer to the reply, and empties the buffer.
func (w *Writer) writeBuffer() {
	w.writeThrough(w.buf)
	w.buf = w.buf[:0]
}

// writeThrough writes p to the reply, past the buffer, each chunk under its own
// deadline. It stops at the first error, which it keeps in err, and returns how many
// bytes were written.
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

// extendDeadline sets the write deadline to stallTimeout from now, unless the one that
// is set is still more than half of that away. It does nothing without a stallTimeout.
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
