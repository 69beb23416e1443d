package main

import (
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	logQueue = 1000        // lines that may wait to be written
	logWait  = time.Second // how long the last ones may take at the end
)

// logWriter writes lines to stderr without ever making their author wait:
// whoever started us may not read our stderr, or may have closed it, and the
// bridge must not stand still for that. What does not fit is dropped and counted.
type logWriter struct {
	w     io.Writer
	lines chan []byte
	done  chan struct{} // closed when the last line was written

	mu      sync.Mutex
	dropped int
	closed  bool
}

func newLogWriter(w io.Writer) *logWriter {
	l := &logWriter{w: w, lines: make(chan []byte, logQueue), done: make(chan struct{})}
	go l.run()
	return l
}

// Write queues one line, or several. What it must not do to a terminal, whoever its words are from, it
// does not: see escaped.
func (l *logWriter) Write(line []byte) (int, error) {
	text := escaped(line)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return len(line), nil
	}
	if l.dropped > 0 && len(l.lines) < logQueue-1 {
		l.lines <- fmt.Appendf(nil, "mcp-bridge: %d lines of the log were dropped: stderr was not read fast enough\n", l.dropped)
		l.dropped = 0
	}
	select {
	case l.lines <- text:
	default:
		l.dropped++
	}
	return len(line), nil
}

// escaped returns a copy of text that has \uXXXX, as JSON understands it too, in place of control
// characters but line feeds and tabs, and of those that change the direction of what stands beside
// them. Bytes that are not UTF-8 become U+FFFD.
func escaped(text []byte) []byte {
	i := 0
	for i < len(text) && (text[i] >= ' ' && text[i] < 0x7F || text[i] == '\n' || text[i] == '\t') {
		i++
	}
	out := append(make([]byte, 0, len(text)), text[:i]...)
	for _, r := range string(text[i:]) {
		if mustEscape(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// mustEscape reports whether a character would change the text around it in a log, or make the terminal
// do something: it is written as an escape.
func mustEscape(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r < ' ', r >= 0x7F && r <= 0x9F: // C0, DEL, C1
		return true
	case r == 0x2028, r == 0x2029: // line and paragraph separators
		return true
	case r == 0x061C, r == 0x200E, r == 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069: // bidirectional
		return true
	}
	return false
}

func (l *logWriter) run() {
	defer close(l.done)
	for line := range l.lines {
		_, _ = l.w.Write(line) // there is nobody to tell
	}
}

// close writes what is queued, unless that takes too long: then the goroutine
// stays behind in its write, and ends with the process.
func (l *logWriter) close() {
	l.mu.Lock()
	l.closed = true
	close(l.lines)
	l.mu.Unlock()
	t := time.NewTimer(logWait)
	defer t.Stop()
	select {
	case <-l.done:
	case <-t.C:
	}
}
