package jsonrpc

import (
	"bytes"
	"slices"
)

// This file is what may be put into a message and taken out of it. The rest is
// copied once, and nothing is scanned again.

// Fragment is members of an object that are put into many messages. The zero
// Fragment has none. It may be used by many goroutines.
type Fragment struct {
	text   string // without the braces
	breaks bool   // line breaks stand between tokens
}

// NewFragment returns the members of a raw JSON object. It panics if object is anything else.
func NewFragment(object []byte) Fragment {
	data, _ := trim(object)
	s := scanner{data: data}
	s.value()
	s.end()
	if s.fault != "" || data[0] != '{' {
		panic("jsonrpc: a fragment must be the members of an object")
	}
	return Fragment{string(bytes.Trim(data[1:len(data)-1], " \t\r\n")), s.breaks}
}

// String returns the members as raw JSON, with the commas between them.
func (f Fragment) String() string { return f.text }

const metaStart = metaKey + "{"

// WithMeta returns a request or notification with members put into its
// params._meta, ahead of those that are there; if there is none, or no object, it
// is made. Every other byte stays, and so does Related; but of a message without
// params only what WithParams keeps. That none of the keys is there yet, and
// progressToken none of them, the caller sees to. It panics if params are an array,
// and for a response.
func (m Message) WithMeta(f Fragment) Message {
	switch {
	case m.kind == Response || m.kind == Invalid:
		panic("jsonrpc: the message has no params")
	case m.params.end == 0:
		return m.WithParams([]byte("{" + metaStart + f.text + "}}"))
	case m.raw[m.params.start] != '{':
		panic("jsonrpc: the params are no object")
	case m.meta.end > 0 && m.raw[m.meta.start] == '{':
		return m.put(m.meta.start+1, f)
	case m.meta.end > 0:
		m = m.edited(edit{m.meta, "{" + f.text + "}"})
	default:
		here, end := span{m.params.start + 1, m.params.start + 1}, "}"
		if !isEmpty(m.Params()) {
			end = "},"
		}
		m = m.edited(edit{here, metaStart}, edit{here, f.text}, edit{here, end})
		start := m.params.start + uint32(len(metaStart)) // which may have moved with an id
		m.meta = span{start, start + uint32(len(f.text)) + 2}
	}
	m.breaks = m.breaks || f.breaks
	if m.meta.end-m.meta.start > m.bulk.end-m.bulk.start {
		m.bulk = m.meta
	}
	return m
}

// WithFirst returns the message with members put into its params or its result,
// ahead of those that are there. Every other byte stays, and so does Related.
// That none of the keys is there yet, and none is _meta, progressToken or requestId
// in params, the caller sees to. It panics if that is no object.
func (m Message) WithFirst(f Fragment) Message {
	at := m.params
	if m.kind == Response {
		at = m.outcome
	}
	if at.end == 0 || m.raw[at.start] != '{' || m.failure {
		panic("jsonrpc: the message has no params or result that are an object")
	}
	return m.put(at.start+1, f)
}

// put puts members at the beginning of an object, behind its brace.
func (m Message) put(at uint32, f Fragment) Message {
	if len(f.text) == 0 {
		return m
	}
	here := span{at, at}
	edits := [...]edit{{here, f.text}, {here, ","}}
	n := len(edits)
	if isEmpty(m.raw[at-1:]) {
		n--
	}
	m = m.edited(edits[:n]...)
	m.breaks = m.breaks || f.breaks
	return m
}

// isEmpty reports whether the object at the beginning of text has no members.
func isEmpty(text []byte) bool {
	s := scanner{data: text, pos: 1}
	s.space()
	return s.peek() == '}'
}

// WithoutInResult returns a response with a result that lacks the members of
// these keys (see Without); every other byte stays, and so does Related. It
// panics if the message has no result.
func (m Message) WithoutInResult(keys ...string) Message {
	if m.kind != Response || m.failure {
		panic("jsonrpc: the message has no result")
	}
	var list [maxCuts]cut
	var room [maxEdits]edit
	cuts, _ := m.ResultObject().findCuts(list[:0], keys)
	return m.cutOut(appendCuts(room[:0], m.outcome, cuts))
}

// WithoutInParams returns a request or notification whose params lack the members
// of these keys (see Without), and whose params._meta lacks those of metaKeys; it
// goes, too, if nothing is left in it. Every other byte stays, and so does Related.
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
	if len(inMeta) > 0 { // what is cut out of params is ahead of it, or behind
		i := 0
		for i < len(edits) && edits[i].at.start < m.meta.start {
			i++
		}
		behind := slices.Clone(edits[i:])
		edits = append(appendCuts(edits[:i], m.meta, inMeta), behind...)
	}
	return m.cutOut(edits)
}

// WithoutMeta is WithoutInParams with the key _meta only. Where that stands is
// known, so nothing is looked for.
func (m Message) WithoutMeta() Message {
	if m.meta.end == 0 {
		return m
	}
	at := m.meta
	if at.start -= uint32(len(metaKey)); string(m.raw[at.start:m.meta.start]) != metaKey {
		return m.WithoutInParams(nil, "_meta") // it is spelled in another way
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
	return m.edited(edit{at: at})
}

const metaKey = `"_meta":`

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func appendCuts(edits []edit, of span, cuts []cut) []edit {
	for _, c := range cuts {
		edits = append(edits, edit{at: span{of.start + uint32(c.from), of.start + uint32(c.to)}})
	}
	return edits
}

func (m Message) cutOut(edits []edit) Message {
	if len(edits) == 0 {
		return m
	}
	return m.edited(edits...)
}
