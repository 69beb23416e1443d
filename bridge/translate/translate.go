// Package translate makes the peer of a Conn speak the other era: a Conn around a Conn,
// with an era.Filter between.
//
// # Order
//
// What the filter makes of the messages of one side reaches the other side in the
// order in which the filter has said it. What it says of its own accord, when it is
// time or as an answer to the side that has just spoken, comes after all that it has said
// to that side before.
//
// The locks, in the order in which one goroutine may take them: the turn of the Inbox
// (whoever has it hands messages to the client's side), writeTurn (to write to the server), mu.
// Only mu guards what the filter knows. It is held across no other lock but the Inbox's
// own, no wait, and no report of what was dropped.
package translate

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/internal/report"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// maxReadAhead is how many messages for the client may wait until Receive has handed them on. When there are so
	// many, the server's reader waits, and so do those who send.
	maxReadAhead = 16

	// maxUnsentBatches is how many batches may wait for a server that takes nothing. A batch is
	// what the filter says to it because of one message of the server's, or of one timer; what
	// was held back and is let go of at once is one batch.
	maxUnsentBatches = 1000

	// takeTimeout is for how long the server is not read while maxUnsentBatches wait for it: it may be about to take
	// some. After that the Conn ends.
	takeTimeout = 5 * time.Second
)

// errStalled ends a Conn whose server takes nothing of what it is sent and yet makes the filter say more to it.
var errStalled = errors.New("the server does not take what it is sent")

// Wrap returns a Conn to server whose user speaks the other era: f rewrites the messages of
// both directions. It reads the server while Receive goes on. Close closes server and waits
// for everything that Wrap has started; it returns server's error.
//
// Send writes in the caller's goroutine. What f wants said to the server when
// nobody sends is written by a goroutine of the Conn's own, so that a server
// which reads nothing until its own output is taken does not stop the reader;
// when too much of it is left waiting, and nothing of that taken for some seconds, the Conn ends.
//
// When the server ends, Receive hands on what f has to say about it, and then returns the
// error of server's Receive, in a bridge.UnsentError if the server has not got requests that were taken
// here. Send fails then.
//
// dropped is told of each message that f drops, and why; nil: nobody is. It may be
// called concurrently, with no lock of the Conn's held, in the goroutine that has
// brought the message, which it should not hold up.
func Wrap(server bridge.Conn, f era.Filter, dropped func(m jsonrpc.Message, reason string)) bridge.Conn {
	t := &translatedConn{server: server, filter: f, room: make(chan struct{}, 1), done: make(chan struct{})}
	t.toClient.MaxMessages = math.MaxInt // maxReadAhead bounds it
	t.toServer.init()
	t.mu.Dropped = dropped
	t.filterTimer.Do, t.stallTimer.Do = t.runDue, t.endUnsent
	t.mu.Lock()
	f.Start(time.Now(), &t.lastOut)
	t.collectOutput(nil)
	t.mu.Unlock()
	t.writing.Go(t.runWriter)
	return t
}

// translatedConn is the Conn that Wrap returns.
type translatedConn struct {
	server   bridge.Conn   // the Conn to the server of the other era
	toClient bridge.Inbox  // what the filter says to the client, for Receive
	room     chan struct{} // holds one element when there may be room in toClient again
	toServer outbox        // what the filter says to the server

	mu         report.Mutex       // held while the filter works, never while anything waits; guards the fields up to closed, and toServer (see outbox)
	filter     era.Filter         // translates the messages of both sides
	lastOut    era.Out            // what the filter has just said; empty while nobody holds mu
	stopReader context.CancelFunc // ends the goroutine that reads the server; nil: there was none yet
	receiveErr error              // how Receive ends, because nothing more comes from the server; nil: more may come
	closed     bool               // Close was called

	filterTimer lazytimer.Timer // calls runDue when the filter has something to do (era.Filter.Due)
	stallTimer  lazytimer.Timer // calls endUnsent; set by failUnsent
	stalledErr  error           // why stallTimer is set; under mu

	writing   sync.WaitGroup // waits for runWriter
	done      chan struct{}  // closed by Close
	closeOnce sync.Once      // closes the Conn once, however often Close is called
	closeErr  error          // the error with which the server's Conn was closed
}

// collectOutput moves what the filter has just said into toClient and toServer, and reports what it has dropped. s is
// the Send in whose course it was said; nil: none. It is called with mu held; its caller has the client's side look
// afterwards (Inbox.Wake, Deliver).
func (t *translatedConn) collectOutput(s *pendingSend) {
	for _, d := range t.lastOut.Dropped {
		t.mu.Drop(d.Message, d.Reason)
	}
	clear(t.lastOut.Dropped)
	t.lastOut.Dropped = t.lastOut.Dropped[:0]
	for _, m := range t.lastOut.ToClient {
		t.toClient.Add(m) // which has ended if the Conn is closed
	}
	clear(t.lastOut.ToClient)
	t.lastOut.ToClient = t.lastOut.ToClient[:0]
	t.toServer.add(t.lastOut.ToServer, s)
	clear(t.lastOut.ToServer)
	t.lastOut.ToServer = t.lastOut.ToServer[:0]
	if !t.isOver() {
		t.filterTimer.Set(t.filter.Due())
	}
}

// markSources gives what the filter has just said the mark of the message that has made it say so, so that an observer
// sees what came of that. What has a mark of its own, because it was held back, keeps it. It is called with mu held.
func (t *translatedConn) markSources(mark *jsonrpc.Mark) {
	if mark == nil {
		return
	}
	for _, said := range [][]jsonrpc.Message{t.lastOut.ToServer, t.lastOut.ToClient} {
		for i := range said {
			if said[i].Mark() == nil {
				said[i] = said[i].WithMark(mark)
			}
		}
	}
}

// isOver reports whether the Conn was closed, or finish was called: nothing more is sent or
// received. It is called with mu held.
func (t *translatedConn) isOver() bool { return t.closed || t.receiveErr != nil }

// Receive implements bridge.Conn. While it goes on, another goroutine (read) reads the server and gives the filter
// what comes. That goroutine also hands messages to sink, as long as TrySend of sink takes them. The goroutine of
// Receive hands on the others, and may wait.
func (t *translatedConn) Receive(ctx context.Context, sink bridge.Sink) error {
	reading, stop := context.WithCancel(ctx)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer stop()
	t.mu.Lock()
	if !t.isOver() {
		t.stopReader = stop
		reader.Go(func() { t.read(reading) })
	}
	t.mu.Unlock()
	return t.toClient.Receive(ctx, sink)
}

// read is the goroutine that takes the server's messages, until the server has ended or ctx is done.
func (t *translatedConn) read(ctx context.Context) {
	err := t.server.Receive(ctx, (*fromServerSink)(t))
	if ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOver() {
		t.finish(time.Now(), err)
	}
}

// fromServerSink is a translatedConn as the Sink of what its server sends.
type fromServerSink translatedConn

// Send implements bridge.Sink: it gives the filter a message of the server. Before that it waits while maxReadAhead
// messages, or more, wait for the client (waitRoom), and while too much waits for the server (waitTaken).
func (f *fromServerSink) Send(ctx context.Context, m jsonrpc.Message) error {
	t := (*translatedConn)(f)
	if err := t.waitRoom(ctx); err != nil {
		return err
	}
	if err := t.waitTaken(ctx); err != nil {
		return err
	}
	if !t.handleFromServer(m, true) {
		return io.ErrClosedPipe
	}
	return nil
}

// TrySend implements bridge.Sink: it gives the filter a message of the server, if that need not wait; false: it has
// to.
func (f *fromServerSink) TrySend(m jsonrpc.Message) bool {
	t := (*translatedConn)(f)
	return t.toClient.Waiting().Messages < maxReadAhead && t.handleFromServer(m, false)
}

// handleFromServer gives the filter a message of the server, and hands on what the filter makes of it. It returns
// false, and does nothing, if the Conn is over, or if maxUnsentBatches batches, or more, wait for the server and the
// caller has not waited for that (waited; see waitTaken).
func (t *translatedConn) handleFromServer(m jsonrpc.Message, waited bool) (taken bool) {
	now := time.Now()
	t.mu.Lock()
	if t.isOver() || !waited && t.toServer.unsentBatches() >= maxUnsentBatches {
		t.mu.Unlock()
		return false
	}
	t.filter.FromServer(now, m, &t.lastOut)
	t.markSources(m.Mark())
	says := len(t.lastOut.ToClient) > 0
	t.collectOutput(nil)
	if t.toServer.unsentBatches() > maxUnsentBatches {
		t.finish(now, errStalled)
	}
	t.mu.Unlock()
	if says {
		t.toClient.Deliver()
	}
	return true
}

// finish ends Receive with err, because nothing more comes from the server, after what the filter still has to say to
// the client about that. It is called with mu held.
func (t *translatedConn) finish(now time.Time, err error) {
	t.receiveErr = err
	t.filter.ServerEnded(now, err, t.toServer.takeUnwritten(), &t.lastOut)
	t.lastOut.ToServer = nil
	if t.lastOut.Unsent != nil {
		err = &bridge.UnsentError{Err: err, Requests: t.lastOut.Unsent}
		t.lastOut.Unsent = nil
	}
	t.collectOutput(nil)
	if errors.Is(err, bridge.ErrSlow) { // the client does not read even this
		t.toClient.Abort(err)
	}
	t.toClient.End(err)
	if t.stopReader != nil {
		t.stopReader()
	}
}

// runDue has the filter do what is due now. filterTimer calls it.
func (t *translatedConn) runDue() {
	t.mu.Lock()
	if now := time.Now(); !t.isOver() {
		if due := t.filter.Due(); !due.IsZero() && !due.After(now) { // it was not put off meanwhile
			t.filter.Tick(now, &t.lastOut)
		}
		t.collectOutput(nil)
	}
	t.mu.Unlock()
	t.toClient.Wake()
}

// waitRoom waits until there is room in toClient for what the filter may say. The error is ctx's, or says that the
// Conn was closed.
func (t *translatedConn) waitRoom(ctx context.Context) error {
	waited := false
	for t.toClient.Waiting().Messages >= maxReadAhead {
		t.toClient.NotifyBelow(bridge.Load{Messages: maxReadAhead - 1, Bytes: math.MaxInt}, t.room)
		select {
		case <-t.room:
			waited = true
		case <-ctx.Done():
			return ctx.Err()
		case <-t.done:
			return io.ErrClosedPipe
		}
	}
	if waited {
		signal(t.room) // others may wait, too
	}
	return nil
}

// endStalled ends the Conn, with errStalled, if maxUnsentBatches batches, or more, still wait for the server.
func (t *translatedConn) endStalled() {
	t.mu.Lock()
	over := t.isOver() || t.toServer.unsentBatches() < maxUnsentBatches
	if !over {
		t.finish(time.Now(), errStalled)
	}
	t.mu.Unlock()
	if !over {
		t.toClient.Deliver()
	}
}

// waitTaken waits while maxUnsentBatches batches, or more, wait for the server. If that lasts for takeTimeout, it ends
// the Conn. The error is ctx's, or says that the Conn has ended.
func (t *translatedConn) waitTaken(ctx context.Context) error {
	var due <-chan time.Time
	for t.isBacklogFull() {
		if due == nil {
			timer := time.NewTimer(takeTimeout)
			defer timer.Stop()
			due = timer.C
		}
		select {
		case <-t.toServer.taken:
		case <-due:
			t.endStalled()
			return io.ErrClosedPipe
		case <-ctx.Done():
			return ctx.Err()
		case <-t.done:
			return io.ErrClosedPipe
		}
	}
	return nil
}

// isBacklogFull reports whether maxUnsentBatches batches, or more, wait for the server.
func (t *translatedConn) isBacklogFull() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.toServer.unsentBatches() >= maxUnsentBatches
}

// Close implements bridge.Conn: it closes the server's Conn, once, waits for the goroutine that writes to the server
// (runWriter), and returns the error of closing.
func (t *translatedConn) Close(reason error) error {
	t.closeOnce.Do(func() {
		t.mu.Lock()
		t.closed = true
		t.mu.Unlock()
		close(t.done)
		t.toClient.Abort(io.ErrClosedPipe)
		t.closeErr = t.server.Close(reason)
		t.writing.Wait()
		t.filterTimer.Stop()
		t.stallTimer.Stop()
	})
	return t.closeErr
}

// signal puts an element into c, unless c is full.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
