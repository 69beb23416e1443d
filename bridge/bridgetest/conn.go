// Package bridgetest holds the contract that every bridge.Conn keeps, as a
// test suite, and checks that a package's tests leave nothing behind. It is
// for tests only.
package bridgetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc/burst"
)

// A PairFunc makes two Conns of which each is the other's peer, ready for
// notifications in both directions: a transport that opens with an exchange
// (an initialize request) has it behind it. stop is called after a and b were
// closed and ends all else that was started; it may be nil.
type PairFunc func(t *testing.T) (a, b bridge.Conn, stop func())

// Options name what a transport cannot do by its nature, at the Conn "a" or the Conn "b" of a pair. The zero value
// means the whole contract; each field set needs its reason at the call.
type Options struct {
	// NoEOFAt: the Conn "a" or "b" is not told when its peer closes the conversation (an HTTP client finds out at its
	// next request). "": both are told.
	NoEOFAt string

	// GoneAt: the Receive of the Conn "a" or "b" ends with another error than io.EOF when its peer has closed, because
	// the peer cannot be sent to any more (a session that its client has deleted).
	GoneAt string

	// LateSendsAt: the Conn "a" or "b" may still take messages to send after its peer has closed (an HTTP session
	// keeps them for a client that comes back).
	LateSendsAt string

	// CloseAbortsAt: the Conn "a" or "b" gives up, when it is closed, messages that it was sent before and that the
	// peer has not received yet.
	CloseAbortsAt string

	// InBubble says that the pair does no I/O of the system. Each part then runs in a bubble of testing/synctest,
	// whose time does not pass while anybody can go on.
	InBubble bool
}

// Limits of the suite.
const (
	callTimeout       = 30 * time.Second      // a call that takes longer counts as hanging
	orderMessages     = 300                   // how many messages testOrder sends each way
	senderCount       = 8                     // how many goroutines send in testConcurrentSend
	messagesPerSender = 50                    // how many messages each goroutine sends in testConcurrentSend
	bigMessageSize    = 1 << 20               // how many bytes testBig's message is padded with
	fillMessageSize   = 64 << 10              // how many bytes fill's messages are padded with
	fillLimit         = 32 << 20              // how many bytes fill sends at most: a transport that takes them without waiting queues without bound
	stallTime         = 10 * time.Millisecond // a call that has not returned after this time counts as waiting
)

// contractTest tests one part of the contract of bridge.Conn.
type contractTest struct {
	name string                      // the name of the part, for the subtest
	test func(t *testing.T, p *pair) // tests the Conn p.self, whose peer is p.peer
}

// contractTests are all parts of the contract.
var contractTests = []contractTest{
	{"order", testOrder},
	{"big message", testBig},
	{"Burst", testBurst},
	{"concurrent Send", testConcurrentSend},
	{"ctx ends Receive", testReceiveContext},
	{"ctx ends Send", testSendContext},
	{"ctx already done", testDoneContext},
	{"Close unblocks Receive", testCloseUnblocksReceive},
	{"Close unblocks Send", testCloseUnblocksSend},
	{"Close is idempotent and concurrent", testCloseTwice},
	{"EOF after the peer's Close", testEOF},
	{"what was sent before Close arrives", testSentBeforeClose},
	{"calls after Close fail", testAfterClose},
	{"Send to a closed peer fails", testSendAfterPeerClosed},
	{"what is refused comes again", testRefused},
	{"ctx of the Sink's Send ends with that of Receive", testSinkContext},
	{"Close ends the Sink's Send", testCloseEndsSink},
	{"Close in the Sink", testCloseInSink},
}

// TestConn runs the contract of bridge.Conn against what newPair makes: each part twice,
// on a pair of its own, so that both sides are put to the test. What wraps a Conn is
// asked all that the Conn is.
func TestConn(t *testing.T, newPair PairFunc, opts Options) {
	for _, c := range contractTests {
		for _, name := range []string{"a", "b"} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				if opts.InBubble {
					synctest.Test(t, func(t *testing.T) { runContractTest(t, c, name, newPair, opts) })
				} else {
					runContractTest(t, c, name, newPair, opts)
				}
			})
		}
	}
}

// runContractTest makes a pair and tests one part of the contract with one of its Conns, "a" or "b".
func runContractTest(t *testing.T, c contractTest, name string, newPair PairFunc, opts Options) {
	before := goroutines()
	p := &pair{name: name, peerName: "b", opts: opts}
	a, b, stop := newPair(t)
	p.self, p.peer = newCountingEnd(t, a), newCountingEnd(t, b)
	if name == "b" {
		p.self, p.peer, p.peerName = p.peer, p.self, "a"
	}
	t.Cleanup(func() {
		p.close(t)
		if stop != nil {
			stop()
		}
		if left := settleGoroutines(before); left != "" && !t.Failed() {
			t.Errorf("goroutines left after Close:\n%s", left)
		}
	})
	c.test(t, p)
}

// countingEnd is one Conn of a pair. Its send uses TrySend where that works; its Recv refuses every third message in
// TrySend, so that it has to be taken by Send. It fails the test if the Conn calls a Sink wrongly.
type countingEnd struct {
	bridge.Conn
	t       *testing.T // the test, which fails if the Conn calls a Sink wrongly
	offered int        // how many messages Recv was offered by TrySend
}

// newCountingEnd makes a countingEnd of c.
func newCountingEnd(t *testing.T, c bridge.Conn) *countingEnd { return &countingEnd{Conn: c, t: t} }

// send sends a message, without waiting (TrySend) if that can be.
func (s *countingEnd) send(ctx context.Context, m jsonrpc.Message) error {
	if ctx.Err() == nil && s.TrySend(m) {
		return nil
	}
	return s.Send(ctx, m)
}

// end closes the Conn, without a reason.
func (s *countingEnd) end() { _ = s.Conn.Close(nil) }

// Receive receives from the Conn into sink; the test fails if the Conn calls sink wrongly.
func (s *countingEnd) Receive(ctx context.Context, sink bridge.Sink) error {
	w := &watchedSink{Sink: sink, t: s.t}
	err := s.Conn.Receive(ctx, w)
	if !w.calls.TryLock() { // and stays so
		s.t.Errorf("the Sink is being called when Receive has returned")
	}
	if err == nil {
		s.t.Errorf("Receive = nil")
	}
	return err
}

// watchedSink is a Sink that checks how a Conn calls it. The test fails if two calls overlap, or
// if one comes after Receive has returned.
type watchedSink struct {
	bridge.Sink
	t     *testing.T // the test, which fails if the Sink is called wrongly
	calls sync.Mutex // held during each call of the Sink; countingEnd.Receive locks it for ever when the Conn's Receive has returned, so that a later call fails the test
}

// TrySend implements bridge.Sink: it passes the message on. The test fails if another call goes on, or Receive has
// returned.
func (w *watchedSink) TrySend(m jsonrpc.Message) bool {
	if !w.calls.TryLock() {
		w.t.Errorf("two calls of a Sink at a time, or one after the end of Receive")
		return false
	}
	defer w.calls.Unlock()
	return w.Sink.TrySend(m)
}

// Send implements bridge.Sink: it passes the message on. The test fails if another call goes on, or Receive has
// returned.
func (w *watchedSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if !w.calls.TryLock() {
		w.t.Errorf("two calls of a Sink at a time, or one after the end of Receive")
		return errEnough
	}
	defer w.calls.Unlock()
	return w.Sink.Send(ctx, m)
}

// Recv receives one message and returns it.
func (s *countingEnd) Recv(ctx context.Context) (jsonrpc.Message, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	one := &reluctantSink{takeOneSink: takeOneSink{stop: stop}, n: &s.offered}
	err := s.Receive(ctx, one)
	if one.took {
		return one.m, nil
	}
	return jsonrpc.Message{}, err
}

// reluctantSink is a Sink that takes one message, but refuses every third that TrySend is offered.
type reluctantSink struct {
	takeOneSink
	n *int // counts what TrySend was offered, over several Sinks
}

// TrySend implements bridge.Sink: it takes the message, but refuses every third.
func (c *reluctantSink) TrySend(m jsonrpc.Message) bool {
	if *c.n++; *c.n%3 == 0 {
		return false
	}
	return c.takeOneSink.TrySend(m)
}

// pair is a Conn that is being tested, and its peer.
type pair struct {
	// self is the Conn that is being tested, peer its peer
	self, peer *countingEnd
	// name is "a" or "b", whichever self is; peerName is that of peer
	name, peerName string
	opts           Options // the Options of TestConn
}

// close closes both Conns. The test fails if that hangs.
func (p *pair) close(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.self.end()
		p.peer.end()
	}()
	select {
	case <-done:
	case <-time.After(callTimeout):
		t.Errorf("Close hangs")
	}
}

// testOrder: messages arrive unchanged and in order, in both directions at a time.
func testOrder(t *testing.T, p *pair) {
	var wg sync.WaitGroup
	stream := func(from, to *countingEnd, name string) {
		wg.Go(func() {
			for i := 0; i < orderMessages && send(t, from, notification(name, i, i%300)); i++ {
			}
		})
		wg.Go(func() {
			for i := 0; i < orderMessages && wantNext(t, to, notification(name, i, i%300)); i++ {
			}
		})
	}
	stream(p.self, p.peer, "there")
	stream(p.peer, p.self, "back")
	wg.Wait()
}

// testBig: a large message arrives unchanged.
func testBig(t *testing.T, p *pair) {
	m := notification("big", 0, bigMessageSize)
	var wg sync.WaitGroup
	wg.Go(func() { send(t, p.self, m) })
	wantNext(t, p.peer, m)
	wg.Wait()
}

// testConcurrentSend: messages that several goroutines send arrive whole, and those of one goroutine in order.
func testConcurrentSend(t *testing.T, p *pair) {
	var messages [senderCount][]jsonrpc.Message
	for s := range messages {
		for i := range messagesPerSender {
			size := 10 * i
			if i%25 == s {
				size = 100_000 // more than lies between the two sides at once
			}
			messages[s] = append(messages[s], notification(fmt.Sprint("sender", s), i, size))
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, mine := range messages {
		wg.Go(func() {
			for i := 0; i < messagesPerSender && send(t, p.self, mine[i]); i++ {
			}
		})
	}
	for range senderCount * messagesPerSender {
		m, ok := recv(t, p.peer)
		if !ok {
			return
		}
		// Each message arrives whole, and those of one sender in order.
		s := slices.IndexFunc(messages[:], func(left []jsonrpc.Message) bool {
			return len(left) > 0 && bytes.Equal(m.Bytes(), left[0].Bytes())
		})
		if s < 0 {
			t.Errorf("received %s, which no sender was to send next", clip(m.Bytes()))
			p.self.end()
			return
		}
		messages[s] = messages[s][1:]
	}
}

// testReceiveContext: the end of its ctx ends a Receive that waits.
func testReceiveContext(t *testing.T, p *pair) {
	ctx, cancel := context.WithCancel(t.Context())
	err := blockThenEnd(t, cancel, func() error { _, err := p.self.Recv(ctx); return err })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Recv returned %v when its ctx ended, want context.Canceled", err)
	}
}

// testSendContext: the end of its ctx ends a Send that waits.
func testSendContext(t *testing.T, p *pair) {
	ctx, cancel := context.WithCancel(t.Context())
	err := fill(t, ctx, p.self, cancel)
	if err != nil && !errors.Is(err, context.Canceled) { // nil: it never waits
		t.Errorf("Send returned %v when its ctx ended, want context.Canceled", err)
	}
}

// testDoneContext: Send and Receive with a ctx that is done fail, and do no harm.
func testDoneContext(t *testing.T, p *pair) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.self.Recv(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Recv = %v, want context.Canceled", err)
	}
	if err := p.self.Send(ctx, notification("refused", 0, 10)); !errors.Is(err, context.Canceled) {
		t.Errorf("Send = %v, want context.Canceled", err)
	}
	// Neither did any harm, and what was refused does not arrive.
	var wg sync.WaitGroup
	wg.Go(func() { send(t, p.self, notification("taken", 1, 10)) })
	wantNext(t, p.peer, notification("taken", 1, 10))
	wg.Wait()
}

// testCloseUnblocksReceive: Close ends a Receive that waits.
func testCloseUnblocksReceive(t *testing.T, p *pair) {
	err := blockThenEnd(t, func() { p.self.end() }, func() error { _, err := p.self.Recv(t.Context()); return err })
	if err == nil {
		t.Errorf("Recv returned a message that nobody sent")
	}
}

// testCloseUnblocksSend: Close ends a Send that waits.
func testCloseUnblocksSend(t *testing.T, p *pair) {
	fill(t, t.Context(), p.self, func() { p.self.end() })
}

// testCloseTwice: Close may be called more than once, and concurrently.
func testCloseTwice(t *testing.T, p *pair) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { p.close(t) })
	}
	wg.Wait()
	p.close(t)
}

// testEOF: Receive ends, each time, when the peer has closed.
func testEOF(t *testing.T, p *pair) {
	if p.opts.NoEOFAt == p.name {
		t.Skip("is not told")
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.peer.end() }) // which may wait for self to take notice
	p.wantEnd(t, p.self, p.name)
	p.wantEnd(t, p.self, p.name)
	wg.Wait()
}

// testSentBeforeClose: what was sent before Close arrives, also of a Burst that goes on, and then the end.
func testSentBeforeClose(t *testing.T, p *pair) {
	if p.opts.CloseAbortsAt == p.name {
		t.Skip("aborts")
	}
	const n = 10
	var wg sync.WaitGroup
	wg.Go(func() {
		defer p.self.end()
		var b burst.Burst
		b.Begin()
		for i := range n {
			m := notification("early", i, 100)
			if !p.self.TrySend(m.WithBurst(&b)) && !send(t, p.self, m) {
				return
			}
		}
	})
	for i := range n {
		wantNext(t, p.peer, notification("early", i, 100))
	}
	if p.opts.NoEOFAt != p.peerName {
		p.wantEnd(t, p.peer, p.peerName)
	}
	wg.Wait()
}

// testAfterClose: Send and Receive fail after Close.
func testAfterClose(t *testing.T, p *pair) {
	p.close(t)
	if err := p.self.Send(t.Context(), notification("late", 0, 10)); err == nil {
		t.Errorf("Send after Close gave no error")
	}
	if m, err := p.self.Recv(t.Context()); err == nil {
		t.Errorf("Recv after Close gave %s", clip(m.Bytes()))
	}
}

// testSendAfterPeerClosed: Send fails, and does not wait, once the peer has closed.
func testSendAfterPeerClosed(t *testing.T, p *pair) {
	if p.opts.LateSendsAt == p.name {
		t.Skip("accepts late messages")
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.peer.end() })
	if p.opts.NoEOFAt != p.name {
		p.wantEnd(t, p.self, p.name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	var err error
	for i := 0; i < 10_000 && err == nil; i++ { // the first ones may lie in a buffer of the system
		err = p.self.Send(ctx, notification("late", i, 1000))
	}
	if err == nil || ctx.Err() != nil {
		t.Errorf("Send to a peer that has closed = %v, want an error at once", err)
	}
	wg.Wait()
}

// runAndEnd calls f in a goroutine, and end meanwhile, and returns the error of f. The test fails if f does not
// return.
func runAndEnd(t *testing.T, f func() error, end func()) error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- f() }()
	end()
	select {
	case err := <-result:
		return err
	case <-time.After(callTimeout):
		t.Errorf("still waits")
		return nil
	}
}

// fill sends messages with c until a Send waits, then calls end, and returns the error of that Send; nil if the
// transport took everything without waiting.
func fill(t *testing.T, ctx context.Context, c *countingEnd, end func()) error {
	t.Helper()
	sent := make(chan struct{}, fillLimit/fillMessageSize)
	result := make(chan error, 1)
	go func() {
		for i := range cap(sent) {
			if err := c.send(ctx, notification("fill", i, fillMessageSize)); err != nil {
				result <- err
				return
			}
			sent <- struct{}{}
		}
		result <- nil
	}()
	for {
		select {
		case <-sent:
			continue
		case err := <-result:
			end()
			return err
		case <-time.After(stallTime):
		}
		break
	}
	end()
	select {
	case err := <-result:
		return err
	case <-time.After(callTimeout):
		t.Errorf("Send still waits")
		return nil
	}
}

// blockThenEnd calls f, which has to wait, then end, and returns the error of f. The test fails if f does not wait, or
// does not return after end.
func blockThenEnd(t *testing.T, end func(), f func() error) error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- f() }()
	select {
	case err := <-result:
		t.Errorf("did not wait: %v", err)
		end()
		return err
	case <-time.After(stallTime):
	}
	end()
	select {
	case err := <-result:
		return err
	case <-time.After(callTimeout):
		t.Errorf("still waits")
		return nil
	}
}

// notification makes a notification that differs from all with other arguments, and that a transport which decodes and
// encodes would change. from and n tell it from others; pad is how many bytes it is filled up with.
func notification(from string, n, pad int) jsonrpc.Message {
	// Text that a transport that decodes and encodes again would change.
	const odd = `"n":9007199254740993,"f":1.0,"e":1e400,"s":"\u00e9\/\n\u2028 \ud83d\ude00 ` + "\u200d" + ` ","k":{"b":1,"a":2}`
	params := fmt.Sprintf(`{"from":%q,"i":%d,%s,"pad":"%s"}`, from, n, odd, strings.Repeat("é", pad/2))
	return jsonrpc.NewNotification("notifications/message", []byte(params))
}

// send sends m with c; false: that has failed, and so has the test.
func send(t *testing.T, c *countingEnd, m jsonrpc.Message) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	if err := c.send(ctx, m); err != nil {
		t.Errorf("Send: %v", err)
		return false
	}
	return true
}

// recv receives a message from c; false: that has failed, and so has the test.
func recv(t *testing.T, c *countingEnd) (jsonrpc.Message, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	m, err := c.Recv(ctx)
	if err != nil {
		t.Errorf("Recv: %v", err)
		return m, false
	}
	return m, true
}

// wantNext receives a message from c, which has to be m; false: it is not, and the test has failed.
func wantNext(t *testing.T, c *countingEnd, m jsonrpc.Message) bool {
	t.Helper()
	got, ok := recv(t, c)
	if ok && !bytes.Equal(got.Bytes(), m.Bytes()) {
		t.Errorf("received %s, want %s", clip(got.Bytes()), clip(m.Bytes()))
		return false
	}
	return ok
}

// wantEnd receives from c, whose name ("a" or "b") is name: the test fails unless that says that the peer has closed.
func (p *pair) wantEnd(t *testing.T, c *countingEnd, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	m, err := c.Recv(ctx)
	switch {
	case p.opts.GoneAt == name && err != nil && err != io.EOF && ctx.Err() == nil:
	case p.opts.GoneAt != name && err == io.EOF:
	default:
		t.Errorf("Recv = %s, %v; want the end of the conversation", clip(m.Bytes()), err)
	}
}

// clip returns b in quotes, cut if it is long, for an error.
func clip(b []byte) string {
	if len(b) > 100 {
		return fmt.Sprintf("%q... (%d bytes)", b[:100], len(b))
	}
	return fmt.Sprintf("%q", b)
}
