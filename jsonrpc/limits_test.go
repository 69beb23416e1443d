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
