package command

import (
	"fmt"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
)

// stdoutFaultFindings are the diagnoses (C3, C10) for faults in the output on stdout, in the order in which addStdoutFindings
// adds them.
var stdoutFaultFindings = []struct {
	fault stdoutFault  // what is seen on stdout
	is    doctor.Fault // the diagnosis for it
}{
	{faultNoise, doctor.StdoutNoise},
	{faultHeader, doctor.Fault{Code: "C10", Severity: doctor.Error, Title: "messages begin with Content-Length",
		Consequence: "This is the framing of language servers. In MCP a message is one line, so clients take the header for garbage.",
		Advice:      "Write each message as one line of JSON with a line feed at its end, and nothing else."}},
	{faultBOM, doctor.Fault{Code: "C10", Severity: doctor.Error, Title: "a byte order mark stands before a message",
		Consequence: "Most JSON parsers refuse the line, so this message, usually the first answer, is lost.",
		Advice:      "Write UTF-8 without a byte order mark."}},
	{faultManyLines, doctor.Fault{Code: "C10", Severity: doctor.Error, Title: "a message has several lines",
		Consequence: "A line is a message. Clients refuse each of these lines, and the message is lost.",
		Advice:      "Write JSON without line breaks: no indentation."}},
	{faultNoEnd, doctor.Fault{Code: "C10", Severity: doctor.Error, Title: "a message does not end with a line feed",
		Consequence: "Clients go on waiting for the end of the line.",
		Advice:      "Write a line feed after each message, and flush stdout."}},
	{faultUTF8, doctor.NotUTF8},
	{faultTooLong, doctor.LineTooLong},
	{faultCRLF, doctor.Fault{Code: "C10", Severity: doctor.Warning, Title: "lines end in CR LF",
		Consequence: "Most clients take the CR for white space. Those that compare or count bytes do not.",
		Advice:      "Open stdout in binary mode or with newline \"\\n\"; on Windows a text stream adds the CR."}},
}

// addStdoutFindings adds C3 and C10 for what was wrong on p's stdout, unless an earlier process had the same fault.
func (d *diagnosis) addStdoutFindings(p *serverProcess) {
	for _, f := range stdoutFaultFindings {
		lines, count := p.faultLines(f.fault)
		if count == 0 || d.hasFindingTitled(f.is.Title) {
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
		d.report.AddFinding(f.is.WithEvidence(seen))
	}
}

// hasFindingTitled reports whether the report has a finding with this title.
func (d *diagnosis) hasFindingTitled(title string) bool {
	for _, f := range d.report.Findings() {
		if f.Title == title {
			return true
		}
	}
	return false
}
