package toolheader

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"
)

// The sentinel: what stands between the two is base64.
const (
	sentinelStart = "=?base64?" // begins a header value that is base64
	sentinelEnd   = "?="        // ends a header value that is base64
)

// EncodeValue returns the value of a Mcp-Name or Mcp-Param header for a text: the
// text itself, or its base64 between the marks of the sentinel where the text
// cannot be the value of a header, would lose space at its ends, or looks as if
// it were encoded (ME2). "" stays "".
func EncodeValue(value string) string {
	if !needsEncoding(value) {
		return value
	}
	return sentinelStart + base64.StdEncoding.EncodeToString([]byte(value)) + sentinelEnd
}

// EncodedEmpty is the header value of the empty text in base64. It means what "" does, and is there
// for servers that take an empty header for a missing one.
const EncodedEmpty = sentinelStart + sentinelEnd

// needsEncoding reports whether a text cannot stand in a header as it is (see EncodeValue). It is
// false of "".
func needsEncoding(value string) bool {
	if value == "" {
		return false
	}
	return !isPlainValue(value) || isSpace(value[0]) || isSpace(value[len(value)-1]) ||
		strings.HasPrefix(value, sentinelStart) && strings.HasSuffix(value, sentinelEnd)
}

// isSpace reports whether c is a space or a tab.
func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// isPlainValue reports whether s has nothing but visible ASCII, space and tab.
func isPlainValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' || c > '~') && c != '\t' {
			return false
		}
	}
	return true
}

var (
	errNotPlain = errors.New("it has characters that the value of a header must not have")    // the header has a character that is not visible ASCII, space or tab
	errBase64   = errors.New("what stands between the marks of base64 is no base64 of UTF-8") // a value between the sentinels is no base64 of UTF-8
)

// DecodeValue returns the text that the value of a Mcp-Name or Mcp-Param header
// means. An error says that the value is not allowed, and does not repeat it
// (MI6). Space around the value is no part of it.
func DecodeValue(header string) (string, error) {
	header = strings.Trim(header, " \t")
	if !isPlainValue(header) {
		return "", errNotPlain
	}
	inner, ok := strings.CutPrefix(header, sentinelStart)
	if ok {
		inner, ok = strings.CutSuffix(inner, sentinelEnd)
	}
	if !ok {
		return header, nil
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(inner)
	if err != nil || !utf8.Valid(raw) {
		return "", errBase64
	}
	return string(raw), nil
}
