package observe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// numbering is a Sampler that puts a number into each request, wants all, and notes what will have no answer.
type numbering struct {
	listing
	n int
}

func (w *numbering) Rewrite(p *observe.Passed) jsonrpc.Message {
	n, ok := p.Call.Get(w).(int)
	if !ok {
		w.n++
		n = w.n
		p.Call.Set(w, n)
	}
	return p.Message.WithMeta(jsonrpc.NewFragment([]byte(`{"n":` + string(rune('0'+n)) + `}`)))
}

func (w *numbering) Sample(jsonrpc.Message) (sample any, wanted bool) { return nil, true }

func (w *numbering) RewriteUnsampled(m jsonrpc.Message, _ any) jsonrpc.Message { return m }

func (w *numbering) Event(e observe.Event) {
	if e, ok := e.(observe.Unanswered); ok {
		w.add("unanswered %s %s %v", e.Hop, e.Call.Method, e.Call.ID)
	}
}

// hesitant takes nothing at once, and every second Send.
type hesitant struct {
	bridge.Conn
	sent    []string
	refuses bool
}

func (c *hesitant) TrySend(jsonrpc.Message) bool { return false }

func (c *hesitant) Send(_ context.Context, m jsonrpc.Message) error {
	if c.refuses {
		return io.ErrClosedPipe
	}
	c.sent = append(c.sent, string(m.Bytes()))
	return nil
}

func (c *hesitant) Close(error) error { return nil }

// A request that is offered twice is rewritten the same way; the next one is a new one, also
// with the same id.
func TestRewriteOffered(t *testing.T) {
	var o observe.Observer
	w := &numbering{}
	defer o.WatchSamples(w)()
	server := &hesitant{}
	c := o.OpenUnannounced("x", "").Conn(server, observe.Upstream)
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"ping"}`))
	bridgetest.Must(t, err)
	for range 2 {
		for range 2 {
			if c.TrySend(m) {
				t.Fatal("taken")
			}
		}
		bridgetest.Must(t, c.Send(t.Context(), m))
		bridgetest.Must(t, c.Send(t.Context(), jsonrpc.NewNotification("notifications/x", nil)))
	}
	numbered := func(n string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":{"n":` + n + `}}}`
	}
	const x = `{"jsonrpc":"2.0","method":"notifications/x"}`
	if want := []string{numbered("1"), x, numbered("2"), x}; !slices.Equal(server.sent, want) {
		t.Errorf("sent\n%q\nwant\n%q", server.sent, want)
	}
	w.wants(t, "0<0 up c2s "+numbered("1")+" of ping()", "0<0 up c2s "+x, "unanswered up ping 7", "0<0 up c2s "+numbered("2")+" of ping()", "0<0 up c2s "+x)
	server.refuses = true
	if c.Send(t.Context(), m.WithID(jsonrpc.IntID(8))) == nil {
		t.Fatal("sent")
	}
	w.wants(t, "unanswered up ping 8")
	bridgetest.Must(t, c.Close(nil))
	w.wants(t, "unanswered up ping 7")
}

// What was sent names the request that it was made of; what nobody answers is told at
// both ends.
func TestUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		w := &numbering{}
		origins := &origins{}
		defer o.Watch(w)()
		defer o.Watch(origins)()
		client, server, end := serving(t, &o)
		client.Says(initialize)
		server.Says(answer)
		client.Says(call)
		w.lines = nil
		end(errors.New("crashed"))
		// The pump answers the call before it ends; at the server's end nobody does.
		if got := w.lines; !slices.Contains(got, "unanswered up tools/call 7") || slices.Contains(got, "unanswered down tools/call 7") {
			t.Errorf("told\n%q", got)
		}
		if want := []string{"initialize<initialize", "tools/call<tools/call"}; !slices.Equal(origins.all, want) {
			t.Errorf("origins %q", origins.all)
		}
	})
}

type origins struct{ all []string }

func (o *origins) Event(observe.Event) {}

func (o *origins) Message(p *observe.Passed) {
	if p.Origin != nil {
		o.all = append(o.all, p.Call.Method+"<"+p.Origin.Method)
	}
}

// quick is a server that has answered before Send returns.
type quick struct {
	bridge.Conn
	answer func()
}

func (c *quick) Send(context.Context, jsonrpc.Message) error {
	c.answer()
	return nil
}

func (c *quick) Receive(ctx context.Context, sink bridge.Sink) error {
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"result":{}}`))
	if err != nil {
		return err
	}
	return sink.Send(ctx, m)
}

// ignoring takes every message.
type ignoring struct{}

func (ignoring) Send(context.Context, jsonrpc.Message) error { return nil }
func (ignoring) TrySend(jsonrpc.Message) bool                { return true }

// A request is told of before its response, also where that comes while the request is still
// being sent: what was taken out of the one has to be taken out of the other.
func TestRequestIsToldFirst(t *testing.T) {
	var o observe.Observer
	w := &listing{}
	defer o.Watch(w)()
	server := &quick{}
	c := o.OpenUnannounced("x", "").Conn(server, observe.Upstream)
	server.answer = func() { bridgetest.Must(t, c.Receive(t.Context(), ignoring{})) }
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"ping"}`))
	bridgetest.Must(t, err)
	bridgetest.Must(t, c.Send(t.Context(), m))
	w.wants(t,
		`1<0 up c2s {"jsonrpc":"2.0","id":7,"method":"ping"} of ping()`,
		`2<0 up s2c {"jsonrpc":"2.0","id":7,"result":{}} of ping()`)
}

// choosy is a Sampler that wants the requests whose params have "want", and says in each what it has said of it.
type choosy struct{ listing }

func (w *choosy) Sample(m jsonrpc.Message) (sample any, wanted bool) {
	return "sample", m.Lookup("params", "want") != nil
}

func (w *choosy) Rewrite(p *observe.Passed) jsonrpc.Message {
	return p.Message.WithMeta(jsonrpc.NewFragment([]byte(`{"wanted":true}`)))
}

func (w *choosy) RewriteUnsampled(m jsonrpc.Message, sample any) jsonrpc.Message {
	return m.WithMeta(jsonrpc.NewFragment([]byte(`{"said":"` + sample.(string) + `"}`)))
}

// A Sampler is told of the requests that it wants, of their responses, and of what passes meanwhile; all requests are
// rewritten. A Watcher beside it is told of everything. It is known of each request that it waits for its answer.
func TestSampler(t *testing.T) {
	const (
		wanted    = `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"want":1}}`
		unsampled = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
		progress  = `{"jsonrpc":"2.0","method":"notifications/x"}`
		answer1   = `{"jsonrpc":"2.0","id":1,"result":{}}`
		answer2   = `{"jsonrpc":"2.0","id":2,"result":{}}`
		rewritten = `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"wanted":true},"want":1}}`
		said      = `{"jsonrpc":"2.0","id":2,"method":"ping","params":{"_meta":{"said":"sample"}}}`
	)
	both := map[string]*listing{"alone": nil, "watched": {}}
	for name, watcher := range both {
		t.Run(name, func(t *testing.T) {
			var o observe.Observer
			w := &choosy{}
			defer o.WatchSamples(w)()
			if watcher != nil {
				defer o.Watch(watcher)()
			}
			s := o.OpenUnannounced("x", "http")
			client, server := &bringing{}, &bringing{}
			down, up := s.Conn(client, observe.Downstream), s.Conn(server, observe.Upstream)
			bridgetest.Must(t, down.Receive(t.Context(), sendingOn{up}))
			bridgetest.Must(t, up.Receive(t.Context(), sendingOn{down}))
			waits := func(want int) {
				t.Helper()
				for _, hop := range []observe.Hop{observe.Downstream, observe.Upstream} {
					if n := s.UnansweredCount(hop, observe.ToServer); n != want {
						t.Errorf("%d requests wait at %s, want %d", n, hop, want)
					}
				}
			}
			client.says(unsampled)
			waits(1)
			server.says(progress)
			server.says(answer2)
			waits(0)
			if n := len(w.lines); n > 0 && watcher == nil {
				t.Errorf("told of %d messages beside a request that is not wanted", n)
			}
			client.says(wanted)
			client.says(unsampled)
			waits(2)
			server.says(progress)
			server.says(answer2)
			waits(1)
			client.says(unsampled)
			client.says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
			waits(1)
			server.says(answer1)
			waits(0)
			server.says(progress)
			client.says(unsampled)
			bridgetest.Must(t, up.Close(nil))
			if n := s.UnansweredCount(observe.Upstream, observe.ToServer); n != 0 {
				t.Errorf("%d requests wait at the end", n)
			}
			if want := []string{said, rewritten, said, said, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, said}; !slices.Equal(server.sent, want) {
				t.Errorf("sent\n%q\nwant\n%q", server.sent, want)
			}
			var told []string
			for _, line := range w.lines {
				if text := line[strings.Index(line, " ")+1:]; watcher == nil || strings.Contains(text, `"want":1`) {
					told = append(told, text)
				}
			}
			want := []string{"down c2s " + wanted + " of ping()", "up c2s " + rewritten + " of ping()"}
			if watcher == nil {
				cancel := `c2s {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`
				want = append(want, "up s2c "+progress, "down s2c "+progress,
					"down "+cancel, "up "+cancel, "up s2c "+answer1+" of ping()", "down s2c "+answer1+" of ping()")
			} else if n := len(watcher.lines); n != 2*12 {
				t.Errorf("the Watcher is told of %d messages", n)
			}
			if !slices.Equal(told, want) {
				t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// bringing is a Conn whose messages are said by the test.
type bringing struct {
	bridge.Conn
	sink bridge.Sink
	sent []string
	full bool // it takes nothing at once
}

func (c *bringing) Receive(_ context.Context, sink bridge.Sink) error { c.sink = sink; return nil }
func (c *bringing) Close(error) error                                 { return nil }
func (c *bringing) TrySend(m jsonrpc.Message) bool {
	return !c.full && c.Send(context.Background(), m) == nil
}
func (c *bringing) Send(_ context.Context, m jsonrpc.Message) error {
	c.sent = append(c.sent, string(m.Bytes()))
	return nil
}

// says brings a message, as often as it is not taken.
func (c *bringing) says(text string) {
	if m := bridgetest.Parse(text); !c.sink.TrySend(m) {
		_ = c.sink.Send(context.Background(), m)
	}
}

// sendingOn is a Sink that sends what it gets to a Conn.
type sendingOn struct{ to bridge.Conn }

func (s sendingOn) TrySend(m jsonrpc.Message) bool { return s.to.TrySend(m) }
func (s sendingOn) Send(ctx context.Context, m jsonrpc.Message) error {
	return s.to.Send(ctx, m)
}

// What is not taken at once is asked about and counted once, and sent as it was offered.
func TestUnsampledOffered(t *testing.T) {
	var o observe.Observer
	w := &counting{}
	defer o.WatchSamples(w)()
	s := o.OpenUnannounced("x", "http")
	client, server := &bringing{full: true}, &bringing{full: true}
	down, up := s.Conn(client, observe.Downstream), s.Conn(server, observe.Upstream)
	bridgetest.Must(t, down.Receive(t.Context(), sendingOn{up}))
	bridgetest.Must(t, up.Receive(t.Context(), sendingOn{down}))
	for id := range 3 {
		client.says(`{"jsonrpc":"2.0","id":` + string(rune('0'+id)) + `,"method":"ping"}`)
		if d, u := s.UnansweredCount(observe.Downstream, observe.ToServer), s.UnansweredCount(observe.Upstream, observe.ToServer); d != 1 || u != 1 {
			t.Errorf("%d and %d requests wait", d, u)
		}
		server.says(`{"jsonrpc":"2.0","id":` + string(rune('0'+id)) + `,"result":{}}`)
		if d, u := s.UnansweredCount(observe.Downstream, observe.ToServer), s.UnansweredCount(observe.Upstream, observe.ToServer); d != 0 || u != 0 {
			t.Errorf("%d and %d requests wait at the end", d, u)
		}
	}
	if w.asked != 3 || len(server.sent) != 3 || len(client.sent) != 3 {
		t.Errorf("asked %d times, %d and %d sent", w.asked, len(server.sent), len(client.sent))
	}
}

// A request that is not wanted waits no more when it is cancelled, and its late answer is not that of another one. That one
// request waits is said only where it is sure.
func TestUnsampledCancelled(t *testing.T) {
	var o observe.Observer
	defer o.WatchSamples(&choosy{})()
	s := o.OpenUnannounced("x", "http")
	client, server := &bringing{}, &bringing{}
	down, up := s.Conn(client, observe.Downstream), s.Conn(server, observe.Upstream)
	bridgetest.Must(t, down.Receive(t.Context(), sendingOn{up}))
	bridgetest.Must(t, up.Receive(t.Context(), sendingOn{down}))
	waits := func(when string, want int, one bool) {
		t.Helper()
		for _, hop := range []observe.Hop{observe.Downstream, observe.Upstream} {
			if n, is := s.UnansweredCount(hop, observe.ToServer), s.WaitsForOne(hop, observe.ToServer); n != want || is != one {
				t.Errorf("%s: %d requests wait at %s, want %d; one: %t", when, n, hop, want, is)
			}
		}
	}
	asks := func(id int) { client.says(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, id)) }
	cancels := func(id int) {
		client.says(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
	}
	answers := func(id string) { server.says(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`) }
	client.says(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"want":1}}`)
	waits("a wanted one", 1, true)
	asks(2)
	asks(3)
	waits("and two others", 3, false)
	cancels(2)
	cancels(2)
	waits("one is cancelled", 2, false)
	answers("2.0")
	waits("its answer comes", 2, false)
	answers("3")
	waits("the other is answered", 1, true)
	asks(4)
	asks(5)
	answers("4")
	cancels(4)
	if s.WaitsForOne(observe.Downstream, observe.ToServer) {
		t.Error("one of two waits, since another was cancelled after its answer")
	}
	answers("5")
	waits("all but one are answered", 1, true)
	asks(6)
	waits("and one more", 2, false)
	answers("6")
	for id := range 100 {
		asks(10 + id)
		cancels(10 + id)
		waits("cancelled, and never answered", 1, false)
	}
	answers("1")
	waits("none is left", 0, false)
}

// counting is a Sampler that counts how often it is asked, and wants nothing.
type counting struct {
	choosy
	asked int
}

func (w *counting) Sample(jsonrpc.Message) (sample any, wanted bool) {
	w.asked++
	return "sample", false
}
