package jsonrpc

import "testing"

func TestWith(t *testing.T) {
	for _, c := range []struct{ object, key, value, want string }{
		{``, "a", `1`, `{"a":1}`},
		{`{}`, "a", `1`, `{"a":1}`},
		{`{ }`, "a", `1`, `{ "a":1}`},
		{`{"b": 2 }`, "a", `1`, `{"b": 2 ,"a":1}`},
		{`{"a": [1,2] ,"b":1e400}`, "a", `{}`, `{"a": {} ,"b":1e400}`},
		{`{"a":1,"a":2}`, "a", `3`, `{"a":1,"a":3}`},
		{`{"\u0061":1}`, "a", `3`, `{"\u0061":3}`},
		{`{"x":{"a":1}}`, "a", `"}"`, `{"x":{"a":1},"a":"}"}`},
	} {
		if got := string(With([]byte(c.object), c.key, []byte(c.value))); got != c.want {
			t.Errorf("With(%s, %s, %s) = %s, want %s", c.object, c.key, c.value, got, c.want)
		}
	}
}

func TestWithout(t *testing.T) {
	for _, c := range []struct {
		object string
		keys   []string
		want   string
	}{
		{`{}`, []string{"a"}, `{}`},
		{`{"a":1}`, []string{"a"}, `{}`},
		{`{ "a" : 1 }`, []string{"a"}, `{  }`},
		{`{"a":1,"b":2,"c":3}`, []string{"a"}, `{"b":2,"c":3}`},
		{`{"a":1, "b":2, "c":3}`, []string{"a"}, `{"b":2, "c":3}`},
		{`{"a":1,"b":2,"c":3}`, []string{"b"}, `{"a":1,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, []string{"c"}, `{"a":1,"b":2}`},
		{`{"a":1,"b":2,"c":3}`, []string{"a", "b"}, `{"c":3}`},
		{`{"a":1,"b":2,"c":3}`, []string{"b", "c"}, `{"a":1}`},
		{`{"a":1,"b":2,"c":3}`, []string{"a", "c"}, `{"b":2}`},
		{`{"a":1,"b":2,"c":3}`, []string{"a", "b", "c"}, `{}`},
		{`{"a":1,"x":1.0,"a":2}`, []string{"a"}, `{"x":1.0}`},
		{`{"\u0061":1,"b":"a"}`, []string{"a"}, `{"b":"a"}`},
		{`[1]`, []string{"a"}, `[1]`},
	} {
		got := string(Without([]byte(c.object), c.keys...))
		if got != c.want {
			t.Errorf("Without(%s, %v) = %s, want %s", c.object, c.keys, got, c.want)
		}
	}
}

// A method may be empty: the message is valid all the same.
func TestWithParamsOfNoMethod(t *testing.T) {
	for _, text := range []string{`{"jsonrpc":"2.0","id":1,"method":""}`, `{"jsonrpc":"2.0","method":"","params":{"a":1}}`} {
		m, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := m.WithParams([]byte(`{"b":2}`)); got.Kind() != m.Kind() || string(got.Params()) != `{"b":2}` {
			t.Errorf("%s became %s", text, got.Bytes())
		}
	}
}

// With and Without give valid JSON, and leave the other members as they were.
func FuzzEdit(f *testing.F) {
	f.Add(`{"a":1,"b":[2,{}],"c":"x,}"}`)
	f.Add(` { "b" : 1 , "a" : null } `)
	f.Fuzz(func(t *testing.T, params string) {
		m, err := Parse([]byte(`{"jsonrpc":"2.0","method":"x","params":` + params + `}`))
		if err != nil || len(m.Params()) == 0 || m.Params()[0] != '{' {
			t.Skip()
		}
		check := func(got []byte, key, want string) {
			n, err := Parse([]byte(`{"jsonrpc":"2.0","method":"x","params":` + string(got) + `}`))
			if err != nil {
				t.Fatalf("%s of %s: %v", key, params, err)
			}
			if value := string(n.Lookup("params", key)); value != want {
				t.Errorf("%s = %s, want %s", key, value, want)
			}
			if key != "b" && string(n.Lookup("params", "b")) != string(m.Lookup("params", "b")) {
				t.Errorf("b changed: %s", got)
			}
		}
		check(With(m.Params(), "a", []byte(`[7]`)), "a", "[7]")
		check(Without(m.Params(), "a"), "a", "")
	})
}
