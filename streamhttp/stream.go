package streamhttp

import (
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// event is one message on its way to a client, or kept after it was written.
type event struct {
	seq     uint64
	at      time.Time // when it was kept for replay
	line    []byte    // the message without line breaks between its tokens
	kind    jsonrpc.Kind
	related jsonrpc.ID // as the message has it, should it need another stream
}

// stream is one logical SSE stream of a session: what a POST asked for, or what
// a standalone GET listens to. It outlives the connection that reads it, so
// that Last-Event-ID can go on where the connection broke (LI16, LI17).
//
// The session's lock guards every field.
type stream struct {
	key       uint64 // the first half of its event ids; unique in the session
	get       bool   // a standalone GET stream; otherwise born of a POST
	owed      int    // responses still to come on a POST's stream
	next      uint64 // sequence number of the next event; the first is 1
	pending   []event
	sent      []event // written before, kept for replay, oldest first
	bytes     int     // of pending
	reader    *reader // the connection that writes it; nil: nobody is connected
	parked    bool    // nobody is connected, and pending waits for a resumption
	detached  time.Time
	due       time.Time     // when the reply to its POST becomes a stream, unless it is complete
	late      bool          // that time has come
	nextDue   *stream       // in the session's dueList
	committed bool          // a client was told its event ids
	closed    bool          // nothing more will be appended
	void      bool          // it cannot be resumed: cancelled, or events had to be dropped
	room      chan struct{} // closed when pending shrinks; nil when nobody waits
}

// reader is one HTTP exchange that writes a stream.
type reader struct {
	wake chan struct{} // has a token when there may be something to do
	gone chan struct{} // closed when another connection took the stream over
	held bool          // whoever has the session's lock pokes later

	mu      sync.Mutex  // held while answer is called
	answer  func() bool // writes the whole answer to a POST, see await; nil: not now
	written bool        // it has
}

func newReader() *reader {
	return &reader{wake: make(chan struct{}, 1), gone: make(chan struct{})}
}

// poke makes the exchange look at its stream. The caller holds the session's lock.
func (r *reader) poke() {
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

// await lets others do what the exchange would, while it waits, with a stream that
// has got a response: answer writes the whole answer, if that is complete and
// the client takes it at once. nil ends that. It reports whether it was written.
func (r *reader) await(answer func() bool) (written bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
	return r.written
}

// deliver does the work of the exchange, if that waits, and wakes it.
func (r *reader) deliver() {
	if r.mu.TryLock() {
		if r.answer != nil && !r.written {
			r.written = r.answer()
		}
		r.mu.Unlock()
	}
	r.signal()
}

// last returns the sequence number of the newest event; 0 before the first.
func (st *stream) last() uint64 { return st.next - 1 }

// cursor returns the sequence number of the newest event written.
func (st *stream) cursor() uint64 {
	if len(st.pending) > 0 {
		return st.pending[0].seq - 1
	}
	return st.last()
}

// push appends a message.
func (st *stream) push(m jsonrpc.Message) {
	line := m.Line()
	st.pending = append(st.pending, event{seq: st.next, line: line, kind: m.Kind(), related: m.Related()})
	st.bytes += len(line)
	st.next++
	if st.reader != nil {
		st.reader.poke()
	}
}

// finish says that nothing more comes.
func (st *stream) finish() {
	st.closed = true
	st.release()
	if st.reader != nil {
		st.reader.poke()
	}
}

// release lets those go on who wait for the stream to have room.
func (st *stream) release() {
	if st.room != nil {
		close(st.room)
		st.room = nil
	}
}

// reply returns the pending events if they are the whole answer to the POST
// and nothing but responses, so that it can be plain JSON (LI7). It reports
// stream when that cannot come true any more.
func (st *stream) reply() (whole []event, stream bool) {
	for _, e := range st.pending {
		if e.kind != jsonrpc.Response {
			return nil, true
		}
	}
	if !st.closed {
		return nil, st.late
	}
	return st.pending, len(st.pending) == 0
}

// rewound returns which of sent come after seq. It is false when the stream
// cannot go on from there (LI18).
func (st *stream) rewound(seq uint64) (again []event, ok bool) {
	if st.void || seq > st.cursor() {
		return nil, false
	}
	if st.closed && seq == st.last() {
		return nil, false // its response has been delivered
	}
	i := len(st.sent)
	for i > 0 && st.sent[i-1].seq > seq {
		i--
	}
	again = st.sent[i:]
	if seq < st.cursor() && (len(again) == 0 || again[0].seq != seq+1) {
		return nil, false // some of it is no longer kept
	}
	return again, true
}

// replay is the session's store of what was written, bounded by bytes, count
// and age. It holds no events itself: each stream keeps its own, and order
// says whose oldest one goes next.
type replay struct {
	maxBytes int
	maxCount int
	maxAge   time.Duration
	bytes    int
	order    []*stream // one entry for each event kept, oldest first
}

// keep moves the first n pending events of st to what is kept of it.
func (rp *replay) keep(st *stream, n int, now time.Time) {
	for i := range st.pending[:n] {
		e := &st.pending[i]
		e.at = now
		st.bytes -= len(e.line)
		rp.bytes += len(e.line)
		rp.order = append(rp.order, st)
	}
	st.sent = append(st.sent, st.pending[:n]...)
	clear(st.pending[:n])
	if st.pending = st.pending[n:]; len(st.pending) == 0 {
		st.pending = nil
	}
	for len(rp.order) > 0 && (rp.bytes > rp.maxBytes || len(rp.order) > rp.maxCount) {
		rp.evict()
	}
}

// rewind moves what was written after seq back to pending. It is false when
// the stream cannot go on from there.
func (rp *replay) rewind(st *stream, seq uint64) bool {
	again, ok := st.rewound(seq)
	if !ok {
		return false
	}
	st.pending = append(append(make([]event, 0, len(again)+len(st.pending)), again...), st.pending...)
	for _, e := range again {
		st.bytes += len(e.line)
	}
	rp.drop(st, len(again))
	return true
}

// forget drops everything kept of st.
func (rp *replay) forget(st *stream) { rp.drop(st, len(st.sent)) }

// drop takes the newest n events kept of st out of the store.
func (rp *replay) drop(st *stream, n int) {
	if n == 0 {
		return
	}
	i := len(st.sent) - n
	for _, e := range st.sent[i:] {
		rp.bytes -= len(e.line)
	}
	clear(st.sent[i:])
	st.sent = st.sent[:i]
	for i := len(rp.order) - 1; n > 0; i-- {
		if rp.order[i] == st {
			rp.order[i] = nil
			n--
		}
	}
	rp.order = slices.DeleteFunc(rp.order, func(o *stream) bool { return o == nil })
}

// expire drops what was written before the age limit.
func (rp *replay) expire(now time.Time) {
	for len(rp.order) > 0 && now.Sub(rp.order[0].sent[0].at) >= rp.maxAge {
		rp.evict()
	}
}

// evict drops the oldest event.
func (rp *replay) evict() {
	st := rp.order[0]
	rp.order[0] = nil
	if rp.order = rp.order[1:]; len(rp.order) == 0 {
		rp.order = nil
	}
	rp.bytes -= len(st.sent[0].line)
	st.sent[0] = event{}
	if st.sent = st.sent[1:]; len(st.sent) == 0 {
		st.sent = nil
	}
}
