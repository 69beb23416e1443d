package command

import (
	"fmt"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
)

// bytesFindings says what faults in the bytes of stdout mean.
var bytesFindings = []struct {
	fault     fault
	code      string
	severity  doctor.Severity
	title     string
	means, do string
}{
	{faultNoise, "C3", doctor.Warning, "text on stdout that is no message",
		"stdout is for messages alone. Some clients skip such text; others show an error for each line (\"Unexpected token ... is not valid JSON\", as Claude Desktop does) or close the connection. The bridge leaves it out of what clients get.",
		"Write it to stderr: console.error in place of console.log, print(..., file=sys.stderr), a logger's handler for stderr. Until then, run the server through the bridge."},
	{faultHeader, "C10", doctor.Error, "messages begin with Content-Length",
		"This is the framing of language servers. In MCP a message is one line, so clients take the header for garbage.",
		"Write each message as one line of JSON with a line feed at its end, and nothing else."},
	{faultBOM, "C10", doctor.Error, "a byte order mark stands before a message",
		"Most JSON parsers refuse the line, so this message, usually the first answer, is lost.",
		"Write UTF-8 without a byte order mark."},
	{faultManyLines, "C10", doctor.Error, "a message has several lines",
		"A line is a message. Clients refuse each of these lines, and the message is lost.",
		"Write JSON without line breaks: no indentation."},
	{faultNoEnd, "C10", doctor.Error, "a message does not end with a line feed",
		"Clients go on waiting for the end of the line.",
		"Write a line feed after each message, and flush stdout."},
	{faultUTF8, "C10", doctor.Warning, "a message has bytes that are not UTF-8",
		"Strict clients refuse the message or end the connection; others show wrong characters.",
		"Write UTF-8 on stdout; on Windows set PYTHONUTF8=1 for Python."},
	{faultLength, "C10", doctor.Error, "a line is longer than the limit",
		"The bridge does not pass it on, and many clients have lower limits.",
		"Split large lists into pages and large results into resources, or raise --max-message-size."},
	{faultCRLF, "C10", doctor.Warning, "lines end in CR LF",
		"Most clients take the CR for white space. Those that compare or count bytes do not.",
		"Open stdout in binary mode or with newline \"\\n\"; on Windows a text stream adds the CR."},
}

// bytes is C3 and C10: what there was on a process's stdout besides messages.
func (d *diagnosis) bytes(p *peer) {
	for _, f := range bytesFindings {
		lines, count := p.seen(f.fault)
		if count == 0 || d.told(f.title) {
			continue
		}
		seen := strings.Join(lines, "\n")
		if f.fault != faultNoise {
			seen = lines[0]
		} else if strings.TrimSpace(seen) == "" {
			seen = "empty lines"
		}
		if count > 1 {
			seen = fmt.Sprintf("%d times: %s", count, seen)
		}
		d.add(f.code, f.severity, f.title, seen, f.means, f.do)
	}
}

// told reports whether there is a finding with this title: twins show the same bytes.
func (d *diagnosis) told(title string) bool {
	for _, f := range d.report.Findings() {
		if f.Title == title {
			return true
		}
	}
	return false
}
