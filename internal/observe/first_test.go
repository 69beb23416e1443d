package observe_test

import (
	"context"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A message that one Receive has looked at, and the next one takes, is told once.
func TestFirst(t *testing.T) {
	var o observe.Observer
	l := &listing{}
	o.Watch(l)
	a, b := bridge.Pipe()
	defer a.Close(nil)
	c := o.OpenSession("files", "stdio").Conn(b, observe.Downstream)
	m, err := jsonrpc.Parse([]byte(call))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Send(t.Context(), m) }()
	first, err := bridge.First(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var got jsonrpc.Message
	_ = c.Receive(ctx, bridgetest.SinkFunc(func(_ context.Context, m jsonrpc.Message) error {
		got = m
		cancel()
		return nil
	}))
	bridgetest.Must(t, <-done)
	if got.Mark() == nil || got.Mark() != first.Mark() {
		t.Errorf("marks %v and %v", got.Mark(), first.Mark())
	}
	l.wants(t, "1<0 down c2s "+call+" of tools/call(add)")
}

// passing is a Conn whose peer answers before TrySend returns.
type passing struct {
	bridge.Conn
	sink   bridge.Sink
	answer jsonrpc.Message
}

func (p *passing) Receive(_ context.Context, sink bridge.Sink) error {
	p.sink = sink
	return nil
}

func (p *passing) TrySend(jsonrpc.Message) bool { return p.sink.TrySend(p.answer) }

// A response has a higher number than its request, however quick it is.
func TestOrder(t *testing.T) {
	var o observe.Observer
	seqs := &numbers{}
	o.Watch(seqs)
	p := &passing{answer: jsonrpc.NewResult(jsonrpc.IntID(7), nil)}
	c := o.OpenSession("files", "stdio").Conn(p, observe.Upstream)
	_ = c.Receive(t.Context(), taking{})
	if !c.TrySend(jsonrpc.NewRequest(jsonrpc.IntID(7), "ping", nil)) {
		t.Fatal("not taken")
	}
	if seqs.response <= seqs.request || seqs.request == 0 {
		t.Errorf("request %d, response %d", seqs.request, seqs.response)
	}
}

type taking struct{}

func (taking) TrySend(jsonrpc.Message) bool                { return true }
func (taking) Send(context.Context, jsonrpc.Message) error { return nil }

type numbers struct{ request, response uint64 }

func (n *numbers) Message(p *observe.Passed) {
	if p.Message.Kind() == jsonrpc.Request {
		n.request = p.Seq
	} else {
		n.response = p.Seq
	}
}

func (n *numbers) Event(observe.Event) {}
