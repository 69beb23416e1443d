package command

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// taken returns what an output makes of bytes that come in pieces of this size.
func taken(text []byte, piece, max int) (o *stdoutParser, messages []string) {
	o = newStdoutParser(max, func(m jsonrpc.Message) { messages = append(messages, string(m.Bytes())) },
		func(id jsonrpc.ID) { messages = append(messages, "too long: "+id.String()) })
	for chunk := range chunks(text, piece) {
		o.write(chunk)
	}
	o.finish()
	return o, messages
}

func chunks(text []byte, piece int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(text) > 0 {
			n := min(piece, len(text))
			if !yield(bytes.Clone(text[:n])) {
				return
			}
			text = text[n:]
		}
	}
}

func TestBytesOfStdout(t *testing.T) {
	const message = `{"jsonrpc":"2.0","id":1,"result":{}}`
	const several = "{\n \"jsonrpc\": \"2.0\",\n \"id\": 1,\n \"result\": {\n }\n}"
	for name, c := range map[string]struct {
		text   string
		n      int // messages
		faults string
	}{
		"clean":               {message + "\n" + message + "\n", 2, ""},
		"array":               {"[" + message + "," + message + "]\n", 2, ""},
		"noise":               {"hello\n" + message + "\n\n", 1, "2 x text that is no message"},
		"prompt":              {"{me}> " + message + "\n", 0, "1 x text that is no message, 1 x text before an answer, on the same line"},
		"request in a log":    {`[info] got {"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n" + message + "\n", 1, "1 x text that is no message"},
		"JSON of a log":       {`{"level":"info"}` + "\n", 0, "1 x text that is no message"},
		"CR LF":               {message + "\r\n", 1, "1 x lines end in CR LF"},
		"noise with CR LF":    {"hello\r\n" + message + "\n", 1, "1 x text that is no message"},
		"mark":                {"\ufeff" + message + "\n", 1, "1 x a byte order mark"},
		"several lines":       {several + "\n" + several + "\n", 2, "2 x a message of several lines"},
		"bracket in noise":    {"[info] up\n" + message + "\n", 1, "1 x text that is no message"},
		"brackets in noise":   {"[info] up\n[info] ready\n" + message + "\n", 1, "2 x text that is no message"},
		"not UTF-8":           {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":\"\xff\"}}\n", 1, "1 x bytes that are not UTF-8"},
		"header":              {"Content-Length: 36\r\n\r\n" + message, 1, "1 x Content-Length headers, 1 x a message without a line feed"},
		"no line feed":        {message, 1, "1 x a message without a line feed"},
		"too long":            {`{"jsonrpc":"2.0","id":7,"result":{"a":"` + strings.Repeat("x", 300) + `"}}` + "\n" + message + "\n", 2, "1 x a line longer than the limit"},
		"cut":                 {message + "\n" + `{"jsonrpc":`, 1, "1 x text that is no message"},
		"several, then clean": {"{\n \"a\": 1\n" + message + "\n", 1, "2 x text that is no message"},
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			o, messages := taken([]byte(c.text), piece, 200)
			var faults []string
			for _, f := range stdoutFaultFindings[0:] {
				if n := o.faultCounts[f.fault]; n > 0 {
					faults = append(faults, fmt.Sprintf("%d x %s", n, f.fault))
				}
			}
			if n := o.faultCounts[faultInFront]; n > 0 {
				faults = append(faults, fmt.Sprintf("%d x %s", n, faultInFront))
			}
			if got := strings.Join(faults, ", "); len(messages) != c.n || got != c.faults {
				t.Errorf("%s, in pieces of %d: %d messages %q, %q", name, piece, len(messages), messages, got)
			}
		}
	}
}

// FuzzOutput: however bytes arrive, the same is made of them, and never much of them is kept.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("{\n}\n[1]\r\n\ufeff{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nContent-Length: 1\n"), 3)
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		if piece < 1 {
			piece = 1
		}
		whole, messages := taken(text, len(text)+1, 500)
		parts, again := taken(text, piece, 500)
		if fmt.Sprint(whole.faultCounts, messages) != fmt.Sprint(parts.faultCounts, again) {
			t.Errorf("in one piece %v %q, in pieces of %d %v %q", whole.faultCounts, messages, piece, parts.faultCounts, again)
		}
		for fault, lines := range parts.faultLines {
			for _, line := range lines {
				if len(line) > maxEvidenceBytes || len(lines) > maxLinesPerFault {
					t.Errorf("%s: %d lines, one of %d bytes", fault, len(lines), len(line))
				}
			}
		}
	})
}
