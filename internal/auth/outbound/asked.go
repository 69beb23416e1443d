package outbound

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// asked is the client of one conversation, which an Asker may ask. A legacy client gets a request of the bridge's own, and its
// requests go on waiting. A modern one gets input_required as the answer to its newest call, which goes on all the
// same: its outcome is the answer to the retry. What follows is guarded by the lock of the Asker.
type asked struct {
	asker  *Asker
	ctx    context.Context // of the conversation
	client bridge.Conn

	initialize jsonrpc.ID // in progress, of a client that can show addresses; zero: none is
	begun      bool       // the session is of 2025-11-25, and its client can show addresses
	elicited   string     // the id of what a legacy client was asked last; "": nothing is open
	answered   bool       // that has its answer

	calls map[jsonrpc.ID]*asking // those of modern clients that can show addresses, by the id of the call
	count int                    // of them so far
}

// An asking is a call of a modern client, which may be answered with a question.
type asking struct {
	number  int // by which the newest is known
	method  string
	token   jsonrpc.ID
	leaving bool // its outcome is on its way to the client

	state   string          // what its retry has as requestState; "": it was not answered with a question
	outcome jsonrpc.Message // that came before the retry
	retry   jsonrpc.ID      // in progress; zero: none has come
	next    jsonrpc.ID      // the progress token of the retry
}

// Names in messages.
const (
	elicit     = "elicitation/create"
	cancelled  = "notifications/cancelled"
	progress   = "notifications/progress"
	completed  = "notifications/elicitation/complete"
	entry      = "sign-in" // of inputRequests
	maxOutcome = 16        // calls with an outcome whose retry has not come
)

// question returns what asks the client; invalid: it cannot be asked now.
func (t *asked) question(server string, need client.Required) jsonrpc.Message {
	params := `{"mode":"url","message":` + string(jsonrpc.Quote(messageTo(server, need))) + `,"url":` + string(jsonrpc.Quote(printable.Text(need.URL)))
	if t.begun {
		t.elicited, t.answered = newName(), false
		return jsonrpc.NewRequest(jsonrpc.StringID(t.elicited), elicit, []byte(params+`,"elicitationId":"`+t.elicited+`"}`))
	}
	var newest jsonrpc.ID
	for id, c := range t.calls {
		if !c.leaving && c.state == "" && (newest.IsZero() || c.number > t.calls[newest].number) {
			newest = id
		}
	}
	if newest.IsZero() {
		return jsonrpc.Message{}
	}
	c := t.calls[newest]
	c.state = newName()
	return jsonrpc.NewResult(newest, []byte(`{"resultType":"input_required","inputRequests":{"`+entry+`":{"method":"`+elicit+`","params":`+params+`}}},"requestState":"`+c.state+`"}`)).WithRelated(newest)
}

// settledMessage returns what tells a legacy client that its question is settled; invalid: there is none.
func (t *asked) settledMessage() jsonrpc.Message {
	name := t.elicited
	t.elicited = ""
	switch {
	case name == "":
		return jsonrpc.Message{}
	case !t.answered:
		return jsonrpc.NewNotification(cancelled, []byte(`{"requestId":"`+name+`","reason":"the sign-in is over"}`))
	}
	return jsonrpc.NewNotification(completed, []byte(`{"elicitationId":"`+name+`"}`))
}

// received sees what the client sends.
func (t *asked) received(m jsonrpc.Message) (in, reply jsonrpc.Message) {
	t.asker.mu.Lock()
	defer t.asker.mu.Unlock()
	switch m.Kind() {
	case jsonrpc.Response:
		if t.elicited == "" || !m.ID().Equivalent(jsonrpc.StringID(t.elicited)) {
			return m, reply
		}
		t.answered = true
		if action(m.Result()) == "decline" {
			t.asker.decline()
		}
		return jsonrpc.Message{}, reply
	case jsonrpc.Notification:
		if m.Method() == cancelled {
			return t.cancel(m), reply
		}
		return m, reply
	}
	if m.Method() == "initialize" {
		if showsURLs(jsonrpc.Lookup(m.Params(), "capabilities")) {
			t.initialize = m.ID()
		}
		return m, reply
	}
	if !era.MayAskForInput(m.Method()) || !showsURLs(era.MetaOf(m).Capabilities) {
		return m, reply
	}
	state, _ := jsonrpc.Text(jsonrpc.Lookup(m.Params(), "requestState"))
	for id, c := range t.calls {
		if state != "" && c.state == state && c.retry.IsZero() && c.method == m.Method() {
			return t.retried(id, c, m)
		}
	}
	t.add(m)
	return m, reply
}

// add notes a call.
func (t *asked) add(m jsonrpc.Message) {
	t.count++
	t.calls[m.ID()] = &asking{number: t.count, method: m.Method(), token: m.ProgressToken()}
}

// retried takes the retry of a call that was answered with a question.
func (t *asked) retried(id jsonrpc.ID, c *asking, m jsonrpc.Message) (in, reply jsonrpc.Message) {
	switch said := action(jsonrpc.Lookup(jsonrpc.Lookup(m.Params(), "inputResponses"), entry)); {
	case c.outcome.Kind() != jsonrpc.Invalid && !needsSignIn(c.outcome):
		delete(t.calls, id)
		return in, c.outcome.WithID(m.ID()).WithRelated(m.ID())
	case said != "accept":
		delete(t.calls, id)
		if said == "decline" {
			t.asker.decline()
		}
		f := &httpdial.Fault{Reason: httpdial.ReasonAuth, Status: unauthorized, Text: "the person has not wanted to sign in"}
		if c.outcome.Kind() == jsonrpc.Invalid {
			in = jsonrpc.NewNotification(cancelled, []byte(`{"requestId":`+id.String()+`}`))
		}
		return in, f.Response(m.ID()).WithRelated(m.ID())
	case c.outcome.Kind() != jsonrpc.Invalid: // nobody had signed in yet
		delete(t.calls, id)
		t.add(m)
		return m.WithoutInParams(nil, "inputResponses", "requestState"), reply
	}
	c.retry, c.next = m.ID(), m.ProgressToken()
	return in, reply
}

// cancel returns what a client's notifications/cancelled is for the server; invalid: nothing.
func (t *asked) cancel(m jsonrpc.Message) jsonrpc.Message {
	if m.CancelledID().IsZero() { // it names no request
		return m
	}
	for id, c := range t.calls {
		switch {
		case m.CancelledID() == c.retry:
			delete(t.calls, id)
			return m.WithCancelledID(id)
		case m.CancelledID() == id && c.state != "": // it has its answer
			return jsonrpc.Message{}
		case m.CancelledID() == id:
			delete(t.calls, id)
			return m
		}
	}
	return m
}

// sending sees what the client gets.
func (t *asked) sending(m jsonrpc.Message) (out, reply jsonrpc.Message, refused error) {
	t.asker.mu.Lock()
	defer t.asker.mu.Unlock()
	if m.Kind() == jsonrpc.Notification && m.Method() == progress {
		return t.progressed(m), reply, nil
	}
	if m.Kind() != jsonrpc.Response {
		return m, reply, nil
	}
	c := t.calls[m.ID()]
	switch {
	case c == nil:
		return m, reply, nil
	case c.state == "":
		c.leaving = true
		return m, reply, nil
	case !c.retry.IsZero():
		return m.WithID(c.retry).WithRelated(c.retry), reply, nil
	}
	t.makeRoomForOutcome()
	c.outcome = m
	return out, reply, nil
}

// progressed returns the progress of a call, for its retry if there is one; invalid: nobody is told.
func (t *asked) progressed(m jsonrpc.Message) jsonrpc.Message {
	for _, c := range t.calls {
		switch {
		case c.state == "" || c.token.IsZero() || c.token != m.ProgressToken():
		case c.next.IsZero():
			return jsonrpc.Message{}
		default:
			return m.WithProgressToken(c.next).WithRelated(c.retry)
		}
	}
	return m
}

// sent is told of what the client has got.
func (t *asked) sent(m jsonrpc.Message) {
	if m.Kind() != jsonrpc.Response {
		return
	}
	t.asker.mu.Lock()
	defer t.asker.mu.Unlock()
	if m.ID() == t.initialize {
		version, _ := jsonrpc.Text(jsonrpc.Lookup(m.Result(), "protocolVersion"))
		t.initialize, t.begun = jsonrpc.ID{}, version == era.Version2025_11_25
	}
	delete(t.calls, m.ID())
	for id, c := range t.calls {
		if !c.retry.IsZero() && c.retry == m.ID() {
			delete(t.calls, id)
		}
	}
}

// makeRoomForOutcome forgets an outcome whose retry has not come, any one, if there are maxOutcome of them.
func (t *asked) makeRoomForOutcome() {
	n, one := 0, jsonrpc.ID{}
	for id, c := range t.calls {
		if c.outcome.Kind() != jsonrpc.Invalid {
			n, one = n+1, id
		}
	}
	if n >= maxOutcome {
		delete(t.calls, one)
	}
}

// action returns what the person has done with a question.
func action(result []byte) string {
	said, _ := jsonrpc.Text(jsonrpc.Lookup(result, "action"))
	return said
}

// showsURLs reports whether a client of these capabilities can be asked to show an address.
func showsURLs(capabilities []byte) bool {
	url := jsonrpc.Lookup(jsonrpc.Lookup(capabilities, "elicitation"), "url")
	return len(url) > 0 && url[0] == '{'
}

// needsSignIn reports whether an answer says that nobody has signed in.
func needsSignIn(m jsonrpc.Message) bool {
	reason, _ := jsonrpc.Text(m.Lookup("error", "data", "reason"))
	return reason == httpdial.ReasonAuth
}
