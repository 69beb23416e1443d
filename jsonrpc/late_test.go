package jsonrpc

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

// A long message whose id was replaced without a copy behaves like one that was copied,
// whatever else is replaced, and in whichever order.
func FuzzLateID(f *testing.F) {
	for _, s := range hostile {
		f.Add([]byte(s), "new", uint8(3))
	}
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1}}}`), "", uint8(0xff))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1}}}`), "", uint8(33))
	f.Add([]byte(`{"result":{"a":1,"resultType":"complete"},"jsonrpc":"2.0","id":1}`), "x", uint8(0xff))
	f.Fuzz(func(t *testing.T, raw []byte, text string, also uint8) {
		m, err := Parse(bytes.TrimRight(raw, " \t\r\n"))
		if err != nil || m.ID().IsZero() {
			return
		}
		id := StringID(text)
		if len(id.String()) > MaxName { // which no peer could have sent
			return
		}
		late, plain := m.WithRelated(id).WithID(id), copied(t, m.WithRelated(id).WithID(id))
		if also&64 != 0 {
			late.joined = new(joinedBytes) // as if it was long
		}
		if also&32 != 0 {
			late.Bytes()
		}
		if also&1 != 0 && !m.ProgressToken().IsZero() {
			late, plain = late.WithProgressToken(IntID(5)), plain.WithProgressToken(IntID(5))
		}
		if also&2 != 0 && m.Result() != nil {
			late, plain = late.WithResult([]byte(`{"a":[1]}`)), plain.WithResult([]byte(`{"a":[1]}`))
		}
		if also&4 != 0 && m.Result() != nil {
			late, plain = late.WithoutInResult("a"), plain.WithoutInResult("a")
		}
		if also&8 != 0 && m.Kind() == Request {
			late, plain = late.WithParams([]byte(`{}`)), plain.WithParams([]byte(`{}`))
		}
		checkSame(t, late, plain)
		if also&16 != 0 {
			late, plain = late.WithID(IntID(77)), copied(t, plain.WithID(IntID(77)))
			checkSame(t, late, plain)
		}
	})
}

// copied returns the message parsed from its bytes.
func copied(t *testing.T, m Message) Message {
	t.Helper()
	return mustParse(t, string(m.Bytes())).WithRelated(m.related)
}

func checkSame(t *testing.T, late, plain Message) {
	t.Helper()
	first, id, rest := late.SplitAtID()
	whole := bytes.Join([][]byte{first, []byte(id), rest}, nil)
	first, id, rest = late.SplitLineAtID()
	if line := bytes.Join([][]byte{first, []byte(id), rest}, nil); !bytes.Equal(line, plain.Line()) {
		t.Fatalf("got the line %q, want %q", line, plain.Line())
	}
	if late.ID() != plain.ID() || late.Size() != len(plain.Bytes()) || !bytes.Equal(whole, plain.Bytes()) || plain.Size() != late.Size() ||
		!bytes.Equal(late.Lookup("id"), plain.Lookup("id")) || !bytes.Equal(late.Lookup("method"), plain.Lookup("method")) ||
		!bytes.Equal(late.Params(), plain.Params()) || !bytes.Equal(late.Result(), plain.Result()) || late.Related() != plain.Related() ||
		!bytes.Equal(late.Bytes(), plain.Bytes()) || !bytes.Equal(late.Line(), plain.Line()) || !bytes.Equal(late.Lookup(), plain.Bytes()) {
		t.Fatalf("got %q with the id %s, want %q with %s", whole, late.ID(), plain.Bytes(), plain.ID())
	}
	checkIndex(t, late, plain)
}

// WithID does not copy a long message. Its bytes are put together once, for all copies of
// the Message.
func TestLateID(t *testing.T) {
	m := mustParse(t, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"`+strings.Repeat("x", minLongSize)+`"}}`)
	s := m.WithID(StringID("new"))
	if first, _, rest := s.SplitAtID(); &first[0] != &m.raw[0] || &rest[len(rest)-1] != &m.raw[len(m.raw)-1] {
		t.Error("the message was copied")
	}
	var all [4][]byte
	var wg sync.WaitGroup
	for i := range all {
		c := s.WithRelated(IntID(int64(i)))
		wg.Go(func() { all[i] = c.Bytes() })
	}
	wg.Wait()
	for _, b := range all {
		if &b[0] != &all[0][0] {
			t.Error("the bytes were put together twice")
		}
	}
	if new(s.WithID(IntID(3))).ID() != IntID(3) || s.ID() != StringID("new") || m.ID() != IntID(1) || !bytes.HasPrefix(all[0], []byte(`{"jsonrpc":"2.0","id":"new","method"`)) {
		t.Errorf("the ids are %s, %s: %.60s", s.ID(), m.ID(), all[0])
	}
	checkSame(t, s, mustParse(t, strings.Replace(string(m.Bytes()), "1", `"new"`, 1)))
	for name, f := range map[string]func(){
		"zero": func() { m.WithID(ID{}) },
		"null": func() { m.WithID(NullID) },
		"note": func() {
			mustParse(t, `{"jsonrpc":"2.0","method":"m","params":{"a":"`+strings.Repeat("x", minLongSize)+`"}}`).WithID(IntID(1))
		},
	} {
		mustPanic(t, name, f)
	}
}
