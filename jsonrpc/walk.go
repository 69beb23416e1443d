package jsonrpc

import (
	"bytes"
	"fmt"
	"iter"
)

// Elements returns the elements of a JSON array in order, each with its offset in array.
// array must be valid JSON, such as a value of a Message; a value that is not an array
// has no elements. The caller must not change the elements.
func Elements(array []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if len(array) == 0 || array[0] != '[' {
			return
		}
		s := scanner{data: array, pos: 1}
		s.skipSpace()
		for s.peek() != ']' {
			at := s.pos
			if s.skipValue(); s.pos == at || !yield(at, array[at:s.pos:s.pos]) {
				return
			}
			s.skipSpace()
			if s.peek() != ',' {
				return
			}
			s.pos++
			s.skipSpace()
		}
	}
}

// Member is one member of a JSON object.
type Member struct {
	Key   string // the key, decoded
	Value []byte // the value as raw JSON; not to be changed
	At    int    // the offset of Value in the object that Members was called with
}

// Members returns the members of a JSON object in order, also those whose keys
// are equal. object must be valid JSON, such as a value of a Message; a value that is not
// an object has no members.
func Members(object []byte) iter.Seq[Member] { return Object{raw: object}.Members() }

// Valid reports whether text is one JSON value in UTF-8, without anything around it. Its depth
// does not matter.
func Valid(text []byte) bool {
	s := scanner{data: text}
	s.scanValue()
	s.expectEnd()
	return s.fault == ""
}

// Lookup returns the raw value of the last member of a JSON object that has this key; nil
// when there is none. object must be valid JSON.
func Lookup(object []byte, key string) []byte {
	at := Object{raw: object}.lookup(key)
	if at.end == 0 {
		return nil
	}
	return object[at.start:at.end:at.end]
}

// Object is the params or the result of a message. To walk over the members of a long
// Object costs little: the longest member, and the _meta of params, are not scanned again.
type Object struct {
	raw []byte // the Object as JSON
	// longestValue and meta are those of the Message, as offsets in raw; zero:
	// unknown, or not in this Object.
	longestValue, meta span
}

// ParamsObject returns the params. It has no members if the params are not an object.
func (m *Message) ParamsObject() Object {
	return Object{m.Params(), m.longestValue.within(m.params), m.meta.within(m.params)}
}

// ResultObject returns the result. It has no members if the result is not an object.
func (m *Message) ResultObject() Object {
	return Object{raw: m.Result(), longestValue: m.longestValue.within(m.outcome)}
}

// Members returns the members of the Object in order, as the function Members does.
func (o Object) Members() iter.Seq[Member] {
	return func(yield func(Member) bool) {
		if len(o.raw) == 0 || o.raw[0] != '{' {
			return
		}
		s := scanner{data: o.raw}
		for more := s.openObject(); more; more = s.nextKey() {
			key, escaped, ok := s.scanKey()
			if !ok {
				return
			}
			at := s.pos
			if o.skipKnown(&s); !yield(Member{textOf(key, escaped), o.raw[at:s.pos:s.pos], at}) {
				return
			}
		}
	}
}

// skipKnown moves s, which scans o, to the end of the value that begins at its pos. It
// does not scan a value whose span o knows.
func (o Object) skipKnown(s *scanner) {
	if o.meta.end > 0 && s.pos == int(o.meta.start) {
		s.pos = int(o.meta.end)
		return
	}
	s.skipKnown(o.longestValue)
}

// Without returns the Object's JSON without the members of these keys, as the function
// Without does.
func (o Object) Without(keys ...string) []byte {
	var list [maxCuts]cut
	cuts, _ := o.findCuts(list[:0], keys)
	if len(cuts) == 0 {
		return o.raw
	}
	out := make([]byte, 0, len(o.raw))
	from := 0
	for _, c := range cuts {
		out = append(out, o.raw[from:c.from]...)
		from = c.to
	}
	return append(out, o.raw[from:]...)
}

// textOf decodes string text (without the quotes); escaped: it has escapes. For
// well-known texts it allocates nothing.
func textOf(text []byte, escaped bool) string {
	if f := fieldOf(text, escaped); f != fieldOther {
		return fieldNames[f] // saves the allocation
	}
	if escaped {
		return decodeText(text)
	}
	if known := knownTexts.find(text); known > 0 {
		return knownTexts.list[known] // saves the allocation as well
	}
	return string(text)
}

// Text decodes a raw JSON string; ok is false for any other value. Lone surrogates, which a
// Go string cannot hold, become U+FFFD.
func Text(value []byte) (text string, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	value = value[1 : len(value)-1]
	return textOf(value, bytes.IndexByte(value, '\\') >= 0), true
}

// EnvelopeKeys returns the keys of the envelope, decoded and in order. It does not scan params,
// result and error, so it costs little even if they are long.
func (m *Message) EnvelopeKeys() iter.Seq[string] {
	m = new(*m) // the iterator must not see later changes of the caller's variable
	return func(yield func(string) bool) {
		if m.kind == Invalid {
			return
		}
		s := scanner{data: m.raw}
		for more := s.openObject(); more; more = s.nextKey() {
			key, escaped, ok := s.scanKey()
			if !ok || !yield(textOf(key, escaped)) {
				return
			}
			switch at := uint32(s.pos); {
			case at == m.params.start && m.params.end > 0:
				s.pos = int(m.params.end)
			case at == m.outcome.start && m.outcome.end > 0:
				s.pos = int(m.outcome.end)
			default:
				s.skipValue()
			}
		}
	}
}

// WithResult returns a copy with the result replaced by a raw JSON value. Every
// other byte stays, and so does Related. It panics if the message has no result,
// and if the value is not valid JSON.
func (m Message) WithResult(result []byte) Message {
	if m.kind != Response || m.isError {
		panic("jsonrpc: the message has no result")
	}
	m = m.withIDInPlace()
	text, cut := trim(result)
	at := m.outcome.start + uint32(cut)
	raw := bytes.Join([][]byte{m.raw[:m.outcome.start], result, m.raw[m.outcome.end:]}, nil)
	changed, err := Parse(raw)
	if want := (span{at, at + uint32(len(text))}); err == nil && changed.outcome != want {
		err = newError(CodeInvalidRequest, "what is put in is not one value", int(at))
	}
	if err != nil {
		panic(fmt.Sprintf("jsonrpc: cannot replace a result: %v", err))
	}
	return changed.WithRelated(m.related).WithMark(m.mark)
}
