package eventlog

import "github.com/mcp-bridge/mcp-bridge/internal/printable"

// maxTextBytes is how many bytes of a text that a peer has chosen are logged at most, escapes not counted.
const maxTextBytes = 200

// maxNoteBytes is how many bytes of the text of a note are logged at most. Peers have chosen little of that text.
const maxNoteBytes = 1500

// clipPrintable returns text for a line of the log: its first maxTextBytes, made printable, and "..." where that is not all.
func clipPrintable(text string) string { return clipPrintableTo(text, maxTextBytes) }

// clipPrintableTo returns text for a line of the log: the first most bytes of it, made printable, and "..." where that
// is not all. It cuts through no character. The result may have more than most bytes, because "..." and escapes do not
// count.
func clipPrintableTo(text string, most int) string {
	if cut := printable.Clip(text, most); len(cut) < len(text) {
		return printable.Text(cut) + "..."
	}
	return printable.Text(text)
}
