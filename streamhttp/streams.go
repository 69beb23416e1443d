package streamhttp

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is about who reads a session's streams, and about what happens to messages
// when nobody does. Methods that say nothing else are called with the session's lock held.

// newStream makes a stream with a new key: a standalone one, or one of a POST.
func (s *session) newStream(isStandalone bool) *stream {
	s.lastStreamKey++
	return &stream{key: s.lastStreamKey, isStandalone: isStandalone, nextSeq: 1}
}

// openStandalone makes a standalone stream and attaches a reader to it (LI19). It takes the lock.
func (s *session) openStandalone() (*stream, *reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil, errSessionEnded
	}
	st := s.newStream(true)
	st.committed = true
	s.retained.add(st)
	return st, s.attach(st), nil
}

// resume attaches a reader to the stream of an event id, to go on after that
// event. The stream is nil when that cannot be done (LI18). It takes the lock.
func (s *session) resume(key, seq uint64) (*stream, *reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil, errSessionEnded
	}
	st := s.retained.streams[key]
	if st == nil {
		return nil, nil, nil
	}
	s.retained.unpark(st)
	if !s.retained.rewind(st, seq) {
		if st.reader == nil && !st.isStandalone {
			s.park(st)
		}
		return nil, nil, nil
	}
	s.retained.evictToFit()
	return st, s.attach(st), nil
}

// attach makes a reader for st. A connection that had the stream loses it:
// half-open connections are common (LI18). A standalone stream gets what has waited for one.
func (s *session) attach(st *stream) *reader {
	r := newReader()
	if st.reader != nil {
		close(st.reader.superseded)
	}
	st.reader = r
	if st.isStandalone {
		s.standalone.connect(st)
		for _, m := range s.deferred.awaitingStandalone.takeAll() {
			st.push(m)
		}
		s.routeDeferredRequests()
		if oldest := s.standalone.removeSurplus(); oldest != nil {
			oldest.finish()
		}
	}
	r.wakeUnlessHeld()
	return r
}

// commit turns a POST's stream into an SSE stream, which can be resumed. For a stateless POST, whose
// stream cannot, there is nothing to do. It takes the lock.
func (s *session) commit(st *stream) {
	if s.stateless {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.committed = true
	s.retained.add(st)
}

// jsonAnswer returns the whole answer to a POST if it is there and can be plain JSON, or reports
// that it must be a stream. nil and false: it is not there yet, and may still become plain JSON. It takes the lock.
func (s *session) jsonAnswer(st *stream) (answer []event, mustStream bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.jsonAnswer()
}

// lastWrittenSeq returns the number of the newest event of st that was written (0: none was), and whether r
// still reads st (ours). It takes the lock.
func (s *session) lastWrittenSeq(st *stream, r *reader) (seq uint64, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.lastWrittenSeq(), st.reader == r
}

// take appends what waits on st, for its reader r to write, to buf, and counts it as written.
// ended says that r is to stop: the stream is finished, or another connection took it
// over. It takes the lock.
func (s *session) take(st *stream, r *reader, buf []event) (events []event, ended bool) {
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
	s.retained.keepWritten(st, n)
	if st.pendingBytes < highWater {
		st.wakeSenders()
	}
	return buf, n == 0 && st.closed
}

// detach takes r off its stream when its connection has ended. It takes the lock.
func (s *session) detach(st *stream, r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.reader != r {
		return // another connection has it
	}
	st.reader = nil
	st.detachedAt = time.Now()
	st.wakeSenders()
	switch {
	case s.ended:
	case st.isStandalone:
		s.detachStandalone(st)
	case !st.committed || st.unresumable:
		s.abandon(st) // nobody knows an event id to resume it with (B.2)
	case st.closed && len(st.pending) == 0 && len(st.keptEvents) == 0:
		s.retained.remove(st)
	default:
		s.park(st)
	}
}

// detachStandalone notes that nobody reads st, a standalone stream, any more: st can be resumed, but what was not written on
// it yet goes another way (reroute), on a stream that is read now or on the next one.
func (s *session) detachStandalone(st *stream) {
	s.standalone.remove(st)
	back := st.pending
	st.nextSeq -= uint64(len(back))
	st.pending, st.pendingBytes = nil, 0
	s.reroute(back)
	if forgotten := s.standalone.disconnect(st); forgotten != nil {
		s.abandon(forgotten)
	}
}

// reroute finds another way for messages that their stream cannot deliver. It drops responses.
func (s *session) reroute(events []event) {
	for _, e := range events {
		m, err := jsonrpc.Parse(e.line)
		if err != nil || e.kind == jsonrpc.Response {
			continue
		}
		m = m.WithRelated(e.related)
		s.route(m, s.targetStream(m))
	}
}

// push appends a message to a stream. If the stream is parked and there is no room, the stream is dropped.
func (s *session) push(st *stream, m jsonrpc.Message) {
	before := st.pendingBytes
	st.push(m)
	if st.parked && !s.retained.parkMore(st.pendingBytes-before, 1) {
		s.dropStream(st, bufferFullText)
	}
}

// park keeps a stream that nobody reads, with what waits on it, for a client that may come back. If
// there is no room, the stream is dropped.
func (s *session) park(st *stream) {
	if !s.retained.park(st) {
		s.dropStream(st, bufferFullText)
	}
}

// bufferFullText is what the log is told when a parked stream is dropped for want of room.
const bufferFullText = "nobody reads the stream and its buffer is full"

// dropStream gives up a stream whose events can be kept no longer, and warns the log of it; why says
// the reason in words.
func (s *session) dropStream(st *stream, why string) {
	s.opts.Logger.Warn("messages dropped: "+why, "session", s.logName(), "stream", st.key, "messages", len(st.pending))
	s.abandon(st)
}

// abandon makes a stream unresumable, and drops what is kept of it. If the stream has a reader, that
// goes on to write what waits on it. Otherwise what waits is dropped, but the server's requests go
// another way: the server waits for an answer.
func (s *session) abandon(st *stream) {
	st.unresumable = true
	s.retained.remove(st)
	if st.reader != nil {
		s.retained.evictToFit()
		return
	}
	s.retained.unpark(st)
	left := st.pending
	st.pending, st.pendingBytes = nil, 0
	s.retained.evictToFit()
	s.reroute(slices.DeleteFunc(left, func(e event) bool { return e.kind != jsonrpc.Request }))
}

// tidyStreams drops kept events that have become too old, streams with messages that wait whose client has not come back
// in time, and complete streams of which nothing is kept.
func (s *session) tidyStreams(now time.Time) {
	s.retained.expire(now)
	s.retained.evictToFit()
	for _, st := range s.retained.streams {
		switch {
		case st.reader != nil:
		case st.closed && len(st.pending) == 0 && len(st.keptEvents) == 0:
			s.retained.remove(st)
		case len(st.pending) > 0 && now.Sub(st.detachedAt) > s.retained.maxEventAge:
			s.dropStream(st, "nobody came back for them in time")
		}
	}
}
