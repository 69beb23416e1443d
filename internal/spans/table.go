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

// maxOpenSpans is how many spans are found by what is said of their requests. Of more there
// are no events.
const maxOpenSpans = 10_000

// requestKey is a request or a progress token, in a session.
type requestKey struct {
	hop observe.Hop
	dir observe.Direction // of the request
	id  jsonrpc.ID
}

// openSpans are the spans of a session that have not ended.
type openSpans struct {
	ids, tokens map[requestKey]*recordedSpan
}

// enterSpan tells what a span is about, and enters it.
func (s *Spans) enterSpan(one *recordedSpan, p *observe.Passed) {
	one.session, one.key, one.token = p.Session, requestKey{p.Hop, p.Dir, p.Call.ID}, p.Message.ProgressToken()
	subject, parent := p.Name(), one.parent
	one.SetName(s.nameOf(p.Call.Method, subject))
	one.SetAttributes(s.attributes(p, subject)...)
	state := requestStateOf(&p.Message)
	s.mu.Lock()
	defer s.mu.Unlock()
	if parent != nil {
		parent.children = append(parent.children, one)
	}
	if first := s.rounds.find(state, time.Now()); first.IsValid() {
		one.AddLink(trace.Link{SpanContext: first})
		one.firstRound = first
	}
	if s.openCount.Load() >= maxOpenSpans {
		return
	}
	t := s.tables[p.Session]
	if t != nil && t.ids[one.key] != nil { // its end is told at the same time
		s.remove(t.ids[one.key])
		t = s.tables[p.Session]
	}
	if t == nil {
		t = &openSpans{map[requestKey]*recordedSpan{}, map[requestKey]*recordedSpan{}}
		s.tables[p.Session] = t
	}
	s.openCount.Add(1)
	t.ids[one.key] = one
	if !one.token.IsZero() {
		t.tokens[requestKey{p.Hop, p.Dir, one.token}] = one
	}
}

// remove takes a span out. It is called with mu held.
func (s *Spans) remove(one *recordedSpan) {
	t := s.tables[one.session]
	if t == nil || t.ids[one.key] != one {
		return
	}
	s.openCount.Add(-1)
	delete(t.ids, one.key)
	if token := (requestKey{one.key.hop, one.key.dir, one.token}); t.tokens[token] == one {
		delete(t.tokens, token)
	}
	if len(t.ids) == 0 {
		delete(s.tables, one.session)
	}
}

// end ends a span, and the CLIENT spans below it: nobody waits for their answers. fault is
// the error.type; "" is none.
func (s *Spans) end(one *recordedSpan, fault, text string, more ...attribute.KeyValue) {
	s.mu.Lock()
	if one.ended {
		s.mu.Unlock()
		return
	}
	one.ended = true
	below := one.children
	one.children = nil
	s.remove(one)
	s.mu.Unlock()
	for _, child := range below {
		s.end(child, cmp.Or(fault, "cancelled"), text)
	}
	if fault != "" {
		more = append(more, attribute.String("error.type", fault))
		one.SetStatus(codes.Error, text)
	}
	one.SetAttributes(more...)
	one.End()
}

// endUnanswered ends the span of a request that nobody answers.
func (s *Spans) endUnanswered(one *recordedSpan) {
	fault := "session_lost"
	s.mu.Lock()
	if one.isCancelled() {
		fault = "cancelled"
	}
	s.mu.Unlock()
	s.end(one, fault, "")
}

// isCancelled reports whether who has asked does not want the answer any more. A client of
// 2026-07-28 says so over HTTP by going away. It is called with mu held.
func (r *recordedSpan) isCancelled() bool {
	if r.parent != nil {
		r = r.parent
	}
	return r.cancelled || r.cancelForwarded && !isSession(r.session)
}

const (
	maxRounds    = 1000
	roundTimeout = 10 * time.Minute
)

// stateHash stands for the requestState of a conversation, which holds its secrets.
type stateHash [sha256.Size]byte

// firstRounds are the first spans of conversations in which the server has asked for input
// (2026-07-28). The zero value works.
type firstRounds struct {
	all   map[stateHash]round
	order []stateHash // the oldest first
}

type round struct {
	first   trace.SpanContext
	expires time.Time
}

// requestStateOf returns what a request says of an earlier round; nil: it is the first one.
func requestStateOf(m *jsonrpc.Message) []byte {
	switch m.Method() {
	case "tools/call", "prompts/get", "resources/read":
		return m.Lookup("params", "requestState")
	}
	return nil
}

func (r *firstRounds) find(state []byte, now time.Time) trace.SpanContext {
	if len(state) == 0 || len(r.all) == 0 {
		return trace.SpanContext{}
	}
	if found := r.all[sha256.Sum256(state)]; found.expires.After(now) {
		return found.first
	}
	return trace.SpanContext{}
}

func (r *firstRounds) keep(state []byte, first trace.SpanContext, now time.Time) {
	if len(state) == 0 {
		return
	}
	if r.all == nil {
		r.all = map[stateHash]round{}
	}
	for len(r.order) > 0 && (len(r.order) >= maxRounds || !r.all[r.order[0]].expires.After(now)) {
		delete(r.all, r.order[0])
		r.order = r.order[1:]
	}
	hash := stateHash(sha256.Sum256(state))
	if _, has := r.all[hash]; !has {
		r.order = append(r.order, hash)
	}
	r.all[hash] = round{first, now.Add(roundTimeout)}
}
