package traceview

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// Viewer reads a trace and writes what is wanted of it. It must not be used concurrently.
type Viewer struct {
	Out      *bufio.Writer // where what is wanted is written; the caller flushes it, but Live does so itself
	Err      io.Writer     // gets the warnings: of lines that could not be read, and of missing records
	Terminal bool          // Out is shown on a terminal: colours are used, and control characters in JSON escaped
	Width    int           // the width of the terminal, in characters; 0: not known

	Filter    Filter // which records are wanted
	Verbose   int    // 0: a line for each record; 1: below it also its body and headers; more: a message beside the one that it was made of
	JSON      bool   // records are written as they stand in the trace; Verbose and Exchanges do not count
	Exchanges bool   // HTTP exchanges and streams are shown also if Filter has no word with the key "kind" or "status"
}

// reorderWindow is how many records PrintAll holds back at most, to put them into the order of their numbers. With
// Viewer.JSON it holds back none.
const reorderWindow = 64

// ErrNoTrace says that a trace has lines, but no record in any of them. Blank lines do not count.
var ErrNoTrace = errors.New("no line of it is a record of a trace")

// ReadAll reads a whole trace, and returns which of its records belong together, also with an error: then of those before it. It warns
// of lines that are no records. The error is that of in, or ErrNoTrace.
func (s *Viewer) ReadAll(in io.Reader) (*Correlation, error) {
	var correlation Correlation
	err := s.eachRecord(in, true, func(r *trace.Record, _ []byte) error { correlation.Add(r); return nil })
	correlation.Resolve()
	return &correlation, err
}

// PrintAll prints the records of a trace that are wanted. It reads the trace from its beginning, after ReadAll, which has
// returned correlation.
func (s *Viewer) PrintAll(in io.Reader, correlation *Correlation) error {
	print := s.newPrintFunc()
	o := reorderer{maxItems: reorderWindow, emit: func(r *trace.Record, line []byte) error { return print(correlation.View(r), line) }}
	if s.JSON {
		o.maxItems = 0 // as they stand there
	}
	if err := s.eachRecord(in, false, o.add); err != nil {
		return err
	}
	return o.flush()
}

// PrintLost prints what got lost, as correlation tells, and requests that their senders have cancelled, as far as Filter wants
// them. n is how many messages got lost, without the requests that their senders have cancelled. It warns of missing records.
func (s *Viewer) PrintLost(correlation *Correlation) (n int, err error) {
	p := printer{Out: s.Out, Color: s.Terminal}
	cancelled := 0
	for _, loss := range correlation.Lost() {
		if !s.Filter.Match(correlation.View(&loss.Record)) {
			continue
		}
		if loss.Place == Cancelled {
			cancelled++
		} else {
			n++
		}
		if err := s.printLoss(&p, correlation, &loss); err != nil {
			return n, err
		}
	}
	if gaps := correlation.Gaps(); gaps > 0 {
		fmt.Fprintf(s.Err, "mcp-bridge: %s missing in the trace: a message that seems to be lost may only lack its record\n", printable.Count(gaps, "record is", "records are"))
	}
	if n == 0 && !s.JSON {
		text := "no message was lost, and every request has an answer"
		if cancelled > 0 {
			text += " or was cancelled by its sender"
		}
		_, err = s.Out.WriteString(text + "\n")
	}
	return n, err
}

// printLoss prints a Loss: the records of its Path and its Text; with JSON, one object.
func (s *Viewer) printLoss(p *printer, correlation *Correlation, loss *Loss) error {
	if s.JSON {
		line, err := json.Marshal(map[string]any{
			"where": loss.Place, "why": loss.Text, "record": json.RawMessage(trace.Append(nil, &loss.Record)),
		})
		if err != nil {
			return err
		}
		return s.printJSON(line)
	}
	for i := range loss.Path {
		if err := p.print(correlation.View(&loss.Path[i])); err != nil {
			return err
		}
	}
	word := "lost"
	if loss.cancelled {
		word = "cancelled"
	}
	_, err := fmt.Fprintf(s.Out, "%s%s: %s\n\n", indent, word, printable.Text(loss.Text))
	return err
}

// Export writes the records of a trace that are wanted in a format, one of Formats. It reads the trace from its beginning,
// after ReadAll, which has returned correlation.
func (s *Viewer) Export(in io.Reader, correlation *Correlation, format string) error {
	var wrong error
	err := export(s.Out, format, func(yield func(*View) bool) {
		wrong = s.eachRecord(in, false, func(r *trace.Record, _ []byte) error {
			if v := correlation.View(r); s.Filter.Match(v) && !yield(v) {
				return errEnough
			}
			return nil
		})
	})
	if err == nil && !errors.Is(wrong, errEnough) {
		err = wrong
	}
	return err
}

// errEnough ends eachRecord when the export has failed: the error of export tells why.
var errEnough = errors.New("no more is wanted")

// newPrintFunc returns a function that prints v unless Filter or the other options leave it out. line is the record as it
// stands in the trace.
func (s *Viewer) newPrintFunc() func(v *View, line []byte) error {
	p := &printer{
		Out: s.Out, Color: s.Terminal, Bodies: s.Verbose == 1, SideBySide: s.Verbose > 1, Exchanges: s.Exchanges, Width: s.Width,
	}
	named := s.Filter.Has("kind") || s.Filter.Has("status")
	return func(v *View, line []byte) error {
		switch {
		case !s.Filter.Match(v):
			p.keepBody(v.Record)
		case s.JSON:
			return s.printJSON(line)
		case named || p.showsByDefault(v.Kind):
			return p.print(v)
		default:
			p.keepBody(v.Record)
		}
		return nil
	}
}

// printJSON writes a line of JSON and a line feed to Out.
func (s *Viewer) printJSON(line []byte) error {
	if s.Terminal {
		line = printable.AppendJSON(nil, line)
	}
	if _, err := s.Out.Write(line); err != nil {
		return err
	}
	return s.Out.WriteByte('\n')
}

// eachRecord calls f for every record of in, with the line that has it, until f returns an error. With warn, it tells Err of
// lines that are no records: of the first five one by one, then how many more there are. The error is that of f, of in, or
// ErrNoTrace.
func (s *Viewer) eachRecord(in io.Reader, warn bool, f func(r *trace.Record, line []byte) error) error {
	const most = 5
	lines := trace.NewReader(in)
	records, badLines := 0, 0
	for r, err := range lines.Records() {
		wrong, isLine := errors.AsType[*trace.LineError](err)
		switch {
		case isLine:
			if badLines++; warn && badLines <= most {
				fmt.Fprintf(s.Err, "mcp-bridge: %v\n", wrong)
			}
			continue
		case err != nil:
			return err
		}
		records++
		if err := f(&r, lines.Raw()); err != nil {
			return err
		}
	}
	if warn && badLines > most {
		fmt.Fprintf(s.Err, "mcp-bridge: %d more lines could not be read\n", badLines-most)
	}
	if records == 0 && badLines > 0 {
		return ErrNoTrace
	}
	return nil
}
