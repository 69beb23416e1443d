package streamhttp

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
)

// replayStore is the session's store of what was written, bounded by bytes, count
// and age. It holds no events itself: each stream keeps its own, and ageOrder
// says whose oldest one goes next. If there are too many, an open stream with few events
// loses its own only when all streams are such (isSpared); by age it loses them in any case.
// The session's lock guards it.
type replayStore struct {
	maxBytes    int           // how many bytes of events are kept at most; 0: none
	maxCount    int           // how many events are kept at most; 0: none
	maxEventAge time.Duration // how long an event is kept at most
	bytes       int           // how many bytes all events that are kept have
	ageOrder    []*stream     // one entry for each event kept, its stream, oldest first
}

// keep moves the first n pending events of st, which were written now, to what is kept of st, and
// drops older events if there are too many.
func (rp *replayStore) keep(st *stream, n int, now time.Time) {
	for i := range st.pending[:n] {
		e := &st.pending[i]
		e.keptAt = now
		st.pendingBytes -= len(e.line)
		rp.bytes += len(e.line)
		st.keptBytes += len(e.line)
		rp.ageOrder = append(rp.ageOrder, st)
	}
	st.keptEvents = append(st.keptEvents, st.pending[:n]...)
	clear(st.pending[:n])
	if st.pending = st.pending[n:]; len(st.pending) == 0 {
		st.pending = nil
	}
	for len(rp.ageOrder) > 0 && (rp.bytes > rp.maxBytes || len(rp.ageOrder) > rp.maxCount) {
		rp.evictOne()
	}
}

// guaranteedStreams divides what a session may keep: an open stream that has at most this part (1/64) of the bytes
// and of the events loses none of them while there are streams that have more, or closed ones (isSpared).
const guaranteedStreams = 64

// isSpared reports whether other streams lose events before st does when the session keeps too much: st has no
// more than its part (guaranteedStreams). A closed stream is not spared: its client has most likely read it.
func (rp *replayStore) isSpared(st *stream) bool {
	return !st.closed && len(st.keptEvents) <= rp.maxCount/guaranteedStreams && st.keptBytes <= rp.maxBytes/guaranteedStreams
}

// evictOne drops one event, to make room: the oldest of the streams that are not spared, or else of all.
func (rp *replayStore) evictOne() {
	i := slices.IndexFunc(rp.ageOrder, func(st *stream) bool { return !rp.isSpared(st) })
	if i > 0 { // evictOldest takes the front one: the entry of this stream goes there
		st := rp.ageOrder[i]
		copy(rp.ageOrder[1:i+1], rp.ageOrder[:i])
		rp.ageOrder[0] = st
	}
	rp.evictOldest()
}

// rewind moves the events of st that were written after number seq back to pending, to be written
// again. False: the stream cannot go on from there, and nothing was done.
func (rp *replayStore) rewind(st *stream, seq uint64) bool {
	again, ok := st.keptAfter(seq)
	if !ok {
		return false
	}
	st.pending = append(append(make([]event, 0, len(again)+len(st.pending)), again...), st.pending...)
	for _, e := range again {
		st.pendingBytes += len(e.line)
	}
	rp.dropNewest(st, len(again))
	return true
}

// forget drops everything kept of st.
func (rp *replayStore) forget(st *stream) { rp.dropNewest(st, len(st.keptEvents)) }

// dropNewest drops the newest n events kept of st.
func (rp *replayStore) dropNewest(st *stream, n int) {
	if n == 0 {
		return
	}
	i := len(st.keptEvents) - n
	for _, e := range st.keptEvents[i:] {
		rp.bytes -= len(e.line)
		st.keptBytes -= len(e.line)
	}
	clear(st.keptEvents[i:])
	st.keptEvents = st.keptEvents[:i]
	for i := len(rp.ageOrder) - 1; n > 0; i-- {
		if rp.ageOrder[i] == st {
			rp.ageOrder[i] = nil
			n--
		}
	}
	rp.ageOrder = slices.DeleteFunc(rp.ageOrder, func(o *stream) bool { return o == nil })
}

// expire drops the events that have been kept for maxEventAge by now.
func (rp *replayStore) expire(now time.Time) {
	for len(rp.ageOrder) > 0 && now.Sub(rp.ageOrder[0].keptEvents[0].keptAt) >= rp.maxEventAge {
		rp.evictOldest()
	}
}

// evictOldest drops the event at the front of ageOrder.
func (rp *replayStore) evictOldest() {
	st := rp.ageOrder[0]
	rp.ageOrder[0] = nil
	if rp.ageOrder = rp.ageOrder[1:]; len(rp.ageOrder) == 0 {
		rp.ageOrder = nil
	}
	rp.bytes -= len(st.keptEvents[0].line)
	st.keptBytes -= len(st.keptEvents[0].line)
	st.keptEvents[0] = event{}
	if st.keptEvents = st.keptEvents[1:]; len(st.keptEvents) == 0 {
		st.keptEvents = nil
	}
}

// retention is all that a session keeps for a client that may come back: the streams that
// can be resumed, with what was written to them (replayStore) and what waits on them because
// nobody reads them (parked). maxBytes and maxCount bound each of the two by itself, maxEventAge both. The
// session's lock guards it.
type retention struct {
	replayStore
	streams map[uint64]*stream // the streams that can be resumed, by their key
	parked  struct {           // how much waits on parked streams, which nobody reads, all together
		bytes, events int // how many bytes wait on parked streams, and how many events
	}
	budget *budget.Share // what replayStore and parked hold of the budget; nil: they are not counted
}

// add makes st one that can be resumed.
func (k *retention) add(st *stream) {
	if k.streams == nil {
		k.streams = make(map[uint64]*stream)
	}
	k.streams[st.key] = st
}

// remove makes st one that cannot be resumed, and drops all that is kept of it, but not what a reader
// still has to write.
func (k *retention) remove(st *stream) {
	k.forget(st)
	delete(k.streams, st.key)
}

// keepWritten moves the first n pending events of st, which were written now, to what is kept, as far
// as the budget allows.
func (k *retention) keepWritten(st *stream, n int) {
	k.keep(st, n, time.Now())
	k.evictToFit()
}

// park begins to count what waits on a stream without a reader. false: there is no room for
// it, and the caller has to abandon the stream.
func (k *retention) park(st *stream) bool {
	st.parked = true
	return k.parkMore(st.pendingBytes, len(st.pending))
}

// parkMore counts what has come to a stream that is parked. false: there is no room for it, and the
// caller has to abandon the stream.
func (k *retention) parkMore(bytes, events int) bool {
	k.parked.bytes += bytes
	k.parked.events += events
	return k.parked.bytes <= k.maxBytes && k.parked.events <= k.maxCount && k.evictToFit()
}

// unpark ends the count of what waits on st, if st is parked.
func (k *retention) unpark(st *stream) {
	if st.parked {
		st.parked = false
		k.parked.bytes -= st.pendingBytes
		k.parked.events -= len(st.pending)
	}
}

// evictToFit makes the session's share of the budget as large as what is kept. If there is no
// room for that, written events are dropped (evictOne). false: there is no room even without them.
func (k *retention) evictToFit() bool {
	for !k.budget.ResizeTo(k.replayStore.bytes + k.parked.bytes) {
		if len(k.ageOrder) == 0 {
			return false
		}
		k.evictOne()
	}
	return true
}

// freeAll gives back the memory kept for resumption: nobody can resume any more.
func (k *retention) freeAll() {
	k.budget.ReleaseAll()
	k.budget = nil
}
