package sse

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Event is one event of a stream. The zero Event says nothing.
type Event struct {
	// ID is the event's own id field. An event without one keeps the id of the
	// event before it (Reader.LastEventID), but has an empty ID here.
	ID string

	// HasID says that there is an id field. It matters only for an empty one,
	// which resets the last event id; a non-empty ID counts without it.
	// The Reader always sets it.
	HasID bool

	// Name is the event field; "" means what "message" means.
	Name string

	// Data is the payload, its lines joined by '\n'. The Reader leaves it nil
	// when there was no data field, and makes it empty but not nil when the
	// field was empty.
	Data []byte

	// Retry is how long a client shall wait before it reconnects, in whole
	// milliseconds; 0 means absent. (A received "retry: 0" is seen only by
	// Reader.Retry.)
	Retry time.Duration
}

// AppendEvent appends e to dst, the blank line that ends it included, and
// returns the longer slice. Many events can so go out in one Write.
//
// Each line of Data, whichever of "\n", "\r" and "\r\n" ends it, becomes a
// data field. Empty Data is written as an empty data field where it is not nil
// or where there is an id (the priming event of MCP, rule LI14); nil Data
// without an id is left out, so that Event{Retry: d} only sets the delay.
//
// An ID or a Name that holds a line break or NUL is an error in the program.
// It is left out whole: with some bytes cut off it would be another id.
// Retry is rounded up to a millisecond; a negative one is left out.
func AppendEvent(dst []byte, e Event) []byte {
	dst = slices.Grow(dst, len(e.Data)+len(e.ID)+len(e.Name)+64)
	dst, hasID := appendHead(dst, e)
	if e.Data != nil || hasID {
		dst = appendData(dst, e.Data)
	}
	return append(dst, '\n')
}

// AppendHead appends the fields before e's data and "data: ", for a caller that writes
// the data itself, so that it is not copied: one line, and then Tail. e.Data is
// ignored.
//
//	write(AppendHead(nil, Event{ID: id})); write(line); write(Tail)
//
// writes what AppendEvent makes of Event{ID: id, Data: line}, if line is not empty and
// holds no line break.
func AppendHead(dst []byte, e Event) []byte {
	dst, _ = appendHead(dst, e)
	return append(dst, "data: "...)
}

// Tail is to be written after the line of data that follows AppendHead: it ends that
// line and the event.
const Tail = "\n\n"

// appendHead appends the fields that go before the data: event, id and retry, as far
// as e has them. hasID: an id field was written.
func appendHead(dst []byte, e Event) (longer []byte, hasID bool) {
	if e.Name != "" && isOneLine(e.Name) {
		dst = appendField(dst, "event: ", e.Name)
	}
	hasID = (e.HasID || e.ID != "") && isOneLine(e.ID)
	if hasID {
		dst = appendField(dst, "id: ", e.ID)
	}
	if e.Retry > 0 {
		ms := (e.Retry-1)/time.Millisecond + 1
		dst = append(dst, "retry: "...)
		dst = strconv.AppendInt(dst, int64(ms), 10)
		dst = append(dst, '\n')
	}
	return dst, hasID
}

// AppendComment appends text as a comment, which every reader ignores: it
// keeps a silent connection alive. Each line of text becomes a comment line.
//
// No blank line follows. One would be legal, but a widely used Python client
// (httpx-sse) makes an event with empty data of every blank line once it has
// seen an id, and its caller then fails to parse the empty string as JSON.
func AppendComment(dst []byte, text string) []byte {
	text = lineBreaks.Replace(text)
	for line := range strings.SplitSeq(text, "\n") {
		dst = appendField(dst, ": ", line)
	}
	return dst
}

// lineBreaks replaces "\r\n" and "\r" by "\n".
var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// isOneLine reports whether s has no CR, LF or NUL, so that it can be the value of a
// field.
func isOneLine(s string) bool { return !strings.ContainsAny(s, "\r\n\x00") }

// appendField appends one line: field, which ends in ": ", value, and a line feed.
func appendField(dst []byte, field, value string) []byte {
	dst = append(dst, field...)
	dst = append(dst, value...)
	return append(dst, '\n')
}

// appendData appends data as data fields, one for each of its lines. The space after
// the colon is written because a reader takes one away: a line that itself begins with
// a space survives.
func appendData(dst, data []byte) []byte {
	if bytes.IndexByte(data, '\r') >= 0 {
		data = []byte(lineBreaks.Replace(string(data)))
	}
	for {
		line, rest, more := bytes.Cut(data, newline)
		dst = append(dst, "data:"...)
		if len(line) > 0 {
			dst = append(dst, ' ')
			dst = append(dst, line...)
		}
		dst = append(dst, '\n')
		if !more {
			return dst
		}
		data = rest
	}
}

// newline is a line feed, to split data at.
var newline = []byte("\n")
