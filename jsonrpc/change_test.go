package jsonrpc

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzChange puts members into a message and takes members out. It makes the same changes
// to the raw params or result, parses the message with them, and compares.
func FuzzChange(f *testing.F) {
	for _, s := range hostile {
		f.Add([]byte(s))
	}
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1, 2],"_meta":{"progressToken":1},"b":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{}, "a":1,"b":2}}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"a":1}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1 ,"_meta":{"a":1} }}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"_meta":{"a":1} ,"b":1}}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"\u005fmeta":{"a":1},"b":1}}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":null ,"b":1}}`,
		`{"params":{ "_meta" : {"a":1, "progressToken":"t", "b":2 } , "a":1},"id":1,"jsonrpc":"2.0","method":"tools/call","x":1.0}`,
		`{"params":{"a":1,"b":2,"_meta":{"a":1,"b":{}},"c":3,"b\u0061":1},"id":1,"jsonrpc":"2.0","method":"tools/call"}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"_meta":{}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"_meta":null}}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{ }}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":null,"x":1}`,
		`{"jsonrpc":"2.0","id":1,"method":"m"}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":[1, 2],"b":"x","resultType":"complete"}}`,
		`{"result":{"a":123},"jsonrpc":"2.0","id":1}`,
		`{"jsonrpc":"2.0","id":1,"result":{ }}`,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":[1,\n2],\"b\":\"x\"}}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := Parse(raw)
		if err != nil {
			return
		}
		m = m.WithRelated(IntID(9))
		for _, id := range []ID{{}, StringID("another id")} {
			if !id.IsZero() {
				if m.ID().IsZero() {
					return
				}
				m = m.WithID(id)
			}
			checkWithoutInResult(t, m)
			checkWithoutInParams(t, m)
			checkFirst(t, m)
			if p := m.Plain(); p.IsExtended() || p.ID() != m.ID() || p.Method() != m.Method() || !bytes.Equal(p.Params(), m.Params()) && m.Kind() != Response ||
				!bytes.Equal(p.Result(), m.Result()) || !bytes.Equal(p.ErrorObject(), m.ErrorObject()) || p.Related() != m.Related() {
				t.Fatalf("%s plainly is %s", m.Bytes(), p.Bytes())
			}
		}
	})
}

// FuzzChanges makes changes one after the other. After each change the index is that of a
// fresh Parse of the bytes.
func FuzzChanges(f *testing.F) {
	for _, s := range hostile {
		f.Add([]byte(s), []byte{0, 1, 2, 3, 4, 5, 6})
	}
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":1,"a":2},"a":[1]}}`,
		`{"params":{ "_meta" : null , "a":1},"id":1,"jsonrpc":"2.0","method":"tools/call","x":1.0}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"a":1}}`,
		`{"jsonrpc":"2.0","result":{"a":1,"b":{}},"id":1}`,
	} {
		f.Add([]byte(s), []byte{3, 0, 2, 1, 4, 6, 0, 5})
		f.Add([]byte(s), []byte{6, 5, 4, 3, 2, 1, 0, 1})
		f.Add([]byte(s), []byte{2, 7, 0, 7, 3, 1, 2, 5})
	}
	f.Fuzz(func(t *testing.T, raw, ops []byte) {
		m, err := Parse(raw)
		if err != nil {
			return
		}
		m = m.WithRelated(IntID(9))
		isObject := func(value []byte) bool { return len(value) > 0 && value[0] == '{' }
		for i, op := range ops[:min(len(ops), 8)] {
			add := NewFragment([]byte(`{"new` + IntID(int64(i)).String() + `":"` + strings.Repeat("x", int(op)) + `"}`))
			params, request := isObject(m.Params()) && m.Kind() != Response, m.Kind() != Response
			switch op % 8 {
			case 0:
				if !m.ID().IsZero() {
					m = m.WithID(StringID(strings.Repeat("i", int(op))))
				}
			case 1:
				if !m.ProgressToken().IsZero() {
					m = m.WithProgressToken(IntID(int64(op)))
				}
			case 2:
				if request && (params || m.Params() == nil) {
					m = m.WithMeta(add)
				}
			case 3:
				if params || isObject(m.Result()) {
					m = m.WithFirst(add)
				}
			case 4:
				if m.Result() != nil {
					m = m.WithoutInResult("a", "new1", "new3")
				}
			case 5:
				if request {
					m = m.WithoutInParams([]string{"progressToken", "new0"}, "a", "new2")
				}
			case 6:
				m = m.Plain()
			case 7:
				m = m.WithoutMeta()
			}
			changed(t, "after all that", m, mustParse(t, string(m.Bytes())))
		}
	})
}

// changed compares a message with what it should be.
func changed(t *testing.T, what string, got, want Message) {
	t.Helper()
	if !bytes.Equal(got.Bytes(), want.Bytes()) || got.Related() != IntID(9) {
		t.Fatalf("%s: %s, want %s", what, got.Bytes(), want.Bytes())
	}
	got, want = got.withIDInPlace(), mustParse(t, string(want.Bytes()))
	if got.hasLineBreaks && !want.hasLineBreaks { // what had some has gone: Line finds none
		got.hasLineBreaks = false
	}
	checkIndex(t, got, want)
}

// withParams replaces params where they stand.
func withParams(t *testing.T, m Message, params []byte) Message {
	t.Helper()
	m = m.withIDInPlace()
	return mustParse(t, string(m.raw[:m.params.start])+string(params)+string(m.raw[m.params.end:]))
}

func checkFirst(t *testing.T, m Message) {
	t.Helper()
	for _, members := range []string{"", `"new":[1, {}],"more":"x"`, "\"new\":\n1", `"long":"` + strings.Repeat("x", 300) + `"`} {
		f := NewFragment([]byte(" {" + members + " } "))
		first := func(object []byte) []byte {
			if members != "" && !isEmpty(object) {
				return append([]byte("{"+members+","), object[1:]...)
			}
			return append([]byte("{"+members), object[1:]...)
		}
		params, result := m.Params(), m.Result()
		isObject := func(value []byte) bool { return len(value) > 0 && value[0] == '{' }
		switch {
		case isObject(result):
			changed(t, "first in the result", m.WithFirst(f), m.WithResult(first(result)))
		case isObject(params):
			changed(t, "first in the params", m.WithFirst(f), withParams(t, m, first(params)))
			meta := m.Meta()
			switch {
			case isObject(meta):
				meta = first(meta)
			default:
				meta = []byte("{" + members + "}")
			}
			want := With(params, "_meta", meta)
			if m.Meta() == nil {
				rest := params[1:]
				if !isEmpty(params) {
					rest = append([]byte(","), rest...)
				}
				want = append([]byte(`{"_meta":`+string(meta)), rest...)
			}
			changed(t, "in _meta", m.WithMeta(f), withParams(t, m, want))
		case params == nil && m.Kind() != Response:
			changed(t, "params made", m.WithMeta(f), m.WithParams([]byte(`{"_meta":{`+members+`}}`)))
		}
	}
}

func checkWithoutInParams(t *testing.T, m Message) {
	t.Helper()
	if m.Params() == nil || m.Kind() == Response {
		return
	}
	changed(t, "without _meta", m.WithoutMeta(), withParams(t, m, Without(m.Params(), "_meta")))
	keys, metaKeys := []string{"a"}, []string{"progressToken"}
	for member := range m.ParamsObject().Members() {
		if member.Key != "_meta" {
			keys = append(keys, member.Key)
		}
	}
	for member := range Members(m.Meta()) {
		metaKeys = append(metaKeys, member.Key)
	}
	for i := range len(keys) + 1 {
		for j := range len(metaKeys) + 1 {
			gone, metaGone := keys[:i], metaKeys[j:]
			params := Without(m.Params(), gone...)
			if got := m.ParamsObject().Without(gone...); !bytes.Equal(got, params) {
				t.Fatalf("without %q: %s, want %s", gone, got, params)
			}
			if meta := Without(m.Meta(), metaGone...); len(meta) != len(m.Meta()) {
				if isEmpty(meta) {
					params = Without(m.Params(), append(gone[:i:i], "_meta")...)
				} else {
					params = With(params, "_meta", meta)
				}
			}
			changed(t, "without "+strings.Join(gone, " ")+" and "+strings.Join(metaGone, " "), m.WithoutInParams(metaGone, gone...), withParams(t, m, params))
		}
	}
}

// checkWithoutInResult compares one copy with one for each change.
func checkWithoutInResult(t *testing.T, m Message) {
	t.Helper()
	if m.Result() == nil {
		return
	}
	keys := []string{"resultType", "a"}
	for member := range m.ResultObject().Members() {
		keys = append(keys, member.Key)
	}
	for n := range len(keys) {
		for _, keys := range [][]string{keys[:n], keys[n:]} {
			rest := Without(m.Result(), keys...)
			if got := m.ResultObject().Without(keys...); !bytes.Equal(got, rest) {
				t.Fatalf("without %q: %s, want %s", keys, got, rest)
			}
			changed(t, "without "+strings.Join(keys, " "), m.WithoutInResult(keys...), m.WithResult(rest))
		}
	}
}

func TestWithoutInResult(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"text":"a long one"}]}}`, `{"jsonrpc":"2.0","id":"new","result":{"content":[{"text":"a long one"}]}}`},
		{`{"result" : { "content":[] ,"resultType":"complete" },"x":1.0,"id":1,"jsonrpc":"2.0"}`, `{"result" : { "content":[] },"x":1.0,"id":"new","jsonrpc":"2.0"}`},
		{`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`, `{"jsonrpc":"2.0","id":"new","result":{"content":[]}}`},
		{`{"jsonrpc":"2.0","id":1,"result":{"resultType":"one that is very much longer than all others"}}`, `{"jsonrpc":"2.0","id":"new","result":{}}`},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\n\"result\":{\"resultType\":1,\"a\":[\n1]}}", "{\"jsonrpc\":\"2.0\",\"id\":\"new\",\n\"result\":{\"a\":[\n1]}}"},
	} {
		m := mustParse(t, c.text).WithRelated(IntID(9))
		if got := m.WithoutInResult("resultType").WithID(StringID("new")); string(got.Bytes()) != c.want || got.ID() != StringID("new") {
			t.Errorf("got %s, want %s", got.Bytes(), c.want)
		}
		checkWithoutInResult(t, m)
	}
	for name, f := range map[string]func(){
		"without in a request":         func() { NewRequest(IntID(1), "m", nil).WithoutInResult("a") },
		"without in an error":          func() { NewError(IntID(1), 1, "", nil).WithoutInResult("a") },
		"_meta in a result":            func() { NewResult(IntID(1), nil).WithMeta(Fragment{}) },
		"_meta in an array":            func() { NewRequest(IntID(1), "m", []byte("[]")).WithMeta(Fragment{}) },
		"first in an array":            func() { NewRequest(IntID(1), "m", []byte("[]")).WithFirst(Fragment{}) },
		"first in an error":            func() { NewError(IntID(1), 1, "", nil).WithFirst(Fragment{}) },
		"first in nothing":             func() { NewRequest(IntID(1), "m", nil).WithFirst(Fragment{}) },
		"a fragment of no object":      func() { NewFragment([]byte(`[1]`)) },
		"a fragment of two objects":    func() { NewFragment([]byte(`{},{}`)) },
		"a fragment of half an object": func() { NewFragment([]byte(`{"a":1`)) },
	} {
		mustPanic(t, name, f)
	}
}

// mustPanic runs f, as a test called name.
func mustPanic(t *testing.T, name string, f func()) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		f()
	})
}

// The longest value is not scanned again: the test overwrites it with bytes that would fail
// a scan. And it is copied once, and only where this is necessary.
func TestLongValues(t *testing.T) {
	poisoned := func(text string) Message {
		m := mustParse(t, strings.Replace(text, "LONG", `"`+strings.Repeat("x", 1<<20)+`"`, 1))
		copy(m.raw[m.longestValue.start:m.longestValue.end], `"]}{"`)
		return m
	}
	request := poisoned(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":LONG,"_meta":{"progressToken":1},"name":"n"}}`)
	response := poisoned(`{"jsonrpc":"2.0","id":1,"result":{"content":LONG,"x":"y","resultType":"complete"}}`)
	more := NewFragment([]byte(`{"more":1}`))
	found := func(value []byte) string { return string(value) }
	for name, c := range map[string]struct {
		f      func() string
		want   string
		allocs float64
	}{
		"Lookup":          {func() string { return found(request.Lookup("params", "name")) }, `"n"`, 1},
		"Lookup _meta":    {func() string { return found(request.Lookup("params", "_meta", "progressToken")) }, `1`, 1},
		"Lookup error":    {func() string { return found(response.Lookup("error", "code")) }, ``, 0},
		"Lookup else":     {func() string { return found(request.Lookup("nothing")) }, ``, 0},
		"ParamsMembers":   {func() string { return keysOf(request.ParamsObject()) }, `a _meta name `, 3},
		"ResultMembers":   {func() string { return keysOf(response.ResultObject()) }, `content x resultType `, 3},
		"ParamsWithout":   {func() string { return ends(request.ParamsObject().Without("task")) }, `{"a":"]}{" name":"n"}`, 1},
		"ResultWithout":   {func() string { return ends(response.ResultObject().Without("x")) }, `{"content" complete"}`, 2},
		"WithID":          {func() string { return new(request.WithID(IntID(77))).ID().String() }, `77`, 1},
		"WithoutInResult": {func() string { return ends(new(response.WithoutInResult("resultType")).Result()) }, `{"content" ","x":"y"}`, 2},
		"WithoutInParams": {func() string { return found(new(request.WithoutInParams([]string{"progressToken"}, "b")).Meta()) }, ``, 2},
		"WithMeta":        {func() string { return ends(new(request.WithMeta(more)).Meta()) }, `{"more":1, sToken":1}`, 3},
		"WithFirst":       {func() string { return ends(new(request.WithFirst(more)).Params()) }, `{"more":1, name":"n"}`, 3},
		"another id, too": {func() string { return ends(new(request.WithProgressToken(IntID(78)).WithID(IntID(5))).Meta()) }, `{"progress Token":78}`, 3},
	} {
		if got := c.f(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if got := testing.AllocsPerRun(10, func() { c.f() }); got > c.allocs {
			t.Errorf("%s: %v allocations, want %v", name, got, c.allocs)
		}
	}
}

// ends are the first and the last bytes of a long text.
func ends(text []byte) string {
	const n = 10
	if len(text) < 2*n {
		return string(text)
	}
	return string(text[:n]) + " " + string(text[len(text)-n:])
}

func keysOf(o Object) (keys string) {
	for m := range o.Members() {
		keys += m.Key + " "
	}
	return keys
}

// An id on its way from one message into another is allocated only when it is read.
func TestIDsAreNotKept(t *testing.T) {
	m, id := mustParse(t, `{"jsonrpc":"2.0","id":1234567890,"method":"m"}`), mustParse(t, `{"jsonrpc":"2.0","id":"abcdefghi","method":"m"}`)
	if got := testing.AllocsPerRun(100, func() { m = m.WithID(id.ID()) }); got != 0 {
		t.Errorf("%v allocations for another id, want none", got)
	}
}

// WithMetaOf puts members into _meta in the place of those that are there, and leaves every
// other byte.
func TestWithMetaOf(t *testing.T) {
	const before, after = `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"_meta":`, `,"b":2}}`
	f := NewFragment([]byte(`{"traceparent":"new","tracestate":"x"}`))
	for _, c := range []struct{ meta, want string }{
		{`{}`, `{"traceparent":"new","tracestate":"x"}`},
		{`{"progressToken":5, "k":[1, 2]}`, `{"traceparent":"new","tracestate":"x","progressToken":5, "k":[1, 2]}`},
		{`{"traceparent":"old"}`, `{"traceparent":"new","tracestate":"x"}`},
		{`{ "traceparent":"old", "tracestate":1 }`, `{"traceparent":"new","tracestate":"x"  }`},
		{`{"tracestate":"y","progressToken":5,"traceparent":"old"}`, `{"traceparent":"new","tracestate":"x","progressToken":5}`},
		{`{"progressToken":5,"trace\u0070arent":"old","traceparent":"old","k":1}`, `{"traceparent":"new","tracestate":"x","progressToken":5,"k":1}`},
		{`null`, `{"traceparent":"new","tracestate":"x"}`},
	} {
		for _, id := range []string{"1", `"longer than it was"`} {
			m := mustParse(t, before+c.meta+after)
			if id != "1" {
				m = m.WithID(StringID("longer than it was"))
			}
			m = m.WithMetaOf(f, "traceparent", "tracestate")
			want := strings.Replace(before, `"id":1`, `"id":`+id, 1) + c.want + after
			if got := string(m.Bytes()); got != want {
				t.Errorf("%s: %s\nwant %s", c.meta, got, want)
			}
			parsed := mustParse(t, string(m.Bytes()))
			if m.ProgressToken() != parsed.ProgressToken() || !bytes.Equal(m.Meta(), parsed.Meta()) || !bytes.Equal(m.Params(), parsed.Params()) || m.ID() != parsed.ID() {
				t.Errorf("%s: the index is wrong: %s", c.meta, m.Bytes())
			}
		}
	}
	m := mustParse(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	m = m.WithMetaOf(f, "traceparent")
	if got := string(m.Bytes()); got != `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"traceparent":"new","tracestate":"x"}}}` {
		t.Error(got)
	}
}
