package jsonrpc

import (
	"bytes"
	"math"
	"strconv"
)

// ID is a request id or a progress token: a JSON string or integer. An ID is its spelling,
// so 1 is not "1", and no number is rounded. IDs can be compared with == and be the keys of
// a map. The zero ID means that there is no id.
type ID struct {
	text string // the id as it is spelled in JSON, quotes included; "": there is none
}

// NullID is JSON's null as an id: that of an error response to a request whose id
// could not be read.
var NullID = ID{"null"}

// StringID returns the id that is the JSON string s. Bytes of s that are not
// UTF-8 become U+FFFD.
func StringID(s string) ID { return ID{string(appendString(make([]byte, 0, len(s)+2), s))} }

// IntID returns the id that is the integer n.
func IntID(n int64) ID { return ID{strconv.FormatInt(n, 10)} }

// ParseID returns the id in raw JSON text, which may have white space around it. ok is false
// unless the text is a string or an integer (J1) of any size. 1.0 and 1e2 are
// integers; numbers with a fraction or a negative exponent are not.
func ParseID(raw []byte) (id ID, ok bool) {
	raw = bytes.Trim(raw, " \t\r\n")
	if len(raw) == 0 || raw[0] != '"' && raw[0] != '-' && !isDigit(raw[0]) {
		return ID{}, false
	}
	s := scanner{data: raw}
	if !s.scanValue() || s.pos != len(raw) || !isID(raw) {
		return ID{}, false
	}
	return ID{string(raw)}, true
}

// isID reports whether a valid JSON value is a string or an integer, as an id must be.
func isID(value []byte) bool { return value[0] == '"' || isInteger(value) }

// isInteger reports whether a valid JSON value is an integer. 1.0 and 1e2 are; what has digits
// other than 0 behind the point, or a negative exponent, is not.
func isInteger(value []byte) bool {
	if value[0] != '-' && !isDigit(value[0]) {
		return false
	}
	fraction := false
	for i, c := range value {
		switch {
		case c == '.':
			fraction = true
		case c|0x20 == 'e':
			return value[i+1] != '-'
		case fraction && c != '0':
			return false
		}
	}
	return true
}

// isErrorCode reports whether a JSON value is an integer below 2^53 in size, which
// every peer can hold: a peer that cannot hold the code fails on the whole message,
// and goes on waiting for the answer.
func isErrorCode(value []byte) bool {
	if !isInteger(value) {
		return false
	}
	code, err := strconv.ParseFloat(string(value), 64)
	return err == nil && math.Abs(code) < 1<<53
}

// IsZero reports whether there is no id.
func (id ID) IsZero() bool { return id.text == "" }

// String returns the JSON text, quotes included.
func (id ID) String() string { return id.text }

// Equivalent reports whether two ids are the same JSON value, even if they are spelled
// differently ("a" and "\u0061", 1 and 1.0). Numbers are the same if they are equal as
// float64, because many peers read numbers as float64. Numbers too large for a float64
// must be spelled alike. Two zero IDs are equivalent.
func (id ID) Equivalent(other ID) bool {
	a, b := id.text, other.text
	if a == b {
		return true
	}
	if a == "" || b == "" || (a[0] == '"') != (b[0] == '"') {
		return false
	}
	if a[0] != '"' {
		// ParseFloat also refuses the text of NullID.
		x, errX := strconv.ParseFloat(a, 64)
		y, errY := strconv.ParseFloat(b, 64)
		return errX == nil && errY == nil && x == y
	}
	a, b = a[1:len(a)-1], b[1:len(b)-1]
	for a != "" && b != "" {
		var ra, rb rune
		ra, a = nextRune(a)
		rb, b = nextRune(b)
		if ra != rb {
			return false
		}
	}
	return a == b
}

// Find returns the entry of m for an id that a peer has sent, and the key of the entry. A
// peer may have decoded and encoded the id. So if no key is spelled like id, Find
// looks for a key that is Equivalent; ok is false if there is none, or more than one.
// Only an id that is spelled differently costs a scan of m.
func Find[T any](m map[ID]T, id ID) (key ID, value T, ok bool) {
	if value, ok = m[id]; ok || id.IsZero() {
		return id, value, ok
	}
	return findEquivalent(m, id)
}

// findEquivalent returns the only entry of m whose key is the same JSON value as id, which no key is spelled like; ok
// is false if there is none, or more than one.
func findEquivalent[T any](m map[ID]T, id ID) (key ID, value T, ok bool) {
	for k, v := range m {
		if !k.Equivalent(id) {
			continue
		}
		if ok {
			var none T
			return ID{}, none, false
		}
		key, value, ok = k, v, true
	}
	return key, value, ok
}
