package ws

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc/burst"
)

// burstSink is a Sink that keeps each message of a Burst back, and notes what it is called with.
type burstSink struct {
	mu    sync.Mutex
	calls []string
	done  chan []string // gets calls when the message "last" was sent, or is to be written
}

func (s *burstSink) TrySend(m jsonrpc.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Burst().Keep(s) {
		s.calls = append(s.calls, "kept "+m.Method())
		return true
	}
	s.calls = append(s.calls, "sent "+m.Method())
	s.tellDone()
	return true
}

func (s *burstSink) Send(_ context.Context, m jsonrpc.Message) error {
	s.TrySend(m)
	return nil
}

func (s *burstSink) WriteKept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, "written")
	s.tellDone()
}

func (s *burstSink) tellDone() {
	if slices.Contains(s.calls, "sent last") || slices.Contains(s.calls, "kept last") {
		s.done <- s.calls
		s.calls = nil
	}
}

// Messages that were read together are handed on as a Burst, which ends before the next read, and before a client is told that
// something is wrong.
func TestReceiveBurst(t *testing.T) {
	for input, want := range map[string][]string{
		"a b last":   {"kept a", "kept b", "kept last", "written"},
		"a last":     {"kept a", "kept last", "written"},
		"a bad last": {"kept a", "written", "sent last"},
	} {
		var together []byte
		for name := range strings.FieldsSeq(input) {
			text := `{"jsonrpc":"2.0","method":"` + name + `"}`
			if name == "bad" {
				text = `{"jsonrpc":"2.0","id":1,"method":7}`
			}
			together = append(together, frame(fin|opText, []byte(text))...)
		}
		sink := &burstSink{done: make(chan []string, 1)}
		s := &site{answer: func(ctx context.Context, c bridge.Conn) error { return c.Receive(ctx, sink) }}
		s.start(t, HandlerOptions{})
		c := s.dialRaw(t, nil)
		// The Burst is over where Receive is not ready yet, so that its goroutine hands the messages on later.
		for tries := 0; ; tries++ {
			c.write(together)
			got := <-sink.done
			if slices.Equal(got, want) {
				break
			}
			if tries == 100 {
				t.Errorf("%s: the Sink was called so: %q, want %q", input, got, want)
				break
			}
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
		w.noteMessage(size, true)
		if w.burst.Going() {
			t.Errorf("a message of %d bytes that comes alone has a Burst", size)
		}
	}
}

// The library's close handshake reads in another goroutine than readLoop, which may still be at work.
func TestReadElsewhere(t *testing.T) {
	w := newWire(pipeEnd{strings.NewReader(strings.Repeat("x", 1000))}, 0)
	var reader sync.WaitGroup
	reader.Go(func() {
		for err := error(nil); err == nil; {
			_, err = w.Read(make([]byte, 10))
		}
	})
	for range 100 {
		w.noteMessage(1, true)
	}
	reader.Wait()
	if w.noteMessage(1, true); w.burst.Going() {
		t.Error("a message follows although nothing more was read")
	}
}

// A pong is written by the goroutine that reads, and may wait for the client to take it. Other messages are not.
func TestBurstEndsBeforePong(t *testing.T) {
	w := newWire(pipeEnd{strings.NewReader("")}, 0)
	w.burst.Begin()
	w.cork(10)
	if _, err := w.Write([]byte("message")); err != nil || !w.burst.Going() {
		t.Errorf("the Burst has ended with a message that gathers only: %v", err)
	}
	bridgetest.Must(t, w.flush())
	w.burst.Begin()
	if _, err := w.Write([]byte("pong")); err != nil || w.burst.Going() {
		t.Errorf("the Burst goes on while a pong is written: %v", err)
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
