package mux

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// outQueueLength is how many messages may wait for the writer to the server. When there are more, those who send wait.
const outQueueLength = 16

// maxDirectSize is the size, in bytes, of the largest message that a client may write to the server itself, without
// the writer. No server is sure to take larger ones at once.
const maxDirectSize = 4 << 10

// server is one server of a Mux, while it lives. Two goroutines serve it:
// keepConnected reads, and runWriter writes. A client itself writes only what the server takes
// at once: it could not leave in the middle of a message without cutting it off
// for all.
type server struct {
	mux     *Mux         // the Mux that has this server
	conn    bridge.Conn  // the Conn to the server
	writeMu sync.Mutex   // held by whoever writes to conn
	out     chan outItem // messages that wait for the writer; see queued
	// queued is how many messages are in out or on their way into it and out
	// of it, and at first those in relistenFirst and passedOn. Whoever finds
	// none has sent nothing that is not written.
	queued      atomic.Int64
	allAnswered chan struct{} // closed when the server has ended and all that it owed is answered, or left to the next server

	writing atomic.Pointer[call] // the call that is being written; nil: none is
	end     serverEnd            // how it has ended, once end.isSettled says that it has
	settled chan struct{}        // closed when settle has settled the call that was being written when it ended; nil: none was, or it is settled. Under mux.mu

	relistenFirst []*call           // subscriptions of the last server: the writer sends them before all else
	passedOn      []outItem         // calls that the last server has not taken, or that are sent again (endLost): the writer sends them next
	ownAdded      chan struct{}     // holds one element when something was put into ownMessages
	ownMessages   []jsonrpc.Message // cancellations, and answers to the server's requests, that wait for the writer; under mux.mu
	ownAnswers    int               // how many of ownMessages are answers; under mux.mu
	writeErr      error             // why nothing can be written any more; nil: it can. Under mux.mu

	unsent []unsent // requests that the server did not take; only the writer uses it

	ownWritten chan struct{} // closed when ownMessages are written; nil: awaitCancellations does not wait. Under mux.mu

	delayedAdded   chan struct{}   // holds one element when something was put into delayedListens
	delayedListens []delayedListen // subscriptions that are to be sent to it later; under mux.mu

	// it has answered a request, other than server/discover and subscriptions, with a result that does not ask for input: so it works, and
	// calls go on waiting for the next server if it ends (breaker, passOn); under mux.mu
	answered bool

	hadRequests bool   // one of its requests is over, so lastUser is known; under mux.mu
	lastUser    string // the principal of the request that was the last to be over; under mux.mu

	ackTimer lazytimer.Timer // calls cancelOverdueListens; set while an acknowledgement is awaited

	endAnswers []endAnswer     // answers that are kept until it has ended, or endTimer says that it has not; under mux.mu
	endTimer   lazytimer.Timer // calls releaseEndAnswers; set while answers are kept
}

// serverEnd is how a server has ended.
type serverEnd struct {
	isSettled atomic.Bool // serverEnded has set the fields below, and settles all calls but server.writing; set under mux.mu
	orderly   bool        // it has ended in an orderly way after it had answered (IsOrderly)
	text      string      // the text of the error for calls that it owes
	data      []byte      // the data of that error
}

// unsent is a request that the server did not take, and whose client was not told yet.
type unsent struct {
	outItem                // the request, with its call
	err          error     // the error with which the server did not take it
	tellClientAt time.Time // when its client is told, unless the server ends before, which says better why
}

// keepConnected is the goroutine that dials a server whenever one is wanted and none is up, and reads it until it
// ends, until the Mux is closed.
func (x *Mux) keepConnected() {
	for x.awaitWanted() {
		conn, err := x.opts.Dialer.Dial(x.ctx)
		if err != nil {
			x.failWaiting(err)
			continue
		}
		x.serve(conn)
	}
}

// awaitWanted waits until a server is wanted, by a Send that waits, by calls that are passed on or by open
// subscriptions, and may be dialed. It returns false when the Mux is closed.
func (x *Mux) awaitWanted() bool {
	for {
		x.mu.Lock()
		closed, wait, wanted := x.closed, time.Until(x.serverState.breaker.nextAttempt), x.serverState.waitingSends > 0 || x.isPassingOn()
		if !wanted && x.ledger.listens > 0 {
			wanted = true
			wait = max(wait, time.Until(x.serverState.noListenDialBefore))
		}
		x.mu.Unlock()
		var due <-chan time.Time
		switch {
		case closed:
			return false
		case wanted && wait <= 0:
			return true
		case wanted:
			due = time.After(wait)
		}
		select {
		case <-x.wake:
		case <-due:
		case <-x.ctx.Done():
		}
	}
}

// failWaiting answers all calls that wait for a server with an error, because Dial has returned err, and tells OnNoServer.
// Subscriptions that wait to be opened again stay. Once the Mux is closed it does nothing.
func (x *Mux) failWaiting(err error) {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return
	}
	now := time.Now()
	if errors.Is(err, bridge.ErrBusy) {
		x.serverState.noListenDialBefore = now.Add(x.opts.Backoff)
	} else {
		x.serverState.breaker.recordFailure(now)
	}
	wait := x.serverState.breaker.nextAttempt.Sub(now)
	x.serverState.dialFailures++
	x.serverState.waitingSends = 0 // all of them return
	text, data := ownmsg.Unavailable(err)
	x.failCalls(nil, text, data)
	x.serverState.passedOn = nil // all of them are answered
	x.notifyWaiting()
	x.mu.Unlock()
	if x.opts.OnNoServer != nil {
		x.opts.OnNoServer(err, max(wait, 0))
	}
}

// notifyWaiting has those that wait for a server look again. It is called with mu held.
func (x *Mux) notifyWaiting() {
	close(x.serverState.changed)
	x.serverState.changed = make(chan struct{})
}

// failCalls answers the calls that s has with an error, because it has ended; with a nil s, those that wait for a
// server, with this text and data. Subscriptions of s stay, and so do those that wait to be opened again: the next
// server gets them. It also gets calls that s has not taken (passOn), or that may be sent again (endLost). The call that
// is being written is left to whoever writes it (settle). It is called with mu held.
func (x *Mux) failCalls(s *server, text string, data []byte) {
	for _, call := range x.ledger.calls {
		switch {
		case call.server != s:
		case call.listen != nil && (s != nil || call.listen.reopening):
			call.server, call.written, call.listen.reopening = nil, false, true
		case s != nil && s.writing.Load() == call: // whoever writes it settles it
			s.settled = make(chan struct{})
		case s != nil && !call.written:
			x.passOn(call, s)
		case s != nil:
			x.endLost(call, s)
		default:
			x.finish(call, refusal(call, text, data))
		}
	}
}

// refusal returns the error response with which the bridge answers a call itself.
func refusal(call *call, text string, data []byte) jsonrpc.Message {
	return jsonrpc.NewError(call.id, jsonrpc.CodeInternalError, text, data).WithRelated(call.id)
}

// serve reads a new server until it ends, and closes its Conn. Whoever waits for the server learns of its end before
// that, which may take a while.
func (x *Mux) serve(conn bridge.Conn) {
	s := &server{mux: x, conn: conn, out: make(chan outItem, outQueueLength),
		allAnswered: make(chan struct{}), ownAdded: make(chan struct{}, 1), delayedAdded: make(chan struct{}, 1)}
	s.ackTimer.Do, s.endTimer.Do = s.cancelOverdueListens, s.releaseEndAnswers
	started := time.Now()
	var writer sync.WaitGroup
	if x.setServer(s) {
		writer.Go(s.runWriter)
		x.serverEnded(s, conn.Receive(context.Background(), s), time.Since(started))
	}
	close(s.allAnswered)
	err := conn.Close(nil)
	writer.Wait()
	s.awaitSettled()
	s.ackTimer.Stop()
	s.endTimer.Stop()
	s.discardQueued()
	x.mu.Lock()
	x.closeErr = err
	x.mu.Unlock()
}

// awaitSettled returns when no client writes a call any more that it has to settle: that may pass the call on, and only the start of
// the next server looks for calls that are passed on.
func (s *server) awaitSettled() {
	s.mux.mu.Lock()
	settled := s.settled
	s.mux.mu.Unlock()
	if settled != nil {
		<-settled
	}
}

// discardQueued empties out once the server has ended, and reports notifications as dropped. It does not report calls: they were
// answered, or are passed on to the next server.
func (s *server) discardQueued() {
	for {
		select {
		case it := <-s.out:
			if it.call == nil {
				s.mux.reportDropped(it.m, "the server has ended")
			}
		default:
			return
		}
	}
}

// setServer makes s the server that clients use, and has it get the subscriptions of the last one. It returns false
// when the Mux is closed.
func (x *Mux) setServer(s *server) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return false
	}
	x.serverState.server = s
	for _, call := range x.ledger.calls {
		if call.listen != nil && call.listen.reopening {
			s.relistenFirst = append(s.relistenFirst, call)
		}
	}
	for _, call := range s.relistenFirst {
		x.ledger.assignServerID(call)
		call.server = s
	}
	if time.Now().Before(x.serverState.noListenDialBefore) { // a call has started it, and may be all that it does
		for _, call := range s.relistenFirst {
			s.delayedListens = append(s.delayedListens, delayedListen{call, x.serverState.noListenDialBefore})
		}
		s.relistenFirst = nil
		signal(s.delayedAdded)
	}
	s.passedOn = x.takePassedOn(s)
	s.queued.Store(int64(len(s.relistenFirst) + len(s.passedOn))) // nobody overtakes these
	x.notifyWaiting()
	return true
}

// serverEnded takes away s, which has ended, answers its calls or passes them on (failCalls), and tells OnNoServer;
// before, if the end was not orderly, OnCrash. Once the Mux is closed it does not answer or tell. err is what Receive has
// returned, lived how long the server has lived.
func (x *Mux) serverEnded(s *server, err error, lived time.Duration) {
	x.mu.Lock()
	x.serverState.server = nil
	if unsent, ok := errors.AsType[*bridge.UnsentError](err); ok {
		s.takeBack(unsent.Requests)
		err = unsent.Err
	}
	if s.writeErr != nil {
		err = s.writeErr
	}
	orderly := IsOrderly(err) && s.answered // what it owes came when it was about to go
	var part []string
	if !orderly && !x.closed && x.opts.OnCrash != nil {
		users := s.users()
		x.mu.Unlock()
		part = x.opts.OnCrash(users)
		x.mu.Lock()
	}
	if x.closed {
		x.mu.Unlock()
		return
	}
	now := time.Now()
	switch {
	case orderly:
		x.serverState.noListenDialBefore = now.Add(x.serverState.breaker.recordFinishedWork(now, lived))
	case len(part) == 0:
		x.serverState.breaker.recordEnd(now, lived, s.answered)
	}
	wait := x.serverState.breaker.nextAttempt.Sub(now)
	s.end.text, s.end.data = ownmsg.Ending(err)
	s.end.orderly = orderly
	s.end.isSettled.Store(true)
	s.releaseEndAnswersLocked()
	x.failCalls(s, "", nil)
	x.endConnsOf(part, err)
	x.notifyWaiting()
	x.mu.Unlock()
	if x.opts.OnNoServer != nil {
		x.opts.OnNoServer(err, max(wait, 0))
	}
}

// runWriter is the goroutine that writes to the server what clients do not write themselves, until the server has
// ended.
func (s *server) runWriter() {
	for _, call := range s.relistenFirst {
		s.send(outItem{call: call, m: call.listen.listenRequest})
	}
	for _, it := range s.passedOn {
		s.send(it)
	}
	s.queued.Add(-int64(len(s.relistenFirst) + len(s.passedOn)))
	s.passedOn = nil
	var unsentTimer *time.Timer
	var unsentDue <-chan time.Time
	relistenTimer := time.NewTimer(time.Hour)
	relistenTimer.Stop()
	defer relistenTimer.Stop()
	for {
		if len(s.unsent) > 0 && unsentDue == nil {
			unsentTimer = time.NewTimer(time.Until(s.unsent[0].tellClientAt))
			unsentDue = unsentTimer.C
		}
		select {
		case it := <-s.out:
			s.send(it)
			s.queued.Add(-1)
		case <-s.ownAdded:
			for _, m := range s.takeOwnMessages() {
				s.send(outItem{m: m})
			}
			s.signalOwnWritten()
		case <-unsentDue:
			unsentDue = nil
			s.rejectUnsent()
		case <-s.delayedAdded:
			relistenTimer.Reset(time.Until(s.nextListenDue()))
		case <-relistenTimer.C:
			s.sendDueListens()
			if next := s.nextListenDue(); !next.IsZero() {
				relistenTimer.Reset(time.Until(next))
			}
		case <-s.allAnswered:
			if unsentTimer != nil {
				unsentTimer.Stop()
			}
			return
		}
	}
}

// send writes one message, unless its call is no longer wanted. A request that the server does not take is put into
// unsent. Only the writer calls it.
func (s *server) send(it outItem) {
	var err error
	s.writeMu.Lock()
	m, ok := s.withServerIDs(it.call, it.m)
	if ok {
		err = s.conn.Send(context.Background(), m)
		s.endWrite(it, err == nil)
	}
	s.writeMu.Unlock()
	switch {
	case err == nil:
	case it.call == nil:
		s.mux.reportDropped(m, "the server did not take it")
	case !s.end.isSettled.Load():
		s.unsent = append(s.unsent, unsent{it, err, time.Now().Add(ownmsg.FinalSendTimeout)})
		return
	}
	it.signalDone()
}

// withServerIDs returns the request m of call with the id and the token that the server knows it by (D.2), and notes
// that the server may know of the call. With a nil call it returns m as it is. false: the call is no longer wanted.
func (s *server) withServerIDs(call *call, m jsonrpc.Message) (jsonrpc.Message, bool) {
	if call == nil {
		return m, true
	}
	serverID, ok := s.markWritten(call)
	if !ok {
		return m, false
	}
	if m = m.WithID(jsonrpc.IntID(serverID)); !call.token.IsZero() { // in one copy
		m = m.WithProgressToken(s.mux.serverToken(serverID))
	}
	return m, true
}

// markWritten notes that the server may know of a call from now on, and returns its serverID. ok is false, and nothing
// is noted, if the call is no longer wanted.
func (s *server) markWritten(call *call) (serverID int64, ok bool) {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	if call.removed || call.server != s {
		return 0, false
	}
	call.written, call.request = true, nil
	if call.listen != nil {
		s.startAckTimeout(call)
	} else {
		s.writing.Store(call)
	}
	return call.serverID, true
}

// rejectUnsent answers those of unsent whose time has come. A server that was about to end would have done so by now,
// and said better why. A server to which nothing can be written is closed instead, and so ends.
func (s *server) rejectUnsent() {
	now := time.Now()
	for len(s.unsent) > 0 && !s.unsent[0].tellClientAt.After(now) {
		u := s.unsent[0]
		s.unsent = s.unsent[1:]
		if errors.Is(u.err, io.ErrClosedPipe) || errors.Is(u.err, syscall.EPIPE) {
			s.mux.mu.Lock()
			s.writeErr = u.err
			s.mux.mu.Unlock()
			_ = s.conn.Close(nil) // its error is that of keepConnected
			return
		}
		s.mux.mu.Lock()
		if !u.call.removed && u.call.server == s {
			s.mux.finish(u.call, refusal(u.call, "the server did not take the request: "+u.err.Error(), ownmsg.ServerEndedData))
		}
		s.mux.mu.Unlock()
		u.signalDone()
	}
}
