package traceview

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/tests/hostile"
)

// recorded is a trace with a message lost at every place where one can be, and with all kinds
// of traffic that only looks so.
const recorded = "testdata/lost.jsonl"

func read(t testing.TB) (all []trace.Record, correlation *Correlation) {
	t.Helper()
	text, err := os.ReadFile(recorded)
	bridgetest.Must(t, err)
	correlation = new(Correlation)
	for r, err := range trace.NewReader(bytes.NewReader(text)).Records() {
		bridgetest.Must(t, err)
		all = append(all, r)
		correlation.Add(&r)
	}
	correlation.Resolve()
	return all, correlation
}

func views(all []trace.Record, correlation *Correlation) iter.Seq[*View] {
	return func(yield func(*View) bool) {
		for i := range all {
			if !yield(correlation.View(&all[i])) {
				return
			}
		}
	}
}

func TestLost(t *testing.T) {
	_, correlation := read(t)
	var got []string
	for _, loss := range correlation.Lost() {
		got = append(got, string(loss.Place)+" "+loss.Record.Method+" "+loss.Record.ID.String())
	}
	want := []string{
		"server tools/call 2", "answer tools/call 3", "bridge tools/call 4", "cancelled tools/call 5", "bridge notifications/message ",
		`client sampling/createMessage "q1"`, "dropped notifications/progress ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("lost:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The stream of a message is among its details.
func TestStreamIsShown(t *testing.T) {
	for verbose, want := range map[bool]string{false: "tools/call #1 9 B\n", true: "tools/call #1 9 B stream 3\n"} {
		var out bytes.Buffer
		p := printer{Out: &out, Bodies: verbose}
		bridgetest.Must(t, p.print(&View{Record: &trace.Record{Kind: trace.Request, Method: "tools/call", ID: jsonrpc.IntID(1), Size: 9, Stream: "3"}}))
		if !strings.HasSuffix(out.String(), want) {
			t.Errorf("it shows %q, want %q", out.String(), want)
		}
	}
}

// One loss is told once, though the bridge has told of it, too: with the message that was received, or
// with the request whose answer it was.
func TestLostOnce(t *testing.T) {
	var correlation Correlation
	for _, line := range []string{
		`{"v":1,"seq":1,"ts":"2026-11-21T07:40:48.1Z","ses":"s1","hop":"up","dir":"s2c","kind":"notification","method":"notifications/progress"}`,
		`{"v":1,"seq":2,"ts":"2026-11-21T07:40:48.2Z","cause":1,"kind":"drop","method":"notifications/progress","why":"of no request"}`,
		`{"v":1,"seq":3,"ts":"2026-11-21T07:40:48.3Z","ses":"s1","hop":"down","dir":"c2s","kind":"request","method":"ping","id":1}`,
		`{"v":1,"seq":4,"ts":"2026-11-21T07:40:48.4Z","ses":"s1","hop":"up","dir":"c2s","cause":3,"kind":"request","method":"ping","id":1}`,
		`{"v":1,"seq":5,"ts":"2026-11-21T07:40:48.5Z","ses":"s1","hop":"up","dir":"s2c","kind":"response","method":"ping","id":1}`,
		`{"v":1,"seq":6,"ts":"2026-11-21T07:40:48.6Z","cause":5,"kind":"drop","id":1,"why":"the client has gone"}`,
		`{"v":1,"seq":7,"ts":"2026-11-21T07:40:48.7Z","ses":"s1","hop":"up","dir":"s2c","kind":"response","id":2}`,
		`{"v":1,"seq":8,"ts":"2026-11-21T07:40:48.8Z","cause":7,"kind":"drop","id":2,"why":"answers no request"}`,
		`{"v":1,"seq":9,"ts":"2026-11-21T07:40:48.9Z","kind":"drop","method":"notifications/cancelled","why":"the server has gone"}`,
	} {
		r, err := trace.Parse([]byte(line))
		bridgetest.Must(t, err)
		correlation.Add(&r)
	}
	correlation.Resolve()
	var got []string
	for _, loss := range correlation.Lost() {
		got = append(got, string(loss.Place)+" "+loss.Record.Method+" "+loss.Record.ID.String()+": "+loss.Text)
	}
	want := []string{
		"dropped notifications/progress : the bridge has dropped it: of no request",
		"answer ping 1: answered by the server, and the answer was not passed on to the client, but dropped: the client has gone",
		"dropped  2: the bridge has dropped it: answers no request",
		"dropped notifications/cancelled : the bridge has dropped it: the server has gone",
	}
	if !slices.Equal(got, want) {
		t.Errorf("lost:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// An answer that the bridge has made itself is not the server's: of a request that it has passed on, --lost says that it has
// none. What its sender has cancelled is listed, and is no loss.
func TestRequestsThatTheServerHasNotAnswered(t *testing.T) {
	message := func(seq, hop, dir, cause, kind, method, id, more string) string {
		return `{"v":1,"seq":` + seq + `,"ts":"2026-11-21T07:40:4` + seq + `Z","ses":"s1","hop":"` + hop + `","dir":"` + dir + `","cause":` + cause +
			`,"kind":"` + kind + `","method":"` + method + `"` + id + more + "}\n"
	}
	asked := message("1", "down", "c2s", "0", "request", "tools/call", `,"id":3`, "") + message("2", "up", "c2s", "1", "request", "tools/call", `,"id":3`, "")
	const cancel = `,"msg":{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`
	itself := message("4", "down", "s2c", "0", "response", "tools/call", `,"id":3`, `,"code":-32603`)
	exit := func(session, asked string) string {
		return `{"v":1,"seq":3,"ts":"2026-11-21T07:40:43Z","ses":"` + session + `","kind":"process","event":{"what":"ended","pid":1,` + asked + `"err":"signal: killed"}}` + "\n"
	}
	for name, c := range map[string]struct {
		lines, want string
		n           int
	}{
		"the client leaves": {asked + message("3", "up", "c2s", "0", "notification", "notifications/cancelled", "", cancel) + itself,
			"cancelled: by the bridge, after 3s in which the server has not answered it; the bridge has answered the client itself, with error -32603", 1},
		"the process ends":                    {asked + exit("s1", "") + itself, "lost: passed on to the server, whose process ended (signal: killed) 1s later, so no answer came; the bridge has answered the client itself, with error -32603", 1},
		"the process ends and nobody answers": {asked + exit("s1", ""), "lost: passed on to the server, whose process ended (signal: killed) 1s later, so no answer came", 1},
		"another process ends":                {asked + exit("s2", "") + itself, "lost: passed on to the server, which has not answered within 3s; the bridge has answered the client itself, with error -32603", 1},
		"the process is asked to end":         {asked + exit("s1", `"asked":true,`) + itself, "lost: passed on to the server, which has not answered within 3s; the bridge has answered the client itself, with error -32603", 1},
		"the server says nothing":             {asked + itself, "lost: passed on to the server, which has not answered within 3s; the bridge has answered the client itself, with error -32603", 1},
		"the client cancels": {asked + message("3", "down", "c2s", "0", "notification", "notifications/cancelled", "", cancel) +
			message("4", "up", "c2s", "3", "notification", "notifications/cancelled", "", cancel), "cancelled: by the client; the server has not answered it", 0},
		"a client that says nothing leaves": {asked + message("3", "up", "c2s", "0", "notification", "notifications/cancelled", "", cancel),
			"cancelled: by the bridge, after 2s in which the server has not answered it", 1},
		"the server answers": {asked + message("3", "up", "s2c", "0", "response", "tools/call", `,"id":3`, "") + message("4", "down", "s2c", "3", "response", "tools/call", `,"id":3`, ""),
			"no message was lost, and every request has an answer", 0},
		"the bridge answers what it does not pass on": {asked[:strings.Index(asked, "\n")+1] + itself, "no message was lost, and every request has an answer", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			v := Viewer{Out: bufio.NewWriter(&out), Err: io.Discard}
			correlation, err := v.ReadAll(strings.NewReader(c.lines))
			bridgetest.Must(t, err)
			n, err := v.PrintLost(correlation)
			bridgetest.Must(t, err)
			bridgetest.Must(t, v.Out.Flush())
			if !strings.Contains(out.String(), c.want+"\n") || n != c.n || strings.Contains(c.want, "cancelled") && strings.Contains(out.String(), "lost:") {
				t.Errorf("%d are lost, want %d, with %q:\n%s", n, c.n, c.want, out.String())
			}
		})
	}
}

func TestFilter(t *testing.T) {
	all, correlation := read(t)
	for words, want := range map[string]int{
		"":                                   len(all),
		"method:tools/call id:1":             6,
		"tool:re* id:1 hop:down":             4,
		"tool:nothing":                       0,
		`id:q1`:                              2,
		"dir:s2c hop:up kind:request":        1,
		"ses:q2":                             4,
		"srv:files ses:s3 ses:q2":            6,
		"status:err":                         5, // two failed results, an error, a refusal, a drop
		"status:406":                         1,
		"status:4xx":                         1,
		"status:-32603":                      1,
		"status:pending kind:request":        6,
		"status:late":                        0,
		"slow:15ms kind:response":            2,
		"!ses:s1 !ses:q2":                    3,
		"WARMING":                            1,
		"kind:http kind:refused":             2,
		"method:ping status:ok !kind:http":   3,
		"hello":                              1,
		"method:notifications/* !dir:c2s":    2,
		"status:pending status:err srv:file": 0,
	} {
		f, err := ParseFilter(strings.Fields(words))
		bridgetest.Must(t, err)
		n := 0
		for v := range views(all, correlation) {
			if f.Match(v) {
				n++
			}
		}
		if n != want {
			t.Errorf("%q chooses %d records, want %d", words, n, want)
		}
	}
	for _, wrong := range []string{"dir:up", "hop:left", "status:bad", "slow:soon", "method:"} {
		if _, err := ParseFilter([]string{wrong}); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

// A terminal is told nothing, whatever came over the wire.
func TestEscaped(t *testing.T) {
	const shown = "a\x1b]0;title\x07\n\t\x9b31m\u009b\u202egpj.exe\u2066\xff\u200b\U000e0041é漢"
	const want = `a\u001b]0;title\u0007\n\t\x9b31m\u009b\u202egpj.exe\u2066\xff\u200b\U000e0041é漢`
	if got := printable.Text(shown); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	line := printable.AppendJSON(nil, []byte("{\"a\":\"\u202e\u009b\x7f\U000e0041é\"}"))
	var v struct{ A string }
	bridgetest.Must(t, json.Unmarshal(line, &v))
	if v.A != "\u202e\u009b\x7f\U000e0041é" || hostile.CheckTerminalSafe(line) != nil {
		t.Errorf("%s is %q", line, v.A)
	}
}

func TestPrinter(t *testing.T) {
	all, correlation := read(t)
	var out bytes.Buffer
	p := printer{Out: &out, SideBySide: true, Exchanges: true, Width: 130}
	f, err := ParseFilter([]string{"ses:q2"})
	bridgetest.Must(t, err)
	for v := range views(all, correlation) {
		if f.Match(v) {
			bridgetest.Must(t, p.print(v))
		}
	}
	want, err := os.ReadFile("testdata/both.txt")
	if os.Getenv("UPDATE") != "" {
		bridgetest.Must(t, os.WriteFile("testdata/both.txt", clock(out.Bytes()), 0o644))
		return
	}
	bridgetest.Must(t, err)
	if !bytes.Equal(clock(out.Bytes()), want) {
		t.Errorf("got\n%s\nwant\n%s", out.Bytes(), want)
	}
}

// clock takes the hour out of the times, which depends on where the test runs.
func clock(text []byte) []byte {
	lines := strings.SplitAfter(string(text), "\n")
	for i, line := range lines {
		if len(line) > 2 && line[2] == ':' {
			lines[i] = "07:40" + line[5:]
		}
	}
	return []byte(strings.Join(lines, ""))
}

func TestHAR(t *testing.T) {
	all, correlation := read(t)
	var out bytes.Buffer
	bridgetest.Must(t, export(&out, "har", views(all, correlation)))
	var har struct {
		Log struct {
			Version string
			Entries []struct {
				Started   string `json:"startedDateTime"`
				Synthetic string `json:"_synthetic"`
				Hop       string `json:"_hop"`
				Request   struct {
					Method, URL string
					PostData    struct{ Text string }
				}
				Response struct {
					Status  int
					Content struct{ Text string }
				}
				Frames []struct{ Type, Data string } `json:"_webSocketMessages"`
			}
		}
	}
	bridgetest.Must(t, json.Unmarshal(out.Bytes(), &har))
	var real, frames int
	for _, e := range har.Log.Entries {
		if e.Synthetic == "" {
			real++
			if e.Request.URL != "http://127.0.0.1:8080/mcp?x=1" || e.Response.Status != 200 || !strings.Contains(e.Request.PostData.Text, `"path":"/a"`) ||
				e.Response.Content.Text != `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}` {
				t.Errorf("the exchange is %+v", e)
			}
		}
		frames += len(e.Frames)
	}
	if real != 1 || frames != 2 {
		t.Errorf("%d exchanges and %d frames, want 1 and 2", real, frames)
	}
	bridgetest.Must(t, hostile.CheckHAR(out.Bytes()))
}

func TestOTLP(t *testing.T) {
	all, correlation := read(t)
	var out bytes.Buffer
	bridgetest.Must(t, export(&out, "otlp", views(all, correlation)))
	var otlp struct {
		ResourceSpans []struct{ ScopeSpans []struct{ Spans []otlpSpan } }
	}
	bridgetest.Must(t, json.Unmarshal(out.Bytes(), &otlp))
	spans := otlp.ResourceSpans[0].ScopeSpans[0].Spans
	i := slices.IndexFunc(spans, func(s otlpSpan) bool { return s.Trace == "0af7651916cd43dd8448eb211c80319c" })
	if i < 0 || spans[i].Parent != "b7ad6b7169203331" || spans[i].Kind != 2 || spans[i].Status.Code != 2 {
		t.Fatalf("no span is a part of the client's trace: %+v", spans)
	}
	if up := spans[i+1]; up.Trace != spans[i].Trace || up.Parent != spans[i].ID || up.Kind != 3 || up.End <= up.Start {
		t.Errorf("the span at the server's end is %+v", up)
	}
}

func FuzzDiff(f *testing.F) {
	f.Add([]byte(`{"id":1,"a":[1,2]}`), []byte(`{"id":"1","a":[2]}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		left, right := diff(a, b)
		if x, y := without(t, a, left), without(t, b, right); !bytes.Equal(x, y) {
			t.Errorf("what is equal is %q, and %q", x, y)
		}
	})
}

func without(t *testing.T, text []byte, spans []textRange) (rest []byte) {
	from := 0
	for _, s := range spans {
		if s.From < from || s.To < s.From || s.To > len(text) {
			t.Fatalf("spans %v of %d bytes", spans, len(text))
		}
		rest = append(rest, text[from:s.From]...)
		from = s.To
	}
	return append(rest, text[from:]...)
}

// A file may hold anything: nothing of it reaches a terminal or a page as it is, and what is
// exported is valid.
func FuzzTrace(f *testing.F) {
	text, err := os.ReadFile(recorded)
	bridgetest.Must(f, err)
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add([]byte(`{"v":1,"kind":"request","hop":"down","dir":"c2s","method":"<script>alert(1)</script>","b64":"G10wO3gHCp//","name":"\u001b[2J\u202e"}` + "\n" + `{"v":2,"kind":"x"}` + "\n{"))
	f.Add([]byte(`{"v":1,"seq":1,"cause":1,"kind":"response","id":null,"http":{"url":":\u0000//","resp":{"</style><script>":["\u009b"]}},"event":{"what":"<img src=x>","text":"\r"},"raw":"x","tail":"y","cut":3}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		var all []trace.Record
		var correlation Correlation
		for r, err := range trace.NewReader(bytes.NewReader(file)).Records() {
			if err == nil {
				all = append(all, r)
				correlation.Add(&r)
			}
		}
		correlation.Resolve()
		var out bytes.Buffer
		p := printer{Out: &out, SideBySide: true, Exchanges: true}
		for v := range views(all, &correlation) {
			bridgetest.Must(t, p.print(v))
		}
		for _, loss := range correlation.Lost() {
			_, _ = io.WriteString(&out, printable.Text(loss.Text))
		}
		bridgetest.Must(t, hostile.CheckTerminalSafe(out.Bytes()))
		for format, check := range checks {
			out.Reset()
			bridgetest.Must(t, export(&out, format, views(all, &correlation)))
			bridgetest.Must(t, check(out.Bytes()))
		}
	})
}
