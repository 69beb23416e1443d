package jsonrpc

import (
	"slices"
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

// ST5, J4, J7, LI9, LI12: Decode returns the valid messages of a batch, and a fault with its
// answer for each of the others.
func TestDecode(t *testing.T) {
	const (
		ping   = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		note   = `{"jsonrpc":"2.0","method":"notifications/x"}`
		result = `{"jsonrpc":"2.0","id":"r","result":{}}`
	)
	for _, c := range []struct {
		name, raw string
		batches   bool
		max       int
		messages  []string
		replies   string // "ID CODE" of what is answered
		faults    int
	}{
		{"single", "\uFEFF " + ping + "\r\n", false, 2, []string{ping}, "", 0},
		{"single, invalid", `{"jsonrpc":"2.0","id":5,"method":1}`, false, 2, nil, "5 -32600", 1},
		{"no JSON", `hello`, true, 2, nil, "null -32700", 1},
		{"nothing", ``, true, 2, nil, "null -32700", 1},
		{"invalid notification", `{"jsonrpc":"2.0","method":"x","params":1}`, true, 2, nil, "", 1},
		{"invalid response", `{"jsonrpc":"2.0","id":7,"result":1,"error":{"code":1,"message":""}}`, true, 2, nil, "", 1},
		{"batch", " [" + ping + " ,\n" + note + "," + result + "]", true, 3, []string{ping, note, result}, "", 0},
		{"batch without a limit", "[" + ping + "," + note + "]", true, 0, []string{ping, note}, "", 0},
		{"batch in another revision", "[" + ping + "]", false, 3, nil, "null -32600", 1},
		{"empty batch", "[]", true, 3, nil, "null -32600", 1},
		{"batch with too many", "[" + ping + "," + note + "," + result + "]", true, 2, nil, "null -32600", 1},
		{"batch that breaks off", "[" + ping + ",", true, 3, nil, "null -32700", 1},
		{"elements that are none", "[1," + ping + `,[],{"id":3,"jsonrpc":"2.0"},` + note + "]", true, 9,
			[]string{ping, note}, "null -32600, null -32600, 3 -32600", 3},
		{"initialize in a batch", `[{"jsonrpc":"2.0","id":0,"method":"initialize"},` + note + "]", true, 9, []string{note}, "0 -32600", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			messages, faults := Decode([]byte(c.raw), c.batches, c.max, 0)
			var got, replies []string
			for _, m := range messages {
				got = append(got, string(m.Bytes()))
			}
			for _, e := range faults {
				if m, due := e.Reply(); due {
					replies = append(replies, m.ID().String()+" "+string(m.Lookup("error", "code")))
				}
			}
			if !slices.Equal(got, c.messages) {
				t.Errorf("messages %q, want %q", got, c.messages)
			}
			if text := strings.Join(replies, ", "); text != c.replies || len(faults) != c.faults {
				t.Errorf("replies %q to %d faults, want %q to %d", text, len(faults), c.replies, c.faults)
			}
		})
	}
}

// The elements of a batch do not hold on to the memory it came in.
func TestDecodeCopiesElements(t *testing.T) {
	raw := []byte(`[{"jsonrpc":"2.0","method":"a"}]`)
	messages, _ := Decode(raw, true, 0, 0)
	clear(raw)
	if len(messages) != 1 || messages[0].Method() != "a" {
		t.Errorf("got %v after the text has changed", messages)
	}
}
