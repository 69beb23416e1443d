package jsonrpc

import (
	"strings"
	"testing"
)

// J7, LI10: elements come in order, whatever they are.
func TestSplitBatch(t *testing.T) {
	const text = "\uFEFF [ 1,{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a]\"} ,\n[[ ]] , \"x,y\"] \n"
	parts, err := SplitBatch([]byte(text), 4)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`1`, `{"jsonrpc":"2.0","id":1,"method":"a]"}`, `[[ ]]`, `"x,y"`}
	if len(parts) != len(want) {
		t.Fatalf("got %d elements", len(parts))
	}
	for i, part := range parts {
		if string(part) != want[i] {
			t.Errorf("element %d: got %q, want %q", i, part, want[i])
		}
		if cap(part) != len(part) {
			t.Errorf("appending to element %d would write over the next", i)
		}
	}
	if m := mustParse(t, string(parts[1])); m.Method() != "a]" {
		t.Errorf("got %s", m.Bytes())
	}
}

func TestSplitBatchRefuses(t *testing.T) {
	for text, code := range map[string]int{
		`[]`: CodeInvalidRequest, ` [ ] `: CodeInvalidRequest, `{}`: CodeInvalidRequest, `1`: CodeInvalidRequest,
		`[1,2,3]`: CodeInvalidRequest, `[1,2,nonsense`: CodeInvalidRequest,
		``: CodeParseError, ` `: CodeParseError, `[`: CodeParseError, `[1`: CodeParseError, `[1,`: CodeParseError, `[1,]`: CodeParseError,
		`[,1]`: CodeParseError, `[1 2]`: CodeParseError, `[1]]`: CodeParseError, `[1}`: CodeParseError, `[{"a"}]`: CodeParseError,
		`[] 1`: CodeParseError, `x`: CodeParseError, "[\"\xff\"]": CodeParseError, "[\"\n\"]": CodeParseError,
	} {
		parts, err := SplitBatch([]byte(text), 2)
		e, ok := err.(*Error)
		if !ok || e.Code != code || parts != nil {
			t.Errorf("%q: got %q, %v, want code %d", text, parts, err, code)
		}
	}
	if parts, err := SplitBatch([]byte("["+strings.Repeat("0,", 9999)+"0]"), 0); err != nil || len(parts) != 10_000 {
		t.Errorf("without a limit: %d elements, %v", len(parts), err)
	}
}

func TestIsBatch(t *testing.T) {
	for text, want := range map[string]bool{"[": true, " \r\n\t[]": true, "\uFEFF[]": true, "{[": false, "": false, " ": false, "\v[": false} {
		if IsBatch([]byte(text)) != want {
			t.Errorf("%q: want %v", text, want)
		}
	}
}

func TestIDFinder(t *testing.T) {
	long := strings.Repeat("x", 254) // and two quotes: the longest id that is kept
	for _, c := range []struct {
		text string
		id   string
		kind Kind
	}{
		{`{"result":{"id":1,"method":"m","a":["}","]\"",{}]},"jsonrpc":"2.0","id": "last" }`, `"last"`, Response},
		{"\uFEFF\n{ \"id\" : 12 ,\"params\":{\"x", `12`, Invalid},
		{`{"id":12,"method":"m","params":{"x`, `12`, Request},
		{`{"method":"m","params":{}}`, ``, Notification},
		{`{"method":"m","params":{}`, ``, Invalid},
		{`{"error":{"code":1},"id":null}`, `null`, Response},
		{`{"id":null,"result":1}`, ``, Response},
		{`{"id":12`, ``, Invalid},
		{`{"id":12,"id":13,"result":1}`, ``, Response},
		{`{"id":"` + long + `","result":1}`, `"` + long + `"`, Response},
		{`{"id":"` + long + `x","result":1}`, ``, Response},
		{`{"\u0069\u0064":1,"\u006d\u0065\u0074\u0068\u006f\u0064":"m"}`, `1`, Request},
		{`{"ID":1,"id ":2,"` + strings.Repeat("id", 100) + `":3,"result":1}`, ``, Response},
		{`{"id":{"id":1},"result":1}`, ``, Response},
		{`[{"id":1,"result":1}]`, ``, Invalid},
		{`{"result":1}{"id":1}`, ``, Response},
		{`{"\u12":1,"\ud800\":2,"i\u0064`, ``, Invalid},
		{`{"\u006":1,"\q":2,"id":3,"result":1}`, `3`, Response},
		{`garbage`, ``, Invalid},
		{``, ``, Invalid},
	} {
		for _, size := range []int{1, 2, 7, 4096} {
			var f IDFinder
			for rest := c.text; rest != ""; {
				n := min(size, len(rest))
				f.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			if id, kind := f.Result(); id.String() != c.id || kind != c.kind {
				t.Errorf("%.60q in pieces of %d: got %s, kind %d", c.text, size, id, kind)
			}
		}
	}
}
