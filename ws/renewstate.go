package ws

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// renewState is what changes in a renewer, but for the ledger. The lock of the ledger guards it.
type renewState struct {
	link        *link           // the connection that messages go to; nil: there is none
	attempt     *attempt        // the attempt that messages wait for; nil: they do not wait
	downFault   *httpdial.Fault // why there is no connection, while the reconnector tries again and again; nil: it does not
	nextAttempt time.Time       // when the reconnector tries again; zero: at once
	hadSession  bool            // the client was answered initialize, or has been promised a session: the next connection is initialized in its place
}

// call is a request of the client that was sent over a link and waits for its response. It implements remoteconn.Call.
type call struct {
	msg jsonrpc.Message // the request, as it was sent
}

// ID implements remoteconn.Call: it returns the id of the request.
func (c *call) ID() jsonrpc.ID { return c.msg.ID() }

// IsFromBridge implements remoteconn.Call. It is false: the bridge's own requests do not get into the ledger.
func (c *call) IsFromBridge() bool { return false }

// OnRemoved implements remoteconn.Call. It does nothing.
func (c *call) OnRemoved() {}

// link is one connection to the server.
type link struct {
	conn            bridge.Conn // the Conn over which messages go
	initializedSent bool        // notifications/initialized was sent over it; guarded by the lock of the ledger
}

// attempt is an attempt to connect to the server. The messages of the client wait for it. If it fails, requests are answered with its
// fault, and other messages are dropped.
type attempt struct {
	attended        bool                // a request of the client waits for it, so a person may be asked to sign in; guarded by the lock of the ledger
	progressTellers []func(text string) // each tells one waiting request's client how the attempt goes on; guarded by the lock of the ledger

	done  chan struct{}   // closed when the attempt has ended
	fault *httpdial.Fault // why it has failed; nil: there is a connection. Set before done is closed
}

// newAttempt returns an attempt that has not ended.
func newAttempt() *attempt { return &attempt{done: make(chan struct{})} }

// noteWaitingRequest notes that a request of the client waits for the attempt a. ctx is that of the request's Send. A
// request of the bridge's own (httpdial.Unattended) is not noted: nobody signs in for it. The lock of the ledger is
// held.
func (r *renewer) noteWaitingRequest(ctx context.Context, a *attempt) {
	if httpdial.IsUnattended(ctx) {
		return
	}
	a.attended = true
	if tell := httpdial.ProgressOf(ctx); tell != nil {
		a.progressTellers = append(a.progressTellers, tell)
	}
}

// tellWaiting tells the clients whose requests wait for the attempt a how it goes on, in a text.
func (r *renewer) tellWaiting(a *attempt, text string) {
	r.ledger.Lock()
	tells := slices.Clone(a.progressTellers)
	r.ledger.Unlock()
	for _, tell := range tells {
		tell(text)
	}
}

// sendDecision is what admit has decided about a message: one of link, waitFor, answerWith, dropReason and err is set.
type sendDecision struct {
	link       *link           // the message is sent over this connection, in the form msg
	msg        jsonrpc.Message // with link: the message in the form in which it is sent
	call       *call           // with link: the request's entry in the ledger; nil: it is no request
	waitFor    *attempt        // Send waits for this attempt: if it succeeds, admit is asked again; if not, a request is answered with its fault, and another message is dropped
	answerWith *httpdial.Fault // the request is answered with this
	dropReason string          // the message is dropped, for this reason
	err        error           // the error that Send returns
}

// admit decides what becomes of a message of the client, and enters a request that is to be sent into the ledger.
// Without a connection, a request has the reconnector make one. While the reconnector pauses after a failure
// (renewState.downFault), only initialize does so, and a request that may have somebody sign in; others are answered with
// that fault. ctx is Send's.
func (r *renewer) admit(ctx context.Context, m jsonrpc.Message) sendDecision {
	r.ledger.Lock()
	defer r.ledger.Unlock()
	s := &r.state
	isRequest := m.Kind() == jsonrpc.Request
	isInitialize := isRequest && m.Method() == "initialize"
	switch {
	case r.Context().Err() != nil:
		return sendDecision{err: r.Err(r.Context())}
	case s.link != nil:
		return r.admitToLink(m)
	case s.attempt != nil:
		if isRequest {
			r.noteWaitingRequest(ctx, s.attempt)
		}
		return sendDecision{waitFor: s.attempt}
	case !isRequest:
		return sendDecision{dropReason: "there is no connection"}
	case s.downFault != nil && !isInitialize && !(r.opts.SignsIn && s.downFault.Reason == httpdial.ReasonAuthRequired):
		return sendDecision{answerWith: r.downFault()}
	}
	if isInitialize { // the client begins anew; nobody needs to do so in its place
		s.hadSession = false
		r.ledger.State.NoteInitialize(m)
	}
	s.attempt = newAttempt()
	r.noteWaitingRequest(ctx, s.attempt)
	r.reconnector.wake()
	return sendDecision{waitFor: s.attempt}
}

// admitToLink decides about a message of the client while there is a connection: whether it is sent, answered with an
// error, dropped, or refused with an error of Send. It enters a request that is to be sent into the ledger. The lock of
// the ledger is held.
func (r *renewer) admitToLink(m jsonrpc.Message) sendDecision {
	decision := sendDecision{link: r.state.link, msg: m}
	switch m.Kind() {
	case jsonrpc.Request:
		if f, err := r.ledger.RefusalOf(m, 0, true); f != nil || err != nil {
			return sendDecision{answerWith: f, err: err}
		}
		if m.Method() == "initialize" {
			r.ledger.State.NoteInitialize(m)
		}
		decision.call = &call{m}
		r.ledger.Add(decision.call)
	case jsonrpc.Notification:
		if m.Method() == "notifications/initialized" {
			r.ledger.State.InitializedNotification = m
			if decision.link.initializedSent {
				return sendDecision{dropReason: "the bridge has said so already"}
			}
			decision.link.initializedSent = true
		}
		if target := r.ledger.CancelledCall(m); target != nil { // its response is not wanted any more (J12)
			r.ledger.Remove(target)
		}
	case jsonrpc.Response:
		asked, answer, ok := r.ledger.State.RouteResponse(m)
		switch {
		case !ok:
			return sendDecision{dropReason: "it answers nothing that the server has asked"}
		case asked != decision.link:
			return sendDecision{dropReason: "the session that asked is gone"}
		}
		decision.msg = answer
	}
	return decision
}

// admitNow is admit for TrySend: it returns the connection to send m over. l is nil, and nothing was done, if there is
// no connection or m needs more than that. If m is a request, c is its entry in the ledger.
func (r *renewer) admitNow(m jsonrpc.Message) (l *link, c *call) {
	r.ledger.Lock()
	defer r.ledger.Unlock()
	if r.state.link == nil || r.Context().Err() != nil {
		return nil, nil
	}
	switch m.Kind() {
	case jsonrpc.Request:
		if f, err := r.ledger.RefusalOf(m, 0, true); f != nil || err != nil || m.Method() == "initialize" {
			return nil, nil
		}
		c = &call{m}
		r.ledger.Add(c)
	case jsonrpc.Notification:
		switch m.Method() {
		case "notifications/initialized", "notifications/cancelled":
			return nil, nil
		}
	default:
		return nil, nil
	}
	return r.state.link, c
}

// noteAnswered takes the request that a response answers out of the ledger. If it has succeeded and a new session
// would have to be told the same (initialize, a subscription, the log level), the ledger remembers the request.
func (r *renewer) noteAnswered(answer jsonrpc.Message) {
	call, ok := r.ledger.ClaimByID(answer.ID())
	if !ok || answer.IsError() {
		return
	}
	if call.msg.Method() == "initialize" {
		r.ledger.Lock()
		r.state.hadSession, r.ledger.State.InitializeSucceeded = true, true
		r.ledger.Unlock()
		r.opts.Logger.Info("connected", "url", r.opts.Server)
		return
	}
	if !r.ledger.RememberSetting(call.msg) {
		r.opts.Logger.Warn("too many subscriptions: this one will not survive a restart of the server")
	}
}

// downFault returns the Fault for a request while the reconnector tries again and again: why there is no connection,
// and when the next attempt is. The lock of the ledger is held.
func (r *renewer) downFault() *httpdial.Fault {
	f := httpdial.FollowUpFault(r.state.downFault, httpdial.ReasonServerDown, "not connected: "+r.state.downFault.Text)
	if wait := time.Until(r.state.nextAttempt); wait > 0 {
		f.Text = httpdial.AppendSentence(f.Text, fmt.Sprintf("the next attempt is in %v", wait.Round(100*time.Millisecond)))
	} else {
		f.Text = httpdial.AppendSentence(f.Text, "an attempt is being made now")
	}
	return f
}
