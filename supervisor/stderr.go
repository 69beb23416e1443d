package supervisor

import (
	"bytes"
	"io"
	"sync"
)

// MaxStderrLine is the greatest length, in bytes, of a line of stderr. A longer line is
// cut to this length, and its end is replaced by " [cut]".
const MaxStderrLine = 4096

const (
	cutMark   = " [cut]"
	tailLines = 10
	tailBytes = 512 // of each line
)

// stderrLines splits a child's stderr into lines.
type stderrLines struct {
	sink func(line []byte) // may be nil

	mu   sync.Mutex // guards what follows
	tail [tailLines][]byte
	seen int // lines so far; the next one goes to tail[seen%tailLines]
}

// copyFrom reads r to its end: a child must never wait for us to read its stderr. The
// buffer holds one line.
func (l *stderrLines) copyFrom(r io.Reader) {
	buf := make([]byte, MaxStderrLine+2) // for the longest line with \r\n
	n, skipping := 0, false
	for {
		m, err := r.Read(buf[n:])
		n += m
		rest := buf[:n]
		for {
			line, after, found := bytes.Cut(rest, []byte{'\n'})
			if !found {
				break
			}
			if !skipping {
				l.emit(bytes.TrimSuffix(line, []byte{'\r'}))
			}
			skipping, rest = false, after
		}
		switch {
		case skipping:
			rest = nil
		case len(rest) == len(buf):
			l.emit(append(buf[:MaxStderrLine-len(cutMark)], cutMark...))
			skipping, rest = true, nil
		}
		n = copy(buf, rest)
		if err != nil {
			if n > 0 {
				l.emit(buf[:n])
			}
			return
		}
	}
}

func (l *stderrLines) emit(line []byte) {
	if len(line) > MaxStderrLine { // a line without \r may be one byte longer and still fit the buffer
		line = append(line[:MaxStderrLine-len(cutMark)], cutMark...)
	}
	l.mu.Lock()
	slot := &l.tail[l.seen%tailLines]
	*slot = append((*slot)[:0], line[:min(len(line), tailBytes)]...)
	l.seen++
	l.mu.Unlock()
	if l.sink != nil {
		l.sink(line)
	}
}

func (l *stderrLines) lastLines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(l.seen, tailLines)
	lines := make([]string, 0, n)
	for i := l.seen - n; i < l.seen; i++ {
		lines = append(lines, string(l.tail[i%tailLines]))
	}
	return lines
}
