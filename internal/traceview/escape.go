package traceview

import (
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// truncate returns s, or its first n characters and "…" if it has more.
func truncate(s string, n int) string {
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

// splitText yields a text in pieces of at most 16 KiB, none of which ends inside of a character.
func splitText(text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(text) > 0 {
			n := min(len(text), 16<<10)
			for i := n; n < len(text) && i > n-utf8.UTFMax; i-- {
				if utf8.RuneStart(text[i]) {
					n = i
					break
				}
			}
			if !yield(text[:n]) {
				return
			}
			text = text[n:]
		}
	}
}

// bodyText returns a body as text, not escaped. Where bytes are left out, it says how many.
func bodyText(b *trace.Body) []byte {
	if b.OmittedBytes == 0 {
		return b.Text
	}
	text := fmt.Appendf(append([]byte(nil), b.Text...), " …[%d bytes are not kept]… ", b.OmittedBytes)
	return append(text, b.Tail...)
}
