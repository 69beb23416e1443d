package jsonrpc

import (
	"bytes"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc/burst"
)

// Kind tells requests, notifications and responses apart.
type Kind uint8

const (
	Invalid      Kind = iota // the kind of the zero Message
	Request                  // a message with a method and an id: it wants an answer
	Notification             // a message with a method and no id: it wants no answer
	Response                 // a message with a result or an error: it answers a request
)

// span is where a value stands in a message; the zero span is nowhere.
type span struct {
	start uint32 // offset of the first byte
	end   uint32 // offset behind the last byte; 0: the span is nowhere
}

// Message is one immutable JSON-RPC message: its exact bytes, and an index of the fields
// that routing needs. The zero Message is invalid. Messages are values; they may be
// copied and used by many goroutines. Methods that only read have a pointer receiver,
// because to copy a Message would cost as much as most of them do. They do not keep the
// pointer.
type Message struct {
	raw    []byte // the exact bytes; where spliceID is set, with another id than ident
	id     span   // where the id stands in raw
	method span   // where the method stands in raw, quotes included
	params span   // where the params stand in raw; zero: there are none, or they are null
	// where the progress token stands in raw: params._meta.progressToken of a request, params.progressToken of a
	// notification; zero: there is none
	token         span
	requestID     span  // where params.requestId stands in raw, which says what notifications/cancelled is about; zero: there is none
	outcome       span  // where the result or the error stands in raw; see isError
	meta          span  // where params._meta stands in raw; zero: there is none
	longestValue  span  // where the longest value of a member of params or result stands in raw; a search for another member skips it; zero: there is none
	kind          Kind  // whether it is a request, a notification or a response
	knownMethod   uint8 // the index of the method in knownMethods; 0: not among them
	isError       bool  // outcome is an error, and no result
	hasLineBreaks bool  // line breaks may stand between tokens
	isExtended    bool  // the envelope has members that JSON-RPC does not know, or params in a response
	spliceID      bool  // raw still has an older id than ident; Bytes puts ident in its place

	ident   ID           // the message's id (after WithID: the new one); zero: it has none
	joined  *joinedBytes // where Bytes keeps the joined bytes of a long message with spliceID; nil: of any other message
	related ID           // the request on whose stream the message came; NullID: none; zero: the transport cannot know; not in the bytes (see Related)
	burst   *burst.Burst // the messages that were received with this one; nil: it came alone; not in the bytes (see WithBurst)
	mark    *Mark        // where the message comes from, for observers; nil: nobody observes it, or the bridge has made it; not in the bytes
}

// A Mark says where a message comes from, for those who observe what passes. A message that was made by changing
// another keeps its Mark, so that what was sent can be traced to what was received.
type Mark struct {
	Seq uint64 // the number that the observer has given the message when it was received; 0: none
	Of  any    // a value that the observer keeps with the message; the package does not look at it

	// Traceparent and Tracestate are headers of the HTTP request that has brought the message
	// (W3C Trace Context). A transport sets them; "" is none.
	Traceparent, Tracestate string
}

// Mark returns what WithMark has set; nil: nobody observes the message, or the bridge itself
// has made it.
func (m *Message) Mark() *Mark { return m.mark }

// WithMark returns the message with this mark in place of its own. Nobody may change
// *mark afterwards.
func (m Message) WithMark(mark *Mark) Message {
	m.mark = mark
	return m
}

// Burst returns what WithBurst has set; nil: the message came alone, or the bridge has made it.
func (m *Message) Burst() *burst.Burst { return m.burst }

// WithBurst returns the message as one of this Burst: others follow at once.
func (m Message) WithBurst(b *burst.Burst) Message {
	m.burst = b
	return m
}

// joinedBytes keeps the bytes of a long message that WithID has given another id, once
// Bytes was called: later calls return them. A short message has none: its bytes are
// put together at each call of Bytes, of which there mostly is one.
type joinedBytes struct {
	once sync.Once // makes raw, at the first call of Bytes
	raw  []byte    // the bytes with the new id; set by once
}

// minLongSize is the length, in bytes, from which on a message counts as long: copies
// of it are avoided.
const minLongSize = 4 << 10

// SplitLineAtID returns Line in three parts, of which the last two may be empty: to write them one after the other saves
// the copy that Line makes after WithID of a long message. They are one part if there are line breaks to leave out.
func (m *Message) SplitLineAtID() (first []byte, id string, rest []byte) {
	if m.hasLineBreaks {
		return m.Line(), "", nil
	}
	return m.SplitAtID()
}

// join returns a copy of raw with ident in the place of the id.
func (m *Message) join() []byte {
	var room [idBufferSize]byte
	return bytes.Join([][]byte{m.raw[:m.id.start], append(room[:0], m.ident.text...), m.raw[m.id.end:]}, nil)
}

// withIDInPlace returns the message with raw and index as they are once ident has been
// put in its place: without spliceID.
func (m Message) withIDInPlace() Message {
	if !m.spliceID {
		return m
	}
	m.raw = m.Bytes()
	m.shiftIndex(m.id, len(m.ident.text))
	m.spliceID, m.joined = false, nil
	return m
}

// A Key stands for a Message where that is to be found again, and can be compared:
// copies of one Message have the same Key, and two messages that were parsed from
// equal bytes have not. After WithID the Key is another. It keeps the message's bytes
// in memory, and is smaller than a Message. The zero Key is that of an invalid
// message.
type Key struct {
	first    *byte // the first byte of the message's raw
	spliceID bool  // raw still has an older id than ident (Message.spliceID)
	ident    ID    // the id of the Message
}

// Key returns the Key that stands for the message.
func (m *Message) Key() Key {
	if len(m.raw) == 0 {
		return Key{}
	}
	return Key{&m.raw[0], m.spliceID, m.ident}
}

// A TextID says that Messages are the same one, but for their ids; it can be compared.
// A Message, its copies, and what WithID has made of them have the same TextID. Two
// messages that were parsed have different ones, even if their bytes are equal. It
// keeps the message's bytes in memory. The zero TextID is that of an invalid message.
type TextID struct {
	first *byte // the first byte of the message's raw
	size  int   // the length of the message's raw, in bytes
}

// TextID returns the TextID that the message shares with its copies, and with what WithID
// has made of them. It does not tell whether other messages have the same bytes.
func (m *Message) TextID() TextID {
	if len(m.raw) == 0 {
		return TextID{}
	}
	return TextID{&m.raw[0], len(m.raw)}
}

// Size returns the length of Bytes, without making them.
func (m *Message) Size() int {
	if !m.spliceID {
		return len(m.raw)
	}
	return len(m.raw) - int(m.id.end-m.id.start) + len(m.ident.text)
}

// SplitAtID returns Bytes in three parts, of which the last two may be empty. After WithID of a
// long message, Bytes has to copy the message; to write the parts one after the other
// costs less. The caller must not change them.
func (m *Message) SplitAtID() (first []byte, id string, rest []byte) {
	if !m.spliceID {
		return m.raw, "", nil
	}
	return m.raw[:m.id.start:m.id.start], m.ident.text, m.raw[m.id.end:]
}

// IsOneLine reports whether Bytes is known to have no line breaks, so that Line returns the same.
func (m *Message) IsOneLine() bool { return !m.hasLineBreaks }

// slice returns the bytes of a span; nil: the span is the zero value.
func (m *Message) slice(s span) []byte {
	if s.end == 0 {
		return nil
	}
	return m.raw[s.start:s.end:s.end]
}

// sliceID returns the ID that is spelled at a span; the zero ID for the zero span.
func (m *Message) sliceID(s span) ID { return ID{string(m.slice(s))} }

// Bytes returns the message's exact bytes: as they were parsed, but for what the With
// methods have changed. The caller must not change them.
func (m *Message) Bytes() []byte {
	switch {
	case !m.spliceID:
		return m.raw
	case m.joined == nil:
		return m.join()
	}
	joined := m.joined
	joined.once.Do(func() { joined.raw = m.join() })
	return joined.raw
}

// Line returns the message without the line breaks between its tokens, for
// framings in which a line break ends the message (stdio ST1, SSE data). Without such
// line breaks Line returns Bytes. The caller must not change the result.
func (m *Message) Line() []byte {
	if !m.hasLineBreaks {
		return m.Bytes()
	}
	whole := m.withIDInPlace()
	// All line breaks are between tokens: Parse refuses one in a string.
	line := make([]byte, 0, len(whole.raw))
	rest := whole.raw
	for i := bytes.IndexAny(rest, "\n\r"); i >= 0; i = bytes.IndexAny(rest, "\n\r") {
		line = append(line, rest[:i]...)
		rest = rest[i+1:]
	}
	return append(line, rest...)
}

// Kind returns whether the message is a Request, a Notification or a Response; Invalid
// for the zero Message.
func (m *Message) Kind() Kind { return m.kind }

// ID returns the id as it is spelled. It returns the zero ID for a notification and for
// an error response without an id, and NullID for an error response with "id":null.
func (m *Message) ID() ID { return m.ident }

// Method returns the method, decoded; "" for a response.
func (m *Message) Method() string {
	if m.knownMethod > 0 || m.method.end == 0 {
		return knownMethods.list[m.knownMethod]
	}
	text := m.raw[m.method.start+1 : m.method.end-1]
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text)
	}
	return decodeText(text)
}

// IsExtended reports whether there are members in the envelope that JSON-RPC does
// not know, or params in a response. See Plain.
func (m *Message) IsExtended() bool { return m.isExtended }

// Params returns the raw params, nil when they are absent or null. The caller must not change them.
func (m *Message) Params() []byte { return m.slice(m.params) }

// Result returns the raw result, nil when the message has none. The caller must not change it.
func (m *Message) Result() []byte {
	if m.isError {
		return nil
	}
	return m.slice(m.outcome)
}

// ErrorObject returns the raw error, nil when the message has none. The caller must not change it.
func (m *Message) ErrorObject() []byte {
	if !m.isError {
		return nil
	}
	return m.slice(m.outcome)
}

// IsError reports whether the message is a response with an error.
func (m *Message) IsError() bool { return m.isError }

// ProgressToken returns params._meta.progressToken of a request, or params.progressToken
// of a notification. It returns the zero ID if that is missing, or is neither a string nor
// an integer.
func (m *Message) ProgressToken() ID { return m.sliceID(m.token) }

// CancelledID returns params.requestId of a notification, which in notifications/cancelled
// is the id of the cancelled request. It returns the zero ID if that is missing, or is
// neither a string nor an integer.
func (m *Message) CancelledID() ID {
	if m.kind != Notification {
		return ID{}
	}
	return m.sliceID(m.requestID)
}

// Related returns the id of the request to which the message is related: over Streamable
// HTTP every request has a stream of its own, and the transport knows on which stream a
// message came (B.4). It returns NullID for a message that came on no request's stream,
// and the zero ID from a transport that cannot know. Related is not in the bytes.
func (m *Message) Related() ID { return m.related }

// During returns the id of the request to which the message is related (Related); ok
// is false if Related is zero or NullID, so that there is no such request.
func (m *Message) During() (id ID, ok bool) {
	return m.related, !m.related.IsZero() && m.related != NullID
}

// WithRelated returns the message with request as what Related returns: the id of the request that it is related to.
// The bytes of the message do not change.
func (m Message) WithRelated(request ID) Message {
	m.related = request
	return m
}

// Meta returns the raw params._meta, nil when there is none. The caller must not change it.
func (m *Message) Meta() []byte { return m.slice(m.meta) }

// Lookup returns the raw JSON value at a path of object keys that begins at the top
// of the message ("params", "protocolVersion"); nil when there is none. Keys
// are compared decoded, and the last of several equal keys counts. Lookup scans
// the objects on the path, but skips the values that the index knows, above all the
// longest one. Without a path it returns Bytes. The caller must not change the value.
func (m *Message) Lookup(path ...string) []byte {
	if len(path) == 0 {
		return m.Bytes()
	}
	switch path[0] {
	case "params", "result", "error":
	default:
		whole := m.withIDInPlace()
		m = &whole
	}
	at := m.member(path[0])
	if at.end == 0 {
		return nil
	}
	value, rest := Object{m.slice(at), m.longestValue.within(at), m.meta.within(at)}, path[1:]
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

// member returns the span, in raw, of the value of the envelope's member name; zero:
// there is none.
func (m *Message) member(name string) span {
	switch {
	case name == "params" && m.params.end > 0:
		return m.params
	case name == "result" && !m.isError, name == "error" && m.isError:
		return m.outcome
	case m.params.end > 0:
		return Object{raw: m.raw, longestValue: m.params}.lookup(name)
	}
	return Object{raw: m.raw, longestValue: m.outcome}.lookup(name)
}

// within returns s relative to the start of the value at of; the zero span if s is not
// inside that value.
func (s span) within(of span) span {
	if s.start < of.start || s.end > of.end {
		return span{}
	}
	return span{s.start - of.start, s.end - of.start}
}

// lookup returns the span, in o.raw, of the value of the last member with this key;
// the zero span if there is none.
func (o Object) lookup(name string) (found span) {
	if len(o.raw) == 0 || o.raw[0] != '{' {
		return span{}
	}
	s := scanner{data: o.raw}
	for more := s.openObject(); more; more = s.nextKey() {
		text, escaped, ok := s.scanKey()
		if !ok {
			return found
		}
		at := s.pos
		o.skipKnown(&s)
		if textEquals(text, escaped, name) {
			found = span{uint32(at), uint32(s.pos)}
		}
	}
	return found
}
