package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

const (
	maxQueuedLines  = 1000        // lines that may wait to be written
	logCloseTimeout = time.Second // how long the last ones may take at the end
)

// logWriter writes lines to stderr, or to the file of --log-file, without ever making their author wait:
// whoever started us may not read our stderr, or may have closed it, and the
// bridge must not stand still for that. What does not fit is dropped and counted.
type logWriter struct {
	w     io.Writer
	lines chan []byte   // those that wait to be written
	done  chan struct{} // closed when the last line was written

	mu      sync.Mutex
	dropped int // lines, of which the log does not say yet that they were dropped
	closed  bool
}

func newLogWriter(w io.Writer) *logWriter {
	l := &logWriter{w: w, lines: make(chan []byte, maxQueuedLines), done: make(chan struct{})}
	go l.run()
	return l
}

// Write queues one line, or several, without what foreign text could do to a terminal (printable.AppendLines). It
// never fails.
func (l *logWriter) Write(line []byte) (int, error) {
	text := printable.AppendLines(make([]byte, 0, len(line)), line)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return len(line), nil
	}
	if l.dropped > 0 && len(l.lines) < maxQueuedLines-1 {
		l.lines <- fmt.Appendf(nil, "mcp-bridge: %s dropped: stderr was not read fast enough\n", printable.Count(l.dropped, "line of the log was", "lines of the log were"))
		l.dropped = 0
	}
	select {
	case l.lines <- text:
	default:
		l.dropped++
	}
	return len(line), nil
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
	t := time.NewTimer(logCloseTimeout)
	defer t.Stop()
	select {
	case <-l.done:
	case <-t.C:
	}
}
