package ws

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/burst"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// burstSink is a Sink that keeps each message of a Burst back, and notes what it is called with.
type burstSink struct {
	calls   []string
	written chan []string // gets calls when what is kept back is to be written
}

func (s *burstSink) TrySend(m jsonrpc.Message) bool {
	if m.Burst().Hold(s) {
		s.calls = append(s.calls, "held "+m.Method())
	} else {
		s.calls = append(s.calls, "sent "+m.Method())
	}
	return true
}

func (s *burstSink) Send(_ context.Context, m jsonrpc.Message) error {
	s.TrySend(m)
	return nil
}

func (s *burstSink) WriteHeld() { s.written <- append(s.calls, "written") }

// Messages that were read together are handed on as a Burst, which ends before the next read, and before a client is told that
// something is wrong.
func TestReceiveBurst(t *testing.T) {
	note := func(name string) []byte { return frame(fin|opText, []byte(`{"jsonrpc":"2.0","method":"`+name+`"}`)) }
	for input, want := range map[string][]string{
		"a b c":   {"held a", "held b", "held c", "written"},
		"a c":     {"held a", "held c", "written"},
		"a bad c": {"held a", "written"},
	} {
		sink := &burstSink{written: make(chan []string)}
		s := &site{answer: func(ctx context.Context, c bridge.Conn) error { return c.Receive(ctx, sink) }}
		s.start(t, HandlerOptions{})
		c := s.dialRaw(t, nil)
		var together []byte
		for name := range strings.FieldsSeq(input) {
			if name == "bad" {
				together = append(together, frame(fin|opText, []byte(`{"jsonrpc":"2.0","id":1,"method":7}`))...)
			} else {
				together = append(together, note(name)...)
			}
		}
		c.write(together)
		if got := <-sink.written; !slices.Equal(got, want) {
			t.Errorf("%s: the Sink was called so: %q, want %q", input, got, want)
		}
		c.conn.Close()
		s.h.Close()
	}
}

// A message that comes alone has no Burst: there is nothing to write it together with.
func TestReceiveAlone(t *testing.T) {
	for _, size := range []int{10, 124, 126, 1000, 1 << 16} {
		w := newWire(pipeEnd{strings.NewReader(string(frame(fin|opText, make([]byte, size))))}, 0)
		buf := make([]byte, size+100)
		if _, err := w.Read(buf); err != nil {
			t.Fatal(err)
		}
		w.noteMessage(size)
		if w.burst.Going() {
			t.Errorf("a message of %d bytes that comes alone has a Burst", size)
		}
	}
}

// pipeEnd is a Reader as a connection, to which nothing is written.
type pipeEnd struct{ io.Reader }

func (pipeEnd) Write(p []byte) (int, error) { return len(p), nil }
func (pipeEnd) Close() error                { return nil }

// A Burst ends before the reader waits for room.
func TestBurstEndsBeforeWait(t *testing.T) {
	var b burst.Burst
	in := &inbound{}
	in.MaxMessages = 1
	b.Begin()
	waits := make(chan struct{})
	m := msg(`{"jsonrpc":"2.0","method":"a"}`).WithBurst(&b)
	if err := in.deliver(m, nil, func() { t.Error("waits although there is room") }); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- in.deliver(m, nil, func() { close(waits) }) }()
	<-waits
	in.Abort(nil)
	if err := <-done; err != io.ErrClosedPipe {
		t.Error(err)
	}
}
