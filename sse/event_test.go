package sse

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestAppendEvent(t *testing.T) {
	tests := []struct {
		name string
		e    Event
		want string
	}{
		{"message", Event{ID: "s1_4", Name: "message", Data: []byte(`{"a":1}`)}, "event: message\nid: s1_4\ndata: {\"a\":1}\n\n"},
		{"data only", data("x"), "data: x\n\n"},
		{"priming (LI14)", Event{ID: "s1_0"}, "id: s1_0\ndata:\n\n"},
		{"priming with retry", Event{ID: "s1_0", Retry: 2 * time.Second}, "id: s1_0\nretry: 2000\ndata:\n\n"},
		{"retry only (LI13)", Event{Retry: 1500 * time.Millisecond}, "retry: 1500\n\n"},
		{"retry rounds up", Event{Retry: 1}, "retry: 1\n\n"},
		{"negative retry", Event{Retry: -time.Second, Data: []byte("x")}, "data: x\n\n"},
		{"empty id", Event{HasID: true}, "id: \ndata:\n\n"},
		{"empty data", data(""), "data:\n\n"},
		{"line ends", data("a\nb\rc\r\nd\n"), "data: a\ndata: b\ndata: c\ndata: d\ndata:\n\n"},
		{"leading space", data(" a"), "data:  a\n\n"},
		{"forged id", Event{ID: "1\ndata: evil", Data: []byte("x")}, "data: x\n\n"},
		{"id with CR", Event{ID: "1\r", Data: []byte("x")}, "data: x\n\n"},
		{"id with NUL", Event{ID: "1\x00", Data: []byte("x")}, "data: x\n\n"},
		{"forged name", Event{Name: "a\n\ndata: evil\n\n", Data: []byte("x")}, "data: x\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendEvent([]byte("before"), tt.e)); got != "before"+tt.want {
				t.Errorf("got  %q\nwant %q", got, "before"+tt.want)
			}
		})
	}
}

func TestAppendComment(t *testing.T) {
	for text, want := range map[string]string{
		"":           ": \n",
		"keep-alive": ": keep-alive\n",
		"a\r\n\rb":   ": a\n: \n: b\n",
	} {
		if got := string(AppendComment(nil, text)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestAppendEventAllocatesNothing into a buffer that is large enough.
func TestAppendEventAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 4096)
	e := Event{ID: "s1_4", Name: "message", Data: bytes.Repeat([]byte("x"), 1000)}
	if n := testing.AllocsPerRun(100, func() { AppendEvent(buf, e) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestReaderAllocations: the data and the id, nothing else.
func TestReaderAllocations(t *testing.T) {
	for _, size := range []int{0, 100, 1000} {
		one := AppendEvent(nil, Event{ID: "s1_12345", Name: "message", Data: bytes.Repeat([]byte("x"), size)})
		r := NewReader(&repeat{data: one}, 0)
		n := testing.AllocsPerRun(50, func() {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
		})
		if n > 2 {
			t.Errorf("%d bytes of data: %v allocations for an event", size, n)
		}
	}
}

// repeat gives its data again and again.
type repeat struct {
	data []byte
	at   int
}

func (r *repeat) Read(p []byte) (n int, err error) {
	n = copy(p, r.data[r.at:])
	r.at = (r.at + n) % len(r.data)
	return n, nil
}

// TestLinear: the inputs that make a simple reader quadratic. Each takes some
// milliseconds; quadratic, each would take a minute or more.
func TestLinear(t *testing.T) {
	const size = 4 << 20
	for name, in := range map[string]io.Reader{
		"one line":          io.MultiReader(strings.NewReader("data: "), filler(size), strings.NewReader("\n\n")),
		"one line, CR":      io.MultiReader(strings.NewReader("data: "), filler(size), strings.NewReader("\r\r")),
		"small reads":       &sizesReader{r: io.MultiReader(strings.NewReader("data: "), filler(size), strings.NewReader("\n\n")), sizes: []byte{20}},
		"short lines":       strings.NewReader(strings.Repeat("data: x\n", size/8) + "\n"),
		"short lines, CR":   strings.NewReader(strings.Repeat("data: x\r", size/8) + "\r"),
		"short CR, no LF":   strings.NewReader("data: " + strings.Repeat("x", size) + "\r\r" + strings.Repeat("data\r\r", size/8)),
		"comments and data": strings.NewReader("data: " + strings.Repeat("x", size) + "\n" + strings.Repeat(":\n", size/2) + "\n"),
	} {
		start := time.Now()
		got, _, err := readAll(NewReader(in, 0))
		if err != io.EOF || len(got) == 0 {
			t.Errorf("%s: %d events, error %v", name, len(got), err)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("%s: took %v", name, d)
		}
	}
	out := AppendEvent(nil, Event{Data: bytes.Repeat([]byte("\r"), size)})
	if len(out) < size {
		t.Errorf("wrote %d bytes", len(out))
	}
}

func BenchmarkAppendEvent(b *testing.B) {
	for _, size := range []int{100, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			e := Event{ID: "s1_12345", Name: "message", Data: bytes.Repeat([]byte("x"), size)}
			var buf []byte
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				buf = AppendEvent(buf[:0], e)
			}
		})
	}
}

func BenchmarkReader(b *testing.B) {
	for _, size := range []int{100, 1 << 20} {
		one := AppendEvent(nil, Event{ID: "s1_12345", Name: "message", Data: bytes.Repeat([]byte("x"), size)})
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			r := NewReader(&repeat{data: one}, 0)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
		// One Reader for each event, as for the reply to one POST.
		b.Run(fmt.Sprint(size, " new reader"), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := readAll(NewReader(bytes.NewReader(one), 0)); err != io.EOF {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAppendHead(t *testing.T) {
	for _, e := range []Event{{ID: "1_2"}, {}, {Name: "n", ID: "x", Retry: time.Second}, {ID: "no\nid"}} {
		line := []byte(" {}")
		parts := append(AppendHead([]byte("before"), e), line...)
		parts = append(parts, Tail...)
		e.Data = line
		if whole := AppendEvent([]byte("before"), e); string(parts) != string(whole) {
			t.Errorf("in parts %q, whole %q", parts, whole)
		}
	}
}
