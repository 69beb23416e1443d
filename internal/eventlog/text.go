package eventlog

import "github.com/mcp-bridge/mcp-bridge/internal/printable"

// maxTextBytes is how many bytes of what a peer has chosen a line has at most.
const maxTextBytes = 200

// maxNoteBytes is how many bytes of a note a line has. Little of it is what a peer has chosen.
const maxNoteBytes = 1500

// clipPrintable returns text for a line: cut, and printable.
func clipPrintable(text string) string { return clipPrintableTo(text, maxTextBytes) }

func clipPrintableTo(text string, most int) string {
	if cut := printable.Clip(text, most); len(cut) < len(text) {
		return printable.Text(cut) + "..."
	}
	return printable.Text(text)
}
