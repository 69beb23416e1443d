package main

import (
	"bytes"
	"encoding/json"
	"errors"
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
		l := newLogWriter(w, "slow")
		for i := range 3 * maxQueuedLines {
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
		if lines[0] != "line 0" || lines[maxQueuedLines] != fmt.Sprintf("line %d", maxQueuedLines) {
			t.Errorf("first lines: %q ... %q", lines[0], lines[maxQueuedLines])
		}
		if got := lines[len(lines)-2]; !strings.Contains(got, fmt.Sprint(2*maxQueuedLines-1)+" lines of the log were dropped") {
			t.Errorf("no word of what was dropped: %q", got)
		}
		if got := lines[len(lines)-1]; got != "one more" {
			t.Errorf("last line %q", got)
		}
	})
}

// How many lines were dropped is said also where no further line comes, and why they were.
func TestLogWriterTellsOfDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		l := newLogWriter(w, "the disk is slow")
		for i := range maxQueuedLines + 8 {
			fmt.Fprintln(l, "line")
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
		l.close()
		w.Close()
		<-read
		if !strings.HasSuffix(out.String(), "line\nmcp-bridge: 7 lines of the log were dropped: the disk is slow\n") || strings.Count(out.String(), "dropped") != 1 {
			t.Errorf("the end of the log: %q", out.String()[max(0, out.Len()-200):])
		}
	})
}

// At the end the last lines have a moment, and no more.
func TestLogWriterCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		l := newLogWriter(w, "slow")
		fmt.Fprintln(l, "nobody reads this")
		l.close()
		r.Close() // lets the write, and so the test, end
		<-l.done
		fmt.Fprintln(l, "late")
	})
}

// Characters that act on a terminal, or turn text around, are written so that they can be read; everything
// else stays as it is, and JSON means what it meant.
func TestLogWriterEscapes(t *testing.T) {
	var acting []rune
	for _, span := range [][2]rune{{0, 8}, {0xB, 0x1F}, {0x7F, 0x9F}, {0x61C, 0x61C}, {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069}} {
		for r := span[0]; r <= span[1]; r++ {
			acting = append(acting, r)
		}
	}
	var out bytes.Buffer
	l := newLogWriter(&out, "slow")
	const good = "a\t\u00a0é語 \u200d😀 \u202f\ufeff\n"
	fmt.Fprint(l, good, "x", string(acting), "\x9b\xff\n")
	for _, format := range []string{"json", "text"} {
		log, err := (&logFlags{level: "info", format: format}).logger(l)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("said", "line", string(acting), "error", errors.New(string(acting)))
	}
	l.close()
	lines := strings.SplitAfter(out.String(), "\n")
	if lines[0] != good {
		t.Errorf("%q became %q", good, lines[0])
	}
	for _, r := range acting {
		if strings.ContainsRune(out.String(), r) {
			t.Errorf("the log has U+%04X", r)
		}
		if want := fmt.Sprintf(`\u%04x`, r); !strings.Contains(lines[1], want) {
			t.Errorf("the text has no %s: %q", want, lines[1])
		}
	}
	if !strings.HasSuffix(lines[1], "\ufffd\ufffd\n") {
		t.Errorf("bytes that are no text: %q", lines[1])
	}
	var entry struct{ Line, Error string }
	if err := json.Unmarshal([]byte(lines[2]), &entry); err != nil || entry.Line != string(acting) || entry.Error != string(acting) {
		t.Errorf("in JSON: %+q (%v)", entry, err)
	}
	if len(lines) != 5 || lines[4] != "" {
		t.Errorf("there are %d lines: %q", len(lines), lines)
	}
}
