// Package printable makes text that somebody else has chosen fit to be shown: in a terminal, in a
// line of a log, in a report. Its functions keep no state, and may be called concurrently.
package printable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Append appends text in one line that does nothing to a terminal. Every character that is not
// printable (control and bidirectional characters among them) becomes an escape: \n, \r, \t, \u001b,
// \U000e0001. A byte that is not UTF-8 becomes \xff.
func Append[T string | []byte](dst []byte, text T) []byte {
	return appendEscaped(dst, text, unicode.IsPrint, func(dst []byte, r rune, bad []byte) []byte {
		switch {
		case bad != nil:
			return append(dst, '\\', 'x', hexDigits[bad[0]>>4], hexDigits[bad[0]&15])
		case r == '\n':
			return append(dst, `\n`...)
		case r == '\t':
			return append(dst, `\t`...)
		case r == '\r':
			return append(dst, `\r`...)
		case r > 0xffff:
			return fmt.Appendf(dst, `\U%08x`, r)
		}
		return appendUnicodeEscape(dst, r)
	})
}

// Text returns text in one line that does nothing to a terminal, escaped as Append does it.
func Text[T string | []byte](text T) string { return string(Append(nil, text)) }

// AppendJSON appends JSON text so that a terminal only shows it, and it stays the same value: a
// character that is not printable can only stand in a string, and becomes \u there. What is not
// UTF-8 becomes \ufffd, as a reader of JSON would read it. Line feeds, carriage returns and tabs,
// which stand between values, become spaces.
func AppendJSON[T string | []byte](dst []byte, text T) []byte {
	return appendEscaped(dst, text, unicode.IsPrint, func(dst []byte, r rune, _ []byte) []byte {
		if r == '\n' || r == '\t' || r == '\r' {
			return append(dst, ' ')
		}
		return appendUnicodeEscape(dst, r)
	})
}

// AppendLines appends lines of a log. Only what would change the text beside it, or make the terminal do
// something, becomes an escape, \u001b, as JSON understands it too: control characters but line
// feeds and tabs, and those that change the direction of writing. What merely has no width stays,
// because emoji are made with it. A byte that is not UTF-8 becomes U+FFFD.
func AppendLines[T string | []byte](dst []byte, text T) []byte {
	return appendEscaped(dst, text, isInert, func(dst []byte, r rune, bad []byte) []byte {
		if bad != nil {
			return utf8.AppendRune(dst, utf8.RuneError)
		}
		return appendUnicodeEscape(dst, r)
	})
}

// isInert reports whether a character may be shown as it is in lines of a log: it neither controls
// the terminal nor changes how text beside it is shown. Line feeds and tabs count as inert.
func isInert(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return true
	case r < ' ', r >= 0x7F && r <= 0x9F: // C0, DEL, C1
		return false
	case r == 0x2028, r == 0x2029: // line and paragraph separators
		return false
	case r == 0x061C, r == 0x200E, r == 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069: // bidirectional
		return false
	}
	return true
}

// appendUnicodeEscape appends a character as JSON escapes it: \u and four digits, twice for one
// above U+FFFF.
func appendUnicodeEscape(dst []byte, r rune) []byte {
	if r > 0xffff {
		r -= 0x10000
		return fmt.Appendf(dst, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
	}
	return append(dst, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// hexDigits are the hexadecimal digits, by their value.
const hexDigits = "0123456789abcdef"

// appendEscaped appends text. Printable ASCII and what isShown accepts stays; escape appends all
// else. Its argument bad is the byte where text is not UTF-8 (r is utf8.RuneError then), otherwise
// nil.
func appendEscaped[T string | []byte](dst []byte, text T, isShown func(rune) bool, escape func(dst []byte, r rune, bad []byte) []byte) []byte {
	for i := 0; i < len(text); {
		if c := text[i]; c >= ' ' && c < 0x7f {
			dst = append(dst, c)
			i++
			continue
		}
		var room [utf8.UTFMax]byte
		next := room[:copy(room[:], text[i:])]
		r, n := utf8.DecodeRune(next)
		switch {
		case r == utf8.RuneError && n == 1:
			dst = escape(dst, r, next[:1])
		case isShown(r):
			dst = append(dst, next[:n]...)
		default:
			dst = escape(dst, r, nil)
		}
		i += n
	}
	return dst
}

// Clip returns text, or its beginning if it has more than maxBytes: no character is cut through.
// The result does not keep a longer text in memory. What is not UTF-8 stays.
func Clip(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	for n := maxBytes; n >= 0 && n > maxBytes-utf8.UTFMax; n-- {
		if utf8.RuneStart(text[n]) {
			return strings.Clone(text[:n])
		}
	}
	return strings.Clone(text[:maxBytes])
}
