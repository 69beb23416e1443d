package jsonrpc

import (
	"bytes"
	"strconv"
)

// MaxServerBatch is how many messages a batch of a server may have, on every transport, and a line
// of a server that has several without a batch (ST4). What is kept of each of them takes many
// times the size of a short one.
const MaxServerBatch = 1000

// IsBatch reports whether raw, after a byte order mark and white space, begins with '['.
func IsBatch(raw []byte) bool {
	data, _ := trim(raw)
	return len(data) > 0 && data[0] == '['
}

// SplitBatch returns the elements of a batch in order. Each is a slice of raw. The caller
// parses each element by itself: if one is not a valid message, the others still count
// (LI10). The error is an *Error if raw is not a JSON array, is empty, or has more than
// max elements; 0 or negative means no limit.
func SplitBatch(raw []byte, max int) ([][]byte, error) {
	data, cut := trim(raw)
	if len(data) == 0 {
		return nil, newError(CodeParseError, "no text", cut)
	}
	s := scanner{data: data}
	elements, refused, at := s.splitBatch(max)
	switch {
	case s.fault != "":
		return nil, newError(CodeParseError, s.fault, cut+s.faultAt)
	case refused != "":
		return nil, newError(CodeInvalidRequest, refused, cut+at)
	}
	return elements, nil
}

// splitBatch returns the elements of the array that is the text. refused says why it
// is no valid batch (no array, empty, more than max elements), and at is where; after
// a fault of grammar, which is in s.fault, refused is "".
func (s *scanner) splitBatch(max int) (elements [][]byte, refused string, at int) {
	if s.peek() != '[' {
		s.scanValue()
		s.expectEnd()
		return nil, "no batch: expected an array", 0
	}
	s.pos++
	s.skipSpace()
	if s.peek() == ']' {
		s.pos++
		s.expectEnd()
		return nil, "an empty batch", 0
	}
	for {
		if max > 0 && len(elements) == max {
			// The rest is not scanned.
			return nil, "more than " + strconv.Itoa(max) + " messages in a batch", s.pos
		}
		at := s.pos
		if !s.scanValue() {
			return nil, "", 0
		}
		elements = append(elements, s.data[at:s.pos:s.pos])
		s.skipSpace()
		switch s.peek() {
		case ',':
			s.pos++
			s.skipSpace()
		case ']':
			s.pos++
			s.expectEnd()
			return elements, "", 0
		default:
			s.unexpected("a comma or the end of the array")
			return nil, "", 0
		}
	}
}

// maxPrefixBraces is at how many braces in a line, after its first byte,
// EndsInResponse looks for the beginning of a response.
const maxPrefixBraces = 8

// EndsInResponse reports whether a response stands at the end of a line, with text before it, such
// as a prompt. It is not received as one, because logs quote messages too.
func EndsInResponse(line []byte) bool {
	rest, _ := trim(line)
	if len(rest) == 0 || rest[len(rest)-1] != '}' {
		return false // so in most lines of a log, and quickly seen
	}
	for range maxPrefixBraces {
		at := bytes.IndexByte(rest[min(1, len(rest)):], '{')
		if at < 0 {
			return false
		}
		rest = rest[1+at:]
		if m, err := Parse(rest); err == nil && m.Kind() == Response {
			return true
		}
	}
	return false
}

// HasBatches reports whether a revision of the protocol has batches, arrays of messages (J7).
func HasBatches(revision string) bool { return revision == "2025-03-26" }

// Decode returns the messages in one line or body. raw is a message or, if
// batches is true (ST5, LI9), an array of messages. faults has an Error for each part that
// is not a valid message; the caller answers it with Error.Reply. Valid elements of a batch
// count although others are invalid (LI12). initialize is not valid in a batch (J7). A
// batch may have at most max elements, and a message at most depth levels, as for
// ParseDepth; the array of the batch is not a level. 0 or negative means no limit for both.
//
// Decode takes ownership of raw, as Parse does, unless raw is an array: the messages of a
// batch are copies.
func Decode(raw []byte, batches bool, max, depth int) (messages []Message, faults []*Error) {
	if !IsBatch(raw) {
		m, err := ParseDepth(raw, depth)
		if err != nil {
			return nil, []*Error{err.(*Error)}
		}
		return []Message{m}, nil
	}
	if !batches {
		return nil, []*Error{{Code: CodeInvalidRequest, Message: "batches are part of protocol version 2025-03-26 only"}}
	}
	elements, err := SplitBatch(raw, max)
	if err != nil {
		return nil, []*Error{err.(*Error)}
	}
	for _, element := range elements {
		m, err := ParseDepth(bytes.Clone(element), depth) // a clone does not keep the whole batch in memory
		switch {
		case err != nil:
			faults = append(faults, err.(*Error))
		case m.Method() == "initialize":
			faults = append(faults, &Error{Code: CodeInvalidRequest, Message: "initialize must not be in a batch", ID: m.ID(), Kind: m.Kind()})
		default:
			messages = append(messages, m)
		}
	}
	return messages, faults
}
