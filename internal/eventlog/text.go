package eventlog

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText is how many bytes of what a peer has chosen a line has at most.
const maxText = 200

// maxNote is how many bytes of a note a line has. Little of it is what a peer has chosen.
const maxNote = 1500

// clean returns text for a line: cut, valid UTF-8, and without characters that begin a line or
// act on a terminal.
func clean(text string) string { return cleanTo(text, maxText) }

func cleanTo(text string, most int) string {
	cut := len(text) > most
	if cut {
		text = text[:most]
	}
	if !cut && !strings.ContainsFunc(text, acts) {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1 && cut && len(text) < utf8.UTFMax: // the cut went through it
		case acts(r):
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
		text = text[n:]
	}
	if cut {
		out.WriteString("...")
	}
	return out.String()
}

// acts reports whether a character is more than one to look at, or is none.
func acts(r rune) bool {
	return r == utf8.RuneError || !unicode.IsPrint(r) && r != ' '
}
