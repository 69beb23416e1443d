package streamhttp

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file keeps what has no stream to travel on now (docs/rules.md, B.3).
// All of it but expire runs under the session's lock.

// maxWaiting bounds what a session keeps for a stream that nobody has opened,
// in messages; HandlerOptions.ReplayBytes bounds it in bytes.
const maxWaiting = 1000

// held is a server request that waits for a stream to travel on (B.3).
type held struct {
	m     jsonrpc.Message
	since uint64    // the last call that was made before
	until time.Time // then it is answered in the client's place
}

// shelf keeps notifications for later.
type shelf struct {
	list  []jsonrpc.Message
	bytes int
}

// fits reports whether m can be put on the shelf too.
func (q *shelf) fits(m jsonrpc.Message, maxBytes int) bool {
	return len(q.list) < maxWaiting && q.bytes+m.Size() <= maxBytes
}

func (q *shelf) add(m jsonrpc.Message) {
	q.list = append(q.list, m)
	q.bytes += m.Size()
}

func (q *shelf) remove(i int) {
	q.bytes -= q.list[i].Size()
	q.list = slices.Delete(q.list, i, i+1)
}

// later keeps a notification that has no stream now, if it is of use later (B.3).
func (s *session) later(m jsonrpc.Message) {
	switch m.Method() {
	case "notifications/progress":
		if _, task := s.tasks[m.ProgressToken()]; !task {
			s.opts.Logger.Debug("progress dropped: no call in flight has its token", "session", s.tag())
			return
		}
	case "notifications/cancelled":
		s.unhold(m.RequestID())
		return
	}
	if s.alone {
		s.opts.Logger.Debug("notification dropped: the request that it could follow is answered", "method", m.Method())
		return
	}
	if s.tooEarly(m) {
		if !s.early.fits(m, s.opts.ReplayBytes) {
			s.warnLost(m, "too many before the client is initialized")
			return
		}
		s.early.add(m)
		return
	}
	for i, o := range s.backlog.list {
		if coalesces(o, m) {
			s.backlog.remove(i)
			break
		}
	}
	for len(s.backlog.list) > 0 && !s.backlog.fits(m, s.opts.ReplayBytes) {
		s.warnLost(s.backlog.list[0], "nobody listens on a GET stream")
		s.backlog.remove(0)
	}
	if s.backlog.fits(m, s.opts.ReplayBytes) {
		s.backlog.add(m)
	}
}

// warnLost says once in a session's life that a notification was dropped: a
// server that logs much to a client that does not listen would flood ours.
func (s *session) warnLost(m jsonrpc.Message, why string) {
	if !s.lost {
		s.lost = true
		s.opts.Logger.Warn("notification dropped, and maybe more to come: "+why, "session", s.tag(), "method", m.Method())
	}
}

// coalesces reports whether the newer notification says all that the older one says.
func coalesces(older, newer jsonrpc.Message) bool {
	if older.Method() != newer.Method() {
		return false
	}
	switch newer.Method() {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		return true
	case "notifications/resources/updated":
		return string(older.Lookup("params", "uri")) == string(newer.Lookup("params", "uri"))
	}
	return false
}

// hold keeps a server request until a stream opens that can carry it, for a
// bounded time. A ping needs no client: the bridge answers for it (B.1.7).
// Where the client could not answer, there is nothing to wait for.
//
// The answer to it that the bridge gives waits in the inbox until the server takes it.
func (s *session) hold(m jsonrpc.Message) {
	delete(s.asks, m.ID()) // if it has travelled before, that was in vain
	size := m.Size()
	for _, h := range s.held {
		size += h.m.Size()
	}
	switch {
	case m.Method() == "ping":
		s.in.put(jsonrpc.NewResult(m.ID(), []byte(`{}`)))
	case s.alone, len(s.held) >= maxWaiting, size > s.opts.ReplayBytes:
		s.in.put(unreachable(m))
	default:
		s.held = append(s.held, &held{m: m, since: s.orders, until: time.Now().Add(s.opts.HoldTimeout)})
		if len(s.held) == 1 {
			s.expireIn(s.opts.HoldTimeout)
		}
	}
}

// expireIn has expire called. One timer is for all that is held.
func (s *session) expireIn(wait time.Duration) {
	if s.expiry == nil {
		s.expiry = time.AfterFunc(wait, s.expire)
	} else {
		s.expiry.Reset(wait)
	}
}

// expire answers the held requests that have waited for long enough.
func (s *session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.held) > 0 { // oldest first
		h := s.held[0]
		if h.until.After(now) {
			s.expireIn(h.until.Sub(now))
			return
		}
		s.in.put(unreachable(h.m))
		s.held[0] = nil
		s.held = s.held[1:]
	}
}

// unreachable is the answer to a server request that no stream could carry.
func unreachable(m jsonrpc.Message) jsonrpc.Message {
	const text = "the client listens on no stream that could carry the request"
	if m.Method() == "roots/list" {
		return jsonrpc.NewError(m.ID(), jsonrpc.CodeMethodNotFound, text, nil)
	}
	return jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError, text, nil)
}

// unhold forgets a held request that the server has cancelled.
func (s *session) unhold(id jsonrpc.ID) {
	at := make(map[jsonrpc.ID]int, len(s.held))
	for i, h := range s.held {
		at[h.m.ID()] = i
	}
	if _, i, ok := jsonrpc.Find(at, id); ok {
		s.held = slices.Delete(s.held, i, i+1)
	}
}

// retry sends the held requests on their way that have a stream now. One that
// belongs to no call would have travelled on a standalone stream; once it has
// had to wait, that of a newer call will do as well (B.3).
func (s *session) retry() {
	waiting := s.held
	s.held = nil
	for _, h := range waiting {
		st := s.target(h.m)
		if st == nil && !s.tooEarly(h.m) {
			if c := s.likely(true, h.since); c != nil {
				st = c.stream
			}
		}
		if st == nil {
			s.held = append(s.held, h)
			continue
		}
		s.route(h.m, st)
	}
}
