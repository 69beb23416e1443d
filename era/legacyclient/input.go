package legacyclient

import (
	"bytes"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	maxInputRounds = 10                     // how often the server may answer one call with input_required (ME8)
	maxRepeats     = 3                      // how often the server may answer one call with input_required but no input requests, which only wants the call to be sent again
	repeatDelay    = 250 * time.Millisecond // how long the Filter waits before it sends a call again that the server wants again without input
)

// inputs sends the server's input requests to the client.
type inputs struct {
	session  *session      // has what the client can do
	calls    *calls        // the client's requests, in whose course the server asks
	timeout  time.Duration // how long the client may take to answer the input requests of one inputRound
	randomID func() string // returns a new elicitationId

	lastID            int64                        // the id of the latest request to the client
	openRequests      map[jsonrpc.ID]*inputRequest // input requests that the client has got and not answered, by the id that it knows
	callsWithDeadline []*call                      // calls that wait until their inputDeadline, in no order
}

// inputRound is what the server has asked for during a call: the input requests of its latest input_required, and how
// often it has asked.
type inputRound struct {
	rounds       int             // how often the server has answered the call with input_required
	repeats      int             // how often the server has answered the call with input_required but no input requests; rounds counts these, too
	requestState []byte          // the server's requestState of this round, raw; nil: none
	requests     []*inputRequest // the input requests of this round, in the server's order
	unanswered   int             // how many of requests have no answer yet
}

// inputRequest is one input request of the server to the client.
type inputRequest struct {
	call   *call           // the client's request in whose course the server asks
	id     jsonrpc.ID      // the id that the client knows; zero: the request was not sent yet, or the client has answered it
	key    []byte          // its key in inputRequests: a raw string, as the server spells it
	m      jsonrpc.Message // the request, with placeholderID
	answer []byte          // the client's result, raw; nil: there is none yet
}

// placeholderID is the id of an input request until it is sent.
var placeholderID = jsonrpc.IntID(0)

// handleInputRequired takes a result that asks for input. Its input requests are sent to
// the client, and when all are answered the call is sent to the server again
// (C.4.6).
func (in *inputs) handleInputRequired(now time.Time, c *call, result []byte, out *era.Out) {
	if c.inputRound == nil {
		c.inputRound = &inputRound{}
	}
	round := c.inputRound
	round.rounds++
	if round.rounds > maxInputRounds {
		in.calls.finishError(c, "the server asks for input again and again", "rounds_exceeded", out)
		return
	}
	requests, ok := readInputRequests(c, shape.Member(result, "inputRequests"))
	round.requestState = shape.Member(result, "requestState")
	if !ok || round.requestState != nil && round.requestState[0] != '"' || len(requests) == 0 && round.requestState == nil {
		in.calls.finishError(c, "the server asks for input in no valid way", "invalid_result", out)
		return
	}
	if len(requests) == 0 {
		round.repeats++
		if round.repeats > maxRepeats {
			in.calls.finishError(c, "the server wants the call again and again", "rounds_exceeded", out)
			return
		}
		in.waitUntil(c, now.Add(repeatDelay))
		return
	}
	for _, a := range requests {
		if what := in.missingCapability(a); what != "" {
			in.failUnfulfilled(c, "The server needs "+what+", which this client does not offer.", out)
			return
		}
	}
	round.requests, round.unanswered = requests, len(requests)
	for _, a := range requests {
		in.send(a, out)
	}
	in.waitUntil(c, now.Add(in.timeout))
}

// readInputRequests reads a raw inputRequests of the server's answer to c; nil: there are none.
// ok is false if it is not valid.
func readInputRequests(c *call, requests []byte) (list []*inputRequest, ok bool) {
	if requests == nil {
		return nil, true
	}
	if !shape.IsObject(requests) {
		return nil, false
	}
	seen := map[string]bool{}
	end := 1 // of the previous member
	for m := range jsonrpc.Members(requests) {
		method, named := jsonrpc.Text(shape.Member(m.Value, "method"))
		params := shape.Member(m.Value, "params")
		if !named || seen[m.Key] || params != nil && !shape.IsObject(params) {
			return nil, false
		}
		request, err := jsonrpc.MakeRequest(placeholderID, method, params)
		if err != nil { // a key that must be unique stands twice, say
			return nil, false
		}
		seen[m.Key] = true
		key := requests[end:m.At] // with a comma before and a colon after
		key = key[bytes.IndexByte(key, '"') : bytes.LastIndexByte(key, '"')+1]
		end = m.At + len(m.Value)
		list = append(list, &inputRequest{call: c, key: key, m: request})
	}
	return list, true
}

// missingCapability returns, in words, what an input request needs and the client has not declared;
// "": nothing is missing.
func (in *inputs) missingCapability(a *inputRequest) (missing string) {
	params := a.m.Params()
	switch a.m.Method() {
	case "roots/list":
		if !in.session.declared.roots {
			return "the client's roots"
		}
	case "sampling/createMessage":
		if !in.session.declared.sampling {
			return "sampling"
		}
		if !in.session.declared.samplingTools && (shape.Member(params, "tools") != nil || shape.Member(params, "toolChoice") != nil) {
			return "sampling with tools"
		}
	case "elicitation/create":
		switch mode, ok := elicitMode(params); {
		case mode == "form" && !in.session.declared.formElicitation:
			return "elicitation by form"
		case mode == "url" && !in.session.declared.urlElicitation:
			return "elicitation by URL"
		case !ok:
			return "an elicitation of an unknown mode"
		}
	default:
		return "a kind of input that the bridge does not know"
	}
	return ""
}

// elicitMode returns the mode in the params of an elicitation; "form" if there is none. ok is false
// for a mode other than "form" and "url".
func elicitMode(params []byte) (mode string, ok bool) {
	raw := shape.Member(params, "mode")
	if raw == nil {
		return "form", true
	}
	mode, _ = jsonrpc.Text(raw)
	return mode, mode == "form" || mode == "url"
}

// send sends an input request to the client, on the stream of its call.
func (in *inputs) send(a *inputRequest, out *era.Out) {
	m := a.m
	if m.Method() == "elicitation/create" {
		params := m.Params()
		switch mode, _ := elicitMode(params); {
		case mode == "url" && shape.Member(params, "elicitationId") == nil:
			m = m.WithParams(jsonrpc.With(params, "elicitationId", jsonrpc.Quote(in.randomID()))) // required in 2025-11-25
		case mode == "form" && in.session.version < era.Version2025_11_25:
			m = m.WithParams(jsonrpc.Without(params, "mode")) // 2025-06-18 knows of none
		}
	}
	in.lastID++
	a.id = jsonrpc.IntID(in.lastID)
	in.openRequests[a.id] = a
	out.Client(m.WithID(a.id).WithRelated(a.call.id))
}

// handleAnswer takes a response of the client to an input request. Once the last one of a round is
// there, the call is sent to the server again.
func (in *inputs) handleAnswer(m jsonrpc.Message, out *era.Out) {
	id, a, ok := jsonrpc.Find(in.openRequests, m.ID())
	if !ok {
		out.Drop(m, "it answers no open question")
		return
	}
	delete(in.openRequests, id)
	a.id = jsonrpc.ID{}
	c := a.call
	if m.IsError() || !shape.IsObject(m.Result()) {
		in.failUnfulfilled(c, "The client did not give the input that the server needs.", out)
		return
	}
	a.answer = m.Result()
	c.inputRound.unanswered--
	if c.inputRound.unanswered == 0 {
		in.retry(c, out)
	}
}

// retry sends the call to the server again, with the answers and the requestState
// of this round byte for byte (ME8).
func (in *inputs) retry(c *call, out *era.Out) {
	round := c.inputRound
	in.stopWaiting(c)
	members := []byte{'{'}
	for i, a := range round.requests {
		if i == 0 {
			members = append(members, `"inputResponses":{`...)
		} else {
			members = append(members, ',')
		}
		members = append(append(append(members, a.key...), ':'), a.answer...)
	}
	if len(round.requests) > 0 {
		members = append(members, '}')
	}
	if round.requestState != nil {
		members = shape.AppendMember(members, "requestState", round.requestState)
	}
	round.requests, round.requestState = nil, nil
	in.calls.send(c, jsonrpc.NewFragment(append(members, '}')), out)
}

// resumeCall goes on with a call whose inputDeadline has come: it sends the call again if that had
// only to wait, or ends it because the client has not answered in time.
func (in *inputs) resumeCall(c *call, out *era.Out) {
	if len(c.inputRound.requests) == 0 {
		in.retry(c, out)
		return
	}
	in.failUnfulfilled(c, "The client did not give the input that the server needs in time.", out)
}

// failUnfulfilled ends a call whose input the server will not get. For a tool the
// result says why, so that a model can read it; other calls get an error (C.4.6).
func (in *inputs) failUnfulfilled(c *call, text string, out *era.Out) {
	in.cancelRequests(c, jsonrpc.Quote(text), out)
	if c.method != "tools/call" {
		in.calls.finishError(c, text, "input_unavailable", out)
		return
	}
	result := `{"content":[{"type":"text","text":` + string(jsonrpc.Quote(text)) + `}],"isError":true}`
	in.calls.finish(c, jsonrpc.NewResult(c.id, []byte(result)), out)
}

// cancelRequests cancels the open input requests of a call and ends its wait. why is a
// raw text for the client, or nil.
func (in *inputs) cancelRequests(c *call, why []byte, out *era.Out) {
	if c.inputRound == nil {
		return
	}
	in.stopWaiting(c)
	for _, a := range c.inputRound.requests {
		if a.id.IsZero() {
			continue
		}
		params := `{"requestId":` + a.id.String()
		if why != nil {
			params += `,"reason":` + string(why)
		}
		out.Client(jsonrpc.NewNotification("notifications/cancelled", []byte(params+"}")).WithRelated(c.id))
		delete(in.openRequests, a.id)
	}
	c.inputRound.requests = nil
}

// waitUntil has a call wait until a time at most: for answers of its client, or for the next attempt.
func (in *inputs) waitUntil(c *call, due time.Time) {
	c.inputDeadline = due
	in.callsWithDeadline = append(in.callsWithDeadline, c)
}

// stopWaiting ends the wait of a call, if it waits.
func (in *inputs) stopWaiting(c *call) {
	if i := slices.Index(in.callsWithDeadline, c); i >= 0 {
		in.callsWithDeadline = slices.Delete(in.callsWithDeadline, i, i+1)
	}
}

// nextDue returns when tick must be called; zero: never.
func (in *inputs) nextDue() (due time.Time) {
	for _, c := range in.callsWithDeadline {
		due = earlier(due, c.inputDeadline)
	}
	return due
}

// tick goes on with the calls whose wait has ended.
func (in *inputs) tick(now time.Time, out *era.Out) {
	for _, c := range slices.Clone(in.callsWithDeadline) {
		if !c.inputDeadline.After(now) {
			in.resumeCall(c, out)
		}
	}
}
