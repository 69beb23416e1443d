package traceview

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// copyBufferSize is how long a line may be that copyLines hands on unread.
const copyBufferSize = 256 << 10

// isUnfiltered reports whether all records are wanted as they stand there, so that nobody needs to know what they say.
func (s *Viewer) isUnfiltered() bool { return s.JSON && !s.Terminal && len(s.Filter.groups) == 0 }

// copyLines prints the lines of a running bridge unread, because to read them costs several times what it costs to have them
// made. From the first line on that looks otherwise than trace.Append makes them, it reads what comes.
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
		case len(line) == 1 && err == nil: // the bridge says that it is there
			continue
		case err != nil || !bytes.HasPrefix(line, []byte(trace.LinePrefix)):
			err = s.read(io.MultiReader(bytes.NewReader(bytes.Clone(line)), r))
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
		_, _ = r.Discard(more) // it has them
	}
}

// recordLinesLength returns how long the lines are together that text begins with and that look as trace.Append makes them. To hand them on
// one by one costs more than to look at them.
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

// read prints the lines that are records.
func (s *Viewer) read(in io.Reader) error {
	err := s.eachRecord(in, true, func(_ *trace.Record, line []byte) error {
		if err := s.printJSON(line); err != nil {
			return err
		}
		return s.Out.Flush()
	})
	return errors.Join(err, s.Out.Flush())
}
