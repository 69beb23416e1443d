// Package hostile makes what a bridge never writes, or what no well-meaning peer sends: lines of traces and
// messages that try to be a script, a command of a terminal, another type, another version, or too much.
// All of it depends on the seed alone. The package also checks what the readers of such lines write.
package hostile

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Texts are strings that do something where they are not taken for text: in a page, in a terminal, in a file
// name, in JavaScript. Some are not UTF-8.
var Texts = []string{
	"<script>window.pwned=1</script>", "</script><script>window.pwned=2</script>", "<img src=x onerror=window.pwned=3>", `"><svg onload=window.pwned=4>`,
	"' onmouseover='window.pwned=5", "javascript:window.pwned=6", "</style><script>window.pwned=7</script>", "</pre></title><base href=//evil.example>", "<!--", "]]>",
	"&#x3c;script&#x3e;window.pwned=8&#x3c;/script&#x3e;", `<meta http-equiv="refresh" content="0;url=//evil.example">`, "<iframe srcdoc='<script>parent.pwned=9</script>'>",
	"${window.pwned=10}", "{{constructor.constructor('window.pwned=11')()}}", "__proto__", "constructor", "toString", "hasOwnProperty",
	"\x1b[2J\x1b[H\x1b[31m", "\x1b]0;pwned\x07", "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\", "\x1b]52;c;ZXZpbA==\x07", "\x1bP+q544e\x1b\\", "\x1b[?1049h\x1bc",
	"\u009b31m", "\u009d0;pwned\u009c", "\a\b\b\b\v\f", "\roverwritten", "\x7f", "a\x00b", "\x0eshifted\x0f", "two\nlines", "a\tb", "\n\ndata: {}\n\nid: 7",
	"\u202egpj.exe", "\u2066hidden\u2069", "\u200b\u200e\u200f\ufeff", "\u2028\u2029", "\U000e0041\U000e007f", "\ue000", "Z\u0351\u0351\u0351\u0351", "👩‍👩‍👧", "漢字", "é", "\ufffd",
	"\xff\xfe", "\xc3(", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80\x80\x80\x80\x80", "abc\xf0\x9f",
	"%s%n%d%!x", "../../../../etc/passwd", "C:\\con", "'; rm -rf ~; '", "$(touch /tmp/pwned)", `"`, `\`, `\u003cscript\u003e`, "[redacted]", "", " ", "null", "0",
}

// A Line is a line of a trace.
type Line struct {
	Text   []byte // without its line feed, and without any in it
	Defect string // why it is no record of version 1; "": it is one
}

// TraceLines returns n lines: records with hostile contents, and among them what is no record.
func TraceLines(seed uint64, n int) []Line {
	g := newGenerator(seed)
	all := make([]Line, n)
	for i := range all {
		g.seq = uint64(i + 1)
		text := g.record()
		if all[i] = (Line{Text: text}); g.oneIn(4) {
			all[i] = g.spoiledLine(text)
		}
	}
	return all
}

// JoinLines returns the lines, each with a line feed, as a file has them.
func JoinLines(lines []Line) []byte {
	var file []byte
	for _, l := range lines {
		file = append(append(file, l.Text...), '\n')
	}
	return file
}

// Messages returns n messages of JSON-RPC that a bridge takes, with hostile contents.
func Messages(seed uint64, n int) [][]byte {
	g := newGenerator(seed)
	all := make([][]byte, n)
	for i := range all {
		all[i] = []byte(g.message(pick(g, "request", "response", "notification")))
	}
	return all
}

// generator makes hostile messages and records, the same ones for the same seed.
type generator struct {
	*rand.Rand        // decides what is made
	seq        uint64 // the number of the record that is made, from 1 up
}

// newGenerator returns a generator with this seed.
func newGenerator(seed uint64) *generator { return &generator{Rand: rand.New(rand.NewPCG(seed, 7))} }

// oneIn returns true once in n times, at random.
func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

// pick returns one of all, chosen at random.
func pick[T any](g *generator, all ...T) T { return all[g.IntN(len(all))] }

// text returns one or two of Texts; now and then a very long one.
func (g *generator) text() string {
	if g.oneIn(5000) {
		return strings.Repeat(pick(g, Texts...)+"x", 2000)
	}
	text := pick(g, Texts...)
	if g.oneIn(3) {
		text += pick(g, Texts...)
	}
	return text
}

// name returns a hostile text that is short enough, 1,000 bytes at most, for a member of a record that is a word.
func (g *generator) name() string {
	text := g.text()
	return text[:min(len(text), 1000)]
}

// quoted returns a text as a JSON string. What is not UTF-8 is left out; the rest is spelled in one of several
// ways.
func (g *generator) quoted(text string) string {
	var b strings.Builder
	all := g.oneIn(4)
	b.WriteByte('"')
	for _, r := range strings.ToValidUTF8(text, "") {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r < ' ' || all && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	if g.oneIn(20) {
		b.WriteString(pick(g, `\ud800`, `\udc00\ud800`, `\u0000`))
	}
	b.WriteByte('"')
	return b.String()
}

// value returns any JSON value, in which objects and arrays are nested depth levels deep at most; but now and then 900 empty arrays in one
// another.
func (g *generator) value(depth int) string {
	if depth > 0 && g.oneIn(4) {
		return pick(g, "["+g.value(depth-1)+","+g.value(depth-1)+"]", `{`+g.quoted(g.text())+`:`+g.value(depth-1)+`,"a":1,"a":`+g.value(depth-1)+`}`)
	}
	if g.oneIn(100) {
		return strings.Repeat("[", 900) + strings.Repeat("]", 900)
	}
	return pick(g, "null", "true", "false", "0", "-1", "1e400", "-1e-400", "18446744073709551616", "9007199254740993", "0.1", `""`, "[]", "{}",
		strings.Repeat("9", 300), g.quoted(g.text()), g.quoted(g.text()), g.quoted(g.text()))
}

// id returns the id of a message. Few of them are used, so that requests and responses meet.
func (g *generator) id() string {
	name := g.name()
	return pick(g, "1", "2", "1.0", "-1", `"1"`, `"\u0031"`, "18446744073709551617", "1e3", g.quoted(name[:min(len(name), 99)]))
}

// methods are the methods that method chooses from.
var methods = []string{"tools/call", "tools/list", "initialize", "ping", "resources/read", "prompts/get", "notifications/cancelled", "notifications/progress", "notifications/message",
	"sampling/createMessage", "subscriptions/listen", "server/discover"}

// method returns the method of a message: mostly one that the protocol has.
func (g *generator) method() string {
	if g.oneIn(3) {
		return g.name()
	}
	return pick(g, methods...)
}

// message returns a message of a kind: request, response or notification.
func (g *generator) message(kind string) string {
	var m strings.Builder
	m.WriteString(`{"jsonrpc":"2.0"`)
	if kind != "notification" {
		m.WriteString(`,"id":` + g.id())
	}
	meta := `"_meta":{"progressToken":` + g.id() + `,"traceparent":` + pick(g, `"00-00000000000000000000000000000000-0000000000000000-01"`,
		`"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`, `"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`, g.quoted(g.text())) + `}`
	switch {
	case kind == "response" && g.oneIn(3):
		fmt.Fprintf(&m, `,"error":{"code":%s,"message":%s,"data":%s}`, pick(g, "-32603", "0", "-1", "99999999999999999999"), g.quoted(g.text()), g.value(3))
	case kind == "response":
		fmt.Fprintf(&m, `,"result":{"isError":%s,%s,"content":[{"type":"text","text":%s}],"x":%s}`, pick(g, "true", "1", "null"), meta, g.quoted(g.text()), g.value(4))
	default:
		fmt.Fprintf(&m, `,"method":%s`, g.quoted(g.method()))
		if !g.oneIn(4) {
			fmt.Fprintf(&m, `,"params":{"name":%s,"requestId":%s,"cursor":%s,%s,"arguments":{%s:%s}}`, pick(g, g.quoted(g.name()), g.value(1)), g.id(), g.quoted(g.text()), meta,
				g.quoted(g.text()), g.value(4))
		}
	}
	m.WriteString("}")
	return m.String()
}

// objectBuilder writes a JSON object, but for the brace at its end.
type objectBuilder struct {
	strings.Builder
}

// add writes a member, whose value is JSON; before the first one, it writes the brace that begins the object.
func (m *objectBuilder) add(key, value string) {
	if m.Len() == 0 {
		m.WriteByte('{')
	} else {
		m.WriteByte(',')
	}
	fmt.Fprintf(m, "%q:%s", key, value)
}

// record returns a record as the format has it, with hostile contents.
func (g *generator) record() []byte {
	var m objectBuilder
	kind := pick(g, "request", "request", "response", "response", "notification", "http", "refused", "stream", "session", "process", "stderr", "noise", "drop", "gap", "note", "unheard of", "k"+g.name())
	m.add("v", "1")
	m.add("kind", g.quoted(kind))
	if !g.oneIn(10) {
		m.add("seq", strconv.FormatUint(pick(g, g.seq, g.seq, g.seq, g.seq-1, 1, 1<<63, 1<<64-1), 10))
	}
	if g.oneIn(2) {
		m.add("cause", strconv.FormatUint(pick(g, g.seq-1, g.seq-1, g.seq-2, g.seq, 1, 1<<64-1), 10))
	}
	m.add("ts", strconv.Quote(g.time()))
	m.add("hop", pick(g, `"down"`, `"up"`, `"up"`, g.quoted(g.name())))
	m.add("dir", pick(g, `"c2s"`, `"s2c"`, g.quoted(g.name())))
	m.add("ses", pick(g, `"s1"`, `"q2"`, `"s1"`, `"q2"`, g.quoted(g.name())))
	for _, key := range []string{"srv", "str", "era", "tr", "why", "name", "method"} {
		if g.oneIn(3) {
			m.add(key, g.quoted(g.name()))
		}
	}
	m.add("era", pick(g, `"legacy"`, `"modern"`))
	m.add("tr", pick(g, `"http"`, `"websocket"`, `"stdio"`))
	m.add("method", g.quoted(g.method()))
	m.add("id", pick(g, "null", g.id(), g.id(), g.id()))
	for _, key := range []string{"size", "cut", "lost"} {
		if g.oneIn(5) {
			m.add(key, pick(g, "0", "7", "9223372036854775807"))
		}
	}
	for _, key := range []string{"bridge_us", "dur_us", "code"} {
		if g.oneIn(5) {
			m.add(key, pick(g, "0", "1", "-7", "9223372036854775"))
		}
	}
	g.body(&m, kind)
	if g.oneIn(4) {
		m.add("redacted", "["+g.quoted(g.text())+","+g.quoted(g.text())+"]")
	}
	if kind == "http" || kind == "refused" || g.oneIn(10) {
		m.add("http", g.exchange())
	}
	if g.oneIn(2) {
		m.add("event", g.event())
	}
	if g.oneIn(3) {
		m.add(pick(g, "future", "__proto__", strings.Repeat("k", 500)), g.value(5))
	}
	return []byte(m.String() + "}")
}

// time returns the time of a record: mostly one about seq milliseconds after a fixed one, now and then an odd one.
func (g *generator) time() string {
	if g.oneIn(5) {
		return pick(g, "0001-01-01T00:00:00Z", "1677-09-21T00:12:43Z", "1969-12-31T23:59:59.9Z", "2262-04-11T23:47:17Z", "9999-12-31T23:59:59.999999999Z", "2026-11-21T07:40:48+23:59")
	}
	return time.Date(2026, 11, 21, 7, 40, 48, 0, time.UTC).Add(time.Duration(g.seq)*time.Millisecond + time.Duration(g.IntN(5000))*time.Microsecond).Format(time.RFC3339Nano)
}

// body adds the members with the message of a record of this kind to m, in one of the forms that the format has.
func (g *generator) body(m *objectBuilder, kind string) {
	if kind != "request" && kind != "response" {
		kind = "notification"
	}
	switch g.IntN(5) {
	case 0, 1:
		m.add("msg", g.message(kind))
	case 2:
		m.add("msg", g.value(6))
	case 3:
		m.add("raw", g.quoted(g.message(kind)+g.text()))
	case 4:
		m.add("b64", strconv.Quote(base64.StdEncoding.EncodeToString([]byte(g.text()))))
	}
	if g.oneIn(6) {
		m.add("raw", g.quoted(g.text()))
		m.add("tail", g.quoted(g.text()))
	}
}

// exchange returns the member "http" of a record.
func (g *generator) exchange() string {
	var m objectBuilder
	m.add(pick(g, "path", "url"), pick(g, g.quoted(g.text()), g.quoted("http://evil.example/?"+g.text()), `"/mcp?a=%zz&b=<script>"`, `"http://[::1"`, `"javascript:pwned=1"`))
	for _, key := range []string{"method", "proto", "remote", "rule", "why", "err"} {
		if g.oneIn(2) {
			m.add(key, g.quoted(g.text()))
		}
	}
	m.add("status", pick(g, "0", "101", "200", "404", "999999"))
	for _, key := range []string{"in", "out", "us", "ttfb_us"} {
		if g.oneIn(2) {
			m.add(key, pick(g, "0", "1", "95", "9223372036854775"))
		}
	}
	for _, key := range []string{"req", "resp"} {
		m.add(key, `{"Content-Type":`+pick(g, `"text/event-stream"`, `"text/html"`, g.quoted(g.text()))+`,"Location":`+g.quoted(g.text())+`,`+g.quoted(g.text())+`:[`+g.quoted(g.text())+`,""]}`)
	}
	return m.String() + "}"
}

// event returns the member "event" of a record.
func (g *generator) event() string {
	var m objectBuilder
	m.add("what", pick(g, `"opened"`, `"ended"`, `"started"`, g.quoted(g.text())))
	for _, key := range []string{"program", "step", "client", "version", "rev", "from", "how", "err", "code", "text"} {
		if g.oneIn(2) {
			m.add(key, g.quoted(g.text()))
		}
	}
	m.add("pid", pick(g, "0", "-1", "4711", "9223372036854775807"))
	m.add("us", pick(g, "0", "-1", "9223372036854775"))
	return m.String() + "}"
}

// spoiledLine returns a line that is no record of version 1, most often made of text, which is one. It does not change text.
func (g *generator) spoiledLine(text []byte) Line {
	change := func(wrong, from, to string) Line {
		return Line{bytes.Replace(text, []byte(from), []byte(to), 1), wrong}
	}
	with := func(wrong, member string) Line {
		return Line{append(append(text[:len(text)-1:len(text)-1], ','), member+"}"...), wrong}
	}
	switch g.IntN(8) {
	case 0:
		return change("version", `"v":1`, pick(g, `"v":2`, `"v":99999999999999999999`, `"v":1,"v":7`))
	case 1:
		return change("no version", `"v":1`, pick(g, `"v":0`, `"v":-1`, `"v":"1"`, `"v":null`, `"v":1.5`, `"v":[1]`, `"V":1`))
	case 2:
		return Line{text[:1+g.IntN(len(text)-1)], "cut"}
	case 3:
		at := 1 + g.IntN(len(text)-1)
		return Line{append(append(append([]byte(nil), text[:at]...), pick(g, "\xff", "\xc3", "\xed\xa0\x80", "\x00", "\x1b", "\r\x07")...), text[at:]...), "bytes"}
	case 4:
		return Line{append(append([]byte(nil), text...), pick(g, "x", "{}", ",", "\x00")...), "more"}
	case 5:
		return Line{[]byte(pick(g, "x", "[]", "7", "null", `"v"`, "{}", "\x1b[2J", "\ufeff{}", `{"v":1}`, `{"v":1,"kind":""}`, "<script>window.pwned=12</script>", `{"v":1,"kind":7}`)), "foreign"}
	case 6:
		return with("number", pick(g, `"seq":-1`, `"seq":1e3`, `"seq":18446744073709551616`, `"cause":0.5`, `"size":-1`, `"cut":-1`, `"lost":-1`, `"dur_us":9223372036854775807`, `"code":1e9`,
			`"http":{"in":-1}`, `"http":{"status":-5}`, `"http":{"out":-1}`, `"event":{"calls":-1}`, `"http":{"status":1e2}`, `"ts":1`, `"ts":"yesterday"`, `"ts":"0000-01-01T00:00:00+01:00"`,
			`"ts":"9999-12-31T23:59:59-01:00"`, `"ts":"-001-01-01T00:00:00Z"`, `"id":1.5`, `"id":{}`, `"failed":1`))
	}
	long := strings.Repeat("n", 5000)
	return with("type", pick(g, `"http":7`, `"http":[]`, `"event":"x"`, `"event":null`, `"redacted":{}`, `"redacted":[1]`, `"method":[]`, `"ses":{}`, `"name":7`, `"raw":[]`, `"b64":"%"`, `"b64":7`,
		`"kind":"`+long+`"`, `"method":"`+long+`"`, `"ses":"`+long+`"`, `"srv":"`+long+`"`, `"name":"`+long+`"`, `"id":"`+long+`"`, `"id":`+strings.Repeat("9", 5000), `"http":{"req":{"a":7}}`, `"http":{"req":[]}`))
}
