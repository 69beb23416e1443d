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
	cutMark          = " [cut]"
	maxTailLines     = 10
	maxTailLineBytes = 512 // of each line
)

// stderrLines splits a child's stderr into lines.
type stderrLines struct {
	onLine func(line []byte) // may be nil

	mu            sync.Mutex
	tail          [][]byte // the last lines, oldest first; under mu
	keptStackCall bool     // tail has a call of the stack that is being printed; under mu
}

// copyFrom reads r to its end: a child must never wait for us to read its stderr. The
// buffer holds one line. It is small until a line is long: there are many children, and most
// of them say little.
func (l *stderrLines) copyFrom(r io.Reader) {
	const full = MaxStderrLine + 2 // for the longest line with \r\n
	buf := make([]byte, 512)
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
		case len(rest) == len(buf) && len(buf) < full:
			buf = make([]byte, full)
		case len(rest) == full:
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

// emit puts a line into the tail, and hands it to onLine.
func (l *stderrLines) emit(line []byte) {
	if len(line) > MaxStderrLine { // a line without \r may be one byte longer and still fit the buffer
		line = append(line[:MaxStderrLine-len(cutMark)], cutMark...)
	}
	l.mu.Lock()
	l.addToTail(line)
	l.mu.Unlock()
	if l.onLine != nil {
		l.onLine(line)
	}
}

// addToTail puts a line into the tail. Of a stack it keeps one call at most, the first one in the program's own
// files, and none of a Go stack. The rest of the stack would push out the message of the exception or the panic,
// which stands above the stack.
func (l *stderrLines) addToTail(line []byte) {
	switch part := stackPartOf(line); {
	case part == ownCall && !l.keptStackCall:
		l.keptStackCall = true
	case part == goPosition:
		l.tail = l.tail[:max(0, len(l.tail)-1)] // the line of its function
		return
	case part != noStack:
		return
	default:
		l.keptStackCall = false
	}
	var memory []byte
	if len(l.tail) == maxTailLines { // the oldest one goes
		memory = l.tail[0]
		l.tail = append(l.tail[:0], l.tail[1:]...)
	}
	l.tail = append(l.tail, append(memory[:0], line[:min(len(line), maxTailLineBytes)]...))
}

// A stackPart is what a line is of a stack.
type stackPart int

const (
	noStack    stackPart = iota
	ownCall              // a call in the program's own files
	otherPart            // a call in the runtime, or a line above or below the calls
	goPosition           // the second line of a call in Go, with the file
)

// stackPartOf tells what a line is of a stack as Node.js, Java, .NET and Go print it. (Python prints the message last.)
func stackPartOf(line []byte) stackPart {
	text := bytes.TrimLeft(line, " \t")
	indented := len(text) < len(line)
	switch {
	case indented && line[0] == '\t' && bytes.Contains(text, []byte(".go:")):
		return goPosition
	case indented && bytes.HasPrefix(text, []byte("at ")) && bytes.ContainsAny(text, "(:"):
		if bytes.Contains(text, []byte("node:")) || bytes.Contains(text, []byte("<anonymous>")) {
			return otherPart
		}
		return ownCall
	case bytes.HasPrefix(line, []byte("Node.js v")), bytes.HasPrefix(line, []byte("goroutine ")) && bytes.HasSuffix(line, []byte("]:")):
		return otherPart
	}
	return noStack
}

func (l *stderrLines) lastLines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := make([]string, 0, len(l.tail))
	for _, line := range l.tail {
		lines = append(lines, string(line))
	}
	return lines
}
