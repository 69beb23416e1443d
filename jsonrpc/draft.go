package jsonrpc

import "bytes"

// Draft is a message in the making that has much of another one in it: that is
// copied once, and its bulk not scanned again. It is written from front to
// back; what writes to it returns it longer, as append does, so that it stays
// on the stack.
type Draft struct {
	head []byte // up to the bulk
	bulk []byte // part of another message; not copied before the end
	tail []byte
	body int // where the value of the last member begins
}

// draftRoom is how much a Draft has room for without an allocation, on either
// side of the bulk.
const draftRoom = 512

// DraftRoom is memory for a Draft, on the stack of whoever makes one.
type DraftRoom [2 * draftRoom]byte

// DraftRequest begins a request; what is written then is the value of its params.
func DraftRequest(room *DraftRoom, id ID, method string) Draft {
	d := draft(room)
	d.head = appendMethod(appendStart(d.head, id), method)
	d.head = append(d.head, `,"params":`...)
	d.body = len(d.head)
	return d
}

// DraftResult begins a response; what is written then is the value of its result.
func DraftResult(room *DraftRoom, id ID) Draft {
	d := draft(room)
	d.head = append(appendStart(d.head, id), `,"result":`...)
	d.body = len(d.head)
	return d
}

func draft(room *DraftRoom) Draft {
	return Draft{head: room[:0:draftRoom], tail: room[draftRoom:draftRoom]}
}

// Text writes raw JSON text.
func (d Draft) Text(text string) Draft {
	if d.bulk == nil {
		d.head = append(d.head, text...)
	} else {
		d.tail = append(d.tail, text...)
	}
	return d
}

// Raw writes raw JSON text.
func (d Draft) Raw(text []byte) Draft {
	if d.bulk == nil {
		d.head = append(d.head, text...)
	} else {
		d.tail = append(d.tail, text...)
	}
	return d
}

// Params writes the part of the params of m from one offset to another.
func (d Draft) Params(m Message, from, to int) Draft {
	return d.part(m, span{m.params.start + uint32(from), m.params.start + uint32(to)})
}

// Result writes the part of the result of m from one offset to another.
func (d Draft) Result(m Message, from, to int) Draft {
	return d.part(m, span{m.outcome.start + uint32(from), m.outcome.start + uint32(to)})
}

// part writes part of m, and keeps its bulk in mind if that is in it. What has
// line breaks must be looked at again in any case.
func (d Draft) part(m Message, s span) Draft {
	if d.bulk != nil || m.breaks || m.bulk.end == 0 || m.bulk.start < s.start || m.bulk.end > s.end {
		return d.Raw(m.raw[s.start:s.end])
	}
	d.head = append(d.head, m.raw[s.start:m.bulk.start]...)
	d.bulk = m.cut(m.bulk)
	d.tail = append(d.tail, m.raw[m.bulk.end:s.end]...)
	return d
}

// Last returns the byte that was written last.
func (d Draft) Last() byte {
	for _, part := range [...][]byte{d.tail, d.bulk} {
		if len(part) > 0 {
			return part[len(part)-1]
		}
	}
	return d.head[len(d.head)-1]
}

// Message ends the message. It is an error if what was written for its params or
// result is not one value.
func (d Draft) Message() (Message, error) {
	d = d.Text("}")
	raw, known := d.join()
	return index(raw, span{uint32(d.body), uint32(len(raw) - 1)}, known)
}

// join returns all of it, and where the bulk is in that.
func (d Draft) join() (raw []byte, known span) {
	if d.bulk != nil {
		known = span{uint32(len(d.head)), uint32(len(d.head) + len(d.bulk))}
	}
	return bytes.Join([][]byte{d.head, d.bulk, d.tail}, nil), known
}

// WithoutInResult returns a response with another id and with a result that lacks
// the members of these keys (see Without); every other byte stays, and so does
// Related. It copies the message once. It panics if the message has no result,
// and if id is no request id.
func (m Message) WithoutInResult(id ID, keys ...string) Message {
	if m.kind != Response || m.failure {
		panic("jsonrpc: the message has no result")
	}
	var list [maxCuts]cut
	cuts := findCuts(list[:0], m.Result(), m.bulk.within(m.outcome), keys)
	if len(cuts) == 0 {
		return m.WithID(id)
	}
	m.check(m.id, id, "id")
	var room DraftRoom
	d, at := draft(&room), uint32(0)
	ahead := m.id.start < m.outcome.start
	if ahead {
		d, at = d.part(m, span{0, m.id.start}).Text(id.text), m.id.end
	}
	for _, c := range cuts {
		d, at = d.part(m, span{at, m.outcome.start + uint32(c.from)}), m.outcome.start+uint32(c.to)
	}
	if !ahead {
		d, at = d.part(m, span{at, m.id.start}).Text(id.text), m.id.end
	}
	raw, known := d.part(m, span{at, uint32(len(m.raw))}).join()
	return built(raw, span{}, known).WithRelated(m.related)
}
