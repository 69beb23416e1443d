package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

// A reader of stderr that does not read delays nobody, and learns later what
// it has missed.
func TestLogWriterNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		l := newLogWriter(w)
		for i := range 3 * logQueue {
			fmt.Fprintf(l, "line %d\n", i)
			if i == 0 {
				synctest.Wait() // it is in the write, which blocks
			}
		}
		var out bytes.Buffer
		read := make(chan struct{})
		go func() {
			defer close(read)
			io.Copy(&out, r)
		}()
		synctest.Wait() // everything queued was read
		fmt.Fprintln(l, "one more")
		l.close()
		w.Close()
		<-read
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		// One line was in the blocked write, the rest in the queue.
		if lines[0] != "line 0" || lines[logQueue] != fmt.Sprintf("line %d", logQueue) {
			t.Errorf("first lines: %q ... %q", lines[0], lines[logQueue])
		}
		if got := lines[len(lines)-2]; !strings.Contains(got, fmt.Sprint(2*logQueue-1)+" lines of the log were dropped") {
			t.Errorf("no word of what was dropped: %q", got)
		}
		if got := lines[len(lines)-1]; got != "one more" {
			t.Errorf("last line %q", got)
		}
	})
}

// At the end the last lines have a moment, and no more.
func TestLogWriterCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		l := newLogWriter(w)
		fmt.Fprintln(l, "nobody reads this")
		l.close()
		r.Close() // lets the write, and so the test, end
		<-l.done
		fmt.Fprintln(l, "late")
	})
}
