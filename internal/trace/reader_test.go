package trace

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Lines that are no records are told with their number, and the rest is read.
func TestReader(t *testing.T) {
	text := strings.Join([]string{
		`{"v":1,"seq":1,"kind":"note"}`,
		``,
		`hello`,
		`{"v":2,"kind":"note"}`,
		`{"v":99999999999999999999999,"kind":"note"}`,
		`{"v":0,"kind":"note"}`,
		`{"v":"1","kind":"note"}`,
		`{"v":1}`,
		`{"v":1,"kind":"hologram","depth":{"a":[]},"seq":2}` + "\r",
		`{"v":1,"kind":"note","seq":-1}`,
		`{"v":1,"kind":"note","cut":-1}`,
		`{"v":1,"kind":"note","b64":"?"}`,
		`{"v":1,"kind":"note","http":7}`,
		`{"v":1,"kind":"note","srv":"` + "\xff" + `"}`,
		strings.Repeat("x", 1000),
		`{"v":1,"kind":"note","seq":3,"why":"` + strings.Repeat("x", 100) + `"}`,
		`[1]`,
		`{"v":1,"kind":"note","se`,
	}, "\n")
	r := NewReader(strings.NewReader(text))
	r.Max = 200
	var have []string
	for rec, err := range r.Records() {
		switch {
		case err == nil:
			have = append(have, fmt.Sprint(r.Line(), " ", rec.Kind, " ", rec.Seq, " ", len(r.Raw())))
		case errors.Is(err, ErrTruncated):
			have = append(have, err.Error()[:7]+" cut")
		case errors.Is(err, ErrLineTooLong):
			have = append(have, err.Error()[:7]+" long")
		case errors.Is(err, ErrVersion):
			have = append(have, err.Error()[:7]+"version")
		case errors.Is(err, ErrNotRecord):
			have = append(have, err.Error()[:7]+"foreign")
		default:
			t.Error(err)
		}
	}
	want := []string{"1 note 1 29", "line 3:foreign", "line 4:version", "line 5:version", "line 6:foreign", "line 7:foreign", "line 8:foreign",
		"9 hologram 2 51", "line 10foreign", "line 11foreign", "line 12foreign", "line 13foreign", "line 14foreign", "line 15 long", "16 note 3 138",
		"line 17foreign", "line 18 cut"}
	if !slices.Equal(have, want) {
		t.Errorf("%q\nwant\n%q", have, want)
	}
}

// A line of a million levels is read, and one without its line feed.
func TestReaderDeep(t *testing.T) {
	deep := `{"v":1,"kind":"request","msg":` + strings.Repeat(`[`, 1e6) + strings.Repeat(`]`, 1e6) + `}`
	rec, err := NewReader(strings.NewReader(deep)).Next()
	if err != nil || len(rec.Body.Text) != 2e6 {
		t.Error(len(rec.Body.Text), err)
	}
}

// What is read and written again says the same, and a body keeps its bytes.
func FuzzReader(f *testing.F) {
	for _, r := range samples() {
		f.Add(Append(nil, &r))
	}
	f.Add([]byte("{\"v\":1,\"kind\":\"x\",\"msg\":1,\"tail\":\"\",\"cut\":1}\n{\"v\":1,\"kind\":\"request\",\"raw\":\"\\ud800\",\"req\":{}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for rec, err := range NewReader(bytes.NewReader(text)).Records() {
			if err != nil {
				continue
			}
			line := Append(nil, &rec)
			if !jsonrpc.Valid(line[:len(line)-1]) || bytes.IndexByte(line, '\n') != len(line)-1 {
				t.Fatalf("%q became %q", text, line)
			}
			again, err := Parse(line)
			if err != nil {
				t.Fatalf("%q became %q: %v", text, line, err)
			}
			if !bytes.Equal(again.Body.Text, rec.Body.Text) || !bytes.Equal(again.Body.Tail, rec.Body.Tail) {
				t.Fatalf("%q became %q", text, line)
			}
			if more := Append(nil, &again); !bytes.Equal(more, line) {
				t.Fatalf("%q became %q", line, more)
			}
		}
	})
}

// Any bytes are kept exactly, as whatever kind.
func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"a":1}`), []byte(""), true)
	f.Add([]byte("a\xffb"), []byte("x"), false)
	f.Add([]byte("{\n}"), []byte(nil), true)
	f.Fuzz(func(t *testing.T, text, tail []byte, message bool) {
		r := Record{Kind: Stderr, Body: Body{Text: text, Tail: tail, OmittedBytes: len(tail)}}
		if message {
			r.Kind = Request
		}
		if text == nil || len(tail) == 0 {
			r.Body.Tail = nil
		}
		have, err := NewReader(bytes.NewReader(Append(nil, &r))).Next()
		if err != nil || !bytes.Equal(have.Body.Text, text) || !bytes.Equal(have.Body.Tail, r.Body.Tail) {
			t.Fatal(have, err)
		}
	})
}
