package traceview

import (
	"fmt"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

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
