package jsonrpc

import "slices"

// With returns a copy of a raw JSON object in which the member key has value. The value of
// an existing member is replaced, otherwise the member is added at the end. Every other
// byte stays. object must be valid JSON; an empty slice stands for {}. Of several members
// with this key the last one is replaced, because the last one counts.
func With(object []byte, key string, value []byte) []byte {
	at, end := -1, 0
	empty := true
	for m := range Members(object) {
		empty = false
		if m.Key == key {
			at, end = m.At, m.At+len(m.Value)
		}
	}
	out := make([]byte, 0, len(object)+len(key)+len(value)+len(`{"":},`))
	if at >= 0 {
		out = append(append(out, object[:at]...), value...)
		return append(out, object[end:]...)
	}
	close := lastBrace(object)
	if close < 0 {
		out = append(out, '{')
	} else {
		out = append(out, object[:close]...)
	}
	if !empty {
		out = append(out, ',')
	}
	out = append(appendString(out, key), ':')
	out = append(out, value...)
	if close < 0 {
		return append(out, '}')
	}
	return append(out, object[close:]...)
}

// lastBrace returns the index of the last '}' in object, -1 if there is none.
func lastBrace(object []byte) int {
	for i := len(object) - 1; i >= 0; i-- {
		if object[i] == '}' {
			return i
		}
	}
	return -1
}

// Without returns a copy of a raw JSON object without the members of these
// keys, or the object itself if it has none of them. Only the commas between the members
// are adjusted; every other byte stays. object must be valid JSON.
func Without(object []byte, keys ...string) []byte { return Object{raw: object}.Without(keys...) }

// cut is the part object[from:to] of an object that is left out.
type cut struct {
	// object[from:to] is left out
	from, to int
}

// maxCuts is for how many cuts there is memory on the stack: as many as most calls
// need. More of them cost an allocation.
const maxCuts = 4

// findCuts appends to cuts what has to be cut out of the object so that it has no
// members of these keys, commas included. rest reports whether any member stays; it is true,
// without cuts, if the object is none.
func (o Object) findCuts(cuts []cut, keys []string) (_ []cut, rest bool) {
	last := -1 // the end of the last member that stays
	object := o.raw
	s := scanner{data: object}
	if len(object) == 0 || object[0] != '{' {
		return nil, true
	}
	for more := s.openObject(); more; more = s.nextKey() {
		at := s.pos
		text, escaped, ok := s.scanKey()
		if !ok {
			return nil, true
		}
		o.skipKnown(&s)
		end := s.pos
		if !slices.ContainsFunc(keys, func(k string) bool { return textEquals(text, escaped, k) }) {
			last = end
			continue
		}
		if last >= 0 {
			cuts = append(cuts, cut{last, end}) // with the comma before it
			last = end
			continue
		}
		s.skipSpace()
		if s.peek() == ',' { // with the comma and the white space after it
			end = s.pos + 1
			for end < len(object) && isSpace(object[end]) {
				end++
			}
		}
		cuts = append(cuts, cut{at, end})
	}
	return cuts, last >= 0
}

// Quote returns text as a raw JSON string.
func Quote(text string) []byte { return appendString(make([]byte, 0, len(text)+2), text) }

// Plain returns the message without the members of the envelope that JSON-RPC does not
// know (see IsExtended). Related stays.
func (m Message) Plain() Message {
	switch {
	case !m.isExtended:
		return m
	case m.kind != Response:
		return m.WithParams(m.Params())
	}
	key := `,"result":`
	if m.isError {
		key = `,"error":`
	}
	value := m.slice(m.outcome)
	b := append(append(beginMessage(m.ident, len(value)), key...), value...)
	return must(indexMessage(append(b, '}'), span{})).WithRelated(m.related).WithMark(m.mark)
}

// WithParams returns a copy of a request or notification with other raw params, which are
// a JSON object; nil removes the params. The id, the method and Related stay. Other
// members of the envelope are removed. It panics if params are not JSON.
func (m Message) WithParams(params []byte) Message {
	if m.kind == Request {
		return NewRequest(m.ID(), m.Method(), params).WithRelated(m.related).WithMark(m.mark)
	}
	return NewNotification(m.Method(), params).WithRelated(m.related).WithMark(m.mark)
}
