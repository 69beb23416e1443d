package bridgetest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is the part of the contract that is about what a Sink does.

// testRefused: a message that the Sink refuses is the first of the next Receive, also if
// the ctx of that is done.
func testRefused(t *testing.T, p *pair) {
	const n = 5
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := 0; i < n && send(t, p.peer, notification("given", i, 10)); i++ {
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	for i := range n {
		for range 2 {
			m, err := bridge.First(ctx, p.self)
			if want := notification("given", i, 10); err != nil || !bytes.Equal(m.Bytes(), want.Bytes()) {
				t.Errorf("the first is %s, %v", clip(m.Bytes()), err)
				return
			}
		}
		if i == n-1 {
			var done context.CancelFunc
			ctx, done = context.WithCancel(ctx)
			done()
		}
		got := new(takeOneSink)
		got.stop = func() {}
		if i < n-1 {
			if !wantNext(t, p.self, notification("given", i, 10)) {
				return
			}
			continue
		}
		if err := p.self.Receive(ctx, got); !errors.Is(err, context.Canceled) || !got.took {
			t.Errorf("with a ctx that is done: %v, %s", err, clip(got.m.Bytes()))
		}
	}
}

// blockingSink is a Sink for one message, whose Send waits until its ctx ends and then refuses it.
type blockingSink struct {
	called  chan struct{}   // closed by Send when it is called
	instead func()          // called by Send, which then takes the message, in the place of waiting; nil: Send waits
	m       jsonrpc.Message // the message that Send was called with
}

// TrySend implements bridge.Sink: it takes nothing.
func (s *blockingSink) TrySend(jsonrpc.Message) bool { return false }

// Send implements bridge.Sink: it closes called and waits until its ctx ends, or calls instead.
func (s *blockingSink) Send(ctx context.Context, m jsonrpc.Message) error {
	s.m = m
	close(s.called)
	if s.instead != nil {
		s.instead()
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// testSinkContext: the ctx of the Sink's Send ends with that of Receive, and the message comes again.
func testSinkContext(t *testing.T, p *pair) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { send(t, p.peer, notification("held", 0, 10)) })
	ctx, cancel := context.WithCancel(t.Context())
	s := &blockingSink{called: make(chan struct{})}
	err := runAndEnd(t, func() error { return p.self.Receive(ctx, s) }, func() { <-s.called; cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Receive = %v, want context.Canceled", err)
	}
	wantNext(t, p.self, notification("held", 0, 10))
}

// testCloseEndsSink: Close ends the Sink's Send, and with it Receive.
func testCloseEndsSink(t *testing.T, p *pair) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = p.peer.send(t.Context(), notification("held", 0, 10)) })
	s := &blockingSink{called: make(chan struct{})}
	runAndEnd(t, func() error { return p.self.Receive(t.Context(), s) }, func() { <-s.called; p.close(t) })
}

// testCloseInSink: the Sink's Send may call Close.
func testCloseInSink(t *testing.T, p *pair) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = p.peer.send(t.Context(), notification("last", 0, 10)) })
	s := &blockingSink{called: make(chan struct{})}
	s.instead = func() { p.self.end() }
	runAndEnd(t, func() error { return p.self.Receive(t.Context(), s) }, func() {})
}
