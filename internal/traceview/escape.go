package traceview

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// AppendEscaped appends text in one line that does nothing to a terminal. Every character that
// is not printable (control and bidirectional characters among them) becomes an escape: \n, \t,
// \u001b, \U000e0001. A byte that is not UTF-8 becomes \xff.
func AppendEscaped[T string | []byte](dst []byte, text T) []byte {
	for i := 0; i < len(text); {
		if c := text[i]; c >= ' ' && c < 0x7f {
			dst = append(dst, c)
			i++
			continue
		}
		var room [utf8.UTFMax]byte
		r, n := utf8.DecodeRune(room[:copy(room[:], text[i:])])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = fmt.Appendf(dst, `\x%02x`, text[i])
		case unicode.IsPrint(r):
			dst = utf8.AppendRune(dst, r)
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case r > 0xffff:
			dst = fmt.Appendf(dst, `\U%08x`, r)
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
		i += n
	}
	return dst
}

// Escaped returns what AppendEscaped appends.
func Escaped[T string | []byte](text T) string { return string(AppendEscaped(nil, text)) }

// AppendEscapedJSON appends JSON text so that a terminal only shows it, and it stays the same
// value: a character that is not printable can only stand in a string, and becomes \u there.
func AppendEscapedJSON(dst, text []byte) []byte {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		switch {
		case unicode.IsPrint(r) && (r != utf8.RuneError || n > 1):
			dst = append(dst, text[i:i+n]...)
		case r == '\n' || r == '\t' || r == '\r': // between values
			dst = append(dst, ' ')
		case r > 0xffff:
			r -= 0x10000
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default: // what is not UTF-8 becomes \ufffd, as a reader of JSON would read it
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
		i += n
	}
	return dst
}

// clip returns s, or its beginning if it has more than n characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for at := range s {
		if n--; n < 0 {
			return s[:at] + "…"
		}
	}
	return s
}

// bodyText returns a body as text, and says what is left out of it. It is not escaped.
func bodyText(b *trace.Body) []byte {
	if b.Cut == 0 {
		return b.Text
	}
	text := fmt.Appendf(append([]byte(nil), b.Text...), " …[%d bytes are not kept]… ", b.Cut)
	return append(text, b.Tail...)
}
