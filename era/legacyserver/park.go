package legacyserver

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// parkRounds is how often one call may ask (C.4.4).
const parkRounds = 16

// park answers a call with its open questions; what the server does with it
// goes on, and the retry will find it (C.4.1).
func (f *Filter) park(now time.Time, c *call, out *era.Out) {
	if c.waits != nil { // to answer some of them
		f.unwait(c)
		f.deliver(now, c, out)
	}
	in := c.input
	if in.parked {
		return
	}
	for _, q := range slices.Clone(in.questions) {
		lacking := missingCapability(c.capabilities, q.method, q.params)
		switch {
		case lacking == nil:
		case q.method == "roots/list":
			f.forget(q)
			out.Server(q.unsupported())
		default: // the first request had it, the retry has not
			f.rejectCall(now, c, lacking, out)
			return
		}
	}
	if len(in.questions) == 0 {
		return
	}
	if in.rounds == parkRounds {
		f.abort(now, c, nil, out)
		f.conclude(now, c, outcome{refusal: &era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the call has asked too often", Data: shape.Reason("rounds")}}, out)
		return
	}
	in.rounds++
	in.generation++
	in.parked = true
	requests := []byte{'{'}
	for _, q := range in.questions {
		q.shown = true
		requests = appendInput(requests, q.key, q.method, q.params)
	}
	state := f.stateOf(now, &c.request)
	state.Call, state.Generation = in.name, in.generation
	in.deadline = f.timers.set(state.Expires, func(now time.Time, out *era.Out) { f.expire(now, c, out) })
	delete(f.calls, c.id)
	f.records[in.name] = c
	f.parked.Store(int64(len(f.records)))
	out.Client(f.inputRequired(c.id, append(requests, '}'), state))
	f.parkFloor(now, c, out)
}

// appendInput appends an entry to inputRequests. Without params, which only
// roots/list may be, some clients cannot read it.
func appendInput(requests []byte, key, method string, params []byte) []byte {
	if params == nil {
		params = []byte("{}")
	}
	entry := shape.AppendMember([]byte{'{'}, "method", jsonrpc.Quote(method))
	entry = shape.AppendMember(entry, "params", params)
	return shape.AppendMember(requests, key, append(entry, '}'))
}

// stateOf is the State of a call, but for which one it is.
func (f *Filter) stateOf(now time.Time, r *request) era.State {
	return era.State{
		Unit:      f.o.Unit,
		Instance:  f.o.Instance,
		Principal: f.o.Principal,
		Method:    r.method,
		Digest:    digestOf(r.m),
		Expires:   now.Add(f.o.ParkTimeout),
	}
}

// digestOf tells calls with other params apart. The retry has another _meta, and
// the client may have written the same params in another way.
func digestOf(m jsonrpc.Message) string {
	params := jsonrpc.Without(m.Params(), "_meta", "inputResponses", "requestState")
	sum := sha256.Sum256(shape.AppendCanonical(nil, params, shape.CanonicalDepth))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

func (f *Filter) inputRequired(id jsonrpc.ID, requests []byte, state era.State) jsonrpc.Message {
	rest := shape.AppendMember([]byte{'{'}, "inputRequests", requests)
	rest = shape.AppendMember(rest, "requestState", jsonrpc.Quote(f.o.Sealer.Seal(state)))
	return makeResult(id, `"resultType":"input_required",`, f.link.meta, append(rest, '}'))
}

// unpark takes a parked call off the list.
func (f *Filter) unpark(c *call) {
	f.timers.stop(c.input.deadline)
	c.input.parked = false
	delete(f.records, c.input.name)
	f.parked.Store(int64(len(f.records)))
}

// expire ends a parked call that nobody has come back for (C.4.5): such a client
// says nothing, so only the clock can tell.
func (f *Filter) expire(now time.Time, c *call, out *era.Out) {
	f.unpark(c)
	if c.input.outcome == nil {
		f.abort(now, c, nil, out)
	}
}

var (
	badState  = &era.Refusal{Code: jsonrpc.CodeInvalidParams, Text: "Invalid or expired requestState"}
	usedState = &era.Refusal{Code: jsonrpc.CodeInvalidParams, Text: "requestState already used"}
	goneState = &era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the server has ended", Data: []byte(`{"reason":"server_ended"}`)}
	badAnswer = &era.Refusal{Code: jsonrpc.CodeInvalidParams, Text: "an entry of inputResponses is no answer to its request"}
)

// retry takes a request with a requestState (C.4.4).
func (f *Filter) retry(now time.Time, r request, out *era.Out) {
	refuse := func(why *era.Refusal) { out.Client(why.Response(r.id).WithRelated(r.id)) }
	state, ok := f.open(now, &r)
	if !ok {
		refuse(badState)
		return
	}
	if state.Replay {
		f.replay(now, r, state, out)
		return
	}
	if state.Instance != f.o.Instance {
		refuse(goneState)
		return
	}
	c := f.records[state.Call]
	if c == nil || c.input.generation != state.Generation {
		refuse(usedState)
		return
	}
	answers, ok := f.answersTo(c, r.answers)
	if !ok {
		refuse(badAnswer) // and the call goes on waiting
		return
	}
	f.claim(now, c, r, answers, out)
}

// open reads the State of a retry and reports whether it is this retry's.
func (f *Filter) open(now time.Time, r *request) (era.State, bool) {
	text, ok := jsonrpc.Text(r.state)
	if !ok || f.o.Sealer == nil {
		return era.State{}, false
	}
	s, err := f.o.Sealer.Open(text)
	ok = err == nil && s.Unit == f.o.Unit && s.Principal == f.o.Principal &&
		s.Method == r.method && now.Before(s.Expires) && s.Digest == digestOf(r.m)
	return s, ok
}

// answersTo finds the answers to the questions that the client knows; nil where
// there is none. ok is false if one is malformed.
func (f *Filter) answersTo(c *call, answers []byte) (found [][]byte, ok bool) {
	if answers != nil && !shape.IsObject(answers) {
		return nil, string(answers) == "null"
	}
	open := c.input.questions
	found = make([][]byte, len(open))
	for entry := range jsonrpc.Members(answers) {
		i := slices.IndexFunc(open, func(q *question) bool { return q.shown && q.key == entry.Key })
		if i < 0 {
			continue // answered already, withdrawn, or never asked
		}
		if !isAnswer(open[i].method, entry.Value) {
			return nil, false
		}
		found[i] = entry.Value
	}
	return found, true
}

// claim makes a retry the live request of its call.
func (f *Filter) claim(now time.Time, c *call, r request, answers [][]byte, out *era.Out) {
	f.unpark(c)
	r.replays = c.replays
	c.request, c.turn = r, f.nextTurn()
	f.calls[c.id] = c
	if o := c.input.outcome; o != nil {
		f.conclude(now, c, *o, out)
		return
	}
	if c.logLevel != nil {
		f.raiseLevel(now, era.LogRank(c.logLevel), c.logLevel, out)
	}
	c.input.answers = nil
	for i, a := range answers {
		if a != nil {
			c.input.answers = append(c.input.answers, questionAnswer{c.input.questions[i], a})
		}
	}
	if len(c.input.answers) == 0 || !f.awaitFloor(now, c) {
		f.deliver(now, c, out)
	}
}

// deliver sends the server the answers that a retry has brought.
func (f *Filter) deliver(now time.Time, c *call, out *era.Out) {
	answers := c.input.answers
	c.input.answers = nil
	for _, a := range answers {
		if f.asked[a.q.id] == a.q { // else it was taken back
			f.forget(a.q)
			out.Server(a.q.answer(a.result))
		}
	}
	if c.input.window == nil {
		f.park(now, c, out) // again, if not all is answered
	}
}

// sendToURL answers a call that the server refuses until the user has been at
// some URLs (-32042): the client is asked to send the user there, and its retry
// starts the call anew. Nothing waits at the server. ok is false if the error
// does not say where to.
func (f *Filter) sendToURL(now time.Time, c *call, data []byte) (m jsonrpc.Message, ok bool) {
	requests, n := []byte{'{'}, 0
	for _, e := range jsonrpc.Elements(shape.Member(data, "elicitations")) {
		if !shape.IsObject(e) || !isURLMode(e) {
			continue
		}
		n++
		requests = appendInput(requests, "m"+strconv.Itoa(n), "elicitation/create", jsonrpc.Without(e, "elicitationId"))
	}
	if n == 0 || f.o.Sealer == nil {
		return m, false
	}
	if lacking := missingMode(shape.Member(c.capabilities, "elicitation"), true); lacking != nil {
		data := append(shape.AppendMember([]byte{'{'}, "requiredCapabilities", lacking), '}')
		return jsonrpc.NewError(c.id, era.CodeMissingCapability, "the call needs a capability that the client does not have", data).WithRelated(c.id), true
	}
	if c.replays == parkRounds {
		return jsonrpc.NewError(c.id, jsonrpc.CodeInternalError, "the call has asked too often", shape.Reason("rounds")).WithRelated(c.id), true
	}
	state := f.stateOf(now, &c.request)
	state.Replay, state.Generation, state.Call = true, c.replays+1, strconv.Itoa(n)
	return f.inputRequired(c.id, append(requests, '}'), state), true
}

// replay takes the retry of such a call. An answer that is missing needs no
// asking again: the server will refuse again, if it must.
func (f *Filter) replay(now time.Time, r request, state era.State, out *era.Out) {
	n, _ := strconv.Atoi(state.Call)
	for entry := range jsonrpc.Members(r.answers) {
		if i, err := strconv.Atoi(strings.TrimPrefix(entry.Key, "m")); err != nil || i < 1 || i > n {
			continue
		}
		switch actionOf(entry.Value) {
		case "accept":
		case "":
			out.Client(badAnswer.Response(r.id).WithRelated(r.id))
			return
		default:
			f.declined(r, out)
			return
		}
	}
	r.replays = state.Generation
	f.begin(now, r, out)
}

// declined answers a call that the user does not want to do for what it needs.
func (f *Filter) declined(r request, out *era.Out) {
	const text = "the user has not gone to the URL that the call needs"
	if r.method != "tools/call" {
		f.refuse(r.id, jsonrpc.CodeInternalError, text, shape.Reason("declined"), out)
		return
	}
	out.Client(makeResult(r.id, `"resultType":"complete",`, f.link.meta,
		[]byte(`{"content":[{"type":"text","text":"`+text+`"}],"isError":true}`)))
}
