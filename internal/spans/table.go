package spans

import (
	"cmp"
	"crypto/sha256"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxOpenSpans is how many spans openBySession has at most, of all sessions together. A span beyond them gets no events of progress,
// of log messages and of streams that were resumed, but ends as others do.
const maxOpenSpans = 10_000

// requestKey is a request or a progress token, in a session.
type requestKey struct {
	hop observe.Hop       // the end of the bridge at which the request passes
	dir observe.Direction // the direction of the request
	id  jsonrpc.ID        // a key of openSpans.byRequestID: the id of the request; of byProgressToken: its progress token
}

// openSpans are the spans of a session that have not ended, but for those beyond maxOpenSpans.
type openSpans struct {
	byRequestID     map[requestKey]*recordedSpan // all of them, by the id of their request
	byProgressToken map[requestKey]*recordedSpan // those whose request has a progress token, by that
}

// addOpenSpan gives a span the name and attributes of its request p, and links to the SERVER span above it and to the first round. It
// adds the span to the open ones, unless there are maxOpenSpans.
func (s *Spans) addOpenSpan(one *recordedSpan, p *observe.Passed) {
	one.session, one.key, one.progressToken = p.Session, requestKey{p.Hop, p.Dir, p.Call.ID}, p.Message.ProgressToken()
	subject, parent := p.Name(), one.parent
	one.SetName(s.spanName(p.Call.Method, subject))
	one.SetAttributes(s.requestAttributes(p, subject)...)
	state := requestStateOf(&p.Message)
	s.mu.Lock()
	defer s.mu.Unlock()
	if parent != nil {
		parent.children = append(parent.children, one)
	}
	if first := s.firstRounds.firstSpanOf(state, time.Now()); first.IsValid() {
		one.AddLink(trace.Link{SpanContext: first})
		one.firstRound = first
	}
	if s.openSpanCount.Load() >= maxOpenSpans {
		return
	}
	t := s.openBySession[p.Session]
	if t != nil && t.byRequestID[one.key] != nil { // another request with this id, whose end is told at the same time
		s.removeOpenSpan(t.byRequestID[one.key])
		t = s.openBySession[p.Session]
	}
	if t == nil {
		t = &openSpans{map[requestKey]*recordedSpan{}, map[requestKey]*recordedSpan{}}
		s.openBySession[p.Session] = t
	}
	s.openSpanCount.Add(1)
	t.byRequestID[one.key] = one
	if !one.progressToken.IsZero() {
		t.byProgressToken[requestKey{p.Hop, p.Dir, one.progressToken}] = one
	}
}

// removeOpenSpan takes a span out of the open ones. It is called with mu held.
func (s *Spans) removeOpenSpan(one *recordedSpan) {
	t := s.openBySession[one.session]
	if t == nil || t.byRequestID[one.key] != one {
		return
	}
	s.openSpanCount.Add(-1)
	delete(t.byRequestID, one.key)
	if token := (requestKey{one.key.hop, one.key.dir, one.progressToken}); t.byProgressToken[token] == one {
		delete(t.byProgressToken, token)
	}
	if len(t.byRequestID) == 0 {
		delete(s.openBySession, one.session)
	}
}

// endSpan ends a span, unless it has ended, and the CLIENT spans below it: nobody waits for their answers. fault is
// the error.type; "": there was no error. text describes the error; "": nothing is said. more are further attributes.
func (s *Spans) endSpan(one *recordedSpan, fault, text string, more ...attribute.KeyValue) {
	s.mu.Lock()
	if one.ended {
		s.mu.Unlock()
		return
	}
	one.ended = true
	below := one.children
	one.children = nil
	s.removeOpenSpan(one)
	s.mu.Unlock()
	for _, child := range below {
		s.endSpan(child, cmp.Or(fault, "cancelled"), text)
	}
	if fault != "" {
		more = append(more, attribute.String("error.type", fault))
		one.SetStatus(codes.Error, text)
	}
	one.SetAttributes(more...)
	one.End()
}

// endUnanswered ends the span of a request that nobody answers, with the error "cancelled" or "session_lost".
func (s *Spans) endUnanswered(one *recordedSpan) {
	fault := "session_lost"
	s.mu.Lock()
	if one.isCancelled() {
		fault = "cancelled"
	}
	s.mu.Unlock()
	s.endSpan(one, fault, "")
}

// isCancelled reports whether the sender of the request that the bridge has received does not want the answer any more: it has
// cancelled the request. A client of 2026-07-28 over HTTP cancels by going away; that is known from the cancellation that the
// bridge then sends to the server. It is called with mu held.
func (r *recordedSpan) isCancelled() bool {
	if r.parent != nil {
		r = r.parent
	}
	return r.cancelled || r.cancelForwarded && !isSession(r.session)
}

const (
	maxConversations    = 1000             // how many values of requestState firstRounds keep at most: one for each round of a call
	conversationTimeout = 10 * time.Minute // how long firstRounds keep a requestState after the input_required that has named it
)

// requestStateHash is the hash of a requestState, by which the next round of a call names the round before. The text itself is not
// kept, because it may hold secrets.
type requestStateHash [sha256.Size]byte

// firstRounds are the spans of the first rounds of calls in which the server has asked for input
// (2026-07-28). The zero value works.
type firstRounds struct {
	byRequestState map[requestStateHash]conversation // the calls, by each requestState that the server has given one of their rounds
	oldestFirst    []requestStateHash                // keys of byRequestState, as they were added
}

// conversation is a call of several rounds, each of which is a request of its own.
type conversation struct {
	firstSpan trace.SpanContext // the span of the first round
	expires   time.Time         // when the requestState for which firstRounds keep it is forgotten
}

// requestStateOf returns the requestState of a request that goes on with an earlier round, as raw JSON; nil: it has none.
func requestStateOf(m *jsonrpc.Message) []byte {
	switch m.Method() {
	case "tools/call", "prompts/get", "resources/read":
		return m.Lookup("params", "requestState")
	}
	return nil
}

// firstSpanOf returns the span of the first round of the call that a requestState, as raw JSON, belongs to; invalid: it is not known.
func (r *firstRounds) firstSpanOf(state []byte, now time.Time) trace.SpanContext {
	if len(state) == 0 || len(r.byRequestState) == 0 {
		return trace.SpanContext{}
	}
	if found := r.byRequestState[sha256.Sum256(state)]; found.expires.After(now) {
		return found.firstSpan
	}
	return trace.SpanContext{}
}

// add notes that a requestState, as raw JSON, belongs to the call whose first round has the span first. The oldest ones make room.
func (r *firstRounds) add(state []byte, first trace.SpanContext, now time.Time) {
	if len(state) == 0 {
		return
	}
	if r.byRequestState == nil {
		r.byRequestState = map[requestStateHash]conversation{}
	}
	for len(r.oldestFirst) > 0 && (len(r.oldestFirst) >= maxConversations || !r.byRequestState[r.oldestFirst[0]].expires.After(now)) {
		delete(r.byRequestState, r.oldestFirst[0])
		r.oldestFirst = r.oldestFirst[1:]
	}
	hash := requestStateHash(sha256.Sum256(state))
	if _, has := r.byRequestState[hash]; !has {
		r.oldestFirst = append(r.oldestFirst, hash)
	}
	r.byRequestState[hash] = conversation{first, now.Add(conversationTimeout)}
}
