package jsonrpc

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// A message with much of another in it is what it would be if it was put
// together by hand and parsed.
func FuzzDraft(f *testing.F) {
	for _, s := range hostile {
		f.Add([]byte(s), 1, 5)
	}
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1, 2],"_meta":{"progressToken":1},"b":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":[1, 2],"b":"x","resultType":"complete"}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":123}}`,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":[1,\n2],\"b\":\"x\"}}",
	} {
		for from := range 12 { // also in the middle of what is longest
			for to := from; to < 60; to++ {
				f.Add([]byte(s), from, to)
			}
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, from, to int) {
		m, err := Parse(raw)
		if err != nil {
			return
		}
		var room DraftRoom
		part := m.Params()
		if m.Kind() == Response {
			part = m.Result()
		}
		if len(part) == 0 {
			return
		}
		from = min(max(from, 0), len(part))
		to = max(from, min(max(to, 0), len(part)))
		write := func(d Draft, from, to int) Draft {
			if m.Kind() == Response {
				return d.Result(m, from, to)
			}
			return d.Params(m, from, to)
		}
		// As it was; with something put in; what was cut out alone.
		drafts := [][]string{{"", ""}, {`,"y":[{}],`, ""}, {"", "}"}}
		for i, c := range drafts {
			begin, start := DraftRequest(&room, IntID(5), "m"), `{"jsonrpc":"2.0","id":5,"method":"m","params":`
			if m.Kind() == Response {
				begin, start = DraftResult(&room, IntID(5)), `{"jsonrpc":"2.0","id":5,"result":`
			}
			d, body := write(begin, 0, from), string(part[:from])
			if i == 2 {
				d, body = begin.Text("{"), "{"
			}
			d, body = d.Text(c[0]), body+c[0]
			d, body = write(d, from, to), body+string(part[from:to])
			if i == 2 {
				d, body = d.Raw([]byte(c[1])), body+c[1]
			} else {
				d, body = write(d, to, len(part)), body+string(part[to:])
			}
			text := start + body + "}"
			if d.Last() != (start + body)[len(start+body)-1] {
				t.Fatalf("%q does not end with %q", start+body, d.Last())
			}
			got, err := d.Message()
			want, wantErr := Parse([]byte(text))
			written := want.Params()
			if m.Kind() == Response {
				written = want.Result()
			}
			if wantErr == nil && string(written) != body && body != "null" {
				wantErr = newError(CodeInvalidRequest, "several members", 0)
			}
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%s: %v, want %v", text, err, wantErr)
			}
			if err != nil {
				continue
			}
			if string(got.Bytes()) != text {
				t.Fatalf("got %s, want %s", got.Bytes(), text)
			}
			checkIndex(t, got, want)
		}
		checkWithoutInResult(t, m)
	})
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
	id := StringID("another id")
	for n := range len(keys) {
		for _, keys := range [][]string{keys[:n], keys[n:]} {
			rest := Without(m.Result(), keys...)
			if got := m.ResultObject().Without(keys...); !bytes.Equal(got, rest) {
				t.Fatalf("without %q: %s, want %s", keys, got, rest)
			}
			got, want := m.WithRelated(NullID).WithoutInResult(id, keys...), m.WithResult(rest).WithID(id)
			if !bytes.Equal(got.Bytes(), want.Bytes()) || got.Related() != NullID {
				t.Fatalf("without %q: %s, want %s", keys, got.Bytes(), want.Bytes())
			}
			checkIndex(t, got, want)
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
		m := mustParse(t, c.text)
		if got := m.WithoutInResult(StringID("new"), "resultType"); string(got.Bytes()) != c.want || got.ID() != StringID("new") {
			t.Errorf("got %s, want %s", got.Bytes(), c.want)
		}
		checkWithoutInResult(t, m)
	}
	for name, f := range map[string]func(){
		"request": func() { NewRequest(IntID(1), "m", nil).WithoutInResult(IntID(1), "a") },
		"error":   func() { NewError(IntID(1), 1, "", nil).WithoutInResult(IntID(1), "a") },
		"null id": func() { NewResult(IntID(1), []byte(`{"a":1}`)).WithoutInResult(NullID, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

// What is long is not scanned again, and copied once where it must be.
func TestLongValues(t *testing.T) {
	long := `"` + strings.Repeat(`\n`, 1<<19) + `"` // dear to scan, cheap to copy
	request := mustParse(t, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1},"a":`+long+`,"name":"n"}}`)
	response := mustParse(t, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":`+long+`,"x":"y"}}`)
	once := fastest(func() { _, _ = Parse(request.Bytes()) })
	for name, c := range map[string]struct {
		f     func()
		share time.Duration // of the time for one scan, at most
	}{
		"Lookup":       {func() { request.Lookup("params", "name") }, 20},
		"Lookup _meta": {func() { request.Lookup("params", "_meta", "progressToken") }, 20},
		"Lookup error": {func() { response.Lookup("error", "code") }, 20},
		"Lookup else":  {func() { request.Lookup("nothing") }, 20},
		"ParamsMembers": {func() {
			for range request.ParamsObject().Members() {
			}
		}, 20},
		"ResultMembers": {func() {
			for range response.ResultObject().Members() {
			}
		}, 20},
		"ParamsWithout":   {func() { request.ParamsObject().Without("task") }, 20},
		"ResultWithout":   {func() { response.ResultObject().Without("task") }, 20},
		"WithID":          {func() { request.WithID(IntID(77)) }, 20},
		"WithID, copied":  {func() { request.WithID(IntID(77)).Bytes() }, 2},
		"WithIDAndToken":  {func() { request.WithIDAndToken(IntID(77), IntID(78)) }, 2},
		"WithoutInResult": {func() { response.WithoutInResult(IntID(77), "resultType") }, 2},
		"Draft": {func() {
			var room DraftRoom
			d := DraftRequest(&room, IntID(7), "m").Text(`{"x":1,`).Params(request, 1, len(request.Params()))
			if _, err := d.Message(); err != nil {
				t.Error(err)
			}
		}, 2},
	} {
		allocs := 0.0
		switch {
		case strings.HasPrefix(name, "WithID,"):
			allocs = 3
		case name == "WithID":
			allocs = 2
		case c.share == 2:
			allocs = 1
		}
		if got := testing.AllocsPerRun(10, c.f); got != allocs {
			t.Errorf("%s: %v allocations, want %v", name, got, allocs)
		}
		if took := fastest(c.f); took > once/c.share {
			t.Errorf("%s takes %v, and one scan %v", name, took, once)
		}
	}
}

// An id on its way from one short message into another is not allocated.
func TestIDsAreNotKept(t *testing.T) {
	m, id := mustParse(t, `{"jsonrpc":"2.0","id":1234567890,"method":"m"}`), mustParse(t, `{"jsonrpc":"2.0","id":"abcdefghi","method":"m"}`)
	if got := testing.AllocsPerRun(100, func() { m = m.WithID(id.ID()) }); got != 1 {
		t.Errorf("%v allocations for a copy with another id, want 1", got)
	}
}

// fastest returns the shortest time that f takes.
func fastest(f func()) time.Duration {
	least := time.Hour
	for range 10 {
		begin := time.Now()
		f()
		least = min(least, time.Since(begin))
	}
	return least
}
