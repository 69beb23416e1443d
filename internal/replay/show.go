package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxShown is how many bytes of a value are printed.
const maxShown = 200

// Escape returns text so that it can be printed to a terminal: control and other invisible
// characters become \u escapes, as JSON writes them.
func Escape(text string) string {
	if !strings.ContainsFunc(text, isUnsafe) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text { // a byte that is not UTF-8 is U+FFFD
		switch {
		case !isUnsafe(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// isUnsafe is true of what a terminal does not simply show: control characters, those that
// change the direction of text, unassigned ones.
func isUnsafe(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// show returns a decoded value as JSON in one line that can be printed. The middle of a long
// one is left out.
func show(v any) string {
	if s, ok := v.(string); ok && len(s) > 4*maxShown { // not all of it need be encoded
		v = s[:2*maxShown] + s[len(s)-2*maxShown:]
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "?"
	}
	return shorten(strings.TrimSpace(b.String()))
}

// shorten escapes text and leaves out the middle if it is long.
func shorten(text string) string {
	if len(text) > maxShown {
		head, tail := text[:maxShown/2], text[len(text)-maxShown/4:]
		text = strings.ToValidUTF8(head, "") + fmt.Sprintf(" ... (%d bytes) ... ", len(text)) + strings.ToValidUTF8(tail, "")
	}
	return Escape(text)
}
