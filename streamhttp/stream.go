package streamhttp

import (
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// event is one message on its way to a client, or kept after it was written.
type event struct {
	seq     uint64       // its number in the stream; the first is 1
	keptAt  time.Time    // when it was written to a client, and kept for replay from then on; zero: it was not written yet
	line    []byte       // the message as JSON in one line: without line breaks between its tokens, without "data:" and without a line end
	kind    jsonrpc.Kind // the kind of the message
	related jsonrpc.ID   // Related of the message, should it need another stream
}

// stream is one logical SSE stream of a session: what a POST asked for, or what
// a standalone GET listens to. It outlives the connection that reads it, so
// that Last-Event-ID can go on where the connection broke (LI16, LI17).
//
// The session's lock guards every field.
type stream struct {
	key           uint64        // the first half of its event ids; unique in the session
	isStandalone  bool          // a standalone GET stream; otherwise born of a POST
	owedResponses int           // responses still to come on a POST's stream
	observedName  string        // what name returns; "": StreamOf has not asked for it yet
	nextSeq       uint64        // sequence number of the next event; the first is 1
	pending       []event       // the events that are not written yet, oldest first
	keptEvents    []event       // written before, kept for replay, oldest first
	keptBytes     int           // how many bytes keptEvents have
	pendingBytes  int           // how many bytes pending has
	reader        *reader       // the exchange by which the client reads it; nil: nobody is connected
	parked        bool          // nobody is connected, and pending waits for a resumption
	detachedAt    time.Time     // when its last reader was taken off
	commitAt      time.Time     // when the reply to its POST becomes an SSE stream, unless it is complete by then
	commitIsDue   bool          // the time commitAt has come: the reply has to become an SSE stream
	nextToCommit  *stream       // the stream behind this one in a commitQueue; nil: there is none
	committed     bool          // it was made an SSE stream: a client may know its event ids, and can resume it
	closed        bool          // nothing more will be appended
	unresumable   bool          // it cannot be resumed (session.abandon): its calls were cancelled, its client can know no event id, or there was no room to keep it
	room          chan struct{} // closed when those who wait for room in pending are to look again (wakeSenders); nil: nobody waits
}

// name returns what observers call the stream.
func (st *stream) name() string { return strconv.FormatUint(st.key, 10) }

// lastSeq returns the sequence number of the newest event; 0 before the first.
func (st *stream) lastSeq() uint64 { return st.nextSeq - 1 }

// lastWrittenSeq returns the sequence number of the newest event that was written to a client; 0 before the first.
func (st *stream) lastWrittenSeq() uint64 {
	if len(st.pending) > 0 {
		return st.pending[0].seq - 1
	}
	return st.lastSeq()
}

// push appends a message to pending, and wakes the reader.
func (st *stream) push(m jsonrpc.Message) {
	line := m.Line()
	st.pending = append(st.pending, event{seq: st.nextSeq, line: line, kind: m.Kind(), related: m.Related()})
	st.pendingBytes += len(line)
	st.nextSeq++
	if st.reader != nil {
		st.reader.wakeUnlessHeld()
	}
}

// finish marks the stream as closed: nothing more comes. It wakes the reader and those that wait for room.
func (st *stream) finish() {
	st.closed = true
	st.wakeSenders()
	if st.reader != nil {
		st.reader.wakeUnlessHeld()
	}
}

// wakeSenders lets those go on who wait for the stream to have room.
func (st *stream) wakeSenders() {
	if st.room != nil {
		close(st.room)
		st.room = nil
	}
}

// jsonAnswer returns the pending events if they are the whole answer to the POST
// and nothing but responses, so that it can be plain JSON (LI7). mustStream says that
// the reply has to be a stream: there is another message, the time is up, or the POST
// gets no response. nil and false: the answer is not there yet, and may still become plain JSON.
func (st *stream) jsonAnswer() (answer []event, mustStream bool) {
	for _, e := range st.pending {
		if e.kind != jsonrpc.Response {
			return nil, true
		}
	}
	if !st.closed {
		return nil, st.commitIsDue
	}
	return st.pending, len(st.pending) == 0
}

// keptAfter returns those of keptEvents that come after number seq. ok is false when the stream cannot
// go on from there (LI18): it cannot be resumed, has no such event, is closed and seq is its last event, or some of the events
// after seq are not kept any more.
func (st *stream) keptAfter(seq uint64) (again []event, ok bool) {
	if st.unresumable || seq > st.lastWrittenSeq() {
		return nil, false
	}
	if st.closed && seq == st.lastSeq() {
		return nil, false // its response has been delivered
	}
	i := len(st.keptEvents)
	for i > 0 && st.keptEvents[i-1].seq > seq {
		i--
	}
	again = st.keptEvents[i:]
	if seq < st.lastWrittenSeq() && (len(again) == 0 || again[0].seq != seq+1) {
		return nil, false // some of it is no longer kept
	}
	return again, true
}
