package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// hostile is what the fuzzers start from.
var hostile = []string{
	`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
	"\uFEFF" + ` {"jsonrpc":"2.0","id":"a\u0062","method":"tools/call","params":{"_meta":{"progressToken":7},"name":"x"}}` + "\r\n",
	`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1","reason":"\ud83d\ude00"}}`,
	`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9007199254740993,"progress":1.0}}`,
	"{\n\"jsonrpc\" : \"2.0\",\r\n\t\"result\":{\"a\":[1,2,{}]},\"id\":1e400}",
	`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x","data":[]}}`,
	`{"jsonrpc":"2.0","error":{"code":1,"message":""}}`,
	`{"jsonrpc":"2.0","m\u0065thod":"\u0070ing","\u0069d":1}`,
	`{"jsonrpc":"2.0","ID":1,"Method":"x","method":"y","id":2,"id":3}`,
	`{"jsonrpc":"2.0","id":1.5,"method":"x"}`,
	`{"jsonrpc":"2.0","id":1.0,"method":"x","params":null}`,
	`{"jsonrpc":"2.0","id":-0e+1,"method":"x","params":[]}`,
	`{"jsonrpc":"2.0","id":"\ud800","method":"x"}`,
	`{"jsonrpc":"2.0","id":{"id":5},"result":1,"method":"}"}`,
	`{"result":"` + "\xff" + `","id":4}`, `{"id":4,"x":"` + "\x00" + `"}`, "{\"id\":4,\"x\":\"\u00a0\u2028👩‍👩‍👧\"}",
	`{"jsonrpc":"2.0","id":1,"result":{"_meta":{"a":[1,{"b":2}]},"c":"\\\\","d":"\\\\\"","e":"\\\\\\","_meta":1}}`,
	`{"jsonrpc":"2.0","id":1,"params":{"a":1,"_meta":{}},"result":{"b":"longer"}}`,
	"{\"a\":1\u00a0}", `[]`, `[1,{"jsonrpc":"2.0","id":1,"method":"a"},[[]]]`, `[1,]`, `[`, ``, ` `, `{`, `{"`, `{"a`, `{"a"`,
	`{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{"a" 1}`, `{,}`, `{} {}`, `{}x`, `nul`, `null`, `true`, `-`, `-1`, `01`, `1.`, `1e`, `1e+`, `.5`, `+1`, `"\u12"`, `"\x"`,
	`{"id":1,"a":[}]}`, `{"id":1,"a":{]}}`, `{"a":"\`, strings.Repeat("[", 70) + strings.Repeat("]", 70),
	strings.Repeat(`{"a":[`, 70) + strings.Repeat("]}", 70), strings.Repeat(`[{"a":`, 65) + "1" + strings.Repeat("}]", 65),
}

func FuzzParse(f *testing.F) {
	for _, s := range hostile {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		data := bytes.Trim(bytes.TrimPrefix(raw, []byte("\uFEFF")), " \t\r\n")
		m, err := Parse(bytes.Clone(raw))
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("error of type %T", err)
		}
		valid := json.Valid(data) && utf8.Valid(data)
		if syntaxError := e != nil && e.Code == CodeParseError; syntaxError == valid {
			t.Fatalf("encoding/json says valid=%v, Parse says %v", valid, err)
		}
		if e != nil {
			if e.Code != CodeParseError && e.Code != CodeInvalidRequest || e.Message == "" {
				t.Fatalf("bad error %+v", e)
			}
			if !e.ID.IsZero() && !strings.Contains(string(data), e.ID.String()) {
				t.Fatalf("the id %s is made up", e.ID)
			}
			return
		}
		checkMessage(t, m, data)
		checkSkip(t, data)
	})
}

// checkSkip: skipValue finds the same end of a value as scanValue.
func checkSkip(t *testing.T, data []byte) {
	t.Helper()
	for _, behind := range []string{"", ",1", "}", "]", " ", "\n\t,"} {
		s := scanner{data: append(bytes.Clone(data), behind...)}
		if s.skipValue(); s.pos != len(data) {
			t.Fatalf("%q is skipped as %q", data, data[:s.pos])
		}
	}
}

// checkMessage compares the index with what encoding/json finds.
func checkMessage(t *testing.T, m Message, data []byte) {
	t.Helper()
	if !bytes.Equal(m.Bytes(), data) {
		t.Fatal("Bytes differ from what was parsed")
	}
	var env map[string]json.RawMessage
	if err := json.Unmarshal(data, &env); err != nil {
		t.Fatal(err)
	}
	want := func(name string) string {
		if name == "params" && string(env[name]) == "null" {
			return ""
		}
		return string(env[name])
	}
	for _, c := range []struct{ name, got string }{
		{"id", m.ID().String()}, {"params", string(m.Params())},
		{"result", string(m.Result())}, {"error", string(m.ErrorObject())},
	} {
		if c.got != want(c.name) {
			t.Fatalf("%s: got %q, want %q", c.name, c.got, want(c.name))
		}
	}
	if method, ok := env["method"]; ok {
		var s string
		if err := json.Unmarshal(method, &s); err != nil || s != m.Method() {
			t.Fatalf("method: got %q, want %q (%v)", m.Method(), s, err)
		}
	}
	checkTokens(t, m, env["params"])
	checkLongest(t, m)
	if got := m.Meta(); !bytes.Equal(got, lastMember(m.Params(), "_meta")) {
		t.Fatalf("_meta: got %q", got)
	}
	for _, of := range []string{"params", "result"} {
		for member := range Members(m.Lookup(of)) {
			if got, want := m.Lookup(of, member.Key), lastMember(m.Lookup(of), member.Key); !bytes.Equal(got, want) {
				t.Fatalf("Lookup(%s, %q): got %q, want %q", of, member.Key, got, want)
			}
		}
	}
	for name := range env {
		if got := m.Lookup(name); string(got) != string(env[name]) {
			t.Fatalf("Lookup(%q): got %q, want %q", name, got, env[name])
		}
	}
	if m.IsOneLine() && bytes.ContainsAny(m.Bytes(), "\n\r") {
		t.Fatal("a message in one line has a line break")
	}
	line := m.Line()
	if bytes.ContainsAny(line, "\n\r") {
		t.Fatal("Line has a line break")
	}
	if a, b := compact(t, line), compact(t, data); !bytes.Equal(a, b) {
		t.Fatalf("Line changed the value: %q, %q", a, b)
	}
	checkSplices(t, m)
}

func lastMember(object []byte, key string) (value []byte) {
	for member := range Members(object) {
		if member.Key == key {
			value = member.Value
		}
	}
	return value
}

func checkTokens(t *testing.T, m Message, raw json.RawMessage) {
	t.Helper()
	var params, meta map[string]json.RawMessage
	if len(raw) > 0 && raw[0] == '{' {
		if err := json.Unmarshal(raw, &params); err != nil {
			t.Fatal(err)
		}
		if v := params["_meta"]; len(v) > 0 && v[0] == '{' {
			if err := json.Unmarshal(v, &meta); err != nil {
				t.Fatal(err)
			}
		}
	}
	token, target := ID{}, ID{}
	switch m.Kind() {
	case Request:
		token, _ = ParseID(meta["progressToken"])
	case Notification:
		token, _ = ParseID(params["progressToken"])
		target, _ = ParseID(params["requestId"])
	}
	if m.ProgressToken() != token || m.CancelledID() != target {
		t.Fatalf("tokens: got %q and %q, want %q and %q", m.ProgressToken(), m.CancelledID(), token, target)
	}
}

// checkSplices replaces every field that can be replaced, one after the other, and
// compares the index with that of a fresh Parse.
func checkSplices(t *testing.T, m Message) {
	t.Helper()
	for _, id := range []ID{IntID(7), StringID("longer than what stood there \u2028<")} {
		s := m
		if !s.ID().IsZero() {
			s = s.WithID(id)
		}
		if !s.ProgressToken().IsZero() {
			s = s.WithProgressToken(id)
		}
		if !s.CancelledID().IsZero() {
			s = s.WithCancelledID(id)
		}
		fresh, err := Parse(bytes.Clone(s.Bytes()))
		if err != nil {
			t.Fatalf("after splicing: %v", err)
		}
		checkIndex(t, s, fresh)
		// Splicing back gives the bytes that were there.
		if !s.ID().IsZero() {
			s = s.WithID(m.ID())
		}
		if !s.ProgressToken().IsZero() {
			s = s.WithProgressToken(m.ProgressToken())
		}
		if !s.CancelledID().IsZero() {
			s = s.WithCancelledID(m.CancelledID())
		}
		if !bytes.Equal(s.Bytes(), m.Bytes()) {
			t.Fatalf("splicing back gives %q, not %q", s.Bytes(), m.Bytes())
		}
	}
}

// checkIndex compares the index of a changed message with that of a fresh Parse. The longest
// must be a value, but after a change it need not be the longest any more.
func checkIndex(t *testing.T, m, fresh Message) {
	t.Helper()
	m = m.withIDInPlace()
	checkLongest(t, m)
	m.longestValue, m.raw, m.related = fresh.longestValue, fresh.raw, fresh.related
	if !reflect.DeepEqual(m, fresh) {
		t.Fatalf("index %+v, want %+v", m, fresh)
	}
}

// checkLongest compares the longest value with the values that may be it.
func checkLongest(t *testing.T, m Message) {
	t.Helper()
	if m.longestValue.end == 0 {
		return
	}
	for _, of := range []span{m.params, m.outcome} {
		for member := range Members(m.slice(of)) {
			if at := of.start + uint32(member.At); !m.isError && m.longestValue == (span{at, at + uint32(len(member.Value))}) {
				return
			}
		}
	}
	t.Fatalf("the longest value is %q", m.slice(m.longestValue))
}

func compact(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func FuzzSplitBatch(f *testing.F) {
	for _, s := range hostile {
		f.Add([]byte(s), uint8(0))
		f.Add([]byte("["+s+" , "+s+"]"), uint8(3))
	}
	f.Fuzz(func(t *testing.T, raw []byte, max uint8) {
		data := bytes.Trim(bytes.TrimPrefix(raw, []byte("\uFEFF")), " \t\r\n")
		elements, err := SplitBatch(raw, int(max))
		var want []json.RawMessage
		wantErr := json.Unmarshal(data, &want)
		if max > 0 && err != nil && strings.Contains(err.Error(), "more than") {
			return // what follows was not looked at
		}
		isArray := len(data) > 0 && data[0] == '[' && wantErr == nil && utf8.Valid(data)
		if ok := isArray && len(want) > 0 && (max == 0 || len(want) <= int(max)); ok != (err == nil) {
			t.Fatalf("got %v, encoding/json: %d elements, %v", err, len(want), wantErr)
		}
		if err != nil {
			code := CodeParseError
			if json.Valid(data) && utf8.Valid(data) {
				code = CodeInvalidRequest
			}
			if e := err.(*Error); e.Code != code {
				t.Fatalf("got code %d, want %d", e.Code, code)
			}
			return
		}
		if len(elements) != len(want) {
			t.Fatalf("got %d elements, want %d", len(elements), len(want))
		}
		for i := range want {
			if !bytes.Equal(elements[i], want[i]) {
				t.Fatalf("element %d: got %q, want %q", i, elements[i], want[i])
			}
		}
	})
}

func FuzzIDFinder(f *testing.F) {
	for _, s := range hostile {
		f.Add([]byte(s), uint8(1), uint8(200))
	}
	f.Fuzz(func(t *testing.T, raw []byte, a, b uint8) {
		var finder IDFinder
		for rest, sizes := raw, []int{int(a) + 1, int(b) + 1}; len(rest) > 0; sizes[0], sizes[1] = sizes[1], sizes[0] {
			n := min(sizes[0], len(rest))
			if w, err := finder.Write(rest[:n]); w != n || err != nil {
				t.Fatalf("Write returned %d, %v", w, err)
			}
			rest = rest[n:]
		}
		id, kind := finder.Result()
		wantID, wantKind := ID{}, Invalid
		switch m, err := Parse(bytes.Clone(raw)); e := err.(type) {
		case nil:
			wantID, wantKind = m.ID(), m.Kind()
		case *Error:
			if e.Code == CodeParseError {
				return // no promise but not to panic
			}
			wantID, wantKind = e.ID, e.Kind
			if id == NullID {
				id = ID{}
			}
		}
		if len(wantID.String()) > 256 {
			wantID = ID{}
		}
		if id != wantID || kind != wantKind {
			t.Fatalf("got %q and kind %d, want %q and kind %d", id, kind, wantID, wantKind)
		}
	})
}
