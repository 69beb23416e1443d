package observe

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// numbered lists the messages by their numbers. It gives one without a number the next one, as trace.Recorder does.
type numbered struct {
	o   *Observer
	all []string
}

func (w *numbered) Message(p *Passed) {
	seq := p.Seq
	if seq == 0 {
		seq = w.o.NextSeq()
	}
	w.all = append(w.all, fmt.Sprint(seq, " ", p.Message.Kind() == jsonrpc.Request))
}
func (w *numbered) Event(Event) {}

// answered is a Conn that has the answer to a request before Send returns; it does first what the test wants.
type answered struct {
	bridge.Conn
	first, then func()
}

func (a *answered) Send(context.Context, jsonrpc.Message) error {
	a.first()
	a.then()
	return nil
}
func (a *answered) Receive(_ context.Context, sink bridge.Sink) error {
	sink.TrySend(jsonrpc.NewResult(jsonrpc.IntID(1), []byte("{}")))
	return io.EOF
}

// A request that was on its way when the first Watcher came that needs numbers has a lower number than its response.
func TestNumberOfRequestOnItsWay(t *testing.T) {
	var o Observer
	defer o.WatchFor(&lost{}, Needs{})()
	w := &numbered{o: &o}
	inner := &answered{first: func() { o.Watch(w) }}
	c := o.OpenSession("x", "http").Conn(inner, Upstream)
	inner.then = func() { _ = c.Receive(t.Context(), takes{}) }
	if err := c.Send(t.Context(), jsonrpc.NewRequest(jsonrpc.IntID(1), "ping", nil)); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(w.all); !slices.Equal(w.all, []string{"1 true", "2 false"}) {
		t.Errorf("by their numbers, is it the request: %q", w.all)
	}
}
