package supervisor

import (
	"bytes"
	"io"
	"sync"
)

// MaxStderrLine is the greatest length, in bytes, of a line of stderr. A longer line is
// cut so that it has this length with " [cut]" at its end.
const MaxStderrLine = 4096

const (
	cutMark          = " [cut]" // the end of a line of stderr that was cut to MaxStderrLine; a line of StderrTail that is cut has no mark
	maxTailLines     = 10       // how many lines StderrTail returns at most
	maxTailLineBytes = 512      // how many bytes of a line StderrTail returns at most
)

// stderrLines reads a child's stderr line by line, hands each line to a callback, and keeps the last ones for
// StderrTail.
type stderrLines struct {
	onLine func(line []byte) // called with each line of the child's stderr, which it must not keep: Stderr of the Spec; nil: nobody is told

	mu            sync.Mutex // guards tail and keptStackCall
	tail          [][]byte   // the last lines, oldest first, each perhaps cut, without most lines of stacks (addToTail)
	keptStackCall bool       // tail has a call of the stack that is being printed: no other of its calls is kept
}

// copyFrom reads r, the child's stderr, to its end and hands on its lines: a child must never wait for us to read. The
// buffer holds one line. It is small until a line is long: there are many children, and most of them say little.
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

// emit takes a line, without its end, into the tail, and calls onLine with it.
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

// addToTail appends a line to the tail, perhaps cut, and drops the oldest if there are too many. Of a stack it keeps
// one call at most, the first one in the program's own files, and none of a Go stack. The rest of the stack would push
// out the message of the exception or the panic, which stands above it.
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

// A stackPart says what a line of stderr is in a stack that a program prints when it fails.
type stackPart int

const (
	noStack    stackPart = iota // the line of stderr is no part of a stack
	ownCall                     // the line is a call of a stack, in the program's own files
	otherPart                   // the line is a call of a stack in the runtime, or stands above or below the calls
	goPosition                  // the line is the second one of a call in a Go stack, which has the file and the line's number
)

// stackPartOf returns what part of a stack a line is, as Node.js, Java, .NET and Go print it. (Python prints the message last.)
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

// lastLines returns copies of the last lines, oldest first: what Process.StderrTail returns.
func (l *stderrLines) lastLines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := make([]string, 0, len(l.tail))
	for _, line := range l.tail {
		lines = append(lines, string(line))
	}
	return lines
}
