package streamhttp

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
)

// commitTimer has the replies to a session's POSTs become SSE streams when their time has
// come (LI7). One timer is for all of them: one for each would wake a thread
// for nearly each of them. The session's lock guards it, but not its timer.
type commitTimer struct {
	shortWait commitQueue     // streams of POSTs that become SSE after HandlerOptions.CommitAfter
	longWait  commitQueue     // streams of POSTs that become SSE after initializeCommitAfter: of initialize, and stateless ones
	timer     lazytimer.Timer // calls session.markDueStreams
}

// schedule has st committed (made an SSE stream) after wait, unless it is answered before. queue is the one of the
// two commitQueues for this wait.
func (c *commitTimer) schedule(st *stream, queue *commitQueue, wait time.Duration) {
	st.commitAt = time.Now().Add(wait)
	queue.add(st)
	c.timer.SetAtLatest(st.commitAt)
}

// markDueStreams has the replies in both queues become SSE streams whose time has come, and sets the timer for the next
// one.
func (c *commitTimer) markDueStreams() {
	now := time.Now()
	for _, q := range [...]*commitQueue{&c.shortWait, &c.longWait} {
		if next := q.markDueStreams(now); !next.IsZero() {
			c.timer.SetAtLatest(next)
		}
	}
}

// commitQueue has streams of POSTs that are to be committed (made SSE streams) if they are not answered in time. The wait
// is the same for all, so the first one is due first. The zero value is empty.
type commitQueue struct {
	first, last *stream // the list's ends, linked by nextToCommit; nil: the list is empty
}

// add appends st, which is due after all that are in the queue.
func (q *commitQueue) add(st *stream) {
	if q.first == nil {
		q.first = st
	} else {
		q.last.nextToCommit = st
	}
	q.last = st
}

// markDueStreams sets commitIsDue of the streams whose time has come, and wakes the POSTs that read
// them: these commit. It forgets streams that need no commit any more. next is the time for
// the next stream; zero: there is none.
func (q *commitQueue) markDueStreams(now time.Time) (next time.Time) {
	for st := q.first; st != nil; st = q.first {
		awaited := !st.closed && !st.committed && st.reader != nil
		if awaited && st.commitAt.After(now) {
			return st.commitAt
		}
		if awaited {
			st.commitIsDue = true
			st.reader.wakeUnlessHeld()
		}
		q.first, st.nextToCommit = st.nextToCommit, nil
	}
	q.last = nil
	return time.Time{}
}

// scheduleCommit sets the time when st, the stream of a POST, is committed (made an SSE stream) if it is not answered by
// then. isInitialize: the POST is the initialize that opens the session.
func (s *session) scheduleCommit(st *stream, isInitialize bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
	case isInitialize || s.stateless:
		s.commits.schedule(st, &s.commits.longWait, initializeCommitAfter)
	default:
		s.commits.schedule(st, &s.commits.shortWait, s.opts.CommitAfter)
	}
}

// markDueStreams is called by the timer: it has the replies become streams whose time has come.
func (s *session) markDueStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.commits.markDueStreams()
	}
}
