package streamhttp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A server that answers nothing does not make the books grow for ever.
func TestServerMaxCalls(t *testing.T) {
	s := newTestSession()
	open := func(from, to int) error {
		var batch []jsonrpc.Message
		for id := from; id < to; id++ {
			batch = append(batch, jsonrpc.NewRequest(jsonrpc.IntID(int64(id)), "ping", nil))
		}
		_, _, _, err := s.openPostStream(batch)
		return err
	}
	for id := range maxCalls - 1 {
		if err := open(id, id+1); err != nil {
			t.Fatalf("call %d: %v", id, err)
		}
	}
	if err := open(maxCalls, maxCalls+2); err != errTooManyCalls {
		t.Errorf("two more than fit: %v", err)
	}
	if err := open(maxCalls, maxCalls+1); err != nil {
		t.Errorf("the last one that fits: %v", err)
	}
	h := NewHandler(bridge.HandlerFunc(func(context.Context, bridge.Conn) error { return nil }), HandlerOptions{})
	defer h.Close()
	post := func() (w *httptest.ResponseRecorder) {
		w = httptest.NewRecorder()
		m := jsonrpc.NewRequest(jsonrpc.IntID(-1), "ping", nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		one := []jsonrpc.Message{m}
		defer func() {
			if r := recover(); r != nil && r != http.ErrAbortHandler { // nobody waits for the reply
				panic(r)
			}
		}()
		h.serveRequests(&post{w: w, r: httptest.NewRequestWithContext(ctx, "POST", "/mcp", nil), s: s}, one, one, nil)
		return w
	}
	w := post()
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"id":-1,"error":{"code":-32603`) {
		t.Errorf("one too many is answered %d %v %s", w.Code, w.Header(), w.Body)
	}
	bridgetest.Must(t, s.Send(t.Context(), jsonrpc.NewResult(jsonrpc.IntID(7), nil)))
	if w := post(); w.Code == http.StatusServiceUnavailable {
		t.Error("a call that was answered still counts")
	}
}

func newTestSession() *session {
	opts := HandlerOptions{}.withDefaults()
	s := newSession(&opts, "", version2025_11_25, time.Now())
	s.onEnd = func() {}
	return s
}

// The store of events, against a model that keeps everything in plain lists.
func TestServerReplayModel(t *testing.T) {
	for seed := range uint64(60) {
		m := newReplayModel(t, rand.New(rand.NewPCG(seed, 1)))
		for step := range 400 {
			m.step()
			if m.check(); t.Failed() {
				t.Fatalf("seed %d, step %d: %s", seed, step, m.did)
			}
		}
	}
}

type modelEvent struct {
	stream int
	seq    uint64
	size   int
	at     time.Time
}

type modelStream struct {
	st           *stream
	last         uint64
	pending      []modelEvent
	closed, void bool
}

type replayModel struct {
	t       *testing.T
	rnd     *rand.Rand
	now     time.Time
	real    replayStore
	streams []*modelStream
	kept    []modelEvent // oldest first
	did     string
}

func newReplayModel(t *testing.T, rnd *rand.Rand) *replayModel {
	m := &replayModel{t: t, rnd: rnd, now: time.Unix(0, 0)}
	m.real = replayStore{maxBytes: 200 + rnd.IntN(20_000), maxCount: 1 + rnd.IntN(4*guaranteedStreams), maxEventAge: time.Minute}
	for i := range 4 {
		m.streams = append(m.streams, &modelStream{st: &stream{key: uint64(i), nextSeq: 1}})
	}
	return m
}

func (m *replayModel) step() {
	i := m.rnd.IntN(len(m.streams))
	s := m.streams[i]
	m.now = m.now.Add(time.Duration(m.rnd.IntN(5000)) * time.Millisecond)
	switch op := m.rnd.IntN(20); {
	case op < 8:
		if s.closed {
			return
		}
		text := `{"jsonrpc":"2.0","method":"x","params":{"p":"` + strings.Repeat("x", m.rnd.IntN(150)) + `"}}`
		msg, err := jsonrpc.Parse([]byte(text))
		bridgetest.Must(m.t, err)
		m.did = fmt.Sprintf("push on %d", i)
		s.st.push(msg)
		s.last++
		s.pending = append(s.pending, modelEvent{i, s.last, len(text), m.now})
	case op < 14:
		n := m.rnd.IntN(len(s.pending) + 1)
		m.did = fmt.Sprintf("keep %d of %d", n, i)
		m.real.keep(s.st, n, m.now)
		for _, e := range s.pending[:n] {
			e.at = m.now
			m.kept = append(m.kept, e)
		}
		s.pending = slices.Clone(s.pending[n:])
		for len(m.kept) > 0 && (m.bytes() > m.real.maxBytes || len(m.kept) > m.real.maxCount) {
			m.evict()
		}
	case op < 17:
		m.rewind(i, s)
	case op == 17:
		m.did = "expire"
		m.real.expire(m.now)
		m.kept = slices.DeleteFunc(m.kept, func(e modelEvent) bool { return m.now.Sub(e.at) >= time.Minute })
	case op == 18 && m.rnd.IntN(5) == 0:
		m.did = fmt.Sprintf("forget %d", i)
		m.real.forget(s.st)
		s.st.unresumable, s.void = true, true
		m.kept = slices.DeleteFunc(m.kept, func(e modelEvent) bool { return e.stream == i })
	case op == 19 && m.rnd.IntN(5) == 0:
		m.did = fmt.Sprintf("finish %d", i)
		s.st.finish()
		s.closed = true
	}
}

// evict drops the oldest event, but of an open stream that has few only if there is no other.
func (m *replayModel) evict() {
	i := slices.IndexFunc(m.kept, func(e modelEvent) bool {
		n, size := 0, 0
		for _, o := range m.kept {
			if o.stream == e.stream {
				n, size = n+1, size+o.size
			}
		}
		return m.streams[e.stream].closed || n > m.real.maxCount/guaranteedStreams || size > m.real.maxBytes/guaranteedStreams
	})
	i = max(i, 0)
	m.kept = slices.Delete(m.kept, i, i+1)
}

func (m *replayModel) rewind(i int, s *modelStream) {
	seq := uint64(m.rnd.IntN(int(s.last) + 2))
	m.did = fmt.Sprintf("rewind %d to %d", i, seq)
	cursor := s.last - uint64(len(s.pending))
	var again []modelEvent
	for _, e := range m.kept {
		if e.stream == i && e.seq > seq {
			again = append(again, e)
		}
	}
	want := !s.void && seq <= cursor && !(s.closed && seq == s.last) && uint64(len(again)) == cursor-seq
	if got := m.real.rewind(s.st, seq); got != want {
		m.t.Errorf("rewind = %v, want %v", got, want)
	}
	if want {
		s.pending = append(again, s.pending...)
		m.kept = slices.DeleteFunc(m.kept, func(e modelEvent) bool { return e.stream == i && e.seq > seq })
	}
}

// A stream with few events can be resumed beside others that have many.
func TestReplayBesideChattyStreams(t *testing.T) {
	const count = 10 * guaranteedStreams
	rp := replayStore{maxBytes: 1 << 20, maxCount: count, maxEventAge: time.Minute}
	now := time.Now()
	write := func(st *stream) {
		st.push(jsonrpc.NewNotification("notifications/progress", nil))
		rp.keep(st, 1, now)
	}
	quiet := &stream{nextSeq: 1}
	write(quiet)
	chatty := make([]*stream, guaranteedStreams-1)
	for i := range chatty {
		chatty[i] = &stream{key: uint64(i + 1), nextSeq: 1}
	}
	for i := range 100 * len(chatty) {
		write(chatty[i%len(chatty)])
	}
	if len(rp.ageOrder) != count {
		t.Errorf("%d events are kept, want %d", len(rp.ageOrder), count)
	}
	for _, st := range chatty {
		if len(st.keptEvents) < count/guaranteedStreams {
			t.Errorf("of a stream %d events are kept, want at least %d", len(st.keptEvents), count/guaranteedStreams)
		}
	}
	if !rp.rewind(quiet, 0) {
		t.Error("the quiet stream cannot be resumed")
	}
}

func (m *replayModel) bytes() (n int) {
	for _, e := range m.kept {
		n += e.size
	}
	return n
}

func (m *replayModel) check() {
	seqs := func(events []event) string {
		var b strings.Builder
		for _, e := range events {
			fmt.Fprintf(&b, "%d:%d ", e.seq, len(e.line))
		}
		return b.String()
	}
	if m.real.bytes != m.bytes() || len(m.real.ageOrder) != len(m.kept) {
		m.t.Errorf("%d events with %d bytes are kept, want %d with %d", len(m.real.ageOrder), m.real.bytes, len(m.kept), m.bytes())
	}
	for i, s := range m.streams {
		var pending, kept strings.Builder
		size := 0
		for _, e := range s.pending {
			fmt.Fprintf(&pending, "%d:%d ", e.seq, e.size)
			size += e.size
		}
		for _, e := range m.kept {
			if e.stream == i {
				fmt.Fprintf(&kept, "%d:%d ", e.seq, e.size)
			}
		}
		if got := seqs(s.st.pending); got != pending.String() {
			m.t.Errorf("stream %d: pending %s, want %s", i, got, pending.String())
		}
		if got := seqs(s.st.keptEvents); got != kept.String() {
			m.t.Errorf("stream %d: kept %s, want %s", i, got, kept.String())
		}
		if s.st.pendingBytes != size || s.st.lastSeq() != s.last || s.st.lastWrittenSeq() != s.last-uint64(len(s.pending)) {
			m.t.Errorf("stream %d: %d bytes, last %d, cursor %d", i, s.st.pendingBytes, s.st.lastSeq(), s.st.lastWrittenSeq())
		}
	}
}

func FuzzParseEventID(f *testing.F) {
	for _, s := range []string{"", "_", "1_2", "01_02", "+1_1", "1_-1", "1_2_3", "18446744073709551615_0", "18446744073709551616_0", " 1_1", "1_1\n", "\xff_1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, seq, ok := parseEventID(s)
		a, b, cut := strings.Cut(s, "_")
		digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
		want := cut && digits(a) && digits(b)
		if ok && !want {
			t.Errorf("%q was taken as %d, %d", s, key, seq)
		}
		if want && !ok {
			_, err1 := strconv.ParseUint(a, 10, 64)
			_, err2 := strconv.ParseUint(b, 10, 64)
			if err1 == nil && err2 == nil {
				t.Errorf("%q was refused", s)
			}
		}
		if again, _, ok2 := parseEventID(string(appendEventID(nil, key, seq))); ok && (!ok2 || again != key) {
			t.Errorf("%q does not survive: %d", s, again)
		}
	})
}

// What we write we read, for all numbers.
func TestServerEventIDRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		key, seq := rnd.Uint64()>>rnd.IntN(64), rnd.Uint64()>>rnd.IntN(64)
		k, s, ok := parseEventID(string(appendEventID(nil, key, seq)))
		if !ok || k != key || s != seq {
			t.Fatalf("%d, %d became %d, %d, %v", key, seq, k, s, ok)
		}
	}
}
