package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// maxShown is how many bytes of a value are printed.
const maxShown = 200

// showValue returns a decoded value as JSON in one line that can be printed. The middle of a long
// one is left out.
func showValue(v any) string {
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
	return printable.Text(text)
}
