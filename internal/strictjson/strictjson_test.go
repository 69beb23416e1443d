package strictjson

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

func TestObject(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `null`, `[]`, `"x"`, `{`, `{"a":1`, `{"a":1} {}`, `{"a":1}]`, `{a:1}`, `<html>`, "{\"a\":\"\xff\"}",
		`{"a":1,"a":1}`, `{"a":1,"\u0061":2}`, `{"x":{"a":1,"a":2}}`, `{"x":[[{"a":1,"b":2,"a":{}}]]}`,
		`{"x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`,
	} {
		if f, err := ParseObject([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, f)
		}
	}
	f, err := ParseObject([]byte(` {"a":{"a":"a"},"b":["a",{"a":1},{"a":2}],"A":null,"c":"b"} `))
	if err != nil || len(f) != 4 || f.Has("A") || f.Has("B") || !f.Has("a") {
		t.Errorf("%v, %v", f, err)
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	const text = `{"s":"x","l":["x","y"],"f":true,"n":1.5,"t":"90","big":1e300,"neg":-1,"zero":null,"nan":"NaN"}`
	f, err := ParseObject([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(f)
	if r.Text("s") != "x" || len(r.TextArray("l")) != 2 || len(r.TextOrArray("s")) != 1 || len(r.TextOrArray("l")) != 2 || !r.Bool("f") || r.Text("zero")+r.Text("none") != "" || r.TextOrArray("none") != nil {
		t.Errorf("%+v", r)
	}
	if got := r.NumericDate("n"); got.UnixNano() != 15e8 || !r.NumericDate("none").IsZero() || r.Err != nil {
		t.Errorf("%v, %v", got, r.Err)
	}
	for name, want := range map[string]time.Duration{"n": 1500 * time.Millisecond, "t": 90 * time.Second, "big": MaxLifetime, "neg": 0, "s": 0, "l": 0, "none": 0, "nan": 0} {
		if got := f.Seconds(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for name, read := range map[string]func(*Reader){
		"text":    func(r *Reader) { r.Text("n") },
		"texts":   func(r *Reader) { r.TextArray("s") },
		"strings": func(r *Reader) { r.TextOrArray("f") },
		"flag":    func(r *Reader) { r.Bool("t") },
		"instant": func(r *Reader) { r.NumericDate("t") },
		"early":   func(r *Reader) { r.NumericDate("neg") },
		"late":    func(r *Reader) { r.NumericDate("big") },
	} {
		r := NewReader(f)
		if read(r); r.Err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzObject(f *testing.F) {
	f.Add(`{"a":{"b":[1,"x",null]},"c":1e3}`)
	f.Add(`{"a":1,"a":2}`)
	f.Add(`{"a":1e311111}`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseObject([]byte(text))
		if err != nil {
			return
		}
		var want map[string]any
		whole := json.NewDecoder(strings.NewReader(text))
		whole.UseNumber() // a number too large for float64 is one all the same
		if whole.Decode(&want) != nil || whole.Decode(new(any)) != io.EOF || len(want) != len(got) {
			t.Fatalf("%q is read as %v", text, got)
		}
		for name := range got {
			r := NewReader(got)
			r.TextOrArray(name)
			r.NumericDate(name)
			got.Seconds(name)
		}
	})
}
