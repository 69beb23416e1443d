package observe_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// numbering is a Rewriter that puts a number into each request, and a Watcher that notes what
// will have no answer.
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
	defer o.Watch(w)()
	defer o.SetRewriter(w)()
	server := &hesitant{}
	c := o.OpenUnannounced("x", "").Conn(server, observe.Up)
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
	w.wants(t, "1<0 up c2s "+numbered("1")+" of ping()", "2<0 up c2s "+x, "unanswered up ping 7", "3<0 up c2s "+numbered("2")+" of ping()", "4<0 up c2s "+x)
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
	c := o.OpenUnannounced("x", "").Conn(server, observe.Up)
	server.answer = func() { bridgetest.Must(t, c.Receive(t.Context(), ignoring{})) }
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"ping"}`))
	bridgetest.Must(t, err)
	bridgetest.Must(t, c.Send(t.Context(), m))
	w.wants(t,
		`1<0 up c2s {"jsonrpc":"2.0","id":7,"method":"ping"} of ping()`,
		`2<0 up s2c {"jsonrpc":"2.0","id":7,"result":{}} of ping()`)
}
