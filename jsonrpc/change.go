package jsonrpc

import (
	"bytes"
	"slices"
)

// The functions of this file put members into a message and take members out. They copy
// the rest of the message once, and scan nothing again.

// Fragment is some members of an object, to be put into many messages. The zero
// Fragment has no members. It may be used by many goroutines.
type Fragment struct {
	text          string // the members as JSON, without the braces
	hasLineBreaks bool   // there are line breaks between tokens
}

// NewFragment returns the members of a raw JSON object as a Fragment. It panics if
// object is not one.
func NewFragment(object []byte) Fragment {
	data, _ := trim(object)
	s := scanner{data: data}
	s.scanValue()
	s.expectEnd()
	if s.fault != "" || data[0] != '{' {
		panic("jsonrpc: a fragment must be the members of an object")
	}
	return Fragment{string(bytes.Trim(data[1:len(data)-1], " \t\r\n")), s.hasLineBreaks}
}

// TrustedFragment makes a Fragment of members, which are the text of an object without
// its braces. It does not look at them: the caller makes sure that they are valid, and
// that no line breaks stand between their tokens.
func TrustedFragment(members string) Fragment { return Fragment{text: members} }

// String returns the members as raw JSON, with the commas between them.
func (f Fragment) String() string { return f.text }

// metaStart is the text that a new params._meta begins with: its key, the colon and the brace.
const metaStart = metaKey + "{"

// WithMeta returns a copy of a request or notification with the members of f at the
// beginning of params._meta. If _meta is missing or not an object, a new one is made.
// Every other byte stays, and so does Related; a message without params keeps only what
// WithParams keeps. The caller makes sure that _meta does not have the keys of f yet, and
// that progressToken is not among them. WithMeta panics if params are an array, and for a
// response.
func (m Message) WithMeta(f Fragment) Message {
	switch {
	case m.kind == Response || m.kind == Invalid:
		panic("jsonrpc: the message has no params")
	case m.params.end == 0:
		return m.WithParams([]byte("{" + metaStart + f.text + "}}"))
	case m.raw[m.params.start] != '{':
		panic("jsonrpc: the params are no object")
	case m.meta.end > 0 && m.raw[m.meta.start] == '{':
		return m.insertFragment(m.meta.start+1, f)
	case m.meta.end > 0:
		m = m.withEdits(edit{m.meta, "{" + f.text + "}"})
	default:
		here, end := span{m.params.start + 1, m.params.start + 1}, "}"
		if !isEmpty(m.Params()) {
			end = "},"
		}
		m = m.withEdits(edit{here, metaStart}, edit{here, f.text}, edit{here, end})
		start := m.params.start + uint32(len(metaStart)) // withEdits may have moved params, with a late id
		m.meta = span{start, start + uint32(len(f.text)) + 2}
	}
	m.hasLineBreaks = m.hasLineBreaks || f.hasLineBreaks
	if m.meta.end-m.meta.start > m.longestValue.end-m.longestValue.start {
		m.longestValue = m.meta
	}
	return m
}

// WithMetaOf returns a copy of a request or notification with the members of f at the beginning of params._meta, in
// place of the members with these keys, which are removed. It panics if params are an array, and for a response.
func (m Message) WithMetaOf(f Fragment, keys ...string) Message {
	if m.kind == Response || m.kind == Invalid || m.meta.end == 0 || m.raw[m.meta.start] != '{' {
		return m.WithMeta(f)
	}
	var list [maxCuts]cut
	cuts, rest := Object{raw: m.Meta()}.findCuts(list[:0], keys)
	if len(cuts) == 0 {
		return m.WithMeta(f)
	}
	var room [maxEdits]edit
	here := span{m.meta.start + 1, m.meta.start + 1}
	edits := append(room[:0], edit{here, f.text})
	if rest && len(f.text) > 0 {
		edits = append(edits, edit{here, ","})
	}
	m = m.withEdits(appendCuts(edits, m.meta, cuts)...)
	m.hasLineBreaks = m.hasLineBreaks || f.hasLineBreaks
	return m
}

// WithFirst returns a copy of the message with the members of f at the beginning of its
// params or its result. Every other byte stays, and so does Related. The caller makes sure
// that the params or the result do not have the keys of f yet, and that _meta,
// progressToken and requestId are not among the keys for params. WithFirst panics if the
// message has no params or result, or if they are not an object.
func (m Message) WithFirst(f Fragment) Message {
	at := m.params
	if m.kind == Response {
		at = m.outcome
	}
	if at.end == 0 || m.raw[at.start] != '{' || m.isError {
		panic("jsonrpc: the message has no params or result that are an object")
	}
	return m.insertFragment(at.start+1, f)
}

// insertFragment puts the members of f at the beginning of an object in the message;
// at is the place in raw behind the object's brace.
func (m Message) insertFragment(at uint32, f Fragment) Message {
	if len(f.text) == 0 {
		return m
	}
	here := span{at, at}
	edits := [...]edit{{here, f.text}, {here, ","}}
	n := len(edits)
	if isEmpty(m.raw[at-1:]) {
		n--
	}
	m = m.withEdits(edits[:n]...)
	m.hasLineBreaks = m.hasLineBreaks || f.hasLineBreaks
	return m
}

// isEmpty reports whether the object at the beginning of text has no members. text
// must begin with a brace.
func isEmpty(text []byte) bool {
	s := scanner{data: text, pos: 1}
	s.skipSpace()
	return s.peek() == '}'
}

// WithoutInResult returns a copy of a response without the members of these keys in its
// result (see Without). Every other byte stays, and so does Related. It panics if the
// message has no result.
func (m Message) WithoutInResult(keys ...string) Message {
	if m.kind != Response || m.isError {
		panic("jsonrpc: the message has no result")
	}
	var list [maxCuts]cut
	var room [maxEdits]edit
	cuts, _ := m.ResultObject().findCuts(list[:0], keys)
	return m.cutOut(appendCuts(room[:0], m.outcome, cuts))
}

// WithoutInParams returns a copy of a request or notification without the members keys in
// its params (see Without), and without the members metaKeys in its params._meta. If no
// member of _meta is left, _meta is removed as well. Every other byte stays, and so does
// Related.
func (m Message) WithoutInParams(metaKeys []string, keys ...string) Message {
	var lists [2][maxCuts]cut
	var room [maxEdits]edit
	var most [maxCuts + 1]string
	inMeta, rest := Object{raw: m.Meta()}.findCuts(lists[0][:0], metaKeys)
	switch {
	case slices.Contains(keys, "_meta"):
		inMeta = nil
	case len(inMeta) > 0 && !rest:
		inMeta, keys = nil, append(append(most[:0], keys...), "_meta")
	}
	cuts, _ := m.ParamsObject().findCuts(lists[1][:0], keys)
	edits := appendCuts(room[:0], m.params, cuts)
	if len(inMeta) > 0 { // the cuts in params are before or after _meta
		i := 0
		for i < len(edits) && edits[i].at.start < m.meta.start {
			i++
		}
		behind := slices.Clone(edits[i:])
		edits = append(appendCuts(edits[:i], m.meta, inMeta), behind...)
	}
	return m.cutOut(edits)
}

// WithoutMeta returns a copy of a request or notification without params._meta. It
// scans nothing in most cases, because the index has the place of _meta.
func (m Message) WithoutMeta() Message {
	if m.meta.end == 0 {
		return m
	}
	at := m.meta
	if at.start -= uint32(len(metaKey)); string(m.raw[at.start:m.meta.start]) != metaKey {
		return m.WithoutInParams(nil, "_meta") // the key has escapes, or white space after it
	}
	switch {
	case m.raw[at.start-1] == ',' && !isSpace(m.raw[at.start-2]):
		at.start--
	case m.raw[at.start-1] == '{' && m.raw[at.end] == '}':
	case m.raw[at.start-1] == '{' && m.raw[at.end] == ',':
		for at.end++; isSpace(m.raw[at.end]); at.end++ {
		}
	default:
		return m.WithoutInParams(nil, "_meta")
	}
	return m.withEdits(edit{at: at})
}

// metaKey is the key of params._meta and its colon, as they are mostly written.
const metaKey = `"_meta":`

// isSpace reports whether c is white space in JSON.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// appendCuts appends, for each of cuts, the edit that takes it out of the object at
// the span of.
func appendCuts(edits []edit, of span, cuts []cut) []edit {
	for _, c := range cuts {
		edits = append(edits, edit{at: span{of.start + uint32(c.from), of.start + uint32(c.to)}})
	}
	return edits
}

// cutOut returns the message with the edits made; the message itself if there are
// none.
func (m Message) cutOut(edits []edit) Message {
	if len(edits) == 0 {
		return m
	}
	return m.withEdits(edits...)
}
