package traceview

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// copyBufferSize is the length in bytes, line end included, of the longest line that copyLines copies without parsing. Once a line is
// longer, it and all that follow are parsed.
const copyBufferSize = 256 << 10

// isUnfiltered reports whether all records are to be written as they stand in the trace, so that they need not be parsed.
func (s *Viewer) isUnfiltered() bool { return s.JSON && !s.Terminal && len(s.Filter.groups) == 0 }

// copyLines writes the lines of a running bridge to Out without parsing them, because that costs several times what it costs
// the bridge to make them. From the first line on that does not begin with trace.LinePrefix, or is too long, it parses all
// lines.
func (s *Viewer) copyLines(in io.Reader) error {
	r := bufio.NewReaderSize(in, copyBufferSize)
	passed := false
	for {
		if r.Buffered() == 0 {
			if err := s.Out.Flush(); err != nil {
				return err
			}
		}
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return s.Out.Flush()
		case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull):
			return errors.Join(err, s.Out.Flush())
		case len(line) == 1 && err == nil: // a blank line: the bridge says that it is there
			continue
		case err != nil || !bytes.HasPrefix(line, []byte(trace.LinePrefix)):
			err = s.parseAndPrint(io.MultiReader(bytes.NewReader(bytes.Clone(line)), r))
			if passed && errors.Is(err, ErrNoTrace) {
				return nil
			}
			return err
		}
		passed = true
		if _, err := s.Out.Write(line); err != nil {
			return err
		}
		ready, _ := r.Peek(r.Buffered())
		more := recordLinesLength(ready)
		if _, err := s.Out.Write(ready[:more]); err != nil {
			return err
		}
		_, _ = r.Discard(more) // r has buffered them, so there is no error
	}
}

// recordLinesLength returns the length of the whole lines at the beginning of text that all begin with trace.LinePrefix.
// copyLines writes them together, because one by one costs more.
func recordLinesLength(text []byte) (length int) {
	for bytes.HasPrefix(text[length:], []byte(trace.LinePrefix)) {
		n := bytes.IndexByte(text[length:], '\n')
		if n < 0 {
			break
		}
		length += n + 1
	}
	return length
}

// parseAndPrint does the rest of what copyLines does: it parses each line, writes those that are records, and warns of others.
func (s *Viewer) parseAndPrint(in io.Reader) error {
	err := s.eachRecord(in, true, func(_ *trace.Record, line []byte) error {
		if err := s.printJSON(line); err != nil {
			return err
		}
		return s.Out.Flush()
	})
	return errors.Join(err, s.Out.Flush())
}
