package observe

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// unsampledCalls are the requests at one end and of one direction that nobody was told of, because the Sampler does not want them.
// They are counted, because that costs less than to keep them. The zero value has none, and may be used concurrently.
type unsampledCalls struct {
	unanswered atomic.Int64 // how many have no answer, those that were cancelled included: their answers may come still

	cancelledCount atomic.Int64 // len(cancelled)
	cancelledMu    sync.Mutex   // guards cancelled
	cancelled      []string     // normalizedID of those that were cancelled: the latest maxCancelled, the oldest first
}

// sessionUnsampledCalls are the unsampledCalls of a session.
type sessionUnsampledCalls struct {
	byHopAndDir [2][2]unsampledCalls // the indexes are the Hop minus 1 and the Direction minus 1: where the requests have passed, and in which direction
	someAreKept atomic.Bool          // WaitingCalls has kept a request of this session as a Call, so it is not only counted
}

// waitingCount returns how many wait for their answers. It is too low for a while if one was cancelled after its answer.
func (u *unsampledCalls) waitingCount() int {
	return int(max(0, u.unanswered.Load()-u.cancelledCount.Load()))
}

// add counts a request that has passed, and has no answer yet.
func (u *unsampledCalls) add() { u.unanswered.Add(1) }

// subtract takes one request off unanswered, unless that is 0.
func (u *unsampledCalls) subtract() {
	for {
		n := u.unanswered.Load()
		if n == 0 || u.unanswered.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// markAnswered notes that a request with this id was answered.
func (u *unsampledCalls) markAnswered(id jsonrpc.ID) {
	u.subtract()
	if u.cancelledCount.Load() == 0 {
		return
	}
	u.cancelledMu.Lock()
	defer u.cancelledMu.Unlock()
	if i := slices.Index(u.cancelled, normalizedID(id)); i >= 0 {
		u.cancelled = slices.Delete(u.cancelled, i, i+1)
	}
	u.trimCancelled()
}

// markCancelled notes that a request with this id was cancelled, so that it waits no more. Its answer may come still.
func (u *unsampledCalls) markCancelled(id jsonrpc.ID) {
	key := normalizedID(id)
	u.cancelledMu.Lock()
	defer u.cancelledMu.Unlock()
	if slices.Contains(u.cancelled, key) {
		return
	}
	if u.cancelled = append(u.cancelled, key); len(u.cancelled) > maxCancelled {
		u.cancelled = slices.Delete(u.cancelled, 0, 1)
		u.subtract() // no answer is expected any more
	}
	u.trimCancelled()
}

// trimCancelled forgets the oldest cancelled ones if there are more of them than requests without an answer: so many were
// cancelled after their answers. It is called with cancelledMu held.
func (u *unsampledCalls) trimCancelled() {
	if more := len(u.cancelled) - int(u.unanswered.Load()); more > 0 {
		u.cancelled = slices.Delete(u.cancelled, 0, more)
	}
	u.cancelledCount.Store(int64(len(u.cancelled)))
}

// clear forgets all requests: none of them waits any more.
func (u *unsampledCalls) clear() {
	u.cancelledMu.Lock()
	defer u.cancelledMu.Unlock()
	u.unanswered.Store(0)
	u.cancelled = nil
	u.cancelledCount.Store(0)
}

// unsampledCallsAt returns the requests of a direction that are only counted.
func (s *Session) unsampledCallsAt(hop Hop, dir Direction) *unsampledCalls {
	return &s.unsampled.byHopAndDir[hop-1][dir-1]
}

// endedRequestID returns the id of the request that m answers or cancels; zero: m does neither, or there is no Sampler. It is
// called before m is handed on.
func (c *conn) endedRequestID(m *jsonrpc.Message) jsonrpc.ID {
	switch {
	case c.session.o.sampler.Load() == nil || !mayEndRequest(m):
		return jsonrpc.ID{}
	case m.Kind() == jsonrpc.Response:
		return m.ID()
	}
	return m.CancelledID()
}

// countUntold counts a message that has passed as the end of an unsampled request: it ends none that Watchers were told of. id
// is the result of endedRequestID; zero: nothing is counted.
func (c *conn) countUntold(kind jsonrpc.Kind, id jsonrpc.ID, dir Direction) {
	switch {
	case id.IsZero():
	case kind == jsonrpc.Response:
		c.session.unsampledCallsAt(c.hop, ToServer+ToClient-dir).markAnswered(id)
	default:
		c.session.unsampledCallsAt(c.hop, dir).markCancelled(id)
	}
}
