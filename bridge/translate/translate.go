package translate

// The locks of a translated Conn, in the order in which one goroutine may take them: the
// Waiter's mu or sinking (whose turn it is to hand messages to the client), turn (to write to
// the server), mu. Only mu guards what the filter knows; it is held across no other lock, no
// wait, and no report of what was dropped.

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/internal/fifo"
	"github.com/mcp-bridge/mcp-bridge/bridge/internal/report"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// readAhead is how many messages for the client wait for Recv before the
	// server has to, and so have those who send.
	readAhead = 16

	// maxUnheard is how many times a server may make the filter say something
	// to it, or a timer may, before it takes any of that. What was held back
	// for it and is let go of at once counts as one.
	maxUnheard = 1000
)

// errDeaf ends a Conn whose server takes nothing and yet goes on asking.
var errDeaf = errors.New("the server does not take what it is sent")

// Wrap returns a Conn to server whose user speaks the other era: f
// rewrites the messages of both directions. It reads the server from the first
// Recv or Feed on. Close closes server and waits for everything that Wrap
// started; it returns server's error.
//
// Send writes in the caller's goroutine. What f wants said to the server when
// nobody sends is written by a goroutine of the Conn's own, so that a server
// which reads nothing until its own output is taken does not stop the reader;
// when too much of it is left waiting, the Conn ends. A Poller is read in the
// goroutine of Recv, and others in that of Feed or else in one of the Conn's own.
//
// When the server ends, Recv returns what f has to say about it, and then the
// error of server's Recv. Send fails then.
//
// dropped is told of each message that f drops, and why; nil: nobody is. It may be
// called concurrently, with no lock of the Conn's held, in the goroutine that has
// brought the message, which it should not hold up.
func Wrap(to bridge.Conn, f era.Filter, dropped func(m jsonrpc.Message, reason string)) bridge.Conn {
	server := bridge.Pull(to)
	t := &translated{
		server: server, try: bridge.TrySender(server), filter: f, done: make(chan struct{}),
		room: make(chan struct{}, 1), turn: make(chan struct{}, 1), unsent: make(chan struct{}, 1),
	}
	t.mu.Dropped = dropped
	t.waiter = bridge.NewWaiter(t.poll)
	t.due.Do, t.broken.Do = t.tick, t.giveUp
	t.reading, t.stopReading = context.WithCancel(context.Background())
	if p, ok := server.(bridge.Poller); ok {
		t.queue = p
		p.Wake(t.waiter)
	}
	t.mu.Lock()
	f.Start(time.Now(), &t.out)
	t.collect(nil)
	t.mu.Unlock()
	t.wg.Go(t.write)
	return bridge.Push(t)
}

type translated struct {
	server bridge.PullConn
	try    func(jsonrpc.Message) bool // of server; nil: it has none
	queue  bridge.Poller              // server, if it is one
	waiter *bridge.Waiter             // is told when something was put into toClient, or queue has something
	room   chan struct{}              // holds one element when something was taken from it
	turn   chan struct{}              // holds one element while somebody writes to the server
	unsent chan struct{}              // holds one element when there is something for write
	spare  []jsonrpc.Message          // memory for out.ToServer; whose turn it is has it
	done   chan struct{}              // closed by Close

	reading     context.Context // of the server's Recv; ends with the Conn
	stopReading context.CancelFunc
	sinking     sync.Mutex // held while bridge.Feed's sink is called

	mu       report.Mutex // held while the filter works, never while anything waits
	filter   era.Filter
	out      era.Out
	toClient fifo.Queue[jsonrpc.Message]
	toServer fifo.Queue[outgoing]
	unheard  int   // how many of toServer are the last of something
	ended    error // why nothing more comes from the server; nil: it may
	closed   bool
	begun    bool            // the server is being read by read, or bridge.Feed
	due      lazytimer.Timer // calls tick
	broken   lazytimer.Timer // ends the Conn when the server takes nothing
	why      error           // why broken is set

	wg       sync.WaitGroup // read or hand, and write
	closing  sync.Once
	closeErr error
}

// outgoing is one message for the server, with the Send that waits for it; nil
// if none does.
type outgoing struct {
	m      jsonrpc.Message
	sender *sender
	last   bool // of all that the filter has said at once, and nobody waits for
}

// sender is one Send.
type sender struct{ err error }

// collect takes over what the filter has put out, in its order, and tells those
// that wait for it. It is called with mu held. s is the Send in whose course it
// was; nil: none.
func (t *translated) collect(s *sender) {
	for _, d := range t.out.Dropped {
		t.mu.Drop(d.Message, d.Reason)
	}
	clear(t.out.Dropped)
	t.out.Dropped = t.out.Dropped[:0]
	if len(t.out.ToClient) > 0 {
		t.collectToClient()
		t.waiter.Signal()
	}
	if len(t.out.ToServer) > 0 {
		for _, m := range t.out.ToServer {
			t.toServer.Push(outgoing{m: m, sender: s})
		}
		clear(t.out.ToServer)
		t.out.ToServer = t.out.ToServer[:0]
		if s == nil {
			t.leaveToWrite(t.toServer.Len())
		}
	}
	if t.ended == nil && !t.closed {
		t.due.Set(t.filter.Due())
	}
}

// collectToClient takes over what is for the client, for who hands it on at
// once. It is called with mu held.
func (t *translated) collectToClient() {
	t.toClient.Push(t.out.ToClient...)
	clear(t.out.ToClient)
	t.out.ToClient = t.out.ToClient[:0]
}

// leaveToWrite says that nobody's Send writes the nth of toServer, and what comes
// before it. It is called with mu held.
func (t *translated) leaveToWrite(n int) {
	t.toServer.Rest()[n-1].last = true
	t.unheard++
	signal(t.unsent)
}

// Feed hands what is for the client to sink, which may wait, in the goroutine
// in which it has come: this one for what the server has said.
func (t *translated) Feed(ctx context.Context, sink func(jsonrpc.Message)) error {
	if t.queue != nil { // which is read by poll only
		for {
			m, err := t.Offer(ctx, nil)
			if err != nil {
				return err
			}
			sink(m)
		}
	}
	t.begin(func() { t.hand(sink) })
	defer context.AfterFunc(ctx, t.stopReading)()
	for t.next() {
		t.deliver(sink)
	}
	t.deliver(sink)
	t.mu.Lock()
	defer t.mu.Unlock()
	return cmp.Or(t.ended, ctx.Err(), io.ErrClosedPipe)
}

// deliver hands on what is for the client, until there is nothing left.
func (t *translated) deliver(sink func(jsonrpc.Message)) {
	t.sinking.Lock()
	defer t.sinking.Unlock()
	for more := true; more; { // what comes meanwhile somebody else looks for
		var m jsonrpc.Message
		var err error
		if m, more, err = t.received(); err != nil {
			return
		}
		sink(m)
	}
}

// hand hands on what the filter says of itself: in the course of a Send, or when
// it is time.
func (t *translated) hand(sink func(jsonrpc.Message)) {
	for {
		select {
		case <-t.waiter.Woken():
			t.deliver(sink)
		case <-t.done:
			return
		}
	}
}

// begin starts what is done while the server is read, once.
func (t *translated) begin(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun && !t.closed {
		t.begun = true
		t.wg.Go(f)
	}
}

// read takes the server's messages until it ends. Close ends it, too.
func (t *translated) read() {
	for t.next() {
		t.mu.Lock()
		full := t.toClient.Len() >= readAhead
		if t.toClient.Len() > 0 {
			t.waiter.Signal()
		}
		t.mu.Unlock()
		if full && t.waitRoom(context.Background()) != nil {
			return
		}
	}
}

// next takes one message of the server, whose messages for the client the
// caller hands on. It is false when there is no more.
func (t *translated) next() bool {
	m, err := t.server.Recv(t.reading)
	return t.take(m, err)
}

// take gives the filter what the server's Recv has returned.
func (t *translated) take(m jsonrpc.Message, err error) (more bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended != nil: // by finish
	case err != nil && t.reading.Err() != nil: // nobody wants to know any more
		return false
	case err != nil:
		t.finish(now, err)
	default:
		t.filter.FromServer(now, m, &t.out)
		t.collectToClient()
		t.collect(nil)
		if t.unheard > maxUnheard {
			t.finish(now, errDeaf)
		}
	}
	return t.ended == nil && !t.closed
}

// finish lets the filter answer what is owed. It is called with mu held.
func (t *translated) finish(now time.Time, err error) {
	t.ended = err
	t.filter.ServerEnded(now, err, &t.out)
	t.out.ToServer = nil
	t.toServer = fifo.Queue[outgoing]{}
	t.collect(nil)
	t.waiter.Signal()
	t.stopReading()
}

// tick lets the filter do what is due.
func (t *translated) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended != nil || t.closed {
		return
	}
	now := time.Now()
	if due := t.filter.Due(); !due.IsZero() && !due.After(now) {
		t.filter.Tick(now, &t.out)
	}
	t.collect(nil)
}

// waitRoom waits until toClient is no longer full, or may not be.
func (t *translated) waitRoom(ctx context.Context) error {
	for {
		t.mu.Lock()
		full := t.toClient.Len() >= readAhead && t.ended == nil
		t.mu.Unlock()
		if !full {
			signal(t.room) // others may wait, too
			return nil
		}
		select {
		case <-t.room:
		case <-ctx.Done():
			return ctx.Err()
		case <-t.done:
			return io.ErrClosedPipe
		}
	}
}

// Recv implements Conn.
func (t *translated) Recv(ctx context.Context) (jsonrpc.Message, error) { return t.Offer(ctx, nil) }

// Offer is what Offer says.
func (t *translated) Offer(ctx context.Context, take bridge.Taker) (jsonrpc.Message, error) {
	if t.queue == nil {
		t.begin(t.read)
	}
	return t.waiter.Offer(ctx, take)
}

// poll returns the next message for the client, if there is one. A server that is
// a Poller is read here.
func (t *translated) poll() (m jsonrpc.Message, err error, ok bool) {
	for {
		if m, _, err = t.received(); err != errNothing {
			return m, err, true
		}
		if t.queue == nil {
			return m, nil, false
		}
		if m, err, ok = t.queue.Poll(); !ok {
			return m, nil, false
		}
		t.take(m, err)
	}
}

var errNothing = errors.New("nothing has come")

// received returns the next message for the client, and whether there are more, or
// why there is none.
func (t *translated) received() (m jsonrpc.Message, more bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return m, false, io.ErrClosedPipe
	case t.toClient.Len() > 0:
		m = t.toClient.Pop()
		n := t.toClient.Len()
		if n == readAhead-1 || n == 0 {
			signal(t.room)
		}
		return m, n > 0, nil
	case t.ended != nil:
		return m, false, t.ended
	}
	return m, false, errNothing
}

// Unwrap returns the server's Conn.
func (t *translated) Unwrap() bridge.PullConn { return t.server }

// Keeps is what Keeps says.
func (t *translated) Keeps() bool { return true }

// Close implements Conn.
func (t *translated) Close() error {
	t.closing.Do(func() {
		t.mu.Lock()
		t.closed = true
		t.mu.Unlock()
		close(t.done)
		t.waiter.Signal()
		t.stopReading()
		t.closeErr = t.server.Close()
		t.wg.Wait()
		t.due.Stop()
		t.broken.Stop()
	})
	return t.closeErr
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
