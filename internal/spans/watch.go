package spans

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Message implements observe.Watcher. A request that was received adds its span to the open ones, and its response ends
// the span. A notification of progress, of a log message or of a cancellation becomes an event in the span of the
// request that it is about. A cancellation may also end the span of a request that was received, without a
// response.
func (s *Spans) Message(p *observe.Passed) {
	switch p.Message.Kind() {
	case jsonrpc.Request:
		if isReceived(p) {
			s.addServerSpan(p)
		}
	case jsonrpc.Response:
		if one := s.requestSpanOf(p.Call); one != nil && one.recordedSpan != nil {
			s.endWithResponse(p, one.recordedSpan)
		}
	case jsonrpc.Notification:
		if s.openSpanCount.Load() > 0 {
			s.addNotificationEvent(p)
		}
	}
}

// addServerSpan adds the span that Sample has begun to the open ones, and keeps it with the Call.
func (s *Spans) addServerSpan(p *observe.Passed) {
	if one, ok := p.Source.Sample.(*requestSpan); ok && one.recordedSpan != nil {
		s.addOpenSpan(one.recordedSpan, p)
		p.Call.Set(s, one)
	}
}

// Event implements observe.Watcher: it ends the span of a request that will not be answered, and adds the resumption of a stream
// to the open spans.
func (s *Spans) Event(e observe.Event) {
	switch e := e.(type) {
	case observe.Unanswered:
		if one := s.requestSpanOf(e.Call); one != nil && one.recordedSpan != nil {
			s.endUnanswered(one.recordedSpan)
		}
	case observe.Stream:
		if e.Action == "resumed" && s.openSpanCount.Load() > 0 {
			for _, one := range s.openSpansAt(e.Session, e.Hop) {
				one.AddEvent("stream resumed")
			}
		}
	}
}

// openSpansAt returns the open spans of a session's requests at one end of the bridge.
func (s *Spans) openSpansAt(session *observe.Session, hop observe.Hop) (all []*recordedSpan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.openBySession[session]; t != nil {
		for k, one := range t.byRequestID {
			if k.hop == hop {
				all = append(all, one)
			}
		}
	}
	return all
}

// endWithResponse ends the span one, whose request p answers, with what p says: success, an error, or that a tool has failed. If the
// server asks for input, it notes the span for the next round.
func (s *Spans) endWithResponse(p *observe.Passed, one *recordedSpan) {
	m := &p.Message
	var more []attribute.KeyValue
	fault, text := "", ""
	switch {
	case m.IsError():
		code := truncate(string(m.Lookup("error", "code")), maxNameBytes)
		text, _ = jsonrpc.Text(m.Lookup("error", "message"))
		fault, text = code, s.redacted(text, maxTextBytes)
		if !isReceived(p) && !p.HasCause {
			fault = bridgeErrorType(m, fault)
		}
		more = append(more, attribute.String("rpc.response.status_code", code))
	case p.Call.Method == "tools/call" && p.Failed():
		fault = "tool_error"
	}
	if !m.IsError() {
		more = s.resultAttributes(p, more)
		if kind, _ := jsonrpc.Text(m.Lookup("result", "resultType")); kind == "input_required" {
			one.AddEvent("input_required")
			first := one.firstRound
			if !first.IsValid() {
				first = one.SpanContext()
			}
			s.mu.Lock()
			s.firstRounds.add(m.Lookup("result", "requestState"), first, time.Now())
			s.mu.Unlock()
		}
	}
	s.endSpan(one, fault, text, more...)
}

// bridgeErrorType returns the error.type of m, an error with which the bridge itself has answered: "timeout"; "session_lost" if the
// server or the bridge ends; for any other reason code, the code of the error.
func bridgeErrorType(m *jsonrpc.Message, code string) string {
	reason, _ := jsonrpc.Text(m.Lookup("error", "data", "reason"))
	switch reason {
	case "timeout":
		return reason
	case "server_ended", "shutting_down":
		return "session_lost"
	}
	return code
}

// addNotificationEvent makes a notification of progress, of a log message or of a cancellation an event of the span of the request
// that it is about, if there is such a span. Other notifications do not count.
func (s *Spans) addNotificationEvent(p *observe.Passed) {
	m := &p.Message
	switch m.Method() {
	case "notifications/cancelled":
		if one := s.requestSpanOf(p.Call); one != nil && one.recordedSpan != nil {
			s.markCancelled(p, one.recordedSpan)
		}
	case "notifications/progress":
		if one := s.spanOfNotification(p, m.ProgressToken(), true); one != nil {
			s.addEvent(one, m, numberAttribute("mcp.progress", m, "progress"), numberAttribute("mcp.progress.total", m, "total"), s.contentAttribute("mcp.progress.message", m, "message"))
		}
	case "notifications/message":
		id, known := m.During()
		if !known {
			id = jsonrpc.ID{}
		}
		if one := s.spanOfNotification(p, id, false); one != nil {
			level, _ := jsonrpc.Text(m.Lookup("params", "level"))
			s.addEvent(one, m, attribute.String("mcp.log.level", truncate(level, maxNameBytes)), s.contentAttribute("mcp.log.data", m, "data"))
		}
	}
}

// addEvent adds the notification m to the span one, as an event with those of the attributes all that are valid.
func (s *Spans) addEvent(one *recordedSpan, m *jsonrpc.Message, all ...attribute.KeyValue) {
	known := all[:0]
	for _, a := range all {
		if a.Valid() {
			known = append(known, a)
		}
	}
	one.AddEvent(m.Method(), trace.WithAttributes(known...))
}

// markCancelled notes that p cancels the request of the span one. Once the bridge has both received a cancellation and sent one on,
// the SERVER span ends, and the CLIENT spans below it: there is nothing more to wait for.
func (s *Spans) markCancelled(p *observe.Passed, one *recordedSpan) {
	s.addEvent(one, &p.Message, s.contentAttribute("mcp.cancelled.reason", &p.Message, "reason"))
	s.mu.Lock()
	asked, over := one.parent, false
	switch {
	case isReceived(p):
		one.cancelled = true
	case asked != nil:
		asked.cancelForwarded, over = true, asked.cancelled
	}
	s.mu.Unlock()
	if over {
		s.endSpan(asked, "cancelled", "")
	}
}

// spanOfNotification returns the span of the request that a notification is about; the request went the other way. id is the
// progress token (isToken) or the request's id; zero: it is the only request that waits for an answer. nil: there is no such span.
func (s *Spans) spanOfNotification(p *observe.Passed, id jsonrpc.ID, isToken bool) *recordedSpan {
	dir := observe.ToServer + observe.ToClient - p.Dir
	only := !isToken && id.IsZero() && p.Session.WaitsForOne(p.Hop, dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.openBySession[p.Session]
	switch {
	case t == nil:
	case isToken:
		return t.byProgressToken[requestKey{p.Hop, dir, id}]
	case only:
		for k, one := range t.byRequestID {
			if k.hop == p.Hop && k.dir == dir {
				return one
			}
		}
	default:
		return t.byRequestID[requestKey{p.Hop, dir, id}]
	}
	return nil
}

// numberAttribute returns an attribute for a member of params that is a number; invalid: there is no such member, or it is no number.
func numberAttribute(name attribute.Key, m *jsonrpc.Message, member string) attribute.KeyValue {
	n, err := strconv.ParseFloat(string(m.Lookup("params", member)), 64)
	if err != nil {
		return attribute.KeyValue{}
	}
	return name.Float64(n)
}

// contentAttribute returns an attribute for a member of params, if spans record contents; invalid: they do not, or there is no such member.
func (s *Spans) contentAttribute(name attribute.Key, m *jsonrpc.Message, member string) attribute.KeyValue {
	raw := m.Lookup("params", member)
	if !s.recordsContent || raw == nil {
		return attribute.KeyValue{}
	}
	text, ok := jsonrpc.Text(raw)
	if !ok {
		text = string(raw)
	}
	return name.String(s.redacted(text, maxContentBytes))
}
