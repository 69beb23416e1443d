package jsonrpc

import (
	"unicode/utf16"
	"unicode/utf8"
)

// nextRune decodes one character of string text (without the quotes) and returns the
// rest of the text. A lone surrogate is returned as it is, so that two different ones stay
// different. Text that is not valid means nothing, but does no harm: an escape that is cut
// off stands for its own characters.
func nextRune[T string | []byte](text T) (rune, T) {
	if text[0] != '\\' {
		if text[0] < utf8.RuneSelf {
			return rune(text[0]), text[1:]
		}
		var buf [utf8.UTFMax]byte
		r, size := utf8.DecodeRune(buf[:copy(buf[:], text)])
		return r, text[size:]
	}
	if len(text) == 1 {
		return '\\', text[1:]
	}
	switch text[1] {
	case 'b':
		return '\b', text[2:]
	case 'f':
		return '\f', text[2:]
	case 'n':
		return '\n', text[2:]
	case 'r':
		return '\r', text[2:]
	case 't':
		return '\t', text[2:]
	case 'u':
		r := escapeUnit(text)
		if r < 0 {
			return 'u', text[2:]
		}
		if utf16.IsSurrogate(r) {
			if pair := utf16.DecodeRune(r, escapeUnit(text[6:])); pair != utf8.RuneError {
				return pair, text[12:]
			}
		}
		return r, text[6:]
	}
	return rune(text[1]), text[2:] // quote, backslash, slash
}

// escapeUnit returns the UTF-16 unit of the \u escape at the start of text, -1 if
// there is none.
func escapeUnit[T string | []byte](text T) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	var buf [4]byte
	copy(buf[:], text[2:6])
	return hex4(buf[:])
}

// textEquals reports whether valid string text (without the quotes) decodes to name.
// escaped: text may have escapes.
func textEquals(text []byte, escaped bool, name string) bool {
	if !escaped {
		return string(text) == name
	}
	for _, want := range name {
		if len(text) == 0 {
			return false
		}
		var r rune
		if r, text = nextRune(text); r != want {
			return false
		}
	}
	return len(text) == 0
}

// decodeText returns what valid string text (without the quotes) stands for. Lone
// surrogates, which a Go string cannot hold, become U+FFFD.
func decodeText(text []byte) string {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		var r rune
		r, text = nextRune(text)
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}

// appendString appends s as a JSON string. It escapes only what JSON demands. Bytes that
// are not UTF-8 become U+FFFD.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range s { // ranging yields U+FFFD for every invalid byte
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r == '\r':
			dst = append(dst, '\\', 'r')
		case r == '\t':
			dst = append(dst, '\\', 't')
		case r < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}
