package jsonrpc

import (
	"bytes"
	"encoding/json"
	"iter"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"
)

func TestElements(t *testing.T) {
	for text, want := range map[string][]string{
		`[]`: nil, `[ ]`: nil, `{}`: nil, `"[1]"`: nil, `null`: nil, ``: nil,
		`[1]`: {`1`},
		"[ 1 ,\n\"a,]\\\"\" , [2, [3]],{\"x\":[4]} ,null ]": {`1`, `"a,]\""`, `[2, [3]]`, `{"x":[4]}`, `null`},
	} {
		var got []string
		for at, e := range Elements([]byte(text)) {
			if text[at:at+len(e)] != string(e) || cap(e) != len(e) {
				t.Errorf("%s: %q is said to stand at %d", text, e, at)
			}
			got = append(got, string(e))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q", text, got)
		}
	}
}

func TestMembers(t *testing.T) {
	const text = "{ \"a\" : 1,\"\\u0061\":[2] ,\n\"na\\u006De\": \"x\", \"\":{\"a\":3} }"
	var got []string
	for m := range Members([]byte(text)) {
		if text[m.At:m.At+len(m.Value)] != string(m.Value) || cap(m.Value) != len(m.Value) {
			t.Errorf("%q is said to stand at %d", m.Value, m.At)
		}
		got = append(got, m.Key+"="+string(m.Value))
	}
	if want := []string{"a=1", "a=[2]", `name="x"`, `={"a":3}`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, text := range []string{`{}`, `{ }`, `[1]`, `"{}"`, `null`, ``} {
		for m := range Members([]byte(text)) {
			t.Errorf("%s has the member %v", text, m)
		}
	}
	for range Members([]byte(text)) {
		break // an iterator can be left
	}
	for range Elements([]byte("[1,2]")) {
		break
	}
}

func TestText(t *testing.T) {
	for value, want := range map[string]string{`"a\u0062\/\n"`: "ab/\n", `""`: "", `"plain é"`: "plain é", `"\ud800x"`: "\uFFFDx"} {
		if got, ok := Text([]byte(value)); !ok || got != want {
			t.Errorf("%s: got %q, %v", value, got, ok)
		}
	}
	for _, value := range []string{``, `1`, `null`, `["a"]`, `{"a":"b"}`} {
		if got, ok := Text([]byte(value)); ok {
			t.Errorf("%s: got %q", value, got)
		}
	}
}

func TestKeys(t *testing.T) {
	for text, want := range map[string][]string{
		`{"jsonrpc":"2.0","id":1,"method":"m"}`:                                       {"jsonrpc", "id", "method"},
		`{"x":{"y":1}, "params" : {"k":[1]} ,"m\u0065thod":"m","jsonrpc":"2.0"}`:      {"x", "params", "method", "jsonrpc"},
		`{"jsonrpc":"2.0","result":[{"a":1}],"Result":2,"id":"a","\u0052esult":null}`: {"jsonrpc", "result", "Result", "id", "Result"},
		`{"params":{"a":{}},"id":1,"method":"m","jsonrpc":"2.0"}`:                     {"params", "id", "method", "jsonrpc"},
		`{"error":{"code":1,"message":""},"id":1,"jsonrpc":"2.0"}`:                    {"error", "id", "jsonrpc"},
		`{"jsonrpc":"2.0","method":"m","params":null,"\u017f":0}`:                     {"jsonrpc", "method", "params", "ſ"},
	} {
		if got := slices.Collect(new(mustParse(t, text)).EnvelopeKeys()); !slices.Equal(got, want) {
			t.Errorf("%s: got %q", text, got)
		}
	}
	if got := slices.Collect(new(Message{}).EnvelopeKeys()); got != nil {
		t.Errorf("the zero Message has %q", got)
	}
}

func TestWithResult(t *testing.T) {
	m := mustParse(t, `{"x":1.0, "result" : {"tools":[1]} ,"id":9007199254740993,"jsonrpc":"2.0"}`).WithRelated(IntID(4))
	got := m.WithResult([]byte("{\n}"))
	if want := "{\"x\":1.0, \"result\" : {\n} ,\"id\":9007199254740993,\"jsonrpc\":\"2.0\"}"; string(got.Bytes()) != want {
		t.Errorf("got %s", got.Bytes())
	}
	if string(got.Result()) != "{\n}" || got.ID() != m.ID() || got.Related() != IntID(4) || bytes.Contains(got.Line(), []byte("\n")) {
		t.Errorf("the index is wrong: %q, %s, %s", got.Result(), got.ID(), got.Related())
	}
	for name, f := range map[string]func(){
		"request":       func() { mustParse(t, `{"jsonrpc":"2.0","id":1,"method":"m"}`).WithResult([]byte("1")) },
		"error":         func() { NewError(IntID(1), 1, "", nil).WithResult([]byte("1")) },
		"no JSON":       func() { m.WithResult([]byte("{")) },
		"nothing":       func() { m.WithResult(nil) },
		"several":       func() { m.WithResult([]byte(`1,"id":2`)) },
		"a second mark": func() { m.WithResult([]byte("\uFEFF1")) },
	} {
		mustPanic(t, name, f)
	}
}

// The walk finds what encoding/json finds, and a replaced result leaves every other byte.
func FuzzWalk(f *testing.F) {
	for _, s := range hostile {
		f.Add([]byte(s), []byte(s))
	}
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"a":[1, {"b":2} ],"a":"\u0061"},"Result":0}`), []byte(`{"tools":[ ]}`))
	f.Fuzz(func(t *testing.T, raw, other []byte) {
		m, err := Parse(bytes.Clone(raw))
		if err != nil || len(raw) > 4<<10 { // the check takes quadratic time in depth
			return
		}
		checkWalk(t, m.Bytes())
		var keys []string
		for member := range Members(m.Bytes()) {
			keys = append(keys, member.Key)
		}
		if got := slices.Collect(m.EnvelopeKeys()); !slices.Equal(got, keys) {
			t.Fatalf("Keys %q, want %q", got, keys)
		}
		for _, f := range []struct {
			got, want iter.Seq[Member]
		}{{m.ParamsObject().Members(), Members(m.Params())}, {m.ResultObject().Members(), Members(m.Result())}} {
			if got, want := slices.Collect(f.got), slices.Collect(f.want); !reflect.DeepEqual(got, want) {
				t.Fatalf("members %v, want %v", got, want)
			}
		}
		if m.Result() == nil || !json.Valid(other) || !utf8.Valid(other) {
			return
		}
		got := m.WithResult(other)
		at := m.outcome
		want := string(m.Bytes()[:at.start]) + string(other) + string(m.Bytes()[at.end:])
		if string(got.Bytes()) != want || !bytes.Equal(got.Result(), bytes.Trim(other, " \t\r\n")) || got.ID() != m.ID() {
			t.Fatalf("got %q, want %q", got.Bytes(), want)
		}
		if back := got.WithResult(m.Result()); bytes.Equal(other, got.Result()) && !bytes.Equal(back.Bytes(), m.Bytes()) {
			t.Fatalf("replacing back gives %q, not %q", back.Bytes(), m.Bytes())
		}
	})
}

// checkWalk compares elements and members, at all depths, with what encoding/json finds.
func checkWalk(t *testing.T, value []byte) {
	t.Helper()
	var elements []json.RawMessage
	var members map[string]json.RawMessage
	switch value[0] {
	case '[':
		if err := json.Unmarshal(value, &elements); err != nil {
			t.Fatal(err)
		}
	case '{':
		if err := json.Unmarshal(value, &members); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for at, e := range Elements(value) {
		if n >= len(elements) || !bytes.Equal(e, elements[n]) || !bytes.Equal(value[at:at+len(e)], e) {
			t.Fatalf("element %d is %q", n, e)
		}
		n++
		checkWalk(t, e)
	}
	if n != len(elements) {
		t.Fatalf("%d elements, want %d", n, len(elements))
	}
	last := map[string]string{}
	for m := range Members(value) {
		if !bytes.Equal(value[m.At:m.At+len(m.Value)], m.Value) {
			t.Fatalf("%q does not stand at %d", m.Value, m.At)
		}
		last[m.Key] = string(m.Value)
		checkWalk(t, m.Value)
	}
	if len(last) != len(members) {
		t.Fatalf("%d keys, want %d", len(last), len(members))
	}
	for key, want := range members {
		if last[key] != string(want) {
			t.Fatalf("key %q: %q, want %q", key, last[key], want)
		}
	}
}

// What a client sends in one piece: every element is a message or a fault, and
// every fault has an answer that is a message, or needs none.
func FuzzDecode(f *testing.F) {
	for _, s := range hostile {
		f.Add([]byte(s), true, uint8(0))
		f.Add([]byte("["+s+" , "+s+"]"), true, uint8(3))
		f.Add([]byte("["+s+"]"), false, uint8(0))
	}
	f.Fuzz(func(t *testing.T, raw []byte, batches bool, max uint8) {
		messages, faults := Decode(bytes.Clone(raw), batches, int(max), 0)
		want := 1
		if elements, err := SplitBatch(raw, int(max)); batches && err == nil {
			want = len(elements)
		}
		if len(messages)+len(faults) != want {
			t.Fatalf("%d messages and %d faults, want %d in all", len(messages), len(faults), want)
		}
		if IsBatch(raw) && !batches && len(messages) > 0 {
			t.Fatal("a batch was taken")
		}
		for _, m := range messages {
			if m.Kind() == Invalid || !bytes.Contains(raw, m.Bytes()) || IsBatch(raw) && m.Method() == "initialize" {
				t.Fatalf("decoded %q", m.Bytes())
			}
		}
		for _, e := range faults {
			m, due := e.Reply()
			if due != (e.Kind == Request || e.Kind == Invalid) {
				t.Fatalf("a reply to kind %d: %v", e.Kind, due)
			}
			if due && (m.Kind() != Response || !m.IsError() || m.ID().IsZero() || !e.ID.IsZero() && m.ID() != e.ID) {
				t.Fatalf("reply %s", m.Bytes())
			}
		}
	})
}

// Text that is no valid string does no harm, wherever it is cut off.
func TestTextInvalid(t *testing.T) {
	const text = `a\u00e9\ud83d\ude00\n\"`
	for end := range len(text) + 1 {
		for _, tail := range []string{"", `\`, `\u`, `\u12`, `\uzzzz`, `\ud83d\u`} {
			if _, ok := Text([]byte(`"` + text[:end] + tail + `"`)); !ok {
				t.Errorf("%s%s is no text", text[:end], tail)
			}
		}
	}
}
