package outbound

import (
	"cmp"
	"context"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// clientPrompt is the client of one conversation, which a SignInElicitor may ask. A legacy client gets a request of the bridge's own, and its
// requests go on waiting. A modern one gets input_required as the answer to its newest call, which goes on all the
// same: its outcome is the answer to the retry. All methods but the three hooks are called with elicitor.mu held.
type clientPrompt struct {
	elicitor *SignInElicitor
	ctx      context.Context // of the conversation
	client   bridge.Conn

	// The following are guarded by elicitor.mu.

	initializeRequestID jsonrpc.ID // in progress, of a client that can show addresses; zero: none is
	takesElicitRequests bool       // the session is of 2025-11-25, and its client can show addresses
	elicitationID       string     // the id of what a legacy client was asked last; "": nothing is open
	shownURL            string     // the address that it was asked to show; "": nothing is open
	hasAccepted         bool       // the person has gone there

	calls               map[jsonrpc.ID]*modernCall // those of modern clients that can show addresses, by the id of the call
	callsByRequestState map[string]*modernCall     // those of them that were answered with a question, by their requestState
	callsByRetryID      map[jsonrpc.ID]*modernCall // those whose retry is in progress, by the id of the retry
	callCount           int                        // of calls so far
}

// A modernCall is a call of a modern client, which may be answered with a question.
type modernCall struct {
	id               jsonrpc.ID
	sequence         int // by which the newest is known
	method           string
	progressToken    jsonrpc.ID
	isSendingOutcome bool // its outcome is on its way to the client

	requestState       string          // what its retry has as requestState; "": it was not answered with a question
	shownURL           string          // the address that the client was asked to show
	serverStatus       int             // what the server had answered, so that the client was asked; 0: the server was not asked
	outcome            jsonrpc.Message // that came before the retry; invalid: none has
	retryID            jsonrpc.ID      // in progress; zero: none is
	retryProgressToken jsonrpc.ID      // the progress token of the retry
	isAbandoned        bool            // the retry is over, and the server was told: a late outcome is for nobody
}

// isOver reports whether the server has nothing more to say of the call that the client waits for.
func (c *modernCall) isOver() bool { return c.isAbandoned || c.outcome.Kind() != jsonrpc.Invalid }

// Names in messages.
const (
	methodElicit         = "elicitation/create"
	methodCancelled      = "notifications/cancelled"
	methodProgress       = "notifications/progress"
	methodElicitComplete = "notifications/elicitation/complete"
	inputRequestKey      = "sign-in" // of inputRequests
	maxEndedCalls        = 16        // calls that are over, and kept for a retry or a late outcome
)

// promptMessages returns what asks the client to show an address; nil: it cannot be asked now.
func (t *clientPrompt) promptMessages(server string, need client.SignInRequired) []jsonrpc.Message {
	params := `{"mode":"url","message":` + string(jsonrpc.Quote(signInMessage(server, need))) + `,"url":` + string(jsonrpc.Quote(printable.Text(need.URL)))
	if t.takesElicitRequests {
		before := t.settledMessage()
		t.elicitationID, t.shownURL = newUnguessableID(), need.URL
		return []jsonrpc.Message{before, jsonrpc.NewRequest(jsonrpc.StringID(t.elicitationID), methodElicit, []byte(params+`,"elicitationId":"`+t.elicitationID+`"}`))}
	}
	var c *modernCall // the newest
	for _, one := range t.calls {
		if !one.isSendingOutcome && one.requestState == "" && (c == nil || one.sequence > c.sequence) {
			c = one
		}
	}
	if c == nil {
		return nil
	}
	c.requestState, c.shownURL, c.serverStatus = newUnguessableID(), need.URL, t.elicitor.serverStatus
	t.callsByRequestState[c.requestState] = c
	return []jsonrpc.Message{jsonrpc.NewResult(c.id, []byte(`{"resultType":"input_required","inputRequests":{"`+inputRequestKey+`":{"method":"`+methodElicit+`","params":`+params+`}}},"requestState":"`+c.requestState+`"}`)).WithRelated(c.id)}
}

// settledMessage returns what tells a legacy client that its question is settled; invalid: there is none.
func (t *clientPrompt) settledMessage() jsonrpc.Message {
	name, answered := t.elicitationID, t.hasAccepted
	t.elicitationID, t.shownURL, t.hasAccepted = "", "", false
	switch {
	case name == "":
		return jsonrpc.Message{}
	case !answered:
		return jsonrpc.NewNotification(methodCancelled, []byte(`{"requestId":"`+name+`","reason":"the sign-in is over"}`))
	}
	return jsonrpc.NewNotification(methodElicitComplete, []byte(`{"elicitationId":"`+name+`"}`))
}

// interceptReceived is the hook Receive: it sees what the client sends, before the server does.
func (t *clientPrompt) interceptReceived(m *jsonrpc.Message) (reply *jsonrpc.Message) {
	t.elicitor.mu.Lock()
	defer t.elicitor.mu.Unlock()
	switch m.Kind() {
	case jsonrpc.Request:
		in, answer := t.handleRequest(*m)
		if *m = in; answer.Kind() != jsonrpc.Invalid {
			reply = &answer
		}
	case jsonrpc.Response:
		if t.elicitationID != "" && m.ID().Equivalent(jsonrpc.StringID(t.elicitationID)) {
			t.handleElicitAction(elicitAction(m.Result()))
			*m = jsonrpc.Message{}
		}
	case jsonrpc.Notification:
		if m.Method() == methodCancelled {
			*m = t.translateCancel(*m)
		}
	}
	return reply
}

// handleElicitAction takes what the person has done with what a legacy client was asked.
func (t *clientPrompt) handleElicitAction(action string) {
	if action == "decline" {
		t.elicitor.declineLocked(t.shownURL)
	}
	if t.hasAccepted = action == "accept"; !t.hasAccepted { // nothing is left that could be completed
		t.elicitationID, t.shownURL = "", ""
	}
}

// handleRequest takes a request of the client.
func (t *clientPrompt) handleRequest(m jsonrpc.Message) (toServer, reply jsonrpc.Message) {
	if m.Method() == "initialize" {
		if supportsURLElicitation(jsonrpc.Lookup(m.Params(), "capabilities")) {
			t.initializeRequestID = m.ID()
		}
		return m, reply
	}
	canShowURLs := era.MayAskForInput(m.Method()) && supportsURLElicitation(era.MetaOf(m).Capabilities)
	var c *modernCall // that m is the retry of
	if canShowURLs {
		state, _ := jsonrpc.Text(jsonrpc.Lookup(m.Params(), "requestState"))
		if c = t.callsByRequestState[state]; c != nil && (c.isAbandoned || !c.retryID.IsZero() || c.method != m.Method()) {
			c = nil
		}
	}
	same := t.calls[m.ID()]
	switch {
	case t.callsByRetryID[m.ID()] != nil, same != nil && same != c:
		return toServer, jsonrpc.NewError(m.ID(), jsonrpc.CodeInvalidRequest, "a request with this id is already in progress", nil).WithRelated(m.ID())
	case c != nil:
		return t.handleRetry(c, m)
	case canShowURLs:
		t.addCall(m)
	}
	return m, reply
}

// addCall notes a call.
func (t *clientPrompt) addCall(m jsonrpc.Message) {
	t.callCount++
	t.calls[m.ID()] = &modernCall{id: m.ID(), sequence: t.callCount, method: m.Method(), progressToken: m.ProgressToken()}
}

// forgetCall undoes addCall.
func (t *clientPrompt) forgetCall(c *modernCall) {
	delete(t.calls, c.id)
	delete(t.callsByRequestState, c.requestState)
	delete(t.callsByRetryID, c.retryID)
}

// abandonCall has the outcome of a call be for nobody, also if it is on its way already.
func (t *clientPrompt) abandonCall(c *modernCall) {
	t.forgetOldestEnded()
	delete(t.callsByRetryID, c.retryID)
	c.retryID, c.isAbandoned = jsonrpc.ID{}, true
}

// handleRetry takes the retry of a call that was answered with a question.
func (t *clientPrompt) handleRetry(c *modernCall, m jsonrpc.Message) (toServer, reply jsonrpc.Message) {
	switch action := elicitAction(jsonrpc.Lookup(jsonrpc.Lookup(m.Params(), "inputResponses"), inputRequestKey)); {
	case c.isOver() && !needsSignIn(c.outcome):
		t.forgetCall(c)
		return toServer, c.outcome.WithID(m.ID()).WithRelated(m.ID())
	case action != "accept":
		if action == "decline" {
			t.elicitor.declineLocked(c.shownURL)
		}
		if c.isOver() {
			t.forgetCall(c)
		} else {
			t.abandonCall(c)
			toServer = jsonrpc.NewNotification(methodCancelled, []byte(`{"requestId":`+c.id.String()+`}`))
		}
		f := &httpdial.Fault{Reason: httpdial.ReasonAuthRequired, Status: cmp.Or(c.serverStatus, statusUnauthorized), Text: "the person has not wanted to sign in"}
		return toServer, f.Response(m.ID()).WithRelated(m.ID())
	case c.isOver(): // nobody had signed in yet
		t.forgetCall(c)
		t.addCall(m)
		return m.WithoutInParams(nil, "inputResponses", "requestState"), reply
	}
	c.retryID, c.retryProgressToken = m.ID(), m.ProgressToken()
	t.callsByRetryID[c.retryID] = c
	return toServer, reply
}

// translateCancel returns what a client's notifications/cancelled is for the server; invalid: nothing.
func (t *clientPrompt) translateCancel(m jsonrpc.Message) jsonrpc.Message {
	id := m.CancelledID()
	if id.IsZero() { // it names no request
		return m
	}
	if c := t.callsByRetryID[id]; c != nil {
		t.abandonCall(c)
		return m.WithCancelledID(c.id)
	}
	switch c := t.calls[id]; {
	case c == nil:
	case c.requestState != "": // it has its answer
		return jsonrpc.Message{}
	default:
		t.forgetCall(c)
	}
	return m
}

// interceptSent is the hook Send: it sees what the server sends, before the client does.
func (t *clientPrompt) interceptSent(m jsonrpc.Message) (out, reply jsonrpc.Message, refused error) {
	t.elicitor.mu.Lock()
	defer t.elicitor.mu.Unlock()
	if m.Kind() == jsonrpc.Notification && m.Method() == methodProgress {
		return t.redirectProgress(m), reply, nil
	}
	if m.Kind() != jsonrpc.Response {
		return m, reply, nil
	}
	c := t.calls[m.ID()]
	switch {
	case c == nil:
		return m, reply, nil
	case c.isAbandoned:
		t.forgetCall(c)
		return out, reply, nil
	case c.requestState == "":
		c.isSendingOutcome = true
		return m, reply, nil
	case !c.retryID.IsZero():
		c.isSendingOutcome = true
		return m.WithID(c.retryID).WithRelated(c.retryID), reply, nil
	}
	t.forgetOldestEnded()
	c.outcome = m
	return out, reply, nil
}

// redirectProgress returns the progress of a call, for its retry if there is one; invalid: nobody is told.
func (t *clientPrompt) redirectProgress(m jsonrpc.Message) jsonrpc.Message {
	for _, c := range t.callsByRequestState {
		switch {
		case c.isOver() || c.progressToken.IsZero() || c.progressToken != m.ProgressToken():
		case c.retryProgressToken.IsZero():
			return jsonrpc.Message{}
		default:
			return m.WithProgressToken(c.retryProgressToken).WithRelated(c.retryID)
		}
	}
	return m
}

// afterSend is the hook Sent: it is told of what the client has got.
func (t *clientPrompt) afterSend(m jsonrpc.Message) {
	if m.Kind() != jsonrpc.Response {
		return
	}
	t.elicitor.mu.Lock()
	defer t.elicitor.mu.Unlock()
	if !t.initializeRequestID.IsZero() && m.ID() == t.initializeRequestID {
		version, _ := jsonrpc.Text(jsonrpc.Lookup(m.Result(), "protocolVersion"))
		t.initializeRequestID, t.takesElicitRequests = jsonrpc.ID{}, version == era.Version2025_11_25
	}
	if c := cmp.Or(t.callsByRetryID[m.ID()], t.calls[m.ID()]); c != nil && c.isSendingOutcome {
		t.forgetCall(c)
	}
}

// forgetOldestEnded forgets the oldest of the calls that are over, if there are maxEndedCalls of them.
func (t *clientPrompt) forgetOldestEnded() {
	n := 0
	var oldest *modernCall
	for _, c := range t.callsByRequestState {
		if !c.isOver() {
			continue
		}
		if n++; oldest == nil || c.sequence < oldest.sequence {
			oldest = c
		}
	}
	if n >= maxEndedCalls {
		t.forgetCall(oldest)
	}
}

// elicitAction returns what the person has done with a question.
func elicitAction(result []byte) string {
	said, _ := jsonrpc.Text(jsonrpc.Lookup(result, "action"))
	return said
}

// supportsURLElicitation reports whether a client of these capabilities can be asked to show an address.
func supportsURLElicitation(capabilities []byte) bool {
	url := jsonrpc.Lookup(jsonrpc.Lookup(capabilities, "elicitation"), "url")
	return len(url) > 0 && url[0] == '{'
}

// needsSignIn reports whether an answer says that nobody has signed in.
func needsSignIn(m jsonrpc.Message) bool {
	reason, _ := jsonrpc.Text(m.Lookup("error", "data", "reason"))
	return reason == httpdial.ReasonAuthRequired
}
