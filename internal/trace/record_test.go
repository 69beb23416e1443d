package trace

import (
	"bytes"
	"flag"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

var update = flag.Bool("update", false, "write the golden file anew")

// at is the time of the nth record of the golden file.
func at(n int) time.Time {
	return time.Date(2026, 11, 21, 7, 40, 48, 123456000, time.UTC).Add(time.Duration(n) * time.Millisecond)
}

// samples is at least one record of each kind, and each member at least once.
func samples() []Record {
	return []Record{
		{Seq: 1, Time: at(0), Kind: Session, Server: "files", Session: "s1", Era: "legacy", Transport: "http",
			Event: &Event{Action: "opened", Client: "inspector", Version: "2.1", Revision: "2025-11-25", PID: 4711}},
		{Seq: 2, Time: at(1), Kind: Process, Server: "files", Session: "s1", Event: &Event{Action: "started", PID: 4711, Program: "npx"}},
		{Seq: 811, Time: at(2), Kind: Request, Server: "files", Session: "s1", Stream: "p17", Hop: Downstream, Dir: ToServer, Era: "legacy", Transport: "http",
			Method: "tools/call", Name: "read", ID: jsonrpc.IntID(42), Size: 105, Redacted: []string{"params.arguments.token"},
			Body: Body{Text: []byte(`{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"read","arguments":{"token":"[redacted]"}}}`)}},
		{Seq: 812, Time: at(2), Kind: Request, Server: "files", Session: "s1", Hop: Upstream, Dir: ToServer, CauseSeq: 811,
			Method: "tools/call", Name: "read", ID: jsonrpc.StringID("a"), Size: 70000, TimeInBridge: 38 * time.Microsecond,
			Body: Body{Text: []byte(`{"jsonrpc":"2.0","id":"a","me`), Tail: []byte(`"}}}`), OmittedBytes: 69967}},
		{Seq: 813, Time: at(3), Kind: Response, Server: "files", Session: "s1", Hop: Upstream, Dir: ToClient, Method: "tools/call", Name: "read",
			ID: jsonrpc.StringID("a"), Size: 61, Duration: 1500 * time.Microsecond, Outcome: Outcome{Failed: true},
			Body: Body{Text: []byte("{\"jsonrpc\":\"2.0\",\r\n\"id\":\"a\",\"result\":{\"isError\":true,\"n\":1.10}}")}},
		{Seq: 814, Time: at(3), Kind: Response, Stream: "p17", Hop: Downstream, Dir: ToClient, ID: jsonrpc.NullID, Size: 70, Outcome: Outcome{Code: -32700},
			Body: Body{Text: []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no JSON"}}`)}},
		{Time: at(0), Kind: Request, Server: "files", Session: "s1", Hop: Downstream, Dir: ToServer, Era: "legacy", Transport: "http", Method: "tools/call",
			ID: jsonrpc.IntID(7), Earlier: true, Duration: 12 * time.Second},
		{Seq: 815, Time: at(4), Kind: HTTP, Server: "files", Hop: Downstream, HTTP: &Exchange{Method: "POST", URL: "/mcp", Proto: "HTTP/1.1", RemoteAddr: "127.0.0.1:4242",
			Status: 406, RequestHeader: http.Header{"Accept": {"application/json"}, "X-Two": {"a", "b"}}, ResponseHeader: http.Header{"Content-Type": {"application/json"}},
			RequestBytes: 105, ResponseBytes: 81, Rule: "LI4", Reason: "Accept must admit text/event-stream", FirstByte: 210 * time.Microsecond, Duration: 230 * time.Microsecond}},
		{Seq: 816, Time: at(4), Kind: HTTP, Server: "far", Hop: Upstream, HTTP: &Exchange{Method: "GET", URL: "https://example.com/mcp", Err: "connection reset"}},
		{Seq: 817, Time: at(5), Kind: Refused, HTTP: &Exchange{Method: "GET", URL: "/x", RemoteAddr: "10.0.0.1:1", Status: 404, Rule: "path", Reason: "nothing is here"}},
		{Seq: 818, Time: at(5), Kind: Stream, Server: "files", Session: "s1", Stream: "g2", Hop: Downstream, Event: &Event{Action: "resumed", FromEventID: "g2-17"}},
		{Seq: 819, Time: at(6), Kind: Notification, Server: "files", Session: "s1", Hop: Upstream, Dir: ToClient, Era: "modern", Method: "notifications/progress", Size: 99, Body: Body{OmittedBytes: 99}},
		{Seq: 820, Time: at(6), Kind: Drop, Server: "files", Session: "s1", CauseSeq: 819, Method: "notifications/x", Size: 42, Reason: "the client has gone",
			Body: Body{Text: []byte(`{"jsonrpc":"2.0","method":"notifications/x"}`)}},
		{Seq: 821, Time: at(7), Kind: Stderr, Server: "files", Event: &Event{PID: 4711}, Body: Body{Text: []byte("{\"n\":1} \x1b[31mred \x00 \x7f \u2028 é \\ \"")}},
		{Seq: 822, Time: at(7), Kind: Stderr, Server: "files", Event: &Event{PID: 4711}, Body: Body{Text: []byte("latin \xe9")}},
		{Seq: 823, Time: at(8), Kind: Noise, Server: "files", Event: &Event{PID: 4711}, Size: 12, Reason: "no JSON"},
		{Seq: 824, Time: at(8), Kind: Note, Server: "files", Event: &Event{Code: "C3", Text: "noise on stdout"}},
		{Time: at(9), Kind: Gap, Lost: 17},
		{Seq: 842, Time: at(9), Kind: Process, Server: "files", Event: &Event{Action: "stopping", PID: 4711, Step: "terminate"}},
		{Seq: 843, Time: at(10), Kind: Process, Server: "files", Event: &Event{Action: "ended", PID: 4711, StopRequested: true, Err: "signal: terminated", Duration: 2 * time.Second}},
		{Seq: 844, Time: at(10), Kind: Session, Server: "files", Session: "s1", Event: &Event{Action: "ended", Reason: "the server has crashed", Err: "crashed", Duration: 3 * time.Second, Calls: 17}},
	}
}

// The golden file pins the format: what it has must be read by all later builds.
func TestGolden(t *testing.T) {
	const file = "testdata/v1.jsonl"
	var have []byte
	for _, r := range samples() {
		have = Append(have, &r)
	}
	if *update {
		bridgetest.Must(t, os.WriteFile(file, have, 0o644))
	}
	want, err := os.ReadFile(file)
	bridgetest.Must(t, err)
	if !bytes.Equal(have, want) {
		t.Errorf("the format has changed:\n%s", have)
	}
	var all []Record
	for r, err := range NewReader(bytes.NewReader(want)).Records() {
		bridgetest.Must(t, err)
		r.Body.valid = false
		all = append(all, r)
	}
	if !reflect.DeepEqual(all, samples()) {
		t.Errorf("read\n%+v\nwant\n%+v", all, samples())
	}
}

// docs/trace.md names every member.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/trace.md")
	bridgetest.Must(t, err)
	var line []byte
	for _, r := range samples() {
		line = Append(line[:0], &r)
		for _, object := range [][]byte{line, jsonrpc.Lookup(line, "http"), jsonrpc.Lookup(line, "event")} {
			for m := range jsonrpc.Members(object) {
				if !strings.Contains(string(text), "`"+m.Key+"`") {
					t.Errorf("docs/trace.md does not name %q", m.Key)
				}
			}
		}
		if !strings.Contains(string(text), "`"+string(r.Kind)+"`") {
			t.Errorf("docs/trace.md does not name the kind %q", r.Kind)
		}
	}
}

// The line of the largest message is one that a Reader takes, whatever is in the message.
func TestCostlyText(t *testing.T) {
	const size = 3 << 20
	for _, c := range []struct{ name, fill string }{{"quotes", `"",`}, {"escapes", `"\\\\\\",`}, {"DEL", `"` + strings.Repeat("\x7f", 100) + `",`}, {"plain", `"` + strings.Repeat("x", 100) + `",`}} {
		text := "[\n" + strings.Repeat(c.fill, size/len(c.fill)) + "0]"
		line := Append(nil, &Record{Kind: Request, Body: Body{Text: []byte(text)}})
		r, err := Parse(line)
		if err != nil || string(r.Body.Text) != text || len(line) > MaxLine/(64<<20/len(text)) {
			t.Errorf("%s: a line of %d bytes, of a text of %d: %v", c.name, len(line), len(text), err)
		}
	}
}

// Every character stands in a string so that it can be read again, wherever it stands.
func TestAppendString(t *testing.T) {
	for c := range rune(0x120) {
		for at := range 20 {
			text := strings.Repeat("a", at) + string(c) + strings.Repeat("~", 20-at)
			line := appendString(nil, text)
			if got, ok := jsonrpc.Text(line); !ok || got != text || !jsonrpc.Valid(line) || bytes.ContainsFunc(line, unicode.IsControl) && c < 0x80 {
				t.Fatalf("%q becomes %s", text, line)
			}
		}
	}
	if got := appendString(nil, "12345678\xff12345678"); string(got) != "\"12345678\uFFFD12345678\"" {
		t.Errorf("%q", got)
	}
}

// A line is the same whatever lines were made before it.
func TestLinesAfterOthers(t *testing.T) {
	var all []Record
	for _, r := range samples() {
		other := r
		other.Name, other.Method = strings.ToUpper(r.Name), strings.ToUpper(r.Method) // as long
		all = append(all, r, other)
	}
	var c memberCache
	for range 3 {
		for _, r := range all {
			if got, want := string(c.appendLine(nil, &r)), string(Append(nil, &r)); got != want {
				t.Errorf("%s\nis not %s", got, want)
			}
		}
	}
}
