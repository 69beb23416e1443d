package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// maxShownBytes is how many bytes of a value or text may be printed without leaving out its middle.
const maxShownBytes = 200

// showValue returns a decoded value as JSON in one line that can be printed. The middle of a long
// one is left out.
func showValue(v any) string {
	if s, ok := v.(string); ok && len(s) > 4*maxShownBytes { // not all of it need be encoded
		v = s[:2*maxShownBytes] + s[len(s)-2*maxShownBytes:]
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "?"
	}
	return escapeAndShorten(strings.TrimSpace(b.String()))
}

// escapeAndShorten returns a text made printable, without its middle if it is longer than maxShownBytes.
func escapeAndShorten(text string) string {
	if len(text) > maxShownBytes {
		head, tail := text[:maxShownBytes/2], text[len(text)-maxShownBytes/4:]
		text = strings.ToValidUTF8(head, "") + fmt.Sprintf(" ... (%d bytes) ... ", len(text)) + strings.ToValidUTF8(tail, "")
	}
	return printable.Text(text)
}
