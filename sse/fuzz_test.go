package sse

import (
	"bytes"
	"io"
	"math"
	"math/big"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// naive parses as the standard's text reads, one line after the other over the
// whole input, and shares nothing with the Reader. An event with only an id is
// kept, as the Reader promises.
type naive struct {
	events   []Event
	tooLarge int
	lastID   string
	retry    time.Duration
	hasRetry bool
}

func parseNaive(in string, limit int) (n naive) {
	if limit == 0 {
		limit = math.MaxInt
	}
	in = strings.TrimPrefix(in, "\xEF\xBB\xBF")
	in = strings.ReplaceAll(in, "\r\n", "\n")
	in = strings.ReplaceAll(in, "\r", "\n")
	lines := strings.Split(in, "\n")
	lines = lines[:len(lines)-1] // the last one has no end: incomplete

	var e Event
	var dataLines []string
	tooLarge := false
	for _, line := range lines {
		if line == "" {
			if dataLines != nil {
				e.Data = []byte(strings.Join(dataLines, "\n"))
			}
			if e.HasID {
				n.lastID = e.ID
			}
			if tooLarge || len(e.Data) > limit {
				n.tooLarge++
			} else if e.HasID || dataLines != nil {
				n.events = append(n.events, e)
			}
			e, dataLines, tooLarge = Event{}, nil, false
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		if len(value) > limit && (field == "data" || field == "event" || field == "id") {
			tooLarge = true
			continue
		}
		switch field {
		case "data":
			dataLines = append(dataLines, value)
		case "event":
			e.Name = value
		case "id":
			if !strings.Contains(value, "\x00") {
				e.ID, e.HasID = value, true
			}
		case "retry":
			if value == "" || strings.Trim(value, "0123456789") != "" {
				continue
			}
			ms, _ := new(big.Int).SetString(value, 10)
			most := big.NewInt(math.MaxInt64 / int64(time.Millisecond))
			if ms.Cmp(most) > 0 {
				ms = most
			}
			e.Retry = time.Duration(ms.Int64()) * time.Millisecond
			n.retry, n.hasRetry = e.Retry, true
		}
	}
	return n
}

// sizesReader gives reads of the sizes in turn: line ends and characters fall
// apart everywhere.
type sizesReader struct {
	r     io.Reader
	sizes []byte
	i     int
}

func (s *sizesReader) Read(p []byte) (int, error) {
	if len(s.sizes) > 0 {
		n := int(s.sizes[s.i%len(s.sizes)])
		s.i++
		p = p[:min(len(p), n)]
		if n == 0 {
			p = p[:min(cap(p), 1)]
		}
	}
	return s.r.Read(p)
}

// FuzzReader compares the Reader with the naive parser, whatever the reads.
// A byte 0x01 in the input stands for a run of 5000 bytes, so that lines grow
// beyond the small buffer.
func FuzzReader(f *testing.F) {
	for _, in := range []string{
		"data: a\n\n", "data: a\r\rdata: b\r\n\r\n", "\xEF\xBB\xBFdata: \xF0\x9F\x91\xA9\u200D\n\n",
		"id: 1\ndata: a\ndata: b\ndata: c\n\n", "id: 2\ndata:\n\n: x\n\nid\n\n", "retry: 99999999999999999999\n\n",
		"data: \x01\rdata: \x01\n\n:\x01\n\ndata:x\n\n", "id: \x01\n\nevent: \x01\ndata\n\n", "\x01\r\n\x01data: x\n\n",
		"event: x\nid: \x00\ndata\n\n\r\n", "data: \x01\x01\x01\nid: 5\n\ndata: y\n\n",
	} {
		f.Add(in, []byte{}, uint16(0))
		f.Add(in, []byte{1}, uint16(4000))
		f.Add(in, []byte{3, 200, 0, 7}, uint16(6000))
	}
	run := strings.Repeat("z", 5000)
	f.Fuzz(func(t *testing.T, in string, sizes []byte, limit uint16) {
		if strings.Count(in, "\x01") > 20 {
			t.Skip()
		}
		in = strings.ReplaceAll(in, "\x01", run)
		want := parseNaive(in, int(limit))
		r := NewReader(&sizesReader{r: strings.NewReader(in), sizes: sizes}, int(limit))
		got, tooLarge, err := readAll(r)
		if err != io.EOF {
			t.Fatalf("error %v", err)
		}
		checkEvents(t, "events", got, want.events)
		if tooLarge != want.tooLarge {
			t.Errorf("%d events too large, want %d", tooLarge, want.tooLarge)
		}
		if d, ok := r.Retry(); d != want.retry || ok != want.hasRetry {
			t.Errorf("retry %v %v, want %v %v", d, ok, want.retry, want.hasRetry)
		}
		if r.LastEventID() != want.lastID {
			t.Errorf("last event id %q, want %q", r.LastEventID(), want.lastID)
		}
	})
}

// FuzzRoundTrip writes events one after the other, with a comment between, and
// reads them back.
func FuzzRoundTrip(f *testing.F) {
	f.Add("1", "message", []byte(`{"a":1}`), int64(0), "ping")
	f.Add("", "", []byte("a\nb\r\nc\rd"), int64(time.Second), "two\rlines")
	f.Add(" 1", " x", []byte(" a\n\n b\n"), int64(1), "")
	f.Add("a\nid: 9", "x\r\ndata: evil", []byte{}, int64(-1), "\n\ndata: evil\n\n")
	f.Add("\x00", "\xEF\xBB\xBF", []byte("\xEF\xBB\xBF\xff"), int64(math.MaxInt64), ":")
	f.Fuzz(func(t *testing.T, id, name string, data []byte, retry int64, comment string) {
		e := Event{ID: id, HasID: true, Name: name, Data: data, Retry: time.Duration(retry)}
		bare := Event{Data: data}
		out := AppendEvent(nil, e)
		out = AppendComment(out, comment)
		out = AppendEvent(out, bare)
		out = AppendEvent(out, Event{Data: []byte("end")})

		got, _, _ := readAll(NewReader(iotest.HalfReader(bytes.NewReader(out)), 0))
		var want []Event
		for _, e := range []Event{e, bare} {
			if e = asRead(e); e.HasID || e.Data != nil {
				want = append(want, e)
			}
		}
		checkEvents(t, "round trip", got, append(want, Event{Data: []byte("end")}))
	})
}

// asRead is what AppendEvent promises that a reader will see of e.
func asRead(e Event) Event {
	if strings.ContainsAny(e.ID, "\r\n\x00") {
		e.ID, e.HasID = "", false
	}
	if strings.ContainsAny(e.Name, "\r\n\x00") {
		e.Name = ""
	}
	if e.HasID && e.Data == nil {
		e.Data = []byte{}
	}
	if e.Data != nil {
		s := strings.ReplaceAll(string(e.Data), "\r\n", "\n")
		e.Data = []byte(strings.ReplaceAll(s, "\r", "\n"))
	}
	e.Retry = max(e.Retry, 0)
	if down := e.Retry.Truncate(time.Millisecond); down < e.Retry {
		e.Retry = min(down, math.MaxInt64/time.Millisecond*time.Millisecond-time.Millisecond) + time.Millisecond
	}
	return e
}
