package jsonrpc

import (
	"strings"
	"testing"
)

// J1, J2: ids compare as spelled, and nothing is rounded.
func TestIDsCompareAsSpelled(t *testing.T) {
	ids := map[ID]string{}
	for _, text := range []string{`"abc"`, `"1"`, `1`, `1.0`, `9007199254740993`, `9007199254740992`, `1e400`, `""`, `-0`, `0`, `"\u0061"`, `"a"`} {
		m := mustParse(t, `{"jsonrpc":"2.0","method":"a","id": `+text+` }`)
		if m.ID().String() != text {
			t.Errorf("got %s, want %s", m.ID(), text)
		}
		if other, ok := ids[m.ID()]; ok {
			t.Errorf("%s equals %s", text, other)
		}
		ids[m.ID()] = text
		if id, ok := ParseID([]byte(" " + text + "\n")); !ok || id != m.ID() {
			t.Errorf("ParseID(%s) gave %s, %v", text, id, ok)
		}
	}
	if IntID(1) != new(mustParse(t, `{"jsonrpc":"2.0","method":"a","id":1}`)).ID() || IntID(-9223372036854775808).String() != "-9223372036854775808" {
		t.Error("IntID differs from the id that was read")
	}
	if StringID("1") == IntID(1) || StringID("null") == NullID || !(ID{}).IsZero() || NullID.IsZero() {
		t.Error("unlike ids are equal")
	}
}

func TestParseIDRefuses(t *testing.T) {
	for _, text := range []string{``, ` `, `null`, `true`, `{}`, `[1]`, `1.5`, `1.50e1`, `1e-2`, `1e-0`, `01`, `1.`, `-`, `1 2`, `"a`, `"a"b`, `a`, `"` + "\n" + `"`, `"` + "\xff" + `"`, "1\u00a0"} {
		if id, ok := ParseID([]byte(text)); ok || !id.IsZero() {
			t.Errorf("ParseID(%q) gave %s", text, id)
		}
	}
	long := strings.Repeat("9", 1000)
	for _, text := range []string{long, "-" + long + ".000e+10", `1E2`} {
		if id, ok := ParseID([]byte(text)); !ok || id.String() != text {
			t.Errorf("ParseID(%.20s) gave %.20s", text, id)
		}
	}
}

func TestEquivalent(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`1`, `1`, true}, {`1`, `1.0`, true}, {`100`, `1e2`, true}, {`-0`, `0`, true}, {`1`, `2`, false}, {`1`, `"1"`, false},
		{`9007199254740993`, `9007199254740992`, true}, {`9007199254740993`, `9007199254740994`, false},
		{`1e400`, `1e400`, true}, {`1e400`, `1e401`, false},
		{`"a"`, `"\u0061"`, true}, {`"\u00E9"`, `"é"`, true}, {`"😀"`, `"\ud83d\ude00"`, true}, {`"\/"`, `"/"`, true}, {`"\n"`, `"\u000a"`, true},
		{`"a"`, `"b"`, false}, {`"a"`, `"aa"`, false}, {`"aa"`, `"\u0061"`, false}, {`"\ud800"`, `"\ud801"`, false}, {`"\ud800"`, `"\uD800"`, true},
		{`"\ud800"`, `"\ufffd"`, false}, {`"\ud83d\u0041"`, `"\ud83dA"`, true}, {`"\""`, `"\u0022"`, true}, {`""`, `""`, true}, {`""`, `"\u0000"`, false},
	} {
		a, okA := ParseID([]byte(c.a))
		b, okB := ParseID([]byte(c.b))
		if !okA || !okB {
			t.Fatalf("%s or %s is no id", c.a, c.b)
		}
		if a.Equivalent(b) != c.want || b.Equivalent(a) != c.want {
			t.Errorf("%s and %s: want %v", a, b, c.want)
		}
	}
	for _, id := range []ID{IntID(0), StringID(""), StringID("null")} {
		if id.Equivalent(NullID) || NullID.Equivalent(id) || id.Equivalent(ID{}) || (ID{}).Equivalent(id) {
			t.Errorf("%s is equivalent to null or to none", id)
		}
	}
	if NullID.Equivalent(ID{}) || !NullID.Equivalent(NullID) || !(ID{}).Equivalent(ID{}) {
		t.Error("null and none are mixed up")
	}
}

func TestFind(t *testing.T) {
	id := func(text string) ID {
		id, ok := ParseID([]byte(text))
		if !ok {
			t.Fatalf("%s is no id", text)
		}
		return id
	}
	m := map[ID]int{id(`"a/b"`): 1, id(`7`): 2, id(`"7"`): 3, id(`1.0`): 4, id(`1e0`): 5}
	for text, want := range map[string]int{`"a/b"`: 1, `"a\/b"`: 1, `7`: 2, `7.0`: 2, `"\u0037"`: 3, `1.0`: 4, `1e0`: 5, `1`: 0, `8`: 0, `"x"`: 0} {
		key, got, ok := Find(m, id(text))
		if got != want || ok != (want != 0) || ok && m[key] != want {
			t.Errorf("Find(%s) = %s, %d, %v; want %d", text, key, got, ok, want)
		}
	}
	if _, _, ok := Find(map[ID]int{{}: 1}, id(`1`)); ok {
		t.Error("an id was found where none is")
	}
	raw := []byte(`{"jsonrpc":"2.0","id":"a/b","result":{}}`)
	msg, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { Find(m, msg.ID()) }); n > 0 {
		t.Errorf("%v allocations to find an id as spelled", n)
	}
}
