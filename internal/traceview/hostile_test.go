package traceview

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/tests/hostile"
)

// checks are those of what is exported, by format.
var checks = map[string]func([]byte) error{"har": hostile.CheckHAR, "otlp": hostile.CheckOTLP, "html": hostile.CheckHTMLExport}

// Whatever a file holds: nothing of it is obeyed by a terminal or a browser, what is exported is valid, and of
// what is no record the line and the reason are told.
func TestHostile(t *testing.T) {
	const count, some = 10_000, 1000 // the exports of all in one take too much time with the race detector
	lines := hostile.TraceLines(1, count)
	t.Run("read", func(t *testing.T) { readsHostile(t, lines) })
	for _, c := range []struct {
		name   string
		show   Viewer
		filter string
	}{
		{name: "bodies", show: Viewer{Verbose: 1, Exchanges: true}},
		{name: "both ends in a terminal", show: Viewer{Terminal: true, Verbose: 2, Exchanges: true, Width: 80}},
		{name: "JSON in a terminal", show: Viewer{JSON: true, Terminal: true}},
		{name: "filtered", filter: "pwned ses:s1 ses:q2 !id:1 kind:* !status:5xx !method:ping* !slow:9999h"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var err error
			c.show.Filter, err = ParseFilter(strings.Fields(c.filter))
			bridgetest.Must(t, err)
			out, errs := shown(t, c.show, lines)
			if c.show.Terminal && !c.show.JSON { // the colours are our own
				out = bytes.ReplaceAll(bytes.ReplaceAll(bytes.ReplaceAll(out, []byte(red), nil), []byte(inverse), nil), []byte(resetColor), nil)
			}
			bridgetest.Must(t, hostile.CheckTerminalSafe(out))
			bridgetest.Must(t, hostile.CheckTerminalSafe(errs))
			if len(out) < count || bytes.Count(errs, []byte("mcp-bridge: line ")) != 5 || !bytes.Contains(errs, []byte(" more lines could not be read")) {
				t.Errorf("%d bytes, and %s", len(out), errs)
			}
		})
	}
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		for _, asJSON := range []bool{false, true} {
			show := Viewer{JSON: asJSON, Terminal: asJSON, Err: io.Discard}
			var out bytes.Buffer
			show.Out = bufio.NewWriter(&out)
			correlation, err := show.ReadAll(bytes.NewReader(hostile.JoinLines(lines)))
			bridgetest.Must(t, err)
			n, err := show.PrintLost(correlation)
			bridgetest.Must(t, err)
			bridgetest.Must(t, show.Out.Flush())
			bridgetest.Must(t, hostile.CheckTerminalSafe(out.Bytes()))
			if n < 100 {
				t.Errorf("%d messages are lost", n)
			}
		}
	})
	for format, check := range checks {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			for i := 0; i < count; i += some {
				bridgetest.Must(t, check(exported(t, format, lines[i:i+some])))
			}
		})
	}
}

// readsHostile looks at what trace.Reader says of each line, and that a record stays the same when it is written.
func readsHostile(t *testing.T, lines []hostile.Line) {
	reader := trace.NewReader(bytes.NewReader(hostile.JoinLines(lines)))
	for i, l := range lines {
		r, err := reader.Next()
		wrong, is := errors.AsType[*trace.LineError](err)
		switch {
		case l.Defect == "" && err != nil:
			t.Fatalf("line %d: %v: %.300q", i+1, err, l.Text)
		case l.Defect == "":
			again, err := trace.Parse(trace.Append(nil, &r))
			if first, second := fmt.Sprintf("%+v", plainOf(r)), fmt.Sprintf("%+v", plainOf(again)); err != nil || first != second {
				t.Fatalf("line %d: %v: it became another record:\n%.3000s\n%.3000s", i+1, err, first, second)
			}
		case !is || wrong.Line != i+1:
			t.Fatalf("line %d: %s: %v: %.300q", i+1, l.Defect, err, l.Text)
		case errors.Is(err, trace.ErrVersion) != (l.Defect == "version") || wrong.Err == trace.ErrNotRecord || len(wrong.Error()) > 300 || hostile.CheckTerminalSafe([]byte(wrong.Error())) != nil:
			t.Fatalf("line %d: %s: the reason is %q", i+1, l.Defect, wrong)
		}
	}
	if _, err := reader.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// plainOf returns a record without what is not written again as it was.
func plainOf(r trace.Record) string {
	r.Time = r.Time.UTC().Truncate(time.Microsecond)
	text := fmt.Sprintf("%q", bodyText(&r.Body))
	r.Body = trace.Body{}
	out, err := json.Marshal(r)
	return fmt.Sprintf("%s %s %v", out, text, err)
}

// shown returns what a Viewer prints of lines.
func shown(t *testing.T, show Viewer, lines []hostile.Line) (out, errs []byte) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	show.Out, show.Err = bufio.NewWriter(&stdout), &stderr
	file := hostile.JoinLines(lines)
	correlation, err := show.ReadAll(bytes.NewReader(file))
	bridgetest.Must(t, err)
	bridgetest.Must(t, show.PrintAll(bytes.NewReader(file), correlation))
	bridgetest.Must(t, show.Out.Flush())
	return stdout.Bytes(), stderr.Bytes()
}

func exported(t *testing.T, format string, lines []hostile.Line) []byte {
	t.Helper()
	var out bytes.Buffer
	show := Viewer{Out: bufio.NewWriter(&out), Err: io.Discard}
	file := hostile.JoinLines(lines)
	correlation, err := show.ReadAll(bytes.NewReader(file))
	bridgetest.Must(t, err)
	bridgetest.Must(t, show.Export(bytes.NewReader(file), correlation, format))
	bridgetest.Must(t, show.Out.Flush())
	return out.Bytes()
}
