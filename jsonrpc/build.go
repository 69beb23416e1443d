package jsonrpc

import (
	"bytes"
	"math"
	"slices"
	"strconv"
)

// idBufferSize is the size, in bytes, of a buffer on the stack that is large enough
// for most ids.
const idBufferSize = 64

// checkID panics if the message has no value at the place at, if id is zero, and if id is
// NullID and the message is not an error response. field is the value's name, for the panic.
func (m *Message) checkID(at span, id ID, field string) {
	if at.end == 0 {
		panic("jsonrpc: the message has no " + field)
	}
	if id.IsZero() || id == NullID && !m.isError {
		panic("jsonrpc: the new " + field + " is no string or integer")
	}
}

// edit is a change of the text at one place.
type edit struct {
	at   span   // what is replaced, in the text before all edits
	text string // what comes in its place; "": nothing
}

// maxEdits is for how many edits there is memory on the stack: as many as most changes
// need. More of them cost an allocation.
const maxEdits = 8

// withEdits returns the message with the edits made, which are in the order of their
// places. It corrects the index and scans nothing: the caller knows that the new text
// is valid at its place. If spliceID was set, the id is put in its place by the same
// copy.
func (m Message) withEdits(edits ...edit) Message {
	if m.spliceID {
		var all [maxEdits]edit
		m.spliceID, m.joined = false, nil
		edits = insertEdit(all[:0], edits, edit{m.id, m.ident.text})
	}
	m.raw = applyEdits(m.raw, edits)
	for _, e := range slices.Backward(edits) {
		m.shiftIndex(e.at, len(e.text))
	}
	return m
}

// applyEdits returns a copy of raw with the edits made, which are in the order of
// their places.
func applyEdits(raw []byte, edits []edit) []byte {
	added, size := 0, len(raw)
	for _, e := range edits {
		added += len(e.text)
		size += len(e.text) - int(e.at.end-e.at.start)
	}
	if size >= minLongSize {
		return applyEditsJoined(raw, edits, added)
	}
	out, from := make([]byte, 0, size), uint32(0)
	for _, e := range edits {
		out = append(append(out, raw[from:e.at.start]...), e.text...)
		from = e.at.end
	}
	return append(out, raw[from:]...)
}

// applyEditsJoined is applyEdits for long messages; added is the sum of the lengths of
// the edits' texts. It needs one more allocation, for these texts. But bytes.Join does
// not clear the memory that it is about to fill, which saves more.
func applyEditsJoined(raw []byte, edits []edit, added int) []byte {
	var room [2*maxEdits + 1][]byte
	parts, texts, from := room[:0], make([]byte, 0, added), uint32(0)
	for _, e := range edits {
		texts = append(texts, e.text...)
		parts = append(parts, raw[from:e.at.start], texts[len(texts)-len(e.text):])
		from = e.at.end
	}
	return bytes.Join(append(parts, raw[from:]), nil)
}

// insertEdit appends to all the edits, and one more at its place among them: they stay in
// the order of their places.
func insertEdit(all, edits []edit, one edit) []edit {
	i := 0
	for i < len(edits) && edits[i].at.start < one.at.start {
		i++
	}
	return append(append(append(all, edits[:i]...), one), edits[i:]...)
}

// shiftIndex corrects the spans of the index after the text at a span was replaced by
// one of this length.
func (m *Message) shiftIndex(at span, length int) {
	delta := uint32(length) - (at.end - at.start) // wraps around when negative, and so does the sum
	for _, s := range []*span{&m.id, &m.method, &m.params, &m.token, &m.requestID, &m.outcome, &m.meta, &m.longestValue} {
		switch {
		case s.start >= at.end: // after the place
			s.start += delta
			s.end += delta
		case s.start > at.start && s.end <= at.end: // within the text that was replaced
			*s = span{}
		case s.end >= at.end: // s contains the place, or is the place
			s.end += delta
		}
	}
}

// WithID returns a copy of the message with another id. Every other byte stays. The bytes
// are not copied before somebody calls Bytes. WithID panics if the message has no id, if id
// is zero, and if id is NullID and the message is not an error response.
func (m Message) WithID(id ID) Message {
	m.checkID(m.id, id, "id")
	m.ident, m.spliceID, m.joined = id, true, nil
	if len(m.raw)+len(id.text) >= minLongSize {
		m.joined = new(joinedBytes)
	}
	return m
}

// WithProgressToken returns a copy of the message with another ProgressToken. Every other
// byte stays. It panics if the message has no progress token, and if id is zero or NullID.
func (m Message) WithProgressToken(id ID) Message { return m.withIDAt(m.token, id, "progress token") }

// withIDAt returns a copy with id in the place of the value at the span at. It panics if
// there is none, or id is zero or NullID; field is the value's name, for the panic.
func (m Message) withIDAt(at span, id ID, field string) Message {
	m.checkID(at, id, field)
	return m.withEdits(edit{at, id.text})
}

// WithCancelledID returns a copy of the message with another CancelledID. Every other byte
// stays. It panics if the message has no CancelledID, and if id is zero or NullID.
func (m Message) WithCancelledID(id ID) Message {
	if m.kind != Notification {
		panic("jsonrpc: only a notification has a params.requestId")
	}
	return m.withIDAt(m.requestID, id, "params.requestId")
}

// NewRequest builds a request from raw JSON params, nil for none. It panics
// if id is not a request id, or params are not a JSON object or array.
func NewRequest(id ID, method string, params []byte) Message {
	return mustAssemble(appendMethod(beginMessage(id, len(method)+len(params)), method), "params", params)
}

// MakeRequest builds a request from a method and raw JSON params (nil for none) that a peer has sent inside another
// message. The error says why Parse would refuse the request.
func MakeRequest(id ID, method string, params []byte) (Message, error) {
	return assemble(appendMethod(beginMessage(id, len(method)+len(params)), method), "params", params)
}

// NewNotification builds a notification from raw JSON params, nil for none.
// It panics if params are not a JSON object or array.
func NewNotification(method string, params []byte) Message {
	return mustAssemble(appendMethod(beginMessage(ID{}, len(method)+len(params)), method), "params", params)
}

// NewResult builds a response from a raw JSON result, nil for MCP's empty
// result {}. It panics if id is not a request id, or result is not JSON.
func NewResult(id ID, result []byte) Message {
	if len(result) == 0 {
		result = []byte("{}")
	}
	return mustAssemble(beginMessage(id, len(result)), "result", result)
}

// NewError builds an error response. data is raw JSON, nil for none. A zero id is left
// out, and NullID is written as null; J4 says which of the two a revision wants for an
// unknown id. It panics if data is not JSON.
func NewError(id ID, code int, message string, data []byte) Message {
	object := append(make([]byte, 0, 48+len(message)+len(data)), `{"code":`...)
	object = strconv.AppendInt(object, int64(code), 10)
	object = append(object, `,"message":`...)
	object = appendString(object, message)
	if len(data) > 0 {
		mustBeOneValue(data)
		object = append(object, `,"data":`...)
		object = append(object, data...)
	}
	return mustAssemble(beginMessage(id, len(object)), "error", append(object, '}'))
}

// beginMessage returns the beginning of a new message, up to the id and with it. room
// is how many bytes of memory the later members may need.
func beginMessage(id ID, room int) []byte {
	return appendStart(make([]byte, 0, len(`{"jsonrpc":"2.0","id":,"method":"","params":}`)+len(id.text)+room), id)
}

// appendStart appends the beginning of a message: the brace, "jsonrpc", and the id
// unless it is zero.
func appendStart(b []byte, id ID) []byte {
	b = append(b, `{"jsonrpc":"2.0"`...)
	if !id.IsZero() {
		b = append(b, `,"id":`...)
		b = append(b, id.text...)
	}
	return b
}

// appendMethod appends the member "method", with a comma before it.
func appendMethod(b []byte, method string) []byte {
	return appendString(append(b, `,"method":`...), method)
}

// mustAssemble completes the message whose beginning is b: it adds a last member with this key, unless value is empty, and
// the brace, and makes the index. It panics if the message is not valid.
func mustAssemble(b []byte, key string, value []byte) Message {
	return must(assemble(b, key, value))
}

// assemble ends the message that b begins: it adds a last member with this key, unless
// value is empty, and the brace, and makes the index. It fails if the message is not
// valid, also for a value such as {},"id":1, which would add members to it.
func assemble(b []byte, key string, value []byte) (Message, error) {
	if len(value) == 0 {
		return indexMessage(append(b, '}'), span{})
	}
	b = append(b, `,"`...)
	b = append(b, key...)
	b = append(b, `":`...)
	text, cut := trim(value)
	at := uint32(len(b) + cut)
	b = append(b, value...)
	return indexMessage(append(b, '}'), span{at, at + uint32(len(text))})
}

// must returns m; it panics if err is not nil.
func must(m Message, err error) Message {
	if err != nil {
		panic("jsonrpc: cannot build a message: " + err.Error())
	}
	return m
}

// indexMessage makes the Message of raw, which has been built. It is an error if the
// value of its last member is not at last; with the zero span that is not looked at.
func indexMessage(raw []byte, last span) (Message, error) {
	if len(raw) > math.MaxInt32 {
		return Parse(raw) // returns the error
	}
	p := parser{scanner: scanner{data: raw}}
	switch {
	case !p.scanMessage():
		return Message{}, p.error(0)
	case last.end > 0 && p.lastValue != last:
		return Message{}, newError(CodeInvalidRequest, "what is put in is not one value", int(last.start))
	}
	return p.m, nil
}

// mustBeOneValue panics if raw is not exactly one JSON value. Text such as 1,"code":2
// would add members to the object that it is put into.
func mustBeOneValue(raw []byte) {
	data, _ := trim(raw)
	s := scanner{data: data}
	s.scanValue()
	s.expectEnd()
	if s.fault != "" {
		panic("jsonrpc: cannot build a message: " + newError(CodeParseError, s.fault, s.faultAt).Message)
	}
}
