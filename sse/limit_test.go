package sse

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// filler gives n bytes of 'x' without having them in memory.
func filler(n int64) io.Reader { return io.LimitReader(xReader{}, n) }

type xReader struct{}

var xs = bytes.Repeat([]byte("x"), 1<<20)

func (xReader) Read(p []byte) (int, error) {
	return copy(p, xs), nil
}

func TestTooLarge(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	const limit = 10000
	tests := []struct {
		name, in string
		lastID   string // of the first event
		tooLarge bool
	}{
		{"just fits", "data: " + x(limit) + "\n\n", "", false},
		{"one byte more", "data: " + x(limit+1) + "\n\n", "", true},
		{"much more", "data: " + x(50*limit) + "\n\n", "", true},
		{"line ends count", "data: " + x(limit/2) + "\ndata: " + x(limit/2) + "\n\n", "", true},
		{"lines that fit", "data: " + x(limit/2-1) + "\ndata: " + x(limit/2) + "\n\n", "", false},
		{"many lines", strings.Repeat("data\n", limit+2) + "\n", "", true},
		{"id before", "id: 5\ndata: " + x(3*limit) + "\n\n", "5", true},
		{"id after", "data: " + x(3*limit) + "\nid: 5\n\n", "5", true},
		{"line after", "data: " + x(3*limit) + "\ndata: small\n\n", "", true},
		{"id too large", "id: " + x(3*limit) + "\ndata: a\n\n", "", true},
		{"name too large", "event: " + x(3*limit) + "\ndata: a\n\n", "", true},
		{"comments do not count", ":" + x(3*limit) + "\n" + strings.Repeat(":"+x(100)+"\n", 200) + "data: a\n\n", "", false},
		{"a comment that looks like data in every buffer", ":" + strings.Repeat("data: x", limit) + "\ndata: a\n\n", "", false},
		{"unknown fields do not count", x(3*limit) + ": a\n" + x(limit) + "\ndata: a\n\n", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(strings.NewReader(tt.in+"data: next\n\n"), limit)
			e, err := r.Next()
			if errors.Is(err, ErrTooLarge) != tt.tooLarge {
				t.Fatalf("error %v, want too large: %v", err, tt.tooLarge)
			}
			if tt.tooLarge && e.Data != nil {
				t.Errorf("%d bytes of data with the error", len(e.Data))
			}
			if e.ID != tt.lastID || r.LastEventID() != tt.lastID {
				t.Errorf("id %q, last event id %q, want %q", e.ID, r.LastEventID(), tt.lastID)
			}
			if e, err := r.Next(); err != nil || string(e.Data) != "next" {
				t.Errorf("next event %q, error %v", e.Data, err)
			}
		})
	}
}

// TestTooLargeIsNotBuffered reads 100 MB that are of no use.
func TestTooLargeIsNotBuffered(t *testing.T) {
	for _, start := range []string{"data: ", ":", "id: ", "what: "} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := NewReader(io.MultiReader(strings.NewReader(start), filler(100<<20), strings.NewReader("\n\ndata: a\n\n")), 1<<20)
		got, _, err := readAll(r)
		runtime.ReadMemStats(&after)
		if err != io.EOF || len(got) != 1 {
			t.Errorf("%q: %d events, error %v", start, len(got), err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
			t.Errorf("%q: %d bytes allocated", start, n)
		}
	}
}

// TestIdleReaderIsSmall: a stream that carried one large event does not hold
// its buffer for the rest of its life.
func TestIdleReaderIsSmall(t *testing.T) {
	for _, tail := range []string{"", "data: begun"} {
		in := "data: " + strings.Repeat("x", 1<<20) + "\n\n" + tail
		buffered := -1
		var r *Reader
		idle := func([]byte) (int, error) {
			buffered = len(r.in.buf)
			return 0, io.EOF
		}
		r = NewReader(io.MultiReader(strings.NewReader(in), readerFunc(idle)), 0)
		if e, err := r.Next(); err != nil || len(e.Data) != 1<<20 || cap(e.Data) > 1<<20+8192 {
			t.Fatalf("len %d, cap %d, error %v", len(e.Data), cap(e.Data), err)
		}
		if _, err := r.Next(); err != io.EOF {
			t.Fatalf("error %v", err)
		}
		if buffered != smallBufferSize {
			t.Errorf("buffer of %d bytes while idle, want %d", buffered, smallBufferSize)
		}
	}
}

// TestSmallPooledBuffers: a buffer that a smaller event left in the pool is of
// no use for a larger one.
func TestSmallPooledBuffers(t *testing.T) {
	for i := range 20 { // the pool may lose some
		b := make([]byte, (2+2*(i%2))*smallBufferSize)
		buffers.Put(&b)
	}
	want := strings.Repeat("x", 100_000)
	got, _, err := readAll(NewReader(strings.NewReader("data: "+want+"\n\n"), 0))
	if err != io.EOF || len(got) != 1 || string(got[0].Data) != want {
		t.Errorf("%d events, error %v", len(got), err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestEventIsNotHeldBack: an event is returned when its last byte is there,
// whatever ends its lines. The peer may send nothing more for hours.
func TestEventIsNotHeldBack(t *testing.T) {
	for _, in := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r", "data: a\r\n\r\n", "\r\ndata: a\n\n"} {
		r := NewReader(io.MultiReader(iotest.OneByteReader(strings.NewReader(in)), readerFunc(func([]byte) (int, error) {
			return 0, errors.New("read on")
		})), 0)
		if e, err := r.Next(); err != nil || string(e.Data) != "a" {
			t.Errorf("%q: data %q, error %v", in, e.Data, err)
		}
	}
}

func TestReadError(t *testing.T) {
	cut := errors.New("cut")
	r := NewReader(io.MultiReader(strings.NewReader("id: 1\ndata: a\n\nid: 2\ndata: b\n"), iotest.ErrReader(cut)), 0)
	if e, err := r.Next(); err != nil || string(e.Data) != "a" {
		t.Fatalf("data %q, error %v", e.Data, err)
	}
	for range 2 {
		if e, err := r.Next(); err != cut || e.Data != nil {
			t.Errorf("data %q, error %v, want the reader's", e.Data, err)
		}
	}
	if r.LastEventID() != "1" {
		t.Errorf("last event id %q, want that of the complete event", r.LastEventID())
	}
}

func TestReaderThatGivesNothing(t *testing.T) {
	r := NewReader(readerFunc(func([]byte) (int, error) { return 0, nil }), 0)
	if _, err := r.Next(); err != io.ErrNoProgress {
		t.Errorf("error %v, want %v", err, io.ErrNoProgress)
	}
}

// TestDataBelongsToTheCaller: later events do not change earlier data.
func TestDataBelongsToTheCaller(t *testing.T) {
	in := strings.Repeat("data: aaaa\n\ndata: bbbb\ndata: bb\n\n", 1000)
	got, _, _ := readAll(NewReader(strings.NewReader(in), 0))
	for i, e := range got {
		if want := []string{"aaaa", "bbbb\nbb"}[i%2]; string(e.Data) != want {
			t.Fatalf("event %d: %q", i, e.Data)
		}
	}
	if len(got) != 2000 {
		t.Errorf("%d events", len(got))
	}
}
