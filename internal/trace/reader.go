package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
)

// MaxLine is the length in bytes of the longest line that a Reader takes: the largest message
// in Base64, and room for the rest.
const MaxLine = 96 << 20

// ErrTruncated says that the last line of a file is not complete: its writer was interrupted, or still writes.
var ErrTruncated = errors.New("the file ends inside of it")

// ErrLineTooLong says that a line is longer than Reader.Max.
var ErrLineTooLong = errors.New("it is too long")

// LineError is what is wrong with one line. The lines after it can be read.
type LineError struct {
	Line int   // number of the line; the first one is 1
	Err  error // what is wrong with it; see Unwrap
}

// Error says which line it is, and what is wrong with it.
func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns Err, which is or wraps ErrNotRecord, ErrVersion, ErrTruncated or ErrLineTooLong.
func (e *LineError) Unwrap() error { return e.Err }

// Reader reads the records of a trace. It must not be used concurrently.
type Reader struct {
	// Max is the length in bytes of the longest line that is taken; 0: MaxLine.
	Max int

	input *bufio.Reader // what is read
	line  int           // number of the line that was read last; 0: none was
	raw   []byte        // line of the record that Next has returned last; nil: it has returned none
}

// NewReader returns a Reader of the trace that r has, one record a line.
func NewReader(r io.Reader) *Reader { return &Reader{input: bufio.NewReaderSize(r, 64<<10)} }

// Raw returns the line of the record that Next has just returned, without its line feed. The
// caller may keep it, and must not change it.
func (r *Reader) Raw() []byte { return r.raw }

// Line returns the number of the line that Next has read last, also if that was no record. The first one is 1.
func (r *Reader) Line() int { return r.line }

// Next returns the next record. The error is io.EOF at the end, a *LineError after which
// Next can be called again, or what the io.Reader has returned. Blank lines are passed over.
func (r *Reader) Next() (Record, error) {
	for {
		line, err := r.nextLine()
		if err != nil {
			return Record{}, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		record, err := Parse(line)
		if err != nil {
			return Record{}, &LineError{r.line, err}
		}
		r.raw = line
		return record, nil
	}
}

// Records yields the records and errors that Next returns, up to the end of the trace, or to an error that is no *LineError.
func (r *Reader) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			record, err := r.Next()
			if errors.Is(err, io.EOF) || !yield(record, err) {
				return
			}
			if _, more := errors.AsType[*LineError](err); err != nil && !more {
				return
			}
		}
	}
}

// nextLine returns the next line, in memory of its own and without its line feed. The error is like that of Next.
func (r *Reader) nextLine() ([]byte, error) {
	most := r.Max
	if most == 0 {
		most = MaxLine
	}
	var parts [][]byte // of a long line: one piece of memory that grows would take several times as much
	var line []byte
	size, long := 0, false
	for {
		part, err := r.input.ReadSlice('\n')
		size += len(part)
		switch long = long || size > most+1; {
		case long:
			parts = nil
		case errors.Is(err, bufio.ErrBufferFull):
			parts = append(parts, bytes.Clone(part))
		default:
			line = bytes.Join(append(parts, part), nil)
			parts = nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case err != nil && len(line) == 0 && !long:
			return nil, io.EOF
		}
		r.line++
		switch {
		case long:
			return nil, &LineError{r.line, ErrLineTooLong}
		case err != nil:
			if _, err := Parse(line); err != nil {
				return nil, &LineError{r.line, ErrTruncated}
			}
			return line, nil // only its line feed is missing
		}
		return line[:len(line)-1], nil
	}
}
