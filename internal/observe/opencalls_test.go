package observe

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"weak"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func id(t testing.TB, text string) jsonrpc.ID {
	id, ok := jsonrpc.ParseID([]byte(text))
	if !ok {
		t.Fatalf("%s is no id", text)
	}
	return id
}

// A request is found by each id that is equivalent to its own, and by no other.
func TestBook(t *testing.T) {
	ids := []string{`1`, `1.0`, `1e0`, `100`, `1e2`, `0`, `-0`, `"1"`, `"a"`, `"\u0061"`, `"\""`, `"\u0022"`, `"\n"`, `"\\n"`, `"\u000a"`, `"\ud800"`, `"a\/"`, `"a/"`,
		`9007199254740993`, `9007199254740992`, `9007199254740992.0`, `999999999999999`, `1000000000000000`, `1e15`, `-5`, `-5.0`, `1e400`}
	for _, asked := range ids {
		for _, answered := range ids {
			var b openCalls
			call := &Call{ID: id(t, asked)}
			b.add(call)
			got, want := b.findByID(id(t, answered)) == call, call.ID.Equivalent(id(t, answered))
			if got != want {
				t.Errorf("asked with %s, answered with %s: found %v, want %v", asked, answered, got, want)
			}
			if !b.remove(call) || b.remove(call) || b.byID.count+len(b.byNormalized) > 0 {
				t.Errorf("%s is not removed: %+v", asked, b)
			}
		}
	}
}

func FuzzBook(f *testing.F) {
	f.Add(`1`, `1.0`)
	f.Add(`"a"`, `"\u0061"`)
	f.Add(`"\n"`, `"\\n"`)
	f.Fuzz(func(t *testing.T, asked, answered string) {
		a, ok1 := jsonrpc.ParseID([]byte(asked))
		b, ok2 := jsonrpc.ParseID([]byte(answered))
		if !ok1 || !ok2 {
			return
		}
		var all openCalls
		call := &Call{ID: a}
		all.add(call)
		if got := all.findByID(b) == call; got != a.Equivalent(b) {
			t.Errorf("asked with %s, answered with %s: found %v", a, b, got)
		}
	})
}

// lost counts requests without an answer.
type lost struct{ n atomic.Int64 }

func (l *lost) Message(*Passed) {}
func (l *lost) Event(e Event) {
	if _, ok := e.(Unanswered); ok {
		l.n.Add(1)
	}
}

// broken is a Conn whose Send fails: it does first what the test wants.
type broken struct {
	bridge.Conn
	first  func()
	answer jsonrpc.Message
}

func (b *broken) Send(context.Context, jsonrpc.Message) error {
	b.first()
	return io.ErrClosedPipe
}
func (b *broken) Close(error) error { return nil }
func (b *broken) Receive(_ context.Context, sink bridge.Sink) error {
	sink.TrySend(b.answer)
	return errors.New("that was all")
}

type takes struct{}

func (takes) TrySend(jsonrpc.Message) bool                { return true }
func (takes) Send(context.Context, jsonrpc.Message) error { return nil }

// A request is told to be unanswered once, though its Conn is closed while it is sent; and not
// at all if its answer has come before Send says that it was not sent.
func TestUnansweredOnce(t *testing.T) {
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"ping"}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"closed": 1, "answered": 0, "": 1} {
		var o Observer
		var l lost
		stop := o.Watch(&l)
		b := &broken{answer: jsonrpc.NewResult(id(t, "7"), []byte("{}"))}
		c := o.OpenUnannounced("x", "").Conn(b, Upstream)
		b.first = func() {
			switch name {
			case "closed":
				_ = c.Close(nil)
			case "answered":
				_ = c.Receive(t.Context(), takes{})
			}
		}
		_ = c.Send(t.Context(), m)
		_ = c.Close(nil)
		if got := l.n.Load(); got != want {
			t.Errorf("%q: told %d times, want %d", name, got, want)
		}
		stop()
	}
}

// A request that is lost while it is sent, and was sent, is told of before the remark that nobody answers it.
func TestLostAfterItsRequest(t *testing.T) {
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"ping"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, try := range []bool{false, true} {
		var o Observer
		w := new(inOrder)
		stop := o.Watch(w)
		b := new(closing)
		c := o.OpenUnannounced("x", "").Conn(b, Upstream)
		b.close = func() { _ = c.Close(nil) }
		if try {
			c.TrySend(m)
		} else {
			_ = c.Send(t.Context(), m)
		}
		stop()
		if !slices.Equal(w.told, []string{"ping", "unanswered ping"}) {
			t.Errorf("told %q", w.told)
		}
	}
}

// inOrder lists requests, and those that have no answer.
type inOrder struct{ told []string }

func (w *inOrder) Message(p *Passed) { w.told = append(w.told, p.Message.Method()) }

func (w *inOrder) Event(e Event) {
	if e, ok := e.(Unanswered); ok {
		text := "unanswered "
		if e.Cancelled {
			text = "cancelled "
		}
		w.told = append(w.told, text+e.Call.Method)
	}
}

// closing is a Conn that is closed while it takes a message.
type closing struct {
	bridge.Conn
	close func()
}

func (c *closing) Send(context.Context, jsonrpc.Message) error { c.close(); return nil }
func (c *closing) TrySend(jsonrpc.Message) bool                { c.close(); return true }
func (c *closing) Close(error) error                           { return nil }

// A cancelled request waits no more, at either end, whether somebody watches by then or not; what is said
// of it later names it. An initialize cannot be cancelled.
func TestCancelledWaitsNoMore(t *testing.T) {
	cancel := jsonrpc.NewNotification("notifications/cancelled", []byte(`{"requestId":7}`))
	for method, waits := range map[string]int{"tools/call": 0, "initialize": 1} {
		for _, watched := range []bool{true, false} {
			var o Observer
			w := new(inOrder)
			stop := o.Watch(w)
			s := o.OpenUnannounced("x", "")
			request := jsonrpc.NewRequest(id(t, "7"), method, nil)
			_ = s.Conn(&broken{answer: request}, Downstream).Receive(t.Context(), takes{})
			up := s.Conn(sends{}, Upstream)
			up.TrySend(request)
			if !watched {
				stop()
			}
			_ = s.Conn(&broken{answer: cancel}, Downstream).Receive(t.Context(), takes{})
			up.TrySend(cancel)
			if d, u := s.UnansweredCount(Downstream, ToServer), s.UnansweredCount(Upstream, ToServer); d != waits || u != waits {
				t.Errorf("%s: %d and %d requests wait, want %d", method, d, u, waits)
			}
			if waits > 0 {
				continue
			}
			if n := s.openRequests.Load(); n != 0 {
				t.Errorf("%d requests are counted", n)
			}
			if !watched {
				stop = o.Watch(w)
			}
			w.told = nil
			answer := jsonrpc.NewResult(id(t, "7"), []byte("{}"))
			if call := s.takeAnswered(Upstream, ToServer, answer.ID()); call == nil || call.Method != method {
				t.Errorf("a late answer is that of %+v", call)
			}
			s.tellAllUnanswered(Downstream, nil)
			s.tellAllUnanswered(Upstream, nil)
			if !slices.Equal(w.told, []string{"cancelled " + method}) {
				t.Errorf("in the end told %q", w.told)
			}
			stop()
		}
	}
}

// However many are cancelled, few are kept, and nothing is forgotten silently.
func TestManyCancelled(t *testing.T) {
	var o Observer
	var l lost
	defer o.Watch(&l)()
	s := o.OpenUnannounced("x", "")
	up := s.Conn(sends{}, Upstream)
	for i := range int64(1000) {
		up.TrySend(jsonrpc.NewRequest(jsonrpc.IntID(i), "ping", nil))
		up.TrySend(jsonrpc.NewNotification("notifications/cancelled", []byte(`{"requestId":`+jsonrpc.IntID(i).String()+`}`)))
	}
	if kept := 1000 - l.n.Load(); kept != maxCancelled || s.UnansweredCount(Upstream, ToServer) != 0 {
		t.Errorf("%d are kept, and %d wait", kept, s.UnansweredCount(Upstream, ToServer))
	}
	s.tellAllUnanswered(Upstream, nil)
	if l.n.Load() != 1000 {
		t.Errorf("told of %d", l.n.Load())
	}
}

// A request that somebody was told of waits no more when it is answered, also if nobody watches then.
func TestAnsweredUnwatched(t *testing.T) {
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"ping"}`))
	if err != nil {
		t.Fatal(err)
	}
	var o Observer
	s := o.OpenUnannounced("x", "")
	up, down := s.Conn(&broken{answer: jsonrpc.NewResult(id(t, "7"), []byte("{}"))}, Upstream), s.Conn(&broken{answer: m}, Downstream)
	stop := o.Watch(&lost{})
	_ = down.Receive(t.Context(), takes{})
	s.Conn(sends{}, Upstream).TrySend(m)
	stop()
	if s.UnansweredCount(Downstream, ToServer) != 1 || s.UnansweredCount(Upstream, ToServer) != 1 {
		t.Fatal("the request does not wait at both ends")
	}
	_ = up.Receive(t.Context(), takes{})
	s.Conn(sends{}, Downstream).TrySend(jsonrpc.NewResult(id(t, "7"), []byte("{}")))
	if d, u := s.UnansweredCount(Downstream, ToServer), s.UnansweredCount(Upstream, ToServer); d != 0 || u != 0 {
		t.Errorf("%d and %d requests wait that were answered", d, u)
	}
	if n := s.openRequests.Load(); n != 0 {
		t.Errorf("%d requests are counted", n)
	}
}

// sends is a Conn that takes everything.
type sends struct{ bridge.Conn }

func (sends) TrySend(jsonrpc.Message) bool { return true }

// What is kept of a request does not grow with what it is about.
func TestLongName(t *testing.T) {
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"` + strings.Repeat("u", 100_000) + `"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(new(Observer).subjectOf(&m)); n != maxExcerpt {
		t.Errorf("%d bytes are kept, want %d", n, maxExcerpt)
	}
}

// A secret that would be cut in two is taken out before.
func TestSecretInLongName(t *testing.T) {
	const secret = "canary-8d1f0c55"
	o := &Observer{Redact: func(text string) string { return strings.ReplaceAll(text, secret, "[]") }}
	for params, before := range map[string]string{
		`tools/call","params":{"name":"`:         "",
		`prompts/get","params":{"name":"`:        "",
		`resources/read","params":{"uri":"x:/y?`: "x:/y?",
	} {
		long := strings.Repeat("n", maxExcerpt-len(before)-8)
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"` + params + long + secret + `"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := o.subjectOf(&m), before+long+"[]"; got != want {
			t.Errorf("kept %q, want %q", got, want)
		}
	}
	if got := o.parseImplementation([]byte(`{"name":"` + strings.Repeat("n", maxExcerpt-8) + secret + `"}`)).Name; strings.Contains(got, secret[:3]) {
		t.Errorf("kept %q", got)
	}
}

// Where a long URI is cut, no half of a secret is left.
func TestLongURI(t *testing.T) {
	long := strings.Repeat("s", 2*maxExcerpt)
	for uri, want := range map[string]string{
		"https://user:" + long + "@host/a": "https://",
		"https://host/a/" + long + "/b":    "https://host/a/",
		"https://host/a?b=c&token=" + long: "https://host/a?b=c&",
		"https://host/a?token=short":       "https://host/a?token=short",
	} {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"` + uri + `"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := new(Observer).subjectOf(&m); got != want {
			t.Errorf("kept %q, want %q", got, want)
		}
	}
}

// An answer to nothing costs no look at all requests that wait.
func BenchmarkStray(b *testing.B) {
	var all openCalls
	for i := range maxOpenCalls {
		all.add(&Call{ID: jsonrpc.IntID(int64(i))})
	}
	stray := id(b, "1000000")
	b.ReportAllocs()
	for b.Loop() {
		all.findByID(stray)
	}
}

// several is a Conn with several streams.
type several struct{ broken }

func (*several) TrySend(jsonrpc.Message) bool { return true }

func (*several) StreamOf(m *jsonrpc.Message, toClient bool) string {
	return m.Method() + map[bool]string{true: " out", false: " in"}[toClient]
}

// streamsTold lists on which streams messages have passed.
type streamsTold []string

func (w *streamsTold) Message(p *Passed) { *w = append(*w, p.Stream) }
func (w *streamsTold) Event(Event)       {}

// Watchers are told of the stream of a message at the client's end, where its transport has several.
func TestStreamOfMessage(t *testing.T) {
	var o Observer
	var w streamsTold
	defer o.Watch(&w)()
	s := o.OpenUnannounced("x", "http")
	for _, hop := range []Hop{Downstream, Upstream} {
		c := s.Conn(&several{broken{answer: jsonrpc.NewRequest(id(t, "7"), "ping", nil)}}, hop)
		_ = c.Receive(t.Context(), takes{})
		c.TrySend(jsonrpc.NewNotification("n", nil))
		c.TrySend(jsonrpc.NewResult(id(t, "7"), []byte("{}")))
	}
	if want := []string{"ping in", "n out", " out", "", "", ""}; !slices.Equal(w, want) {
		t.Errorf("the streams are %q, want %q", w, want)
	}
}

// Watchers are told of the stream of a response also if its request came while nobody wanted to know: none watched, or only one that
// needs no streams.
func TestStreamOfEarlierRequest(t *testing.T) {
	for name, begin := range map[string]func(o *Observer) (stop func()){
		"nobody watches":           func(*Observer) func() { return func() {} },
		"one who needs no streams": func(o *Observer) func() { return o.WatchFor(new(streamsTold), Needs{}) },
	} {
		var o Observer
		defer begin(&o)()
		c := o.OpenUnannounced("x", "http").Conn(&several{broken{answer: jsonrpc.NewRequest(id(t, "7"), "ping", nil)}}, Downstream)
		_ = c.Receive(t.Context(), takes{})
		var w streamsTold
		defer o.Watch(&w)()
		c.TrySend(jsonrpc.NewResult(id(t, "7"), []byte("{}")))
		if want := []string{" out"}; !slices.Equal(w, want) {
			t.Errorf("%s: the streams are %q, want %q", name, w, want)
		}
	}
}

// brings is a Conn whose peer says what the test wants.
type brings struct {
	bridge.Conn
	say func(sink bridge.Sink)
}

func (b *brings) Receive(_ context.Context, sink bridge.Sink) error {
	b.say(sink)
	return io.EOF
}

// The bytes of a request are not kept until it is answered, nor after it was cancelled.
func TestOpenCallsKeepNoBytes(t *testing.T) {
	request := func(sink bridge.Sink) weak.Pointer[byte] {
		raw := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x","arguments":{"a":"` + strings.Repeat("a", 1<<16) + `"}}}`)
		m, err := jsonrpc.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		sink.TrySend(m)
		return weak.Make(&raw[0])
	}
	check := func(when string, w weak.Pointer[byte]) {
		runtime.GC()
		if w.Value() != nil {
			t.Errorf("the bytes are kept %s", when)
		}
	}
	var o Observer
	defer o.Watch(&lost{})()
	c := o.OpenUnannounced("x", "").Conn(&brings{say: func(sink bridge.Sink) {
		w := request(sink)
		check("while the request is open", w)
		w = request(sink)
		sink.TrySend(jsonrpc.NewNotification("notifications/cancelled", []byte(`{"requestId":7}`)))
		check("after it was cancelled", w)
	}}, Downstream)
	if err := c.Receive(t.Context(), takes{}); err != io.EOF {
		t.Error(err)
	}
}
