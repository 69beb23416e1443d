package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

const (
	maxQueuedLines  = 1000        // how many Writes of a logWriter, mostly of one line each, may wait to be carried out; further ones are dropped
	logCloseTimeout = time.Second // how long logWriter.close waits until the last lines are written
)

// logWriter writes lines to stderr, or to the file of --log-file, without ever making their author wait:
// whoever started us may not read our stderr, or may have closed it, and the
// bridge must not stand still for that. What does not fit is dropped and counted.
type logWriter struct {
	w     io.Writer     // stderr, or the file
	slow  string        // what the log says of why lines were dropped: that w is slow, in words
	lines chan []byte   // what each Write was given, mostly one line, that waits to be written
	done  chan struct{} // closed when the last line was written

	mu      sync.Mutex // guards dropped, closed, and sends to lines
	dropped int        // how many Writes, mostly of one line each, were dropped since the log last said so
	closed  bool       // close was called: nothing more is queued
}

// newLogWriter returns a logWriter to w and starts its goroutine, which close ends. slow says in the log why lines were dropped.
func newLogWriter(w io.Writer, slow string) *logWriter {
	l := &logWriter{w: w, slow: slow, lines: make(chan []byte, maxQueuedLines), done: make(chan struct{})}
	go l.run()
	return l
}

// Write queues one line, or several, without what foreign text could do to a terminal (printable.AppendLines). If there is no room, it drops
// them. It never waits, and never fails.
func (l *logWriter) Write(line []byte) (int, error) {
	text := printable.AppendLines(make([]byte, 0, len(line)), line)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return len(line), nil
	}
	if l.dropped > 0 && len(l.lines) < maxQueuedLines-1 {
		l.lines <- l.tellDroppedLocked()
	}
	select {
	case l.lines <- text:
	default:
		l.dropped++
	}
	return len(line), nil
}

// tellDroppedLocked returns the line that says how many were dropped, and sets dropped to 0. mu is held.
func (l *logWriter) tellDroppedLocked() []byte {
	n := l.dropped
	l.dropped = 0
	return fmt.Appendf(nil, "mcp-bridge: %s dropped: %s\n", printable.Count(n, "line of the log was", "lines of the log were"), l.slow)
}

// run is the goroutine of the logWriter: it writes queued lines until close was called and all are written. Whenever it has emptied
// the queue it says how many lines were dropped, if any were, as no further line may come.
func (l *logWriter) run() {
	defer close(l.done)
	for line := range l.lines {
		_, _ = l.w.Write(line) // there is nobody to tell
		var told []byte
		l.mu.Lock()
		if l.dropped > 0 && len(l.lines) == 0 {
			told = l.tellDroppedLocked()
		}
		l.mu.Unlock()
		if told != nil {
			_, _ = l.w.Write(told)
		}
	}
}

// close waits until what is queued is written, for logCloseTimeout at most: then the goroutine stays behind in its write, and ends
// with the process. Later writes are dropped.
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
