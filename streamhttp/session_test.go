package streamhttp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A session under a client whose connections break at random, and a server
// that sends whatever it likes. Nothing may be lost that a client could still
// fetch, nothing may come on the wrong stream or out of order, and each
// request of the server reaches the client or is refused.
func TestServerSessionRandom(t *testing.T) {
	for seed := range uint64(80) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, rand.New(rand.NewPCG(seed, 7)), seed%4 == 0)
			for i := 0; i < 300 && !t.Failed(); i++ {
				w.step()
				w.check()
			}
			w.settle()
			w.s.end("test over")
			synctest.Wait()
			if t.Failed() {
				t.Errorf("seed %d:\n%s", seed, strings.Join(w.log[max(0, len(w.log)-40):], "\n"))
			}
		})
	}
}

// line is what the client knows of one stream.
type line struct {
	id        jsonrpc.ID // of the call; zero: a standalone stream
	st        *stream
	rd        *reader // nil: cut
	key, last uint64  // the last event id the client has seen
	progress  int     // the last step seen
	sent      int     // the last step sent
	answered  bool    // the server has answered
	over      bool    // the client has the answer, or has cancelled, or knows that it cannot get it
	committed bool
}

type world struct {
	small   bool // the buffers are so small that much gets lost
	t       *testing.T
	rnd     *rand.Rand
	s       *session
	lines   []*line
	calls   int
	asked   map[string]bool // the server's requests; true when delivered or refused
	notes   int             // numbered notifications sent
	noted   map[int]int     // how often each came
	refused chan string
	log     []string
}

func newWorld(t *testing.T, rnd *rand.Rand, small bool) *world {
	opts := HandlerOptions{}.withDefaults()
	if small {
		opts.ReplayBytes, opts.ReplayEvents = 2000, 10
	}
	w := &world{t: t, small: small, rnd: rnd, asked: make(map[string]bool), noted: make(map[int]int), refused: make(chan string, 10_000)}
	w.s = newSession(&opts, "", version2025_11_25, time.Now())
	w.s.onEnd = func() {}
	w.s.handshake.accepted, w.s.handshake.gotInitialized, w.s.calls.lastSeq = true, true, 1
	go w.s.Receive(context.Background(), refusals(w.refused)) // as the server
	return w
}

// refusals is a Sink that takes the ids of the requests that are refused in the client's place.
type refusals chan<- string

func (r refusals) TrySend(m jsonrpc.Message) bool {
	if m.Kind() == jsonrpc.Response {
		r <- m.ID().String()
	}
	return true
}

func (r refusals) Send(_ context.Context, m jsonrpc.Message) error {
	r.TrySend(m)
	return nil
}

func (w *world) did(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) send(text string) {
	m, err := jsonrpc.Parse([]byte(text))
	if err == nil {
		err = w.s.Send(context.Background(), m)
	}
	if err != nil {
		w.t.Errorf("Send: %v", err)
	}
}

// pick returns a random line that fits, or nil.
func (w *world) pick(fits func(l *line) bool) *line {
	var some []*line
	for _, l := range w.lines {
		if fits(l) {
			some = append(some, l)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[w.rnd.IntN(len(some))]
}

func (w *world) step() {
	isCall := func(l *line) bool { return !l.id.IsZero() && !l.answered && !l.over }
	connected := func(l *line) bool { return l.rd != nil }
	switch op := w.rnd.IntN(100); {
	case op < 12:
		w.open()
	case op < 15:
		st, rd, err := w.s.openStandalone()
		bridgetest.Must(w.t, err)
		w.did("listen %d", st.key)
		w.lines = append(w.lines, &line{st: st, rd: rd, key: st.key, committed: true})
	case op < 35:
		if l := w.pick(isCall); l != nil {
			l.sent++
			w.did("progress %v %d", l.id, l.sent)
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, l.id, l.sent))
		}
	case op < 43:
		if l := w.pick(isCall); l != nil {
			l.answered = true
			w.did("answer %v", l.id)
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, l.id))
		}
	case op < 50:
		id := fmt.Sprintf(`"s%d"`, len(w.asked))
		w.asked[id] = false
		w.did("ask %s", id)
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create"}`, id))
	case op < 55:
		w.notes++
		w.did("note %d", w.notes)
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"vendor/n","params":{"n":%d}}`, w.notes))
	case op < 75:
		if l := w.pick(connected); l != nil {
			w.read(l, w.rnd.IntN(4) == 0)
		}
	case op < 85:
		if l := w.pick(connected); l != nil {
			w.cut(l)
		}
	case op < 93:
		if l := w.pick(func(l *line) bool { return !l.over && l.committed }); l != nil {
			w.resume(l)
		}
	case op < 95:
		if l := w.pick(isCall); l != nil {
			w.did("cancel %v", l.id)
			w.s.cancelCall(l.id)
			l.over = true
			w.read(l, false)
		}
	default:
		w.did("time")
		time.Sleep(time.Duration(w.rnd.IntN(4000)) * time.Millisecond)
		w.s.tidy(time.Now())
	}
	synctest.Wait()
	w.collect()
}

func (w *world) open() {
	w.calls++
	text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"_meta":{"progressToken":%d}}}`, w.calls, w.calls)
	m, err := jsonrpc.Parse([]byte(text))
	bridgetest.Must(w.t, err)
	st, rd, _, err := w.s.openPostStream([]jsonrpc.Message{m})
	if err != nil || st == nil {
		w.t.Fatalf("open: %v", err)
	}
	w.did("open %d on %d", w.calls, st.key)
	l := &line{id: m.ID(), st: st, rd: rd, key: st.key}
	w.lines = append(w.lines, l)
	if w.rnd.IntN(3) > 0 {
		w.s.commit(st)
		l.committed = true
	}
}

// read takes what waits for a connected line. With lossy the connection breaks
// while that is under way, so the client has only a part of it.
func (w *world) read(l *line, lossy bool) {
	if l.rd == nil {
		return
	}
	if !l.committed {
		whole, isStream := w.s.jsonAnswer(l.st)
		if whole != nil {
			w.did("JSON %v", l.id)
			w.receive(l, whole)
			w.s.detach(l.st, l.rd)
			l.rd = nil
			return
		}
		if !isStream {
			return
		}
		w.s.commit(l.st)
		l.committed = true
	}
	events, over := w.s.take(l.st, l.rd, nil)
	n := len(events)
	if lossy {
		n = w.rnd.IntN(n + 1)
	}
	w.did("read %d of %d on %d, over %v", n, len(events), l.key, over)
	w.receive(l, events[:n])
	if lossy || over {
		w.s.detach(l.st, l.rd)
		l.rd = nil
	}
}

func (w *world) receive(l *line, events []event) {
	for _, e := range events {
		if e.seq != l.last+1 {
			w.t.Errorf("stream %d: event %d after %d", l.key, e.seq, l.last)
		}
		l.last = e.seq
		m, err := jsonrpc.Parse(e.line)
		bridgetest.Must(w.t, err)
		switch {
		case m.Kind() == jsonrpc.Response:
			if m.ID() != l.id || !l.over && !m.IsError() && l.progress != l.sent {
				w.t.Errorf("stream of %v, step %d of %d: got %s", l.id, l.progress, l.sent, e.line)
			}
			l.over = true
		case m.Kind() == jsonrpc.Request:
			if _, known := w.asked[m.ID().String()]; !known {
				w.t.Errorf("got %s, which nobody asked", e.line)
			}
			w.asked[m.ID().String()] = true
		case m.Method() == "vendor/n":
			var n int
			fmt.Sscanf(string(m.Lookup("params", "n")), "%d", &n)
			w.noted[n]++
		default:
			l.progress++
			if m.ProgressToken() != l.id || string(m.Lookup("params", "progress")) != fmt.Sprint(l.progress) {
				w.t.Errorf("stream of %v: got %s, want step %d", l.id, e.line, l.progress)
			}
		}
	}
}

func (w *world) cut(l *line) {
	w.did("cut %d", l.key)
	w.s.detach(l.st, l.rd)
	l.rd = nil
	if !l.committed {
		l.over = true // never to be had again
	}
}

// resume comes back, maybe while the old connection still seems to be there.
func (w *world) resume(l *line) {
	st, rd, err := w.s.resume(l.key, l.last)
	bridgetest.Must(w.t, err)
	w.did("resume %d after %d: %v", l.key, l.last, st != nil)
	if st == nil {
		// Standalone streams are forgotten when there are many.
		forgotten := l.id.IsZero() && (w.s.retained.streams[l.key] == nil || l.st.closed)
		if !forgotten && !w.small {
			w.t.Errorf("the stream of %v cannot be resumed after %d", l.id, l.last)
		}
		l.over = true
		return
	}
	if old := l.rd; old != nil {
		if _, over := w.s.take(st, old, nil); !over {
			w.t.Errorf("the connection that lost stream %d reads on", l.key)
		}
		w.s.detach(st, old)
	}
	l.st, l.rd = st, rd
}

func (w *world) collect() {
	for {
		select {
		case id := <-w.refused:
			w.did("refused %s", id)
			w.asked[id] = true
		default:
			return
		}
	}
}

// check looks at the books.
func (w *world) check() {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	var parked struct{ bytes, events int }
	kept := 0
	seen := make(map[*stream]bool)
	look := func(st *stream) {
		if seen[st] {
			return
		}
		seen[st] = true
		size := 0
		for _, e := range st.pending {
			size += len(e.line)
		}
		if size != st.pendingBytes {
			w.t.Errorf("stream %d: %d bytes are pending, not %d", st.key, size, st.pendingBytes)
		}
		for _, e := range st.keptEvents {
			kept += len(e.line)
		}
		if st.unresumable && st.reader == nil && (len(st.pending) > 0 || len(st.keptEvents) > 0 || st.parked) {
			w.t.Errorf("the void stream %d still has something", st.key)
		}
		if st.parked {
			parked.bytes += st.pendingBytes
			parked.events += len(st.pending)
			if st.reader != nil || st.isStandalone {
				w.t.Errorf("stream %d should not be parked", st.key)
			}
		}
	}
	for _, st := range s.retained.streams {
		look(st)
	}
	for _, c := range s.calls.byID {
		look(c.stream)
		if c.stream.owedResponses == 0 || c.stream.closed {
			w.t.Errorf("the stream of call %v owes nothing", c.id)
		}
	}
	for _, l := range w.lines {
		look(l.st)
	}
	if parked.bytes > s.retained.maxBytes || parked.events > s.retained.maxCount || kept > s.retained.maxBytes || len(s.sent) > maxDeferred {
		w.t.Errorf("too much is kept: %v and %d bytes", parked, kept)
	}
	if parked != s.retained.parked {
		w.t.Errorf("parked are %v, not %v", parked, s.retained.parked)
	}
	if kept != s.retained.bytes {
		w.t.Errorf("%d bytes are kept, not %d", kept, s.retained.bytes)
	}
	for _, st := range s.standalone.connected {
		if st.reader == nil || !st.isStandalone || slices.Contains(s.standalone.idle, st) {
			w.t.Errorf("stream %d is no connected standalone stream", st.key)
		}
	}
	if len(s.standalone.connected) > maxConnectedStandalone || len(s.standalone.idle) > maxIdleStandalone {
		w.t.Errorf("%d and %d standalone streams", len(s.standalone.connected), len(s.standalone.idle))
	}
}

// settle lets everything that can still arrive arrive.
func (w *world) settle() {
	for _, l := range w.lines {
		switch {
		case l.over || l.id.IsZero():
		case l.answered:
			if l.rd == nil {
				w.resume(l)
			}
			w.read(l, false)
			w.read(l, false)
			if !l.over && !w.small {
				w.t.Errorf("the answer of %v is not to be had", l.id)
			}
		default:
			w.s.cancelCall(l.id)
		}
		if l.rd != nil {
			w.read(l, false)
		}
		if l.rd != nil {
			w.cut(l)
		}
	}
	for range 10 {
		time.Sleep(time.Minute)
		w.s.tidy(time.Now())
		synctest.Wait()
		w.collect()
	}
	w.check()
	for id, done := range w.asked {
		if !done && !w.written(id) {
			w.t.Errorf("the request %s was neither delivered nor refused", id)
		}
	}
	for n, times := range w.noted {
		if times > 1 {
			w.t.Errorf("note %d came %d times", n, times)
		}
	}
	if len(w.s.deferred.requests) > 0 || w.s.retained.parked.events > 0 || w.s.retained.bytes > 0 {
		w.t.Errorf("left: %d held, %v parked, %d bytes kept", len(w.s.deferred.requests), w.s.retained.parked, w.s.retained.bytes)
	}
}

// A client that answers none of the server's requests does not make the books
// grow for ever.
func TestServerUnansweredRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, rand.New(rand.NewPCG(1, 1)), false)
		st, rd, err := w.s.openStandalone()
		bridgetest.Must(t, err)
		for i := range 3 * maxDeferred {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create"}`, i))
			w.s.take(st, rd, nil)
		}
		w.check()
		w.s.end("test over")
	})
}

// written reports whether a request was written to a connection that broke:
// nobody can know whether the client has it.
func (w *world) written(id string) bool {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for asked := range w.s.sent {
		if asked.String() == id {
			return true
		}
	}
	return false
}
