package sse

import (
	"bytes"
	"errors"
	"io"
	"math"
	"time"
)

// ErrTooLarge is returned by Reader.Next for an event that is larger than the
// Reader's limit. The event is skipped; Next can be called again.
var ErrTooLarge = errors.New("sse: event is larger than the limit")

// Reader reads events from a stream. It is not for concurrent use. It starts
// no goroutine and has nothing to close; who closes the underlying reader
// unblocks Next.
//
// It parses as the WHATWG standard says, but for three things that MCP needs
// otherwise: an event without data is returned if it has an id; the bytes are
// passed on as they came, where a browser would put U+FFFD in the place of
// invalid UTF-8; and an event has a size limit.
type Reader struct {
	in       lineReader // cuts the stream into lines
	maxEvent int        // how long the data, the id and the name of an event may each be, in bytes

	lastID   string        // what LastEventID returns: the id in force at the last event that was complete
	retry    time.Duration // the delay of the last valid retry field, which Reader.Retry returns
	hasRetry bool          // there was a valid retry field

	event          Event // the event whose fields are being read
	isDispatchable bool  // event has an id or a data field, so Next returns it
	tooLarge       bool  // the data, id or name of event is over the limit: its data is dropped, and Next returns ErrTooLarge with it
}

// NewReader returns a Reader of r. An event whose data, or whose id or name,
// is longer than maxEvent bytes is skipped (ErrTooLarge); 0 or less means no limit. No more than
// about three times maxEvent is held, and 4 KiB while only small events come.
func NewReader(r io.Reader, maxEvent int) *Reader {
	if maxEvent <= 0 {
		maxEvent = math.MaxInt / 4
	}
	return &Reader{in: newLineReader(r), maxEvent: maxEvent}
}

// LastEventID returns the last event id, "" if there was none: what to send as Last-Event-ID when
// the stream is resumed. An event that never became complete does not count.
func (r *Reader) LastEventID() string { return r.lastID }

// Retry returns the reconnection time last received (0 if there was none), and whether there was one. It counts at once,
// also if its event never became complete.
func (r *Reader) Retry() (time.Duration, bool) { return r.retry, r.hasRetry }

// Next returns the next event that has an id or a data field. One with empty
// Data, such as the priming event of MCP, carries no message: the caller skips
// it. Data is freshly allocated and belongs to the caller.
//
// At the end of the stream Next returns io.EOF, and an event that is not yet
// complete is dropped. A failed read gives the error of the underlying reader.
// Both are returned again by every later call. ErrTooLarge comes with the
// event's other fields, when all of it has passed by; its id counts as
// received, because a resumption that asks for the event again would only meet
// it again.
func (r *Reader) Next() (Event, error) {
	for {
		line, whole, err := r.in.next()
		switch {
		case err != nil:
			return Event{}, err
		case !whole:
			r.handlePartialLine(line)
		case len(line) > 0:
			r.processField(line)
		case r.isDispatchable || r.tooLarge:
			return r.dispatch()
		default:
			r.event = Event{} // nothing in it, or only a name
		}
	}
}

// handlePartialLine is called with the beginning of a line that fills the buffer. It
// makes the buffer larger if the line is data, an id or a name and can still be within
// the limit. Otherwise it has the rest of the line skipped.
func (r *Reader) handlePartialLine(line []byte) {
	name, value := splitField(line)
	switch string(name) {
	case "data":
		r.checkSize(len(value))
		if r.tooLarge {
			r.in.skipRest()
			return
		}
	case "id", "event":
		if len(value) > r.maxEvent {
			r.dropEvent()
			r.in.skipRest()
			return
		}
	default: // a comment, or a field without meaning
		r.in.skipRest()
		return
	}
	r.in.grow()
}

// processField takes the field in a line that is not empty into the event being read.
// Names are matched exactly, in case too. Unknown fields and comments do nothing.
func (r *Reader) processField(line []byte) {
	name, value := splitField(line)
	switch string(name) {
	case "data":
		r.isDispatchable = true
		r.checkSize(len(value))
		if !r.tooLarge {
			r.addData(value)
		}
	case "id":
		if len(value) > r.maxEvent {
			r.dropEvent()
			return
		}
		if bytes.IndexByte(value, 0) >= 0 {
			return
		}
		r.isDispatchable = true
		r.event.HasID = true
		r.event.ID = string(value)
	case "event":
		if len(value) > r.maxEvent {
			r.dropEvent()
			return
		}
		r.event.Name = eventName(value)
	case "retry":
		if d, ok := parseRetry(value); ok {
			r.retry, r.hasRetry = d, true
			r.event.Retry = d
		}
	}
}

// checkSize drops the data of the event being read (dropEvent) if n more bytes of data
// make it larger than maxEvent.
func (r *Reader) checkSize(n int) {
	if r.event.Data != nil {
		n += len(r.event.Data) + 1
	}
	if n > r.maxEvent {
		r.dropEvent()
	}
}

// dropEvent notes that the event being read is too large, and forgets its data; no
// more data of it is kept.
func (r *Reader) dropEvent() {
	r.tooLarge = true
	r.event.Data = nil
}

// addData appends one line of data to the event being read. The first gets exactly the
// memory it needs: nearly every event of MCP has one line.
func (r *Reader) addData(line []byte) {
	if r.event.Data == nil {
		r.event.Data = make([]byte, len(line))
		copy(r.event.Data, line)
		return
	}
	r.event.Data = append(r.event.Data, '\n')
	r.event.Data = append(r.event.Data, line...)
}

// dispatch returns the event that a blank line has completed, with ErrTooLarge if it
// was too large. Its id becomes the last event id, and the next event begins.
func (r *Reader) dispatch() (Event, error) {
	e := r.event
	if e.HasID {
		r.lastID = e.ID
	}
	var err error
	if r.tooLarge {
		err = ErrTooLarge
	}
	r.event, r.isDispatchable, r.tooLarge = Event{}, false, false
	return e, err
}

// splitField splits a line at its first colon into the field's name and value, without
// one space at the beginning of the value. A line without a colon is a name with a nil
// value; a comment has an empty name. A name longer than any known field may be
// returned as the whole line.
func splitField(line []byte) (name, value []byte) {
	// The longest name that means anything is "event" or "retry".
	i := bytes.IndexByte(line[:min(len(line), len("event:"))], ':')
	if i < 0 {
		return line, nil
	}
	value = line[i+1:]
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	return line[:i], value
}

// eventName is string(b), without an allocation for the names that MCP uses.
func eventName(b []byte) string {
	switch string(b) {
	case "message":
		return "message"
	case "endpoint":
		return "endpoint"
	}
	return string(b)
}

// parseRetry parses the value of a retry field, in milliseconds; ok is false unless it
// is made of ASCII digits only. A number too large for a Duration becomes the largest
// Duration of whole milliseconds.
func parseRetry(b []byte) (time.Duration, bool) {
	const most = math.MaxInt64 / int64(time.Millisecond)
	var ms int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		ms = min(ms*10+int64(c-'0'), most)
	}
	return time.Duration(ms) * time.Millisecond, len(b) > 0
}
