package streamclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/remoteconn"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// noteSession looks at the session id of a reply (LE3). of is the session that the call was
// posted to. noteSession returns the session to which the reply belongs: a new one for an initialize,
// otherwise of, whatever id the reply has.
func (c *conn) noteSession(call *call, of *session, resp *http.Response) (*session, *httpdial.Fault) {
	id := resp.Header.Get(wire.HeaderSession)
	if call.method != "initialize" {
		if id != "" && (of == nil || id != of.id) {
			c.log.Debug("the server sent another session id in mid-session, which is ignored")
		}
		return of, nil
	}
	if !isVisibleASCII(id) {
		return nil, &httpdial.Fault{Reason: httpdial.ReasonInvalidMessage, Status: resp.StatusCode,
			Text: fmt.Sprintf("%s sent a session id with characters other than visible ASCII", c.target.Peer)}
	}
	s := &session{id: id, listenAnswered: make(chan struct{}), noListenStream: make(chan struct{}), streamUnavailable: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(c.Context())
	c.ledger.Lock()
	defer c.ledger.Unlock()
	call.newSession = s
	if !call.IsFromBridge() {
		c.state.newSession = s
	}
	return s, nil
}

// isVisibleASCII reports whether s has no other characters than visible ASCII ones; true for "".
func isVisibleASCII(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// negotiatedVersion returns the version in an initialize result; "" if there is none
// that could stand in a header.
func negotiatedVersion(result jsonrpc.Message) string {
	var version string
	if json.Unmarshal(result.Lookup("result", "protocolVersion"), &version) != nil || !isVisibleASCII(version) {
		return ""
	}
	return version
}

// setSessionFromInitialize makes the session that begins with the client's initialize the current one,
// if m, the answer, is a result. An earlier session, or after an error this one, is to be ended at the server
// (call.replacedSession).
func (c *conn) setSessionFromInitialize(call *call, m jsonrpc.Message) {
	c.ledger.Lock()
	c.state.newSession = nil
	s := call.newSession
	if m.IsError() || s == nil {
		call.replacedSession = s
		c.ledger.Unlock()
		return
	}
	s.version = negotiatedVersion(m)
	if old := c.state.session; old != nil {
		old.lost = true
		old.stop()
		call.replacedSession = old
	}
	c.state.session, c.ledger.State.InitializeSucceeded = s, true
	c.ledger.Unlock()
	c.log.Info("connected", "url", c.target.Peer.String(), "version", s.version, "session", s.id != "")
	if c.opts.OnOpened != nil {
		c.opts.OnOpened(s.id != "")
	}
}

// handleInitializeFailure is called when the client's initialize has failed with the fault. If that may
// pass (fault.Transient), the bridge goes on trying in the client's place, unless NoRenew is set, an
// earlier session is still there, or the Conn has ended.
func (c *conn) handleInitializeFailure(call *call, fault *httpdial.Fault) {
	c.ledger.Lock()
	call.replacedSession, c.state.newSession = call.newSession, nil
	if !fault.Transient || c.state.session != nil || c.Err(c.Context()) != nil || c.opts.NoRenew {
		c.ledger.Unlock()
		return
	}
	r := c.renewer.newRepair(false)
	r.fault = fault
	c.renewer.repair = r
	c.ledger.Unlock()
	fault.Text = httpdial.AppendSentence(fault.Text, "it is tried again for as long as the client stays")
	c.Go(func() { c.renewer.repairLoop(r) })
}

// renewer gets a new session for a conn in the place of one that is lost, or that the client's initialize was to open
// but could not (handleInitializeFailure). The lock of the ledger guards it.
type renewer struct {
	c               *conn   // the conn whose sessions it gets
	repair          *repair // the repair that is going on; nil unless the bridge tries to get a session
	refusedRenewals int     // how many renewals in a row the server had refused before this Conn took the session over; 0 after a renewal
}

// repair is what the bridge does, with one attempt or many, to get a session by itself, because the
// client takes it for granted or will not ask again. There is one at a time.
type repair struct {
	ctx         context.Context    // done when the repair is over, the client initializes by itself, or the Conn ends
	stop        context.CancelFunc // ends ctx
	attemptDone chan struct{}      // closed when the attempt that messages wait for is over: the first one, or one for retryAttended. It is InitializeGate until then. Closed from the start if the first attempt is put off
	retryNow    chan struct{}      // an element in it ends the wait before the next attempt

	fault       *httpdial.Fault // why the last attempt, or the client's initialize before the first one, has failed; nil: none has yet
	putOffs     int             // how often an attempt was put off so far
	wait        time.Duration   // how long the next attempt waits
	nextAttempt time.Time       // when the next attempt is made; zero: it is under way

	attended        bool                // the next attempt is for a request of the client: a person may be asked to sign in for it
	progressTellers []func(text string) // for each request that waits for the attempt: tells its client what it waits for
}

// newRepair makes a repair for repairLoop. now: the first attempt is made at once, and the
// caller lets messages wait for attemptDone; otherwise it is made after the first wait (putOff), and no
// message waits for it. The lock of the ledger is held.
func (n *renewer) newRepair(now bool) *repair {
	c := n.c
	r := &repair{attemptDone: make(chan struct{}), retryNow: make(chan struct{}, 1)}
	if !now {
		close(r.attemptDone) // nobody shall wait for it
		r.putOff()
	}
	r.ctx, r.stop = context.WithCancel(c.Context())
	return r
}

// putOff sets how long the next attempt waits: the longer, the more often it is called. The lock of the ledger is
// held.
func (r *repair) putOff() {
	r.wait = httpdial.BackoffAfter(r.fault, r.putOffs)
	r.nextAttempt = time.Now().Add(r.wait)
	r.putOffs++
}

// downFault returns the fault with which a client's request is answered while the repair r goes on. The
// lock of the ledger is held.
func (n *renewer) downFault(r *repair) *httpdial.Fault {
	f := &httpdial.Fault{Reason: httpdial.ReasonServerDown, Text: fmt.Sprintf("no connection to %s yet", n.c.target.Peer)}
	if r.fault != nil {
		f = httpdial.FollowUpFault(r.fault, httpdial.ReasonServerDown, "not connected: "+r.fault.Text)
	}
	if wait := time.Until(r.nextAttempt); !r.nextAttempt.IsZero() && wait > 0 {
		f.Text = httpdial.AppendSentence(f.Text, fmt.Sprintf("the next attempt is in %v", wait.Round(100*time.Millisecond)))
	} else {
		f.Text = httpdial.AppendSentence(f.Text, "an attempt is being made now")
	}
	return f
}

// recoverSession returns the session that replaces one that the server has forgotten (LE5). It
// waits while a session is being made; that is done once, however many messages notice.
func (n *renewer) recoverSession(ctx context.Context, lost *session) (*session, *httpdial.Fault) {
	c := n.c
	n.repairSession(lost)
	for {
		c.ledger.Lock()
		session, gate, repair := c.state.session, c.ledger.InitializeGate, n.repair
		var why *httpdial.Fault
		if repair != nil {
			why = repair.fault
		}
		c.ledger.Unlock()
		switch {
		case session != nil:
			return session, nil
		case gate == nil:
			return nil, n.noSessionFault(why)
		}
		select {
		case <-gate: // the new session may be lost already, and another one be on its way
		case <-ctx.Done():
			return nil, c.target.Peer.NetFault(ctx.Err())
		}
	}
}

// noSessionFault returns the fault of a message that cannot be sent because the server has forgotten
// the session, and there is no new one: because of why, which may be nil.
func (n *renewer) noSessionFault(why *httpdial.Fault) *httpdial.Fault {
	text := fmt.Sprintf("%s has forgotten the session, and there is no new one yet", n.c.target.Peer)
	if why != nil {
		return httpdial.FollowUpFault(why, httpdial.ReasonSessionLost, text+": "+why.Text)
	}
	return &httpdial.Fault{Reason: httpdial.ReasonSessionLost, Text: text}
}

// repairSession starts the repair of a session that the server has forgotten, unless it is not
// the current session any more, or the client itself is initializing. InitializeGate is shut
// during the first attempt. With NoRenew it ends the Conn instead.
func (n *renewer) repairSession(session *session) {
	c := n.c
	c.ledger.Lock()
	if c.state.session != session {
		c.ledger.Unlock()
		return
	}
	c.state.session = nil
	session.lost = true
	session.stop()
	if c.ledger.InitializeGate != nil { // the client itself is initializing again
		c.ledger.Unlock()
		return
	}
	if c.opts.NoRenew {
		c.ledger.InitializeGate = make(chan struct{}) // which stays shut: nothing is sent without a session
		c.ledger.Unlock()
		c.log.Warn("the server has forgotten the session", "url", c.target.Peer.String())
		c.End(ErrSessionLost)
		return
	}
	r := n.newRepair(true)
	n.repair, c.ledger.InitializeGate = r, r.attemptDone
	c.ledger.Unlock()
	c.log.Warn("the server has forgotten the session: initializing again", "url", c.target.Peer.String())
	c.Go(func() {
		n.cancelServerRequests(session)
		n.repairLoop(r)
	})
}

// repairLoop tries until there is a session, until the client or Close stops it, or until the server has
// shown that it speaks the other era, or another transport, by now.
func (n *renewer) repairLoop(r *repair) {
	defer r.stop()
	for n.pause(r) {
		session, refused, fault := n.handshake(n.beginAttempt(r))
		if n.endIfUpgraded(r, fault) || refused && n.endRenewalIfWrongTransport(r, fault) {
			return
		}
		if n.finishAttempt(r, session, fault) {
			n.notifyChanged(session)
			return
		}
	}
}

// pause waits until the next attempt to get a session is due (repair.wait), or until retryNow; false: the client or
// Close has stopped the repair.
func (n *renewer) pause(r *repair) bool {
	httpdial.Pause(r.ctx, r.retryNow, r.wait)
	return r.ctx.Err() == nil
}

// beginAttempt notes that an attempt of r begins now, and returns its ctx: httpdial.Unattended, unless
// a request of the client waits for it for which a person may be asked to sign in.
func (n *renewer) beginAttempt(r *repair) context.Context {
	n.c.ledger.Lock()
	defer n.c.ledger.Unlock()
	select {
	case <-r.retryNow: // the time had come anyway
	default:
	}
	attended := r.attended
	r.nextAttempt, r.attended = time.Time{}, false
	if !attended {
		return httpdial.Unattended(r.ctx)
	}
	return httpdial.WithProgress(r.ctx, func(text string) { n.tellWaiting(r, text) })
}

// tellWaiting tells the clients of the requests that wait for an attempt of r what the attempt waits
// for: text.
func (n *renewer) tellWaiting(r *repair, text string) {
	n.c.ledger.Lock()
	tells := slices.Clone(r.progressTellers)
	n.c.ledger.Unlock()
	for _, tell := range tells {
		tell(text)
	}
}

// noteWaitingRequest notes that a request waits for the attempt that is under way, if its client has asked for progress. The lock of the ledger is held.
func (n *renewer) noteWaitingRequest(call *call) {
	c, r := n.c, n.repair
	if r == nil || c.ledger.InitializeGate != r.attemptDone || call.kind != jsonrpc.Request || c.opts.AuthorizeTimeout == 0 {
		return
	}
	if tell := httpdial.ProgressOf(c.WithProgress(call.ctx, call.msg, true)); tell != nil {
		r.progressTellers = append(r.progressTellers, tell)
	}
}

// retryAttended starts the next attempt now, for this request of the client, if there is no session only because somebody has to
// sign in. The request is admitted again when InitializeGate opens. It reports whether it has started the attempt, which it does once
// for a request at most. The lock of the ledger is held.
func (n *renewer) retryAttended(call *call) bool {
	c, r := n.c, n.repair
	if call.attended || call.kind != jsonrpc.Request || call.method == "initialize" || !c.isDown() || r.nextAttempt.IsZero() ||
		r.fault == nil || r.fault.Reason != httpdial.ReasonAuthRequired || c.opts.AuthorizeTimeout == 0 {
		return false
	}
	call.attended, r.attended = true, true
	r.attemptDone = make(chan struct{})
	c.ledger.InitializeGate = r.attemptDone
	n.noteWaitingRequest(call)
	select {
	case r.retryNow <- struct{}{}:
	default:
	}
	return true
}

// finishAttempt takes the result of an attempt: the new session becomes the current one, or a fault
// puts off the next attempt. True: the repair is over. False: another attempt is needed.
func (n *renewer) finishAttempt(r *repair, session *session, fault *httpdial.Fault) bool {
	c := n.c
	c.ledger.Lock()
	if c.ledger.InitializeGate == r.attemptDone {
		c.ledger.InitializeGate, r.progressTellers = nil, nil
		defer close(r.attemptDone)
	}
	switch {
	case n.repair != r: // the client initializes by itself
		c.ledger.Unlock()
		if session != nil {
			session.stop()
			c.deleteSession(session)
		}
		return true
	case fault != nil:
		r.fault = fault
		r.putOff()
		c.ledger.Unlock()
		c.log.Warn("cannot initialize", append(fault.LogAttrs(), "url", c.target.Peer.String())...)
		return false
	}
	c.state.session, n.repair, n.refusedRenewals = session, nil, 0
	c.ledger.Unlock()
	c.log.Info("connected again", "url", c.target.Peer.String())
	if c.opts.OnRenewed != nil {
		c.opts.OnRenewed()
	}
	c.listener.startListening(session)
	return true
}

// notifyChanged tells the client, with NotifyAfterRenewal, that everything may have changed with a new session (ST9), if that
// is still the current one. It waits for Receive to be called; nothing else waits for it.
func (n *renewer) notifyChanged(session *session) {
	c := n.c
	c.ledger.Lock()
	var changed []jsonrpc.Message
	if session != nil && c.state.session == session {
		changed = session.changeNotifications
	}
	c.ledger.Unlock()
	for _, m := range changed {
		c.Deliver(c.Context(), m)
	}
}

// handshake initializes in the client's place and tells the new session what the old one
// knew. refused: the fault is that of initialize, to which there was no response. It is false if
// initialize was answered with a JSON-RPC error, or something later has failed.
func (n *renewer) handshake(ctx context.Context) (session *session, refused bool, fault *httpdial.Fault) {
	c := n.c
	o := &renewedSession{c: c}
	fault = c.ledger.RenewSession(ctx, o, remoteconn.RenewalOptions{Server: c.target.Peer.String(), Log: c.log})
	if fault != nil && o.session != nil {
		o.session.stop()
		c.deleteSession(o.session)
	}
	if fault != nil {
		return nil, o.refused, fault
	}
	return o.session, false, nil
}

// renewedSession is a session that the bridge itself begins, after the client's was lost; it is a
// remoteconn.ReplacementSession.
type renewedSession struct {
	c       *conn    // the Conn that the session is of
	session *session // the session, begun by the reply to initialize; nil: there was no such reply
	refused bool     // initialize has failed with a fault: there was no response to it, not even an error
}

// SendRequest implements remoteconn.ReplacementSession: it sends m and waits for the response.
func (o *renewedSession) SendRequest(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, *httpdial.Fault) {
	call, fault := o.c.ask(ctx, m, o.session)
	if m.Method() == "initialize" {
		o.session, o.refused = call.newSession, fault != nil
	}
	return call.reply, fault
}

// SendNotification implements remoteconn.ReplacementSession: it sends m and waits until it is accepted.
func (o *renewedSession) SendNotification(ctx context.Context, m jsonrpc.Message) *httpdial.Fault {
	return o.c.tell(ctx, m, o.session)
}

// OnInitialized implements remoteconn.ReplacementSession: it notes the version in answer, and with
// NotifyAfterRenewal what the client is told has changed.
func (o *renewedSession) OnInitialized(answer jsonrpc.Message, changed []jsonrpc.Message) {
	o.session.version, o.session.initialized = negotiatedVersion(answer), true
	if o.c.opts.NotifyAfterRenewal {
		o.session.changeNotifications = changed
	}
}

// ask sends m, a request of the bridge's own, in this session (nil: in none, as initialize), and waits for the response,
// which is reply of the call. The fault says why there is none.
func (c *conn) ask(ctx context.Context, m jsonrpc.Message, session *session) (*call, *httpdial.Fault) {
	call := newCall(c, m)
	call.isOwn, call.session, call.attended, call.tell = true, session, !httpdial.IsUnattended(ctx), httpdial.ProgressOf(ctx)
	c.ledger.Lock()
	c.ledger.Add(call)
	c.ledger.Unlock()
	defer call.cancel()
	defer context.AfterFunc(ctx, call.cancel)()
	fault := c.exchange(call)
	if c.ledger.ClaimCall(call) {
		if fault == nil { // the Conn is being closed
			fault = c.target.Peer.NetFault(context.Canceled)
		}
		return call, fault
	}
	call.reply = <-call.replied // whoever has claimed the call is about to answer it
	return call, nil
}

// tell sends m, a notification of the bridge's own, in this session. The fault says that the server has
// not taken it; nil: it has.
func (c *conn) tell(ctx context.Context, m jsonrpc.Message, session *session) *httpdial.Fault {
	call := newCall(c, m)
	call.isOwn, call.session, call.attended, call.tell = true, session, !httpdial.IsUnattended(ctx), httpdial.ProgressOf(ctx)
	defer call.cancel()
	defer context.AfterFunc(ctx, call.cancel)()
	return c.exchange(call)
}

// cancelServerRequests tells the client that the server's open requests of a lost session are
// cancelled.
func (n *renewer) cancelServerRequests(session *session) {
	c := n.c
	c.ledger.Lock()
	notes := c.ledger.State.CancelNotifications(session, "the server has forgotten the session")
	c.ledger.Unlock()
	for _, m := range notes {
		c.Deliver(c.Context(), m)
	}
}
