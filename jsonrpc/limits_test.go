package jsonrpc

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// 100,000 levels neither overflow a stack nor take quadratic time, wherever they stand.
func TestDepth(t *testing.T) {
	const n = 100_000
	for name, nest := range map[string]string{
		"arrays":  strings.Repeat("[", n) + strings.Repeat("]", n),
		"objects": strings.Repeat(`{"_meta":`, n) + "1" + strings.Repeat("}", n),
		"mixed":   strings.Repeat(`[{"error":`, n/2) + "null" + strings.Repeat("}]", n/2),
	} {
		t.Run(name, func(t *testing.T) {
			text := `{"jsonrpc":"2.0","x":` + nest + `,"id":5,"method":"a","params":{"_meta":` + nest + `,"a":` + nest + `}}`
			m := mustParse(t, text)
			if m.ID() != IntID(5) || string(m.Lookup("params", "a")) != nest {
				t.Error("the index is wrong")
			}
			if e := parseError(t, `{"jsonrpc":"2.0","method":"a","id":`+nest+`}`); e.Code != CodeInvalidRequest {
				t.Errorf("got %v", e)
			}
			if e := parseError(t, `{"jsonrpc":"2.0","id":5,"method":"a","params":[`+nest[:len(nest)-1]+`x]}`); e.Code != CodeParseError || e.ID != IntID(5) {
				t.Errorf("got %v", e)
			}
			if parts, err := SplitBatch([]byte("["+nest+","+nest+"]"), 0); err != nil || len(parts) != 2 || string(parts[1]) != nest {
				t.Errorf("SplitBatch: %d elements, %v", len(parts), err)
			}
			var f IDFinder
			f.Write([]byte(text))
			if id, kind := f.Result(); id != IntID(5) || kind != Request {
				t.Errorf("IDFinder: %s, kind %d", id, kind)
			}
		})
	}
	if e := parseError(t, strings.Repeat("[", 1_000_000)); e.Code != CodeParseError {
		t.Errorf("got %v", e)
	}
}

// J14: the message itself is the first level. A message with one level more than the limit is refused, wherever
// that level is. The error has the id, also if the id comes later in the text. Without a limit any number is valid.
func TestParseDepth(t *testing.T) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","method":"a","params":[[{}]],"id":5}`,
		`{"jsonrpc":"2.0","method":"a","params":{"_meta":{"a":[]}},"id":5}`,
		`{"jsonrpc":"2.0","method":"a","params":{"a":{"b":{"c":1}}},"id":5}`,
		`{"jsonrpc":"2.0","method":"a","params":{"_meta":{"a":1},"b":[{},[],{"c":1}],"c":[[1],[2]]},"id":5}`,
		`{"jsonrpc":"2.0","x":[[[1]]],"method":"a","id":5}`,
		`{"jsonrpc":"2.0","x":{"":{}},"result":{"a":{},"b":[[]]},"id":5}`,
		`{"jsonrpc":"2.0","x":{"":{}},"error":{"code":1,"message":"","data":[[]]},"id":5}`,
	} {
		for _, enough := range []int{0, -1, 4, 1000} {
			if m, err := ParseDepth([]byte(text), enough); err != nil || m.ID() != IntID(5) {
				t.Errorf("%s: with %d levels: %v", text, enough, err)
			}
		}
		for few := 1; few < 4; few++ {
			_, err := ParseDepth([]byte(text), few)
			if e, ok := err.(*Error); !ok || e.Code != CodeInvalidRequest || e.ID != IntID(5) || !strings.Contains(e.Message, "--max-depth") {
				t.Errorf("%s: with %d levels: %+v", text, few, err)
			}
		}
	}
	batch := `[{"jsonrpc":"2.0","id":1,"result":[[]]},{"jsonrpc":"2.0","id":2,"result":[[[]]]}]`
	messages, faults := Decode([]byte(batch), true, 0, 3)
	if len(messages) != 1 || messages[0].ID() != IntID(1) || len(faults) != 1 || faults[0].ID != IntID(2) {
		t.Errorf("a batch: %v, %v", messages, faults)
	}
}

// J15: the limit is on the spelling of an id; for the id of a response and the token of a notification it is on
// the decoded text.
func TestNameLengths(t *testing.T) {
	long, fits := strings.Repeat("x", MaxName+1), strings.Repeat("x", MaxName)
	escaped := strings.Repeat(`\u0078`, MaxName/2)
	for _, c := range []struct{ text, fault string }{
		{`{"jsonrpc":"2.0","method":"a","id":"%s"}`, "the id"},
		{`{"jsonrpc":"2.0","method":"%s"}`, "the method"},
		{`{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"progressToken":"%s"}}}`, "the progress token"},
		{`{"jsonrpc":"2.0","method":"a","params":{"requestId":"%s"}}`, "params.requestId"},
		{`{"jsonrpc":"2.0","method":"a","params":{"progressToken":"%s"}}`, ""},
		{`{"jsonrpc":"2.0","result":{},"id":"%s"}`, ""},
		{`{"jsonrpc":"2.0","error":{"code":1,"message":""},"id":"%s"}`, ""},
	} {
		mustParse(t, strings.Replace(c.text, "%s", fits, 1))
		if e := parseError(t, strings.Replace(c.text, "%s", long, 1)); e.Code != CodeInvalidRequest || len(e.ID.String()) > 1 || !strings.Contains(e.Message, "longer than 1024 bytes") {
			t.Errorf("%s: %+v", c.text, e)
		}
		text := strings.Replace(c.text, "%s", escaped, 1)
		if c.fault == "" {
			mustParse(t, text)
		} else if e := parseError(t, text); !strings.Contains(e.Message, c.fault+" is longer") {
			t.Errorf("%s: with escapes: %+v", c.text, e)
		}
	}
	// Members of params that only have the same name have no limit.
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"a","params":{"requestId":"%s","progressToken":"%s","taskId":"%s"}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"id":"%s"}}`,
	} {
		mustParse(t, strings.ReplaceAll(text, "%s", long))
	}
	digits := strings.Repeat("1", MaxName)
	mustParse(t, `{"jsonrpc":"2.0","id":`+digits+`,"method":"a"}`)
	parseError(t, `{"jsonrpc":"2.0","id":`+digits+`1,"method":"a"}`)
	// An error for another fault does not repeat an id that is too long either.
	if e := parseError(t, `{"id":"`+long+`","method":"a"}`); !e.ID.IsZero() || e.Kind != Request {
		t.Errorf("got %+v", e)
	}
}

// A message of 64 MiB is parsed where it lies, not copied.
func TestLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("needs 200 MB")
	}
	const head, tail = `{"jsonrpc":"2.0","result":"`, `","id":"last"}`
	raw := append(append([]byte(head), bytes.Repeat([]byte(strings.Repeat("e", 62)+"é"), 1<<20)...), tail...)
	m, err := Parse(raw)
	if err != nil || m.Kind() != Response || len(m.Result()) != len(raw)-len(head)-len(tail)+2 || &m.Bytes()[0] != &raw[0] {
		t.Fatalf("kind %d, %v", m.Kind(), err)
	}
	var f IDFinder
	for part := range slices.Chunk(raw, 4096) {
		f.Write(part)
	}
	if id, kind := f.Result(); id != StringID("last") || kind != Response {
		t.Errorf("IDFinder: %s, kind %d", id, kind)
	}
}

// Hostile shapes that make naive readers quadratic: each finishes.
func TestLinear(t *testing.T) {
	const n = 200_000
	for name, text := range map[string]string{
		"escapes":        `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat(`\"`, n) + `"}`,
		"escaped key":    `{"jsonrpc":"2.0","id":1,"result":{"` + strings.Repeat(`\u0041`, n) + `":1}}`,
		"many keys":      `{"jsonrpc":"2.0","id":1,` + strings.Repeat(`"a":1,`, n) + `"result":1}`,
		"many meta keys": `{"jsonrpc":"2.0","id":1,"params":{"_meta":{` + strings.Repeat(`"a":1,`, n) + `"b":1}},"result":1}`,
		"white space":    strings.Repeat(" ", n) + `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("\n", n) + `1}` + strings.Repeat("\r", n),
		"long number":    `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("1", n) + `}`,
	} {
		if m := mustParse(t, text); m.ID() != IntID(1) || bytes.ContainsAny(m.Line(), "\r\n") {
			t.Errorf("%s: id %s", name, m.ID())
		}
	}
}

// Every beginning of a message is a parse error; an id is either read whole or not at all.
func TestCutOff(t *testing.T) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":123,"method":"a","params":{"_meta":{"progressToken":"\ud83d\ude00é"}}}`,
		`{"result":[1.5e+3,true,{"a":null}],"jsonrpc":"2.0","id":"x\u0061é" }`,
		`{"error":{"code":-1,"message":"m"},"id":-12 , "jsonrpc":"2.0"}`,
	} {
		whole := mustParse(t, text)
		for n := range text {
			e := parseError(t, text[:n])
			if e.Code != CodeParseError || !e.ID.IsZero() && e.ID != whole.ID() || e.Kind != Invalid && e.Kind != whole.Kind() {
				t.Errorf("%q: %+v", text[:n], e)
			}
			var f IDFinder
			f.Write([]byte(text[:n]))
			if id, kind := f.Result(); !id.IsZero() && id != whole.ID() || kind != Invalid && kind != whole.Kind() {
				t.Errorf("IDFinder on %q: %s, kind %d", text[:n], id, kind)
			}
		}
	}
}
