package ws

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	renewStableAfter       = 10 * time.Second // how long a connection must have lasted for its loss not to count as one more failure in a row
	renewInitializeTimeout = time.Minute      // how long the answer to initialize may take when a session is renewed
	maxEarlyMessages       = 1000             // how many messages of a server are kept for the client that come while its session is renewed
)

// reconnector makes the connections of a renewer, in a goroutine that runs while there is, or should be, a connection.
type reconnector struct {
	r        *renewer      // the renewer whose connections it makes
	retryNow chan struct{} // an element ends the pause before the next attempt
	running  bool          // the goroutine (run) is there; guarded by the lock of the ledger
}

// wake starts the reconnector's goroutine, or ends its pause if it runs. The lock of the ledger is held.
func (k *reconnector) wake() {
	if !k.running {
		k.running = k.r.Go(k.run)
		return
	}
	select {
	case k.retryNow <- struct{}{}:
	default:
	}
}

// run is the reconnector's goroutine: it makes a connection, hands on what comes over it, and makes another one when
// it is lost, until that is of no use any more.
func (k *reconnector) run() {
	r := k.r
	failures := 0 // in a row
	for {
		l, waiting, early, f := k.connect()
		again := false
		if f != nil {
			again = k.handleConnectFailure(waiting, f, failures)
		} else if again = !k.install(l, waiting); again {
			_ = l.conn.Close(nil) // another attempt was begun for the client
		} else {
			began := time.Now()
			f = r.relayFromServer(l, early)
			_ = l.conn.Close(nil)
			if time.Since(began) >= renewStableAfter {
				failures = 0
			}
			again = k.handleLoss(l, f, failures)
		}
		if !again {
			return
		}
		k.pause()
		failures++
	}
}

// connect makes one attempt to connect; f says why it has failed. If the client takes a session for granted
// (hadSession), connect also initializes in the client's place. waiting is the attempt that messages wait for; nil:
// none do. early is for the client: the notifications of sessionRenewal.changed, and what the server has sent
// meanwhile (ST9).
func (k *reconnector) connect() (l *link, waiting *attempt, early []jsonrpc.Message, f *httpdial.Fault) {
	r := k.r
	r.ledger.Lock()
	waiting = r.state.attempt
	resume := r.state.hadSession
	ctx := r.Context()
	if waiting == nil || !waiting.attended {
		ctx = httpdial.Unattended(ctx)
	} else {
		ctx = httpdial.WithProgress(ctx, func(text string) { r.tellWaiting(waiting, text) })
	}
	r.ledger.Unlock()
	conn, err := r.dial(ctx)
	if err != nil {
		return nil, waiting, nil, faultOf(err, r.opts.Server)
	}
	l = &link{conn: conn, initializedSent: resume}
	if !resume {
		return l, waiting, nil, nil
	}
	p := &sessionRenewal{r: r, conn: conn}
	if f = p.run(); f != nil {
		_ = conn.Close(nil)
		return nil, waiting, nil, f
	}
	r.opts.Logger.Info("connected again", "url", r.opts.Server)
	return l, waiting, append(p.changed, p.early...), nil
}

// install makes l the connection that messages go to, and wakes those that wait for the attempt. false: while the attempt
// was under way another one was begun for the client, whose initialize begins anew, or for whose request a person may be
// asked to sign in; l is not used then.
func (k *reconnector) install(l *link, waiting *attempt) bool {
	r := k.r
	r.ledger.Lock()
	defer r.ledger.Unlock()
	if r.state.attempt != waiting {
		r.state.nextAttempt = time.Time{}
		return false
	}
	r.state.link, r.state.downFault = l, nil
	r.finishAttempt(nil)
	return true
}

// finishAttempt ends the attempt that messages wait for, if there is one: they go on if f is nil, for there is a
// connection, and else are refused with f. The lock of the ledger is held.
func (r *renewer) finishAttempt(f *httpdial.Fault) {
	if a := r.state.attempt; a != nil {
		a.fault = f
		close(a.done)
		r.state.attempt = nil
	}
}

// handleConnectFailure deals with an attempt that has failed with f: those that wait for it are told. failures is how
// many attempts in a row had failed before. again: there is to be another one, after a pause.
func (k *reconnector) handleConnectFailure(waiting *attempt, f *httpdial.Fault, failures int) (again bool) {
	r := k.r
	r.ledger.Lock()
	defer r.ledger.Unlock()
	if r.Context().Err() != nil {
		return false
	}
	if r.state.attempt != waiting { // another one was begun for the client (see install)
		r.state.nextAttempt = time.Time{}
		return true
	}
	r.opts.Logger.Warn("cannot connect", append(f.LogAttrs(), "url", r.opts.Server)...)
	if !r.state.hadSession {
		if !f.Transient || r.opts.NoRenew || r.ledger.State.InitializeRequest.Kind() != jsonrpc.Request {
			r.finishAttempt(f)
			k.running = false
			return false
		}
		// The client may never ask again: it gets a session all the same.
		r.state.hadSession = true
		more := *f
		more.Text = httpdial.AppendSentence(more.Text, "it is tried again for as long as the client stays")
		r.finishAttempt(&more)
	}
	k.putOff(f, failures)
	return true
}

// putOff sets when the next attempt is made: later the more failures there were in a row. Those that wait for an
// attempt are refused with f now. The lock of the ledger is held.
func (k *reconnector) putOff(f *httpdial.Fault, failures int) {
	r := k.r
	r.finishAttempt(f)
	r.state.downFault = f
	r.state.nextAttempt = time.Now().Add(httpdial.BackoffAfter(f, failures))
}

// pause waits until the next attempt is due; wake ends it early.
func (k *reconnector) pause() {
	r := k.r
	r.ledger.Lock()
	wait := time.Until(r.state.nextAttempt)
	r.ledger.Unlock()
	if wait > 0 {
		httpdial.Pause(r.Context(), k.retryNow, wait)
	}
}

// handleLoss deals with the loss of the connection l, for the reason f: the client's open requests are answered with
// an error, and the server's open requests are cancelled for the client. again: there is to be another connection.
// failures is how many connections in a row had failed before.
func (k *reconnector) handleLoss(l *link, f *httpdial.Fault, failures int) (again bool) {
	r := k.r
	r.ledger.Lock()
	r.state.link = nil
	renew := r.state.hadSession && !r.opts.NoRenew
	if renew {
		r.state.attempt = newAttempt() // what comes now waits for it
	}
	calls := r.ledger.Select(func(*call) bool { return true })
	for _, call := range calls {
		r.ledger.Remove(call)
	}
	withdrawn := r.ledger.State.CancelNotifications(l, "the connection to the server was lost")
	r.ledger.Unlock()
	if r.Context().Err() != nil {
		return false
	}
	r.opts.Logger.Warn("the session is lost", "url", r.opts.Server, "reason", f.Reason)
	for _, call := range calls {
		_ = r.Deliver(r.Context(), f.Response(call.ID()))
	}
	for _, m := range withdrawn {
		_ = r.Deliver(r.Context(), m)
	}
	return k.shouldReconnect(renew, f, failures)
}

// shouldReconnect is the end of handleLoss: it decides whether there is to be another connection, and when. renew says
// that the client has a session to be renewed.
func (k *reconnector) shouldReconnect(renew bool, f *httpdial.Fault, failures int) bool {
	r := k.r
	r.ledger.Lock()
	defer r.ledger.Unlock()
	switch {
	case r.opts.NoRenew:
		r.End(ErrSessionLost)
		r.finishAttempt(f)
		return false
	case !renew && r.state.attempt == nil:
		k.running = false
		return false
	case renew && failures > 0: // it keeps breaking
		k.putOff(f, failures-1)
	default:
		r.state.nextAttempt = time.Time{}
	}
	return true
}
