package jsonrpc

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// A scanner reads JSON text once and checks its grammar (RFC 8259) and its UTF-8. It stops
// at the first fault. It does not recurse, so deep nesting cannot overflow the stack: only
// the few levels of the envelope are nested calls, and scanValue scans all deeper levels.
type scanner struct {
	data          []byte // the text that is scanned
	pos           int    // the offset in data of the next byte to scan
	hasLineBreaks bool   // there is a line break between two tokens
	fault         string // the first fault of grammar; "": there is none
	faultAt       int    // the byte offset of fault

	maxLevels int // how many levels of objects and arrays there may be; 0: any number
	level     int // how many objects openObject has entered and nextKey has not left yet
	tooDeepAt int // the offset of the first level deeper than maxLevels; 0: there is none
}

// checkDepth notes in tooDeepAt, for the first time only, that an object or array that
// begins at pos is on a level beyond maxLevels. The outermost level is 1.
func (s *scanner) checkDepth(level int) {
	if s.maxLevels > 0 && level > s.maxLevels && s.tooDeepAt == 0 {
		s.tooDeepAt = s.pos
	}
}

// fail notes a fault at a byte offset, unless there was one before. It returns false,
// for its caller to return.
func (s *scanner) fail(at int, fault string) bool {
	if s.fault == "" {
		s.fault, s.faultAt = fault, at
	}
	return false
}

// peek returns the next byte, 0 at the end of the text. (A NUL byte in the text is not a
// token, so callers treat it as a fault as well.)
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// faultMoreText is the fault of text that goes on after a whole value.
const faultMoreText = "expected the end of the text"

// expectEnd notes a fault if there is more text. White space is more text, too: the caller has
// trimmed it, if it is allowed.
func (s *scanner) expectEnd() {
	if s.fault == "" && s.pos < len(s.data) {
		s.fail(s.pos, faultMoreText)
	}
}

// skipSpace moves to the next byte that is no white space, and notes whether there was
// a line break.
func (s *scanner) skipSpace() {
	for i := s.pos; i < len(s.data); i++ {
		switch s.data[i] {
		case ' ', '\t':
		case '\n', '\r':
			s.hasLineBreaks = true
		default:
			s.pos = i
			return
		}
	}
	s.pos = len(s.data)
}

// unexpected notes the fault that there is something other than want at pos. It returns false,
// as fail does.
func (s *scanner) unexpected(want string) bool {
	if s.pos >= len(s.data) {
		return s.fail(s.pos, "the text ends where "+want+" should follow")
	}
	return s.fail(s.pos, "expected "+want)
}

// openObject enters the object at pos, and moves to its first key. It returns false,
// and moves behind the object, if that is empty.
func (s *scanner) openObject() bool {
	s.checkDepth(s.level + 1)
	s.pos++
	s.skipSpace()
	if s.peek() == '}' {
		s.pos++
		return false
	}
	s.level++
	return true
}

// nextKey moves from the end of a member's value to the next key. It returns false at
// the end of the object, behind which it moves, and after a fault.
func (s *scanner) nextKey() bool {
	if s.fault != "" {
		return false
	}
	s.skipSpace()
	switch s.peek() {
	case ',':
		s.pos++
		s.skipSpace()
		return true
	case '}':
		s.pos++
		s.level--
		return false
	}
	return s.unexpected("a comma or the end of the object")
}

// scanKey scans a key and the colon, up to the value. It returns the text between
// the quotes and whether that contains escapes.
func (s *scanner) scanKey() (text []byte, escaped, ok bool) {
	if s.peek() != '"' {
		return nil, false, s.unexpected("a key")
	}
	start := s.pos + 1
	if escaped, ok = s.scanString(); !ok {
		return nil, false, false
	}
	text = s.data[start : s.pos-1]
	s.skipSpace()
	if s.peek() != ':' {
		return nil, false, s.unexpected("a colon")
	}
	s.pos++
	s.skipSpace()
	return text, escaped, true
}

// levels is a stack of one bit per nesting level: 1 for an object, 0 for an
// array. The innermost 64 levels need no memory.
type levels struct {
	top   uint64   // the innermost levels, up to 64; the lowest bit is the innermost
	rest  []uint64 // the outer levels, 64 in each; the last are the innermost of these
	depth int      // how many levels there are
}

// push enters a level: bit is 1 for an object and 0 for an array.
func (l *levels) push(bit uint64) {
	if l.depth > 0 && l.depth%64 == 0 {
		l.rest = append(l.rest, l.top)
	}
	l.top = l.top<<1 | bit
	l.depth++
}

// pop leaves the innermost level.
func (l *levels) pop() {
	l.depth--
	l.top >>= 1
	if l.depth > 0 && l.depth%64 == 0 {
		l.top = l.rest[len(l.rest)-1]
		l.rest = l.rest[:len(l.rest)-1]
	}
}

// scanValue scans one value of any depth that begins at pos, and checks its grammar.
// It returns false after a fault.
func (s *scanner) scanValue() bool {
	var l levels
	for {
		// A value is due at pos.
		done, ok := s.scanScalar()
		if done && !ok {
			return false
		}
		if !done {
			object := s.peek() == '{'
			s.checkDepth(s.level + l.depth + 1)
			s.pos++
			s.skipSpace()
			switch c := s.peek(); {
			case object && c == '}', !object && c == ']':
				s.pos++
			case object:
				l.push(1)
				if _, _, ok := s.scanKey(); !ok {
					return false
				}
				continue
			default:
				l.push(0)
				continue
			}
		}
		if !s.continueAfter(&l) {
			return s.fault == ""
		}
	}
}

// What a byte outside strings means to skip.
const (
	classOther = iota // the byte means nothing to skipValue, which goes on
	classQuote        // the byte begins a string
	classOpen         // the byte begins an object or array
	classClose        // the byte ends an object or array
)

// byteClasses says what each byte outside strings means to skipValue.
var byteClasses = [256]uint8{'"': classQuote, '{': classOpen, '[': classOpen, '}': classClose, ']': classClose}

// simpleEscapes are the characters that make a whole escape with a backslash before them.
var simpleEscapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// skipValue moves to the end of the value at pos, which must be valid JSON, such as a part
// of a Message. It only looks for the end of the value, which is much
// faster than scanValue for long strings. (In invalid text it stops somewhere.)
func (s *scanner) skipValue() {
	data, i, depth := s.data, s.pos, 0
	for i < len(data) {
		switch byteClasses[data[i]] {
		case classQuote:
			i = endOfString(data, i+1)
		case classOpen:
			depth++
			i++
		case classClose:
			depth--
			i++
		default:
			if depth == 0 {
				s.pos = endOfScalar(data, i)
				return
			}
			for i++; i < len(data) && byteClasses[data[i]] == classOther; i++ {
			}
			continue
		}
		if depth <= 0 {
			break
		}
	}
	s.pos = i
}

// skipKnown moves to the end of the value at pos, which must be valid JSON. If that is the value whose span is known,
// it scans nothing.
func (s *scanner) skipKnown(known span) {
	if s.pos == int(known.start) && known.end > 0 {
		s.pos = int(known.end)
		return
	}
	s.skipValue()
}

// endOfScalar returns the index after the number or literal that begins at i.
func endOfScalar(data []byte, i int) int {
	for ; i < len(data); i++ {
		switch data[i] {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return i
		}
	}
	return i
}

// endOfString returns the index after the closing quote of the string whose
// text begins at start.
func endOfString(data []byte, start int) int {
	for i := start; ; {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			return len(data)
		}
		i += n
		first := i
		for first > start && data[first-1] == '\\' {
			first--
		}
		i++
		if (i-first)%2 == 1 { // an even number of backslashes: they do not escape the quote
			return i
		}
		start = i // so that no backslash is counted twice
	}
}

// continueAfter goes on after a value inside the levels l: it closes the levels that
// end here, and stops before the next value, behind its key in an object. It returns
// false when all levels are closed, and after a fault.
func (s *scanner) continueAfter(l *levels) bool {
	for l.depth > 0 {
		s.skipSpace()
		object := l.top&1 == 1
		switch c := s.peek(); {
		case c == ',':
			s.pos++
			s.skipSpace()
			if object {
				_, _, ok := s.scanKey()
				return ok
			}
			return true
		case c == '}' && object, c == ']' && !object:
			s.pos++
			l.pop()
		case object:
			return s.unexpected("a comma or the end of the object")
		default:
			return s.unexpected("a comma or the end of the array")
		}
	}
	return false
}

// scanScalar scans a string, number or literal; ok is false after a fault. If an
// object or array begins at pos, it consumes nothing, and done is false.
func (s *scanner) scanScalar() (done, ok bool) {
	switch c := s.peek(); c {
	case '{', '[':
		return false, true
	case '"':
		_, ok = s.scanString()
	case 't':
		ok = s.scanLiteral("true")
	case 'f':
		ok = s.scanLiteral("false")
	case 'n':
		ok = s.scanLiteral("null")
	default:
		if c != '-' && !isDigit(c) {
			return true, s.unexpected("a value")
		}
		ok = s.scanNumber()
	}
	return true, ok
}

// scanLiteral scans word (true, false or null), or notes a fault and returns false.
func (s *scanner) scanLiteral(word string) bool {
	rest := s.data[s.pos:]
	if len(rest) < len(word) || string(rest[:len(word)]) != word {
		return s.fail(s.pos, "invalid literal")
	}
	s.pos += len(word)
	return true
}

// isDigit reports whether c is '0' to '9'.
func isDigit(c byte) bool { return c-'0' <= 9 }

// scanNumber scans a number, or notes a fault and returns false.
func (s *scanner) scanNumber() bool {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.scanDigits() {
		return false
	}
	if s.peek() == '.' {
		s.pos++
		if !s.scanDigits() {
			return false
		}
	}
	if s.peek()|0x20 == 'e' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		return s.scanDigits()
	}
	return true
}

// scanDigits scans one or more digits, or notes a fault and returns false.
func (s *scanner) scanDigits() bool {
	i := s.pos
	for i < len(s.data) && isDigit(s.data[i]) {
		i++
	}
	if i == s.pos {
		return s.unexpected("a digit")
	}
	s.pos = i
	return true
}

// scanString scans the string whose opening quote is at pos; escaped says that it has
// escapes. ok is false after a fault.
func (s *scanner) scanString() (escaped, ok bool) {
	start := s.pos + 1
	nonASCII := false
	for i := start; ; {
		j, high := endOfPlain(s.data, i)
		nonASCII = nonASCII || high
		if j == len(s.data) {
			return false, s.fail(j, "the text ends inside a string")
		}
		switch s.data[j] {
		case '"':
			if nonASCII && !utf8.Valid(s.data[start:j]) {
				return false, s.fail(start+invalidUTF8(s.data[start:j]), "invalid UTF-8 in a string")
			}
			s.pos = j + 1
			return escaped, true
		case '\\':
			escaped = true
			if i = j + 2; i <= len(s.data) && simpleEscapes[s.data[j+1]] {
				continue
			}
			n := escapeLen(s.data[j:])
			if n == 0 {
				return false, s.fail(j, "invalid escape in a string")
			}
			i = j + n
		default:
			return false, s.fail(j, "raw control character in a string")
		}
	}
}

const (
	lowBits  = 0x0101010101010101 // the lowest bit of each of eight bytes
	highBits = 0x8080808080808080 // the highest bit of each of eight bytes
)

// endOfPlain returns the index, from i on, of the first quote, backslash or control
// character, or len(b); and whether there is a byte of non-ASCII text before it.
//
// It looks at eight bytes at a time, and at 32 in a long run. A subtraction sets the top
// bit of every byte that is smaller than the subtrahend. Bytes of non-ASCII text, whose
// top bit is set anyway, are masked out. A borrow into the next byte can set its top bit
// by mistake, but only above a byte whose mark is right, so the lowest mark is right.
func endOfPlain(b []byte, i int) (int, bool) {
	var high uint64
	long := i + 32 // most runs are shorter
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		if stop := stopBits(w) & highBits; stop != 0 {
			high |= w & (stop&-stop - 1)
			return i + bits.TrailingZeros64(stop)/8, high&highBits != 0
		}
		high |= w
		for ; i >= long && i+40 <= len(b); i += 32 {
			next := b[i+8 : i+40 : i+40]
			w0, w1 := binary.LittleEndian.Uint64(next), binary.LittleEndian.Uint64(next[8:])
			w2, w3 := binary.LittleEndian.Uint64(next[16:]), binary.LittleEndian.Uint64(next[24:])
			if (stopBits(w0)|stopBits(w1)|stopBits(w2)|stopBits(w3))&highBits != 0 {
				break
			}
			high |= w0 | w1 | w2 | w3
		}
	}
	for ; i < len(b); i++ {
		c := b[i]
		if c < 0x20 || c == '"' || c == '\\' {
			break
		}
		high |= uint64(c)
	}
	return i, high&highBits != 0
}

// stopBits returns a word in which the top bit of a byte is set where w has a quote, a
// backslash or a control character. Only the lowest such bit is sure: see endOfPlain.
// Quote and space differ in one bit, which is flipped first. Then the bytes smaller
// than the exclamation mark are the control characters and the former quote.
func stopBits(w uint64) uint64 {
	return (((w ^ lowBits*('"'^' ')) - lowBits*'!') | ((w ^ lowBits*'\\') - lowBits)) &^ w
}

// escapeLen returns the length, in bytes, of the escape at the start of b, with its
// backslash; 0 if it is invalid.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) >= 6 && hex4(b[2:]) >= 0 {
			return 6
		}
	}
	return 0
}

// hex4 returns the value of the first four bytes of b as hexadecimal digits, -1 if
// they are not. b must have four.
func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case isDigit(c):
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// invalidUTF8 returns the index of the first byte that is not UTF-8, or len(b).
func invalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}
