package eventlog

import "github.com/mcp-bridge/mcp-bridge/internal/printable"

// maxText is how many bytes of what a peer has chosen a line has at most.
const maxText = 200

// maxNote is how many bytes of a note a line has. Little of it is what a peer has chosen.
const maxNote = 1500

// clean returns text for a line: cut, and printable.
func clean(text string) string { return cleanTo(text, maxText) }

func cleanTo(text string, most int) string {
	if cut := printable.Clip(text, most); len(cut) < len(text) {
		return printable.Text(cut) + "..."
	}
	return printable.Text(text)
}
