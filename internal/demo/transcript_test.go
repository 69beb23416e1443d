package demo

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

var update = flag.Bool("update", false, "write the transcripts in testdata anew")

// The transcripts in testdata are conversations that can be read as
// documentation. "-->" is what the client sends, "<--" what the server answers
// (a long message is laid out over several lines), "2>" a line on the server's
// stderr, "..." a time that passes, "--|" the end of the client's input. The
// requestStates of the server are called $STATE1, $STATE2, ... in order.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			bridgetest.Must(t, err)
			want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))
			got := play(t, string(want))
			if *update {
				bridgetest.Must(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			if got != string(want) {
				t.Errorf("the conversation is not as in %s; run the test with -update and look at the difference:\n%s", file, got)
			}
		})
	}
}

// play repeats what the client says in a transcript and returns the transcript of that.
func play(t *testing.T, script string) string {
	var out strings.Builder
	var stderr lines
	var states states
	srv := &Server{
		Version: "1.0.0",
		Stderr:  &stderr,
		Exit:    func(status int) { fmt.Fprintf(&stderr, "(the process exits with status %d)\n", status) },
	}
	run(t, srv, func(c *client) {
		for line := range strings.Lines(script) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, "--> "):
				fmt.Fprintln(&out, line)
				c.send(states.insert(line[4:]))
			case strings.HasPrefix(line, "--|"):
				fmt.Fprintln(&out, line)
				c.end.stop()
			case strings.HasPrefix(line, "... "):
				fmt.Fprintln(&out, line)
				d, err := time.ParseDuration(line[4:])
				bridgetest.Must(t, err)
				time.Sleep(d)
			case line == "" || strings.HasPrefix(line, "#"):
				fmt.Fprintln(&out, line)
			}
			for _, m := range c.take() {
				fmt.Fprintln(&out, "<-- "+layOut(states.name(m)))
			}
			for _, l := range stderr.take() {
				fmt.Fprintln(&out, "2>  "+l)
			}
		}
	})
	return out.String()
}

// states are the requestStates that were given out, which differ from run to run.
type states []string

var stateOf = regexp.MustCompile(`"requestState":"([^"]*)"`)

// name puts a name in the place of a requestState.
func (s *states) name(m string) string {
	found := stateOf.FindStringSubmatch(m)
	if found == nil {
		return m
	}
	*s = append(*s, found[1])
	return strings.Replace(m, found[1], fmt.Sprintf("$STATE%d", len(*s)), 1)
}

// insert does the opposite.
func (s *states) insert(line string) string {
	for i := len(*s); i > 0; i-- {
		line = strings.ReplaceAll(line, fmt.Sprintf("$STATE%d", i), (*s)[i-1])
	}
	return line
}

// layOut breaks long messages into lines.
func layOut(m string) string {
	var b bytes.Buffer
	if len(m) < 200 || json.Indent(&b, []byte(m), "    ", "  ") != nil {
		return m
	}
	return b.String()
}

// lines is an io.Writer that gives back what was written line by line.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSuffix(l.b.String(), "\n")
	l.b.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
