package supervisor

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestStderrLines(t *testing.T) {
	long := strings.Repeat("x", MaxStderrLine)
	cut := long[:MaxStderrLine-len(cutMark)] + cutMark
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"ends", "a\r\nb\n\nlast", []string{"a", "b", "", "last"}},
		{"nothing", "", nil},
		{"longest line", long + "\r\n" + long + "\nz", []string{long, long, "z"}},
		{"one byte too long", long + "y\nz\n", []string{cut, "z"}},
		{"much too long", strings.Repeat(long, 5) + "\nz\n", []string{cut, "z"}},
		{"too long at the end", long + "yyyyyy", []string{cut}},
	} {
		for _, reader := range []string{"whole", "bytewise"} {
			var got []string
			l := &stderrLines{onLine: func(line []byte) { got = append(got, string(line)) }}
			r := bytes.NewReader([]byte(c.in))
			if reader == "bytewise" {
				l.copyFrom(iotest.OneByteReader(r))
			} else {
				l.copyFrom(r)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, %s: got %d lines %.40q, want %.40q", c.name, reader, len(got), got, c.want)
			}
		}
	}
}

func TestStderrTailIsBounded(t *testing.T) {
	var in bytes.Buffer
	for i := range 25 {
		fmt.Fprintf(&in, "line %d %s\n", i, strings.Repeat("x", 1000))
	}
	l := &stderrLines{}
	if got := l.lastLines(); len(got) != 0 {
		t.Errorf("before any line: %q", got)
	}
	l.copyFrom(&in)
	got := l.lastLines()
	if len(got) != maxTailLines || !strings.HasPrefix(got[0], "line 15 ") || !strings.HasPrefix(got[9], "line 24 ") {
		t.Fatalf("got %d lines, first %.20q", len(got), got[0])
	}
	for _, line := range got {
		if len(line) != maxTailLineBytes {
			t.Errorf("a line has %d bytes, want %d", len(line), maxTailLineBytes)
		}
	}
}

// The message of an exception is not pushed out by its stack.
func TestStderrTailWithoutStacks(t *testing.T) {
	frames := strings.Repeat("    at f (file:///srv/x.mjs:1:20)\n", 30)
	calls := strings.Repeat("main.f(0x1, {0x2, 0x3})\n\t/srv/x.go:5 +0x1d\n", 30)
	for name, c := range map[string]struct{ in, want string }{
		"Node.js":  {"Error: the URL must start with https\n" + frames + "\nNode.js v20.20.2\n", "Error: the URL must start with https\n    at f (file:///srv/x.mjs:1:20)\n"},
		"JSON":     {"SyntaxError: no JSON\n    at JSON.parse (<anonymous>)\n    at load (/srv/x.js:3:1)\n" + frames + "    at node:internal/main:30:49\n", "SyntaxError: no JSON\n    at load (/srv/x.js:3:1)"},
		"Java":     {"java.io.IOException: no disk\n" + strings.ReplaceAll(frames, "    at", "\tat") + "Caused by: java.lang.Error: full\n" + frames, "java.io.IOException: no disk\n\tat f (file:///srv/x.mjs:1:20)\nCaused by: java.lang.Error: full\n    at f (file:///srv/x.mjs:1:20)"},
		"Go":       {"a line\npanic: no disk\n\ngoroutine 1 [running]:\n" + calls + "exit status 2\n", "a line\npanic: no disk\n\nexit status 2"},
		"full":     {strings.Repeat("x\n", 20) + "panic: no disk\n\ngoroutine 1 [running]:\n" + calls, strings.Repeat("x\n", 7) + "panic: no disk\n"},
		"Python":   {"Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nValueError: no\n", "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nValueError: no"},
		"no stack": {"at the end\ngoroutine leak\n", "at the end\ngoroutine leak"},
	} {
		l := &stderrLines{}
		l.copyFrom(strings.NewReader(c.in))
		if got := strings.Join(l.lastLines(), "\n"); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
