package doctor

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// MaxEvidenceBytes is how long an Excerpt is at most, in bytes.
const MaxEvidenceBytes = 400

// Excerpt returns text as it may be shown as evidence: in one line, made printable, and cut to MaxEvidenceBytes bytes.
func Excerpt(text string) string {
	const mark = " ..."
	shown := printable.Text(text)
	if len(shown) <= MaxEvidenceBytes {
		return shown
	}
	return printable.Clip(shown, MaxEvidenceBytes-len(mark)) + mark
}

// lineWidth is how many characters a line of a fact or a finding has at most in the report as text, unless a single word is longer.
const lineWidth = 100

// WriteText writes the report as people read it: the target, facts, findings, and a last line
// that says how many findings of each severity there are, and how long the diagnosis took.
func (r *Report) WriteText(w io.Writer) error {
	out := bufio.NewWriter(w)
	target, took := r.heading()
	fmt.Fprintf(out, "%s\n\n", target)
	facts, findings := r.Facts(), r.Findings()
	longest := 0
	for _, f := range facts {
		longest = max(longest, utf8.RuneCountInString(f.Name))
	}
	for _, f := range facts {
		writeParagraph(out, fmt.Sprintf("%-*s  ", longest, f.Name), f.Value)
	}
	if len(facts) > 0 {
		fmt.Fprintln(out)
	}
	count := map[Severity]int{}
	for _, f := range findings {
		count[f.Severity]++
		writeParagraph(out, fmt.Sprintf("%s %s: ", f.Severity, f.Code), f.Title)
		writeParagraph(out, "  seen:  ", f.Evidence)
		writeParagraph(out, "  means: ", f.Consequence)
		writeParagraph(out, "  do:    ", f.Advice)
		fmt.Fprintln(out)
	}
	took = took.Round(10 * time.Millisecond)
	switch {
	case len(findings) == 0:
		fmt.Fprintf(out, "nothing wrong was found (in %v)\n", took)
	default:
		fmt.Fprintf(out, "errors: %d, warnings: %d, notes: %d (in %v)\n", count[Error], count[Warning], count[Note], took)
	}
	return out.Flush()
}

// writeParagraph writes text behind a heading, broken at spaces into lines of lineWidth, the further ones indented by the width
// of the heading. text "": it writes nothing.
func writeParagraph(w io.Writer, heading, text string) {
	if text == "" {
		return
	}
	indent := strings.Repeat(" ", utf8.RuneCountInString(heading))
	line := heading
	for i, word := range strings.Split(text, " ") {
		switch {
		case i == 0:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > lineWidth:
			fmt.Fprintln(w, strings.TrimRight(line, " "))
			line = indent + word
		default:
			line += " " + word
		}
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}
