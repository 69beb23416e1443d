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

// A clientPrompt is one conversation with a client, whom a SignInElicitor may ask to show an address. A legacy client
// gets an elicitation/create request of the bridge's own, and its requests go on waiting. A modern one gets
// input_required as the answer to the newest of its calls that have no answer yet. That call goes on all the same: its
// outcome becomes the answer to the retry. All methods but the three hooks are called with elicitor.mu held.
type clientPrompt struct {
	elicitor *SignInElicitor // the SignInElicitor whose prompt it is
	ctx      context.Context // done at the end of the conversation
	client   bridge.Conn     // the Conn of the client

	// The following are guarded by elicitor.mu.

	initializeRequestID jsonrpc.ID // the id of an initialize without an answer, whose client can show addresses; zero: there is none
	takesElicitRequests bool       // the client was told that the session is of revision 2025-11-25, and it can show addresses (elicitation of mode "url")
	elicitationID       string     // the id of the elicitation/create that a legacy client was sent last; "": it is settled, or there was none
	shownURL            string     // the address that the legacy client was asked to show, until that is settled; "": none
	hasAccepted         bool       // the person has agreed to open shownURL

	calls               map[jsonrpc.ID]*modernCall // calls of modern clients that can show addresses, by their id: those in progress, and those that are over and kept for a retry
	callsByRequestState map[string]*modernCall     // the calls that were answered with input_required, by the requestState in that
	callsByRetryID      map[jsonrpc.ID]*modernCall // the calls whose retry is in progress, by the id of the retry
	lastSequence        int                        // the sequence that addCall has given last; 0: none
}

// A modernCall is a call of a modern client, which may be answered with input_required while the server works on it.
type modernCall struct {
	id               jsonrpc.ID // the id of the call, as the client and the server know it
	sequence         int        // its number, from 1 up: later calls have greater ones
	method           string     // the method of the call: "tools/call" ...
	progressToken    jsonrpc.ID // the progress token of the call; zero: it has none
	isSendingOutcome bool       // the server's answer is on its way to the client

	requestState       string          // what its retry will have as requestState; "": it was not answered with input_required
	shownURL           string          // the address that the client was asked to show; "": none
	declinedStatus     int             // the HTTP status that the client is told if the person declines: that of the requests that waited for a sign-in when it was asked; nobody knows which of them is this call's
	outcome            jsonrpc.Message // the server's answer, if it came before the retry; invalid: it did not
	retryID            jsonrpc.ID      // the id of the retry in progress; zero: none is
	retryProgressToken jsonrpc.ID      // the progress token of the retry; zero: it has none
	isAbandoned        bool            // the client has given it up, and the server was told: an answer that comes later is dropped
}

// isOver reports whether the server's answer to the call is kept for the retry (outcome), or the client has given the call up.
func (c *modernCall) isOver() bool { return c.isAbandoned || c.outcome.Kind() != jsonrpc.Invalid }

// Names in messages.
const (
	methodElicit         = "elicitation/create"                 // asks a legacy client to show an address
	methodCancelled      = "notifications/cancelled"            // says that a request is given up
	methodProgress       = "notifications/progress"             // tells of the progress of a request
	methodElicitComplete = "notifications/elicitation/complete" // tells a legacy client that the address that the person has agreed to open is settled: the sign-in is done, or goes on at another address
	inputRequestKey      = "sign-in"                            // the key of our question in inputRequests and inputResponses
	maxEndedCalls        = 16                                   // how many calls that are over are kept for a retry or a late answer
)

// promptMessages returns the messages that ask the client to show need.URL, and notes that it was asked; nil: it cannot
// be asked now. server is how the server is shown.
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
	c.requestState, c.shownURL, c.declinedStatus = newUnguessableID(), need.URL, t.elicitor.waitingStatusLocked()
	t.callsByRequestState[c.requestState] = c
	return []jsonrpc.Message{jsonrpc.NewResult(c.id, []byte(`{"resultType":"input_required","inputRequests":{"`+inputRequestKey+`":{"method":"`+methodElicit+`","params":`+params+`}}},"requestState":"`+c.requestState+`"}`)).WithRelated(c.id)}
}

// settledMessage forgets the elicitation/create that a legacy client was sent last, and returns the notification that tells
// the client so: notifications/elicitation/complete if the person has agreed to open the address, otherwise
// notifications/cancelled of the request. invalid: there is nothing to settle.
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

// interceptReceived is bridge.Hooks.Receive: it gets what the client sends, before the server does. It takes out what
// answers a prompt, and handles the retries of calls that were answered with one. An invalid m afterwards goes
// nowhere.
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

// handleElicitAction takes the person's answer to the elicitation/create of a legacy client: "accept", "decline" or
// another one. "decline" ends the waits of the requests.
func (t *clientPrompt) handleElicitAction(action string) {
	if action == "decline" {
		t.elicitor.declineLocked(t.shownURL)
	}
	if t.hasAccepted = action == "accept"; !t.hasAccepted { // nothing is left that could be completed
		t.elicitationID, t.shownURL = "", ""
	}
}

// handleRequest takes a request of the client. toServer goes to the server, reply to the client; an invalid one goes
// nowhere.
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

// addCall enters the request m of a modern client in calls.
func (t *clientPrompt) addCall(m jsonrpc.Message) {
	t.lastSequence++
	t.calls[m.ID()] = &modernCall{id: m.ID(), sequence: t.lastSequence, method: m.Method(), progressToken: m.ProgressToken()}
}

// forgetCall removes a call from all maps.
func (t *clientPrompt) forgetCall(c *modernCall) {
	delete(t.calls, c.id)
	delete(t.callsByRequestState, c.requestState)
	delete(t.callsByRetryID, c.retryID)
}

// abandonCall marks a call as abandoned: its retry is over, and its answer, if it still comes, is dropped.
func (t *clientPrompt) abandonCall(c *modernCall) {
	t.forgetOldestEnded()
	delete(t.callsByRetryID, c.retryID)
	c.retryID, c.isAbandoned = jsonrpc.ID{}, true
}

// handleRetry takes m, the retry of the call c that was answered with input_required. toServer goes to the server,
// reply to the client; an invalid one goes nowhere.
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
		f := &httpdial.Fault{Reason: httpdial.ReasonAuthRequired, Status: c.declinedStatus, Text: "the person has not wanted to sign in"}
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

// translateCancel returns what the server gets of a client's notifications/cancelled: with the id of the call, if the
// client cancels its retry; invalid: nothing.
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

// interceptSent is bridge.Hooks.Send: it gets what the server sends, before the client does. The answer to a call
// that was answered with a prompt goes to its retry, or is kept until that comes. An invalid out goes nowhere; reply
// is always invalid, and refused nil.
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

// redirectProgress returns what the client gets of a notifications/progress: with the token of the retry, if the call
// was answered with input_required; invalid: nothing, as there is no retry yet.
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

// afterSend is bridge.Hooks.Sent: it gets each message after the client has got it. It learns from the answer to
// initialize, which says the revision, whether the client takes elicitation requests (takesElicitRequests). A call
// whose answer has arrived is forgotten.
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

// elicitAction returns the "action" in the answer to an elicitation: "accept", "decline", "cancel"; "": it has none.
func elicitAction(result []byte) string {
	said, _ := jsonrpc.Text(jsonrpc.Lookup(result, "action"))
	return said
}

// supportsURLElicitation reports whether a client with these capabilities (raw JSON) can be asked to show an address:
// it has elicitation.url.
func supportsURLElicitation(capabilities []byte) bool {
	url := jsonrpc.Lookup(jsonrpc.Lookup(capabilities, "elicitation"), "url")
	return len(url) > 0 && url[0] == '{'
}

// needsSignIn reports whether a response is the error that somebody must sign in first.
func needsSignIn(m jsonrpc.Message) bool {
	reason, _ := jsonrpc.Text(m.Lookup("error", "data", "reason"))
	return reason == httpdial.ReasonAuthRequired
}
