package sse

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a ResponseWriter that notes each write, and each deadline.
type recorder struct {
	header    http.Header
	status    int
	writes    [][]byte // the very slices
	text      bytes.Buffer
	flushed   int // bytes that a Flush has sent on their way
	deadlines []time.Time
	slow      time.Duration // that each write takes
	fail      error
}

func (r *recorder) Header() http.Header  { return r.header }
func (r *recorder) WriteHeader(code int) { r.status = code }
func (r *recorder) Flush()               { r.flushed = r.text.Len() }
func (r *recorder) SetWriteDeadline(t time.Time) error {
	r.deadlines = append(r.deadlines, t)
	return nil
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.fail != nil {
		return 0, r.fail
	}
	time.Sleep(r.slow)
	if n := len(r.deadlines); n > 0 && !r.deadlines[n-1].IsZero() && !time.Now().Before(r.deadlines[n-1]) {
		return 0, errStalled
	}
	r.writes = append(r.writes, p)
	return r.text.Write(p)
}

var errStalled = errors.New("stalled")

func newRecorder() *recorder { return &recorder{header: make(http.Header)} }

// TestWriterHeaders is rule LI26.
func TestWriterHeaders(t *testing.T) {
	r := newRecorder()
	w := NewWriter(r, 0)
	w.Begin()
	if err := w.Flush(); err != nil || r.status != http.StatusOK {
		t.Errorf("status %d, %v", r.status, err)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no",
	} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestWriterEvents wants what is written to be what AppendEvent makes, whether
// it is copied or not, in order, and nothing to stay behind after Flush.
func TestWriterEvents(t *testing.T) {
	r := newRecorder()
	w := NewWriter(r, time.Second)
	large := bytes.Repeat([]byte("x"), writeChunkSize+largeEventSize)
	var want []byte
	for _, e := range []Event{
		{Name: "endpoint", Data: []byte("/message?id=1")},
		{ID: "1_1", Data: []byte(`{"a":1}`)},
		{ID: "1_2", Data: large},
		{Data: large[:largeEventSize]},
		{ID: "1_3", Data: large[:largeEventSize-1]},
		{ID: "1_4", Data: []byte("z")},
	} {
		w.Line(e, e.Data)
		want = AppendEvent(want, e)
	}
	w.Event(Event{ID: "1_5", Data: []byte("two\nlines")})
	w.Comment("still there")
	want = append(want, "id: 1_5\ndata: two\ndata: lines\n\n: still there\n"...)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(r.text.Bytes(), want) {
		t.Errorf("wrote %d bytes, want %d", r.text.Len(), len(want))
	}
	if r.flushed != len(want) {
		t.Errorf("%d bytes were flushed, want %d", r.flushed, len(want))
	}
	copied := true
	for _, p := range r.writes {
		copied = copied && &p[0] != &large[0]
		if len(p) > writeChunkSize {
			t.Errorf("a write of %d bytes under one deadline", len(p))
		}
	}
	if copied {
		t.Error("large data were copied")
	}
}

// TestWriterCoalesces wants small events to go out in one write.
func TestWriterCoalesces(t *testing.T) {
	r := newRecorder()
	w := NewWriter(r, 0)
	for range 20 {
		w.Line(Event{}, []byte("x"))
	}
	if len(r.writes) > 0 {
		t.Errorf("%d writes before Flush", len(r.writes))
	}
	if err := w.Flush(); err != nil || len(r.writes) != 1 {
		t.Errorf("%d writes, %v; want one", len(r.writes), err)
	}
	if err := w.Flush(); err != nil || len(r.writes) != 1 {
		t.Errorf("%d writes, %v; want none for nothing", len(r.writes), err)
	}
}

// TestWriterStall wants a slow reader to be told from one that takes nothing.
func TestWriterStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := []byte(strings.Repeat("x", 10*writeChunkSize))
		r := newRecorder()
		r.slow = 700 * time.Millisecond // for each chunk; all together take longer than the deadline
		w := NewWriter(r, 2*time.Second)
		w.Line(Event{}, large)
		if err := w.Flush(); err != nil {
			t.Errorf("a slow reader was cut off: %v", err)
		}
		if last := r.deadlines[len(r.deadlines)-1]; !last.IsZero() {
			t.Error("a deadline stands although nothing is being written")
		}
		time.Sleep(time.Hour)
		r.slow = 2 * time.Second
		w.Event(Event{Data: []byte("x")})
		if err := w.Flush(); err != errStalled {
			t.Errorf("a reader that takes nothing: %v", err)
		}
		w.Event(Event{Data: []byte("x")})
		if err := w.Flush(); err != errStalled {
			t.Errorf("the first error does not stay: %v", err)
		}
	})
}

// TestWriterAllocates wants an event to cost no memory of its own.
func TestWriterAllocates(t *testing.T) {
	r := newRecorder()
	w := NewWriter(r, time.Minute)
	id, line := []byte("12_345"), []byte(`{"jsonrpc":"2.0"}`)
	w.Event(Event{Data: make([]byte, largeEventSize/2)}) // the buffer grows once
	if n := testing.AllocsPerRun(50, func() { w.Line(Event{ID: string(id)}, line) }); n > 0 {
		t.Errorf("%v allocations for an event", n)
	}
}

func TestWriterErrors(t *testing.T) {
	broken := errors.New("broken")
	r := newRecorder()
	r.fail = broken
	w := NewWriter(r, 0)
	if n, err := w.Write([]byte("x")); n != 0 || err != broken {
		t.Errorf("Write = %d, %v", n, err)
	}
	if err := w.Flush(); err != broken {
		t.Errorf("Flush = %v", err)
	}
}
