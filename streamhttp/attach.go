package streamhttp

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is about who reads a session's streams, and about what happens to
// messages when nobody does.

const (
	// maxIdleGets is how many standalone streams without a connection a
	// session remembers, so that they can be resumed.
	maxIdleGets = 16

	// maxGets is how many standalone streams may be connected at once. Only
	// the newest is written to; the oldest one ends when there are more. A client
	// that keeps more of them, and reconnects each, makes them displace each
	// other in turn: that costs it its own requests, and nobody else anything.
	maxGets = 16
)

// take moves what waits on st to its reader r. It reports over when r is to
// stop: the stream is finished, or another connection took it over.
func (s *session) take(st *stream, r *reader, buf []event) (events []event, over bool) {
	const maxEvents, maxBytes = 256, 256 << 10
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.reader != r {
		return buf, true
	}
	n, size := 0, 0
	for n < len(st.pending) && n < maxEvents && size < maxBytes {
		size += len(st.pending[n].line)
		n++
	}
	buf = append(buf, st.pending[:n]...)
	s.replay.keep(st, n, time.Now())
	s.fitKept()
	if st.bytes < highWater {
		st.release()
	}
	return buf, n == 0 && st.closed
}

// commit turns a POST's stream into an SSE stream, which can be resumed.
func (s *session) commit(st *stream) {
	if s.alone {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.committed = true
	s.keepStream(st)
}

func (s *session) keepStream(st *stream) {
	if s.streams == nil {
		s.streams = make(map[uint64]*stream)
	}
	s.streams[st.key] = st
}

// reply returns the whole answer to a POST if it can be plain JSON, or reports
// that it must be a stream.
func (s *session) reply(st *stream) (whole []event, stream bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.reply()
}

// cursor returns the number of the newest event of st that was written, if r
// still reads it.
func (s *session) cursor(st *stream, r *reader) (seq uint64, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.cursor(), st.reader == r
}

// detach takes r off its stream when its connection has ended.
func (s *session) detach(st *stream, r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.reader != r {
		return // another connection has it
	}
	st.reader = nil
	st.detached = time.Now()
	st.release()
	switch {
	case s.ended:
	case st.get:
		s.gets = slices.DeleteFunc(s.gets, func(o *stream) bool { return o == st })
		s.detachGet(st)
	case !st.committed || st.void:
		s.abandon(st) // nobody knows an event id to resume it with (B.2)
	case st.closed && len(st.pending) == 0 && len(st.sent) == 0:
		delete(s.streams, st.key)
	default:
		s.park(st)
	}
}

// detachGet puts what was not written yet back for the next standalone stream.
func (s *session) detachGet(st *stream) {
	back := st.pending
	st.next -= uint64(len(back))
	st.pending, st.bytes = nil, 0
	s.reroute(back)
	s.idle = append(s.idle, st)
	if len(s.idle) > maxIdleGets {
		old := s.idle[0]
		s.idle = slices.Delete(s.idle, 0, 1)
		s.abandon(old)
	}
}

// reroute finds another way for messages that their stream cannot deliver.
func (s *session) reroute(events []event) {
	for _, e := range events {
		m, err := jsonrpc.Parse(e.line)
		if err != nil || e.kind == jsonrpc.Response {
			continue
		}
		m = m.WithRelated(e.related)
		s.route(m, s.target(m))
	}
}

// push appends a message to a stream.
func (s *session) push(st *stream, m jsonrpc.Message) {
	before := st.bytes
	st.push(m)
	if st.parked {
		s.parked.bytes += st.bytes - before
		s.parked.events++
		s.checkParked(st)
	}
}

// park counts what waits on a stream without a connection.
func (s *session) park(st *stream) {
	st.parked = true
	s.parked.bytes += st.bytes
	s.parked.events += len(st.pending)
	s.checkParked(st)
}

func (s *session) unpark(st *stream) {
	if st.parked {
		st.parked = false
		s.parked.bytes -= st.bytes
		s.parked.events -= len(st.pending)
	}
}

// fitKept counts what is kept for clients that may come back. Where there is no room
// for it, what was written before goes first; false: there is none even so.
func (s *session) fitKept() bool {
	for !s.kept.Hold(s.replay.bytes + s.parked.bytes) {
		if len(s.replay.order) == 0 {
			return false
		}
		s.replay.evict()
	}
	return true
}

// checkParked gives st up when too much waits for clients that have gone.
func (s *session) checkParked(st *stream) {
	if s.parked.bytes > s.replay.maxBytes || s.parked.events > s.replay.maxCount || !s.fitKept() {
		s.lose(st, "nobody reads the stream and its buffer is full")
	}
}

// lose gives up a stream whose events can be kept no longer.
func (s *session) lose(st *stream, why string) {
	s.opts.Logger.Warn("messages dropped: "+why, "session", s.tag(), "stream", st.key, "messages", len(st.pending))
	s.abandon(st)
}

// abandon makes a stream void: what it keeps is of no use to anybody any more.
// A reader that it still has goes on to write what waits. Otherwise the
// server's requests among that go another way: the server waits for an answer.
func (s *session) abandon(st *stream) {
	st.void = true
	s.replay.forget(st)
	delete(s.streams, st.key)
	if st.reader != nil {
		s.fitKept()
		return
	}
	s.unpark(st)
	left := st.pending
	st.pending, st.bytes = nil, 0
	s.fitKept()
	s.reroute(slices.DeleteFunc(left, func(e event) bool { return e.kind != jsonrpc.Request }))
}

// listen makes a standalone stream and attaches a reader to it (LI19).
func (s *session) listen() (*stream, *reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil, errSessionEnded
	}
	st := s.newStream(true)
	st.committed = true
	s.keepStream(st)
	return st, s.attach(st), nil
}

// resume attaches a reader to the stream of an event id, to go on after that
// event. It is nil when that cannot be done (LI18).
func (s *session) resume(key, seq uint64) (*stream, *reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil, errSessionEnded
	}
	st := s.streams[key]
	if st == nil {
		return nil, nil, nil
	}
	s.unpark(st)
	if !s.replay.rewind(st, seq) {
		if st.reader == nil && !st.get {
			s.park(st)
		}
		return nil, nil, nil
	}
	s.fitKept()
	return st, s.attach(st), nil
}

// attach makes a reader st's. A connection that had the stream loses it:
// half-open connections are common (LI18).
func (s *session) attach(st *stream) *reader {
	r := newReader()
	if st.reader != nil {
		close(st.reader.gone)
	}
	st.reader = r
	if st.get {
		same := func(o *stream) bool { return o == st }
		s.idle = slices.DeleteFunc(s.idle, same)
		s.gets = append(slices.DeleteFunc(s.gets, same), st)
		s.catchUp(st)
		s.retry()
		if len(s.gets) > maxGets {
			s.gets[0].finish()
			s.gets = slices.Delete(s.gets, 0, 1)
		}
	}
	r.poke()
	return r
}

// catchUp puts the notifications that have waited for a standalone stream on st.
func (s *session) catchUp(st *stream) {
	for _, m := range s.backlog.list {
		st.push(m)
	}
	s.backlog = shelf{}
}
