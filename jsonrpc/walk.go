package jsonrpc

import (
	"bytes"
	"fmt"
	"iter"
)

// Elements returns the elements of a JSON array in order, each with the offset
// in array at which it stands. It takes valid JSON, a value of a Message; of
// anything but an array there are none. The caller must not change them.
func Elements(array []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if len(array) == 0 || array[0] != '[' {
			return
		}
		s := scanner{data: array, pos: 1}
		s.space()
		for s.peek() != ']' {
			at := s.pos
			if !s.value() || !yield(at, array[at:s.pos:s.pos]) {
				return
			}
			s.space()
			if s.peek() != ',' {
				return
			}
			s.pos++
			s.space()
		}
	}
}

// Member is one member of a JSON object.
type Member struct {
	Key   string // decoded
	Value []byte // raw; not to be changed
	At    int    // the offset in the object at which Value stands
}

// Members returns the members of a JSON object in order, also those whose keys
// are equal. It takes valid JSON, a value of a Message; of anything but an
// object there are none.
func Members(object []byte) iter.Seq[Member] {
	return func(yield func(Member) bool) {
		if len(object) == 0 || object[0] != '{' {
			return
		}
		s := scanner{data: object}
		for more := s.open(); more; more = s.next() {
			key, escaped, ok := s.key()
			at := s.pos
			if !ok || !s.value() || !yield(Member{textOf(key, escaped), object[at:s.pos:s.pos], at}) {
				return
			}
		}
	}
}

// textOf returns what the text of a string means.
func textOf(text []byte, escaped bool) string {
	if f := fieldOf(text, escaped); f != fieldOther {
		return fieldNames[f] // saves the allocation
	}
	if escaped {
		return decode(text)
	}
	if key, ok := knownKeys[string(text)]; ok {
		return key // so does this
	}
	return string(text)
}

// Text returns what a raw JSON string means; ok is false for any other value.
// Lone surrogates, which a Go string cannot hold, become U+FFFD.
func Text(value []byte) (text string, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	value = value[1 : len(value)-1]
	return textOf(value, bytes.IndexByte(value, '\\') >= 0), true
}

// Keys returns the keys of the envelope, decoded and in order. It does not look
// at params, result and error again, so it costs little however long they are.
func (m Message) Keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		if m.kind == Invalid {
			return
		}
		s := scanner{data: m.raw}
		for more := s.open(); more; more = s.next() {
			key, escaped, ok := s.key()
			if !ok || !yield(textOf(key, escaped)) {
				return
			}
			switch at := uint32(s.pos); {
			case at == m.params.start && m.params.end > 0:
				s.pos = int(m.params.end)
			case at == m.outcome.start && m.outcome.end > 0:
				s.pos = int(m.outcome.end)
			default:
				s.value()
			}
		}
	}
}

// WithResult returns a copy with the result replaced by a raw JSON value; every
// other byte stays, and so does Related. It panics if the message has no result,
// and if the value is no JSON.
func (m Message) WithResult(result []byte) Message {
	if m.kind != Response || m.failure {
		panic("jsonrpc: the message has no result")
	}
	mustBeOneValue(result)
	raw := make([]byte, 0, len(m.raw)-int(m.outcome.end-m.outcome.start)+len(result))
	raw = append(raw, m.raw[:m.outcome.start]...)
	raw = append(raw, result...)
	raw = append(raw, m.raw[m.outcome.end:]...)
	changed, err := Parse(raw)
	if err != nil {
		panic(fmt.Sprintf("jsonrpc: cannot replace a result: %v", err))
	}
	return changed.WithRelated(m.related)
}
