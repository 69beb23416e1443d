package redact

import (
	"bytes"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file finds where JSON values begin and end.

// decode returns the text of a JSON string, given without its quotes, with the escapes decoded. A text without escapes is
// returned itself.
func decode(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(append(append(quoted, '"'), raw...), '"')
	text, _ := jsonrpc.Text(quoted)
	return []byte(text)
}

// skipSpace returns the index of the first byte from i on that is no white space.
func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r' || text[i] == '\t') {
		i++
	}
	return i
}

// startOfString returns the index behind the opening quote of the next JSON string from i on; -1: there is none.
func startOfString(text []byte, i int) int {
	for near := min(i+8, len(text)); i < near; i++ { // a call costs more than the loop between most strings
		if text[i] == '"' {
			return i + 1
		}
	}
	if n := bytes.IndexByte(text[i:], '"'); n >= 0 {
		return i + n + 1
	}
	return -1
}

// endOfString returns the index behind the closing quote of the string whose text begins at i; len(text): there may be none.
func endOfString(text []byte, i int) int {
	for short := min(i+16, len(text)); i < short && text[i] != '\\'; i++ { // a call costs more than the loop for most strings
		if text[i] == '"' {
			return i + 1
		}
	}
	for start := i; ; {
		n := bytes.IndexByte(text[i:], '"')
		if n < 0 {
			return len(text)
		}
		i += n
		first := i
		for first > start && text[first-1] == '\\' {
			first--
		}
		i++
		if (i-first)%2 == 1 {
			return i
		}
		start = i
	}
}

// endOfScalar returns the index behind the number, true, false or null that begins at i.
func endOfScalar(text []byte, i int) int {
	for ; i < len(text); i++ {
		switch text[i] {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return i
		}
	}
	return i
}

// endOfValue returns the index behind the JSON value, of any type, that begins at i.
func endOfValue(text []byte, i int) int {
	depth := 0
	for i < len(text) {
		switch text[i] {
		case '"':
			i = endOfString(text, i+1)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		default:
			if depth == 0 {
				return endOfScalar(text, i)
			}
			i++
			continue
		}
		if depth <= 0 {
			return i
		}
	}
	return i
}
