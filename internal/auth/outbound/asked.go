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

// clientPrompt is the client of one conversation, which an Asker may ask. A legacy client gets a request of the bridge's own, and its
// requests go on waiting. A modern one gets input_required as the answer to its newest call, which goes on all the
// same: its outcome is the answer to the retry. What follows is guarded by the lock of the Asker.
type clientPrompt struct {
	asker  *Asker
	ctx    context.Context // of the conversation
	client bridge.Conn

	initialize jsonrpc.ID // in progress, of a client that can show addresses; zero: none is
	begun      bool       // the session is of 2025-11-25, and its client can show addresses
	elicited   string     // the id of what a legacy client was asked last; "": nothing is open
	address    string     // that it was asked to show
	answered   bool       // the person has gone there

	calls     map[jsonrpc.ID]*asking // those of modern clients that can show addresses, by the id of the call
	questions map[string]*asking     // those of them that were answered with a question, by their state
	byRetry   map[jsonrpc.ID]*asking // those whose retry is in progress, by the id of the retry
	count     int                    // of calls so far
}

// An asking is a call of a modern client, which may be answered with a question.
type asking struct {
	id      jsonrpc.ID
	number  int // by which the newest is known
	method  string
	token   jsonrpc.ID
	leaving bool // its outcome is on its way to the client

	state   string          // what its retry has as requestState; "": it was not answered with a question
	address string          // that the client was asked to show
	outcome jsonrpc.Message // that came before the retry
	retry   jsonrpc.ID      // in progress; zero: none is
	next    jsonrpc.ID      // the progress token of the retry
	givenUp bool            // the retry is over, and the server was told: a late outcome is for nobody
}

// isOver reports whether the server has nothing more to say of the call that the client waits for.
func (c *asking) isOver() bool { return c.givenUp || c.outcome.Kind() != jsonrpc.Invalid }

// Names in messages.
const (
	elicit    = "elicitation/create"
	cancelled = "notifications/cancelled"
	progress  = "notifications/progress"
	completed = "notifications/elicitation/complete"
	entry     = "sign-in" // of inputRequests
	maxOver   = 16        // calls that are over, and kept for a retry or a late outcome
)

// question returns what asks the client to show an address; nil: it cannot be asked now.
func (t *clientPrompt) question(server string, need client.Required) []jsonrpc.Message {
	params := `{"mode":"url","message":` + string(jsonrpc.Quote(messageTo(server, need))) + `,"url":` + string(jsonrpc.Quote(printable.Text(need.URL)))
	if t.begun {
		before := t.settledMessage()
		t.elicited, t.address = newName(), need.URL
		return []jsonrpc.Message{before, jsonrpc.NewRequest(jsonrpc.StringID(t.elicited), elicit, []byte(params+`,"elicitationId":"`+t.elicited+`"}`))}
	}
	var c *asking // the newest
	for _, one := range t.calls {
		if !one.leaving && one.state == "" && (c == nil || one.number > c.number) {
			c = one
		}
	}
	if c == nil {
		return nil
	}
	c.state, c.address = newName(), need.URL
	t.questions[c.state] = c
	return []jsonrpc.Message{jsonrpc.NewResult(c.id, []byte(`{"resultType":"input_required","inputRequests":{"`+entry+`":{"method":"`+elicit+`","params":`+params+`}}},"requestState":"`+c.state+`"}`)).WithRelated(c.id)}
}

// settledMessage returns what tells a legacy client that its question is settled; invalid: there is none.
func (t *clientPrompt) settledMessage() jsonrpc.Message {
	name, answered := t.elicited, t.answered
	t.elicited, t.address, t.answered = "", "", false
	switch {
	case name == "":
		return jsonrpc.Message{}
	case !answered:
		return jsonrpc.NewNotification(cancelled, []byte(`{"requestId":"`+name+`","reason":"the sign-in is over"}`))
	}
	return jsonrpc.NewNotification(completed, []byte(`{"elicitationId":"`+name+`"}`))
}

// received sees what the client sends.
func (t *clientPrompt) received(m *jsonrpc.Message) (reply *jsonrpc.Message) {
	t.asker.mu.Lock()
	defer t.asker.mu.Unlock()
	switch m.Kind() {
	case jsonrpc.Request:
		in, answer := t.requested(*m)
		if *m = in; answer.Kind() != jsonrpc.Invalid {
			reply = &answer
		}
	case jsonrpc.Response:
		if t.elicited != "" && m.ID().Equivalent(jsonrpc.StringID(t.elicited)) {
			t.answer(action(m.Result()))
			*m = jsonrpc.Message{}
		}
	case jsonrpc.Notification:
		if m.Method() == cancelled {
			*m = t.cancel(*m)
		}
	}
	return reply
}

// answer takes what the person has done with what a legacy client was asked.
func (t *clientPrompt) answer(said string) {
	if said == "decline" {
		t.asker.decline(t.address)
	}
	if t.answered = said == "accept"; !t.answered { // nothing is left that could be completed
		t.elicited, t.address = "", ""
	}
}

// requested takes a request of the client.
func (t *clientPrompt) requested(m jsonrpc.Message) (in, reply jsonrpc.Message) {
	if m.Method() == "initialize" {
		if showsURLs(jsonrpc.Lookup(m.Params(), "capabilities")) {
			t.initialize = m.ID()
		}
		return m, reply
	}
	showing := era.MayAskForInput(m.Method()) && showsURLs(era.MetaOf(m).Capabilities)
	var c *asking // that m is the retry of
	if showing {
		state, _ := jsonrpc.Text(jsonrpc.Lookup(m.Params(), "requestState"))
		if c = t.questions[state]; c != nil && (c.givenUp || !c.retry.IsZero() || c.method != m.Method()) {
			c = nil
		}
	}
	same := t.calls[m.ID()]
	switch {
	case t.byRetry[m.ID()] != nil, same != nil && same != c:
		return in, jsonrpc.NewError(m.ID(), jsonrpc.CodeInvalidRequest, "a request with this id is already in progress", nil).WithRelated(m.ID())
	case c != nil:
		return t.retried(c, m)
	case showing:
		t.add(m)
	}
	return m, reply
}

// add notes a call.
func (t *clientPrompt) add(m jsonrpc.Message) {
	t.count++
	t.calls[m.ID()] = &asking{id: m.ID(), number: t.count, method: m.Method(), token: m.ProgressToken()}
}

// forget is add undone.
func (t *clientPrompt) forget(c *asking) {
	delete(t.calls, c.id)
	delete(t.questions, c.state)
	delete(t.byRetry, c.retry)
}

// giveUp has the outcome of a call be for nobody, also if it is on its way already.
func (t *clientPrompt) giveUp(c *asking) {
	t.forgetOldestOver()
	delete(t.byRetry, c.retry)
	c.retry, c.givenUp = jsonrpc.ID{}, true
}

// retried takes the retry of a call that was answered with a question.
func (t *clientPrompt) retried(c *asking, m jsonrpc.Message) (in, reply jsonrpc.Message) {
	switch said := action(jsonrpc.Lookup(jsonrpc.Lookup(m.Params(), "inputResponses"), entry)); {
	case c.isOver() && !needsSignIn(c.outcome):
		t.forget(c)
		return in, c.outcome.WithID(m.ID()).WithRelated(m.ID())
	case said != "accept":
		if said == "decline" {
			t.asker.decline(c.address)
		}
		if c.isOver() {
			t.forget(c)
		} else {
			t.giveUp(c)
			in = jsonrpc.NewNotification(cancelled, []byte(`{"requestId":`+c.id.String()+`}`))
		}
		f := &httpdial.Fault{Reason: httpdial.ReasonAuth, Status: unauthorized, Text: "the person has not wanted to sign in"}
		return in, f.Response(m.ID()).WithRelated(m.ID())
	case c.isOver(): // nobody had signed in yet
		t.forget(c)
		t.add(m)
		return m.WithoutInParams(nil, "inputResponses", "requestState"), reply
	}
	c.retry, c.next = m.ID(), m.ProgressToken()
	t.byRetry[c.retry] = c
	return in, reply
}

// cancel returns what a client's notifications/cancelled is for the server; invalid: nothing.
func (t *clientPrompt) cancel(m jsonrpc.Message) jsonrpc.Message {
	id := m.CancelledID()
	if id.IsZero() { // it names no request
		return m
	}
	if c := t.byRetry[id]; c != nil {
		t.giveUp(c)
		return m.WithCancelledID(c.id)
	}
	switch c := t.calls[id]; {
	case c == nil:
	case c.state != "": // it has its answer
		return jsonrpc.Message{}
	default:
		t.forget(c)
	}
	return m
}

// sending sees what the client gets.
func (t *clientPrompt) sending(m jsonrpc.Message) (out, reply jsonrpc.Message, refused error) {
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
	case c.givenUp:
		t.forget(c)
		return out, reply, nil
	case c.state == "":
		c.leaving = true
		return m, reply, nil
	case !c.retry.IsZero():
		c.leaving = true
		return m.WithID(c.retry).WithRelated(c.retry), reply, nil
	}
	t.forgetOldestOver()
	c.outcome = m
	return out, reply, nil
}

// progressed returns the progress of a call, for its retry if there is one; invalid: nobody is told.
func (t *clientPrompt) progressed(m jsonrpc.Message) jsonrpc.Message {
	for _, c := range t.questions {
		switch {
		case c.isOver() || c.token.IsZero() || c.token != m.ProgressToken():
		case c.next.IsZero():
			return jsonrpc.Message{}
		default:
			return m.WithProgressToken(c.next).WithRelated(c.retry)
		}
	}
	return m
}

// sent is told of what the client has got.
func (t *clientPrompt) sent(m jsonrpc.Message) {
	if m.Kind() != jsonrpc.Response {
		return
	}
	t.asker.mu.Lock()
	defer t.asker.mu.Unlock()
	if !t.initialize.IsZero() && m.ID() == t.initialize {
		version, _ := jsonrpc.Text(jsonrpc.Lookup(m.Result(), "protocolVersion"))
		t.initialize, t.begun = jsonrpc.ID{}, version == era.Version2025_11_25
	}
	if c := cmp.Or(t.byRetry[m.ID()], t.calls[m.ID()]); c != nil && c.leaving {
		t.forget(c)
	}
}

// forgetOldestOver forgets the oldest of the calls that are over, if there are maxOver of them.
func (t *clientPrompt) forgetOldestOver() {
	n := 0
	var oldest *asking
	for _, c := range t.questions {
		if !c.isOver() {
			continue
		}
		if n++; oldest == nil || c.number < oldest.number {
			oldest = c
		}
	}
	if n >= maxOver {
		t.forget(oldest)
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
