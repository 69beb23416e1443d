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
			if s.skip(); s.pos == at || !yield(at, array[at:s.pos:s.pos]) {
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
func Members(object []byte) iter.Seq[Member] { return Object{raw: object}.Members() }

// Object is the params or the result of a message. Walking over its members costs
// little even if it is long: the longest of them is not looked at again, nor is the
// _meta of params.
type Object struct {
	raw        []byte
	bulk, meta span // where in it these are
}

// ParamsObject returns the params; one without members if they are no object.
func (m *Message) ParamsObject() Object {
	return Object{m.Params(), m.bulk.within(m.params), m.meta.within(m.params)}
}

// ResultObject returns the result; one without members if it is no object.
func (m *Message) ResultObject() Object {
	return Object{raw: m.Result(), bulk: m.bulk.within(m.outcome)}
}

// Members returns Members of the raw value.
func (o Object) Members() iter.Seq[Member] {
	return func(yield func(Member) bool) {
		if len(o.raw) == 0 || o.raw[0] != '{' {
			return
		}
		s := scanner{data: o.raw}
		for more := s.open(); more; more = s.next() {
			key, escaped, ok := s.key()
			if !ok {
				return
			}
			at := s.pos
			if o.pass(&s); !yield(Member{textOf(key, escaped), o.raw[at:s.pos:s.pos], at}) {
				return
			}
		}
	}
}

// pass goes behind the value that begins here.
func (o Object) pass(s *scanner) {
	if o.meta.end > 0 && s.pos == int(o.meta.start) {
		s.pos = int(o.meta.end)
		return
	}
	s.pass(o.bulk)
}

// Without returns Without of the raw value.
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

// textOf returns what the text of a string means.
func textOf(text []byte, escaped bool) string {
	if f := fieldOf(text, escaped); f != fieldOther {
		return fieldNames[f] // saves the allocation
	}
	if escaped {
		return decode(text)
	}
	if known := knownTexts.find(text); known > 0 {
		return knownTexts.list[known] // so does this
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
func (m *Message) Keys() iter.Seq[string] {
	m = new(*m) // which stays what it is
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
				s.skip()
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
	m = m.settled()
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
	return changed.WithRelated(m.related)
}
