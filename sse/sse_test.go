package sse

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// readAll reads until an error that is not ErrTooLarge; it returns that error,
// the events, and how many were too large.
func readAll(r *Reader) (events []Event, tooLarge int, err error) {
	for {
		e, err := r.Next()
		switch {
		case errors.Is(err, ErrTooLarge):
			tooLarge++
		case err != nil:
			return events, tooLarge, err
		default:
			events = append(events, e)
		}
	}
}

func sameEvent(a, b Event) bool {
	return a.ID == b.ID && a.HasID == b.HasID && a.Name == b.Name && a.Retry == b.Retry &&
		bytes.Equal(a.Data, b.Data) && (a.Data == nil) == (b.Data == nil)
}

func data(s string) Event { return Event{Data: []byte(s)} }

// TestReader is the SSE corpus of rule LE8, and the examples of the standard.
func TestReader(t *testing.T) {
	retry := func(ms time.Duration, s string) Event {
		return Event{Data: []byte(s), Retry: ms * time.Millisecond}
	}
	tests := []struct {
		name, in, lastID string
		want             []Event
	}{
		{"LF", "data: a\n\ndata: b\n\n", "", []Event{data("a"), data("b")}},
		{"CR only", "data: a\r\rdata: b\r\r", "", []Event{data("a"), data("b")}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", "", []Event{data("a"), data("b")}},
		{"CRLF between fields", "data: a\r\ndata: b\r\n\r\n", "", []Event{data("a\nb")}},
		{"mixed ends", "data: a\rdata: b\ndata: c\r\n\n", "", []Event{data("a\nb\nc")}},
		{"LF CR is two ends", "data: a\n\rdata: b\n\r", "", []Event{data("a"), data("b")}},
		{"BOM", "\xEF\xBB\xBFdata: a\n\n", "", []Event{data("a")}},
		{"BOM once only", "\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\ndata: b\n\n", "", []Event{data("b")}},
		{"BOM at the start only", "\n\xEF\xBB\xBFdata: a\n\n", "", nil},
		{"part of a BOM", "\xEF\xBBdata: a\n\ndata: b\n\n", "", []Event{data("b")}},
		{"comments", ":\n: x\n:data: y\ndata: a\n:z\n\n:\n\n", "", []Event{data("a")}},
		{"three lines", "data: YHOO\ndata: +2\ndata: 10\n\n", "", []Event{data("YHOO\n+2\n10")}},
		{"no colon", "data\n\ndata\ndata\n\ndata:", "", []Event{data(""), data("\n")}},
		{"one space goes", "data:test\n\ndata:  test\n\ndata: \n\n", "", []Event{data("test"), data(" test"), data("")}},
		{"a tab stays", "data:\ttest\n\n", "", []Event{data("\ttest")}},
		{"colons in the value", "data: a: b\n\ndata::\n\n", "", []Event{data("a: b"), data(":")}},
		{"names are exact", "Data: a\n data: b\ndata : c\ndatax: d\ndat: e\n\n", "", nil},
		{"incomplete event", "data: a\n\nid: 1\ndata: b\n", "", []Event{data("a")}},
		{"incomplete line", "data: a\n\nid: 1", "", []Event{data("a")}},
		{"event", "event: endpoint\ndata: a\n\ndata: b\n\n", "", []Event{{Name: "endpoint", Data: []byte("a")}, data("b")}},
		{"name alone is dropped", "event: x\n\ndata: b\n\n", "", []Event{data("b")}},
		{"last name wins", "event: x\nevent: message\ndata: b\n\n", "", []Event{{Name: "message", Data: []byte("b")}}},
		{"id stays", "id: 1\ndata: a\n\ndata: b\n\n", "1", []Event{{ID: "1", HasID: true, Data: []byte("a")}, data("b")}},
		{"empty id resets", "id: 1\ndata: a\n\nid\ndata: b\n\n", "", []Event{{ID: "1", HasID: true, Data: []byte("a")}, {HasID: true, Data: []byte("b")}}},
		{"id with NUL is ignored", "id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\n", "1", []Event{{ID: "1", HasID: true, Data: []byte("a")}, data("b")}},
		{"priming", "id: 7\ndata:\n\n", "7", []Event{{ID: "7", HasID: true, Data: []byte{}}}},
		{"id without data", "id: 8\n\n", "8", []Event{{ID: "8", HasID: true}}},
		{"retry", "retry: 1500\ndata: a\n\n", "", []Event{retry(1500, "a")}},
		{"retry is digits only", "retry: 1x\nretry:  5\nretry: -5\nretry: +5\nretry: 1.5\nretry:\nretry: \xd9\xa1\ndata: a\n\n", "", []Event{data("a")}},
		{"bytes pass", "data: \xff\x00\u2028\u0085\v\f\n\n", "", []Event{data("\xff\x00\u2028\u0085\v\f")}},
		{"only ends", "\r\n\n\r\r\n", "", nil},
		{"nothing", "", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, in := range map[string]io.Reader{
				"at once":           strings.NewReader(tt.in),
				"byte by byte":      iotest.OneByteReader(strings.NewReader(tt.in)),
				"EOF with the data": iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				r := NewReader(in, 0)
				got, _, err := readAll(r)
				if err != io.EOF {
					t.Errorf("%s: error %v, want EOF", name, err)
				}
				checkEvents(t, name, got, tt.want)
				if r.LastEventID() != tt.lastID {
					t.Errorf("%s: last event id %q, want %q", name, r.LastEventID(), tt.lastID)
				}
			}
		})
	}
}

func checkEvents(t *testing.T, name string, got, want []Event) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %d events %+v, want %d", name, len(got), got, len(want))
		return
	}
	for i := range got {
		if !sameEvent(got[i], want[i]) {
			t.Errorf("%s: event %d = %+v, want %+v", name, i, got[i], want[i])
		}
	}
}
