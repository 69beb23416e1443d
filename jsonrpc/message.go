// Package jsonrpc reads JSON-RPC 2.0 messages without changing them.
//
// A Message is the exact bytes that crossed the wire plus an index of the
// envelope made by one scan. Nothing is decoded and encoded again: what must
// change (an id, a progress token) is spliced, and every other byte stays. The
// index knows the longest value of params or result, where most of a long message
// is: nothing looks at that again, and it is copied only where it has to be.
package jsonrpc

import (
	"bytes"
	"sync"
)

// Kind tells requests, notifications and responses apart.
type Kind uint8

const (
	Invalid      Kind = iota // the zero Message
	Request                  // has method and id
	Notification             // has method and no id
	Response                 // has result or error
)

// span is where a value stands in a message; the zero span is nowhere.
type span struct{ start, end uint32 }

// Message is one immutable JSON-RPC message: its exact bytes, and where in
// them the fields lie that routing needs. The zero Message is invalid.
// Messages are values; they may be copied and used by many goroutines.
// What only looks takes a pointer all the same, for a copy is as dear as what most of
// them do; nothing keeps it.
type Message struct {
	raw       []byte
	id        span
	method    span
	params    span
	token     span // params._meta.progressToken of a request, params.progressToken of a notification
	requestID span // params.requestId
	outcome   span // result or error
	meta      span // params._meta
	bulk      span // the longest value of a member of params or result: who looks for another skips it
	kind      Kind
	known     uint8 // the method, in knownMethods; 0: it is none of them
	failure   bool  // outcome is an error
	breaks    bool  // line breaks may stand between tokens
	extended  bool  // the envelope has members that have no meaning there
	late      bool  // what stands at id is not ident, which takes its place when somebody wants the bytes

	ident   ID      // the id
	joined  *joined // of a long message whose id is late
	related ID      // no part of the bytes; see Related
}

// joined is a long message with its late id in its place, once that was wanted.
// Short ones are put together each time: mostly that is once, too.
type joined struct {
	once sync.Once
	raw  []byte
}

// longSize is how long a message is that shall not be copied twice.
const longSize = 4 << 10

// LineParts returns Line in parts, as Parts returns Bytes.
func (m *Message) LineParts() (first []byte, id string, rest []byte) {
	if m.breaks {
		return m.Line(), "", nil
	}
	return m.Parts()
}

// join returns the text with the late id in its place.
func (m *Message) join() []byte {
	var room [idRoom]byte
	return bytes.Join([][]byte{m.raw[:m.id.start], append(room[:0], m.ident.text...), m.raw[m.id.end:]}, nil)
}

// settled returns the message with its id in its place.
func (m Message) settled() Message {
	if !m.late {
		return m
	}
	m.raw = m.Bytes()
	m.moved(m.id, len(m.ident.text))
	m.late, m.joined = false, nil
	return m
}

// IsSame reports whether the two are the same message, not only equal ones: copies of
// one value. It compares no text.
func (m *Message) IsSame(o *Message) bool {
	return len(m.raw) > 0 && len(o.raw) > 0 && &m.raw[0] == &o.raw[0] && m.late == o.late && m.ident == o.ident
}

// Size returns the length of Bytes.
func (m *Message) Size() int {
	if !m.late {
		return len(m.raw)
	}
	return len(m.raw) - int(m.id.end-m.id.start) + len(m.ident.text)
}

// Parts returns Bytes in one part or in three, of which the first and the second
// are mostly short: to write one after the other costs less than Bytes, which may
// have to copy a long message. The caller must not change them.
func (m *Message) Parts() (first []byte, id string, rest []byte) {
	if !m.late {
		return m.raw, "", nil
	}
	return m.raw[:m.id.start:m.id.start], m.ident.text, m.raw[m.id.end:]
}

func (m *Message) cut(s span) []byte {
	if s.end == 0 {
		return nil
	}
	return m.raw[s.start:s.end:s.end]
}

func (m *Message) cutID(s span) ID { return ID{string(m.cut(s))} }

// Bytes returns the message as it crossed the wire. The caller must not change it.
func (m *Message) Bytes() []byte {
	switch {
	case !m.late:
		return m.raw
	case m.joined == nil:
		return m.join()
	}
	joined := m.joined
	joined.once.Do(func() { joined.raw = m.join() })
	return joined.raw
}

// Line returns the message without the line breaks between its tokens, for
// framings in which a line break ends the message (stdio ST1, SSE data). It is
// Bytes itself when there are none. The caller must not change it.
func (m *Message) Line() []byte {
	if !m.breaks {
		return m.Bytes()
	}
	whole := m.settled()
	// Every line break stands between tokens: in a string it would be a fault.
	line := make([]byte, 0, len(whole.raw))
	rest := whole.raw
	for i := bytes.IndexAny(rest, "\n\r"); i >= 0; i = bytes.IndexAny(rest, "\n\r") {
		line = append(line, rest[:i]...)
		rest = rest[i+1:]
	}
	return append(line, rest...)
}

// Kind returns what the message is.
func (m *Message) Kind() Kind { return m.kind }

// ID returns the id as spelled; the zero ID for a notification and for an
// error response without one, NullID for an error response with "id":null.
func (m *Message) ID() ID { return m.ident }

// Method returns the method; "" for a response.
func (m *Message) Method() string {
	if m.known > 0 || m.method.end == 0 {
		return knownMethods.list[m.known]
	}
	text := m.raw[m.method.start+1 : m.method.end-1]
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text)
	}
	return decode(text)
}

// IsExtended reports whether there are members in the envelope that JSON-RPC does
// not know, or params in a response. See Plain.
func (m *Message) IsExtended() bool { return m.extended }

// Params returns the raw params, nil when they are absent or null. The caller must not change them.
func (m *Message) Params() []byte { return m.cut(m.params) }

// Result returns the raw result, nil when the message has none. The caller must not change it.
func (m *Message) Result() []byte {
	if m.failure {
		return nil
	}
	return m.cut(m.outcome)
}

// ErrorObject returns the raw error, nil when the message has none. The caller must not change it.
func (m *Message) ErrorObject() []byte {
	if !m.failure {
		return nil
	}
	return m.cut(m.outcome)
}

// IsError reports whether the message is a response with an error.
func (m *Message) IsError() bool { return m.failure }

// ProgressToken returns params._meta.progressToken of a request, or params.progressToken
// of a notification; the zero ID when there is none that is a string or an integer.
func (m *Message) ProgressToken() ID { return m.cutID(m.token) }

// RequestID returns params.requestId of a notification (notifications/cancelled names its
// target so); zero when there is none that is a string or an integer.
func (m *Message) RequestID() ID {
	if m.kind != Notification {
		return ID{}
	}
	return m.cutID(m.requestID)
}

// Related returns the id of the request in whose course the message came,
// where its transport tells: over Streamable HTTP every request has a stream of
// its own (B.4). It is NullID for what came in the course of none, and zero
// where the transport does not tell. It is no part of the bytes.
func (m *Message) Related() ID { return m.related }

// During returns Related, and whether that is the id of a request.
func (m *Message) During() (id ID, ok bool) {
	return m.related, !m.related.IsZero() && m.related != NullID
}

// WithRelated returns the message with another Related; its bytes stay.
func (m Message) WithRelated(request ID) Message {
	m.related = request
	return m
}

// Meta returns the raw params._meta, nil when there is none. The caller must not change it.
func (m *Message) Meta() []byte { return m.cut(m.meta) }

// Lookup returns the raw JSON value at the path of object keys, from the top
// of the message ("params", "protocolVersion"); nil when there is none. Keys
// are compared decoded, and of several equal keys the last counts. It scans
// the objects on the path anew, but for what the index knows: a short value next
// to a long one costs little. The caller must not change the value.
func (m *Message) Lookup(path ...string) []byte {
	if len(path) == 0 {
		return m.Bytes()
	}
	switch path[0] {
	case "params", "result", "error":
	default:
		whole := m.settled()
		m = &whole
	}
	at := m.member(path[0])
	if at.end == 0 {
		return nil
	}
	value, rest := Object{m.cut(at), m.bulk.within(at), m.meta.within(at)}, path[1:]
	if at == m.params && len(rest) > 0 && rest[0] == "_meta" {
		value, rest = Object{raw: m.Meta()}, rest[1:]
	}
	for _, name := range rest {
		if at = value.lookup(name); at.end == 0 {
			return nil
		}
		value = Object{raw: value.raw[at.start:at.end:at.end]}
	}
	return value.raw
}

// member returns where the value of a key of the envelope stands.
func (m *Message) member(name string) span {
	switch {
	case name == "params" && m.params.end > 0:
		return m.params
	case name == "result" && !m.failure, name == "error" && m.failure:
		return m.outcome
	case m.params.end > 0:
		return Object{raw: m.raw, bulk: m.params}.lookup(name)
	}
	return Object{raw: m.raw, bulk: m.outcome}.lookup(name)
}

// within returns where s stands in the value at of; nowhere if it does not.
func (s span) within(of span) span {
	if s.start < of.start || s.end > of.end {
		return span{}
	}
	return span{s.start - of.start, s.end - of.start}
}

// lookup returns where the member name stands.
func (o Object) lookup(name string) (found span) {
	if len(o.raw) == 0 || o.raw[0] != '{' {
		return span{}
	}
	s := scanner{data: o.raw}
	for more := s.open(); more; more = s.next() {
		text, escaped, ok := s.key()
		if !ok {
			return found
		}
		at := s.pos
		o.pass(&s)
		if sameText(text, escaped, name) {
			found = span{uint32(at), uint32(s.pos)}
		}
	}
	return found
}
