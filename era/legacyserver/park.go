package legacyserver

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/timers"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/turns"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxInputRounds is how often a call may be parked, or be answered with URLs (C.4.4).
const maxInputRounds = 16

// parking parks calls during which the server sends input requests (C.4): it answers the client
// with input_required, and the call waits for the retry with the answers. Each input request that
// the server does not cancel is answered exactly once, also if its call is cancelled or the client
// does not come back.
type parking struct {
	timers    *timers.Timers      // those of the Filter: they end the collecting of input requests, and the wait for a retry
	calls     *calls              // all calls of the Filter; parking parks some of them
	turns     *turns.Turns[*call] // decides which calls may cause input requests at a time; is told of each input request of a call
	logRouter *logRouter          // sets the log level that a retry wants
	states    stateIssuer         // makes and reads the requestState

	maxParked            int    // how many calls may be parked at a time, with those that may be soon: collectingCalls, and retries that wait for their turn
	declaredCapabilities []byte // the capabilities that the server was told of, raw

	openRequests    map[jsonrpc.ID]*inputRequest // the open input requests, by the server's id
	parkedCalls     map[string]*call             // the parked calls, by callInput.parkedID
	collectingCalls int                          // how many calls have input requests that are being collected
	parkedCount     atomic.Int64                 // how many parkedCalls there are; for Parked, which others call
}

// handleRequest takes an input request of the server. It finds the call that the request belongs
// to, and adds the request to it, or refuses the request at once. If the client lacks the capability
// that the request needs, and the request can belong to no other call, the call is rejected as well.
func (p *parking) handleRequest(now time.Time, m jsonrpc.Message, out *era.Out) {
	if _, _, again := jsonrpc.Find(p.openRequests, m.ID()); again {
		out.Drop(m, "its id is that of another question that is open")
		return
	}
	q := newInputRequest(m)
	_, named := m.During()
	p.turns.NoteRelation(now, named, m.Related() == jsonrpc.NullID, out)
	c, others := p.calls.findAsker(m, q)
	if c == nil {
		out.Server(q.noCallResponse())
		return
	}
	p.turns.RecordInputRequest(&c.turn, others)
	lacking := missingCapability(c.capabilities, q.method, q.params)
	undeclared := missingCapability(p.declaredCapabilities, q.method, q.params) != nil
	switch {
	case lacking == nil && !undeclared:
		p.addRequest(now, c, q, out)
	case lacking == nil || len(others) > 0 || q.method == "roots/list":
		out.Server(q.unsupportedResponse()) // D5; and servers list roots just to see whether they can (C.4.3)
	default:
		out.Server(q.unsupportedResponse())
		p.calls.reject(now, c, missingCapabilityRefusal(lacking), out)
	}
}

// addRequest adds the input request q to its call, which is parked a moment later if the server still
// waits for an answer then. If the call is parked already, the client learns of q after its retry. q is
// refused if the call has maxInputRequests open, if more calls than maxParked would be parked, or if no
// client is asked for input (stateIssuer.sealer is nil).
func (p *parking) addRequest(now time.Time, c *call, q *inputRequest, out *era.Out) {
	if p.states.sealer == nil {
		out.Server(q.refusal(jsonrpc.CodeInternalError, "nobody can be asked here"))
		return
	}
	if c.input == nil {
		c.input = &callInput{parkedID: strconv.FormatInt(p.calls.nextArrival(), 10)}
	}
	in := c.input
	idle := !in.parked && in.collectTimer == nil
	if len(in.requests) >= maxInputRequests || idle && len(p.parkedCalls)+p.collectingCalls+p.turns.WaitingRetries() >= p.maxParked {
		out.Server(q.refusal(jsonrpc.CodeInternalError, "too many questions are open"))
		return
	}
	in.lastKey++
	q.key, q.call = "m"+strconv.Itoa(in.lastKey), c
	in.requests = append(in.requests, q)
	p.openRequests[q.id] = q
	if in.parked {
		return
	}
	if idle {
		in.firstAskedAt = now
	}
	p.stopCollecting(c)
	at := now.Add(collectWindow)
	if last := in.firstAskedAt.Add(maxCollectWindow); last.Before(at) {
		at = last
	}
	p.collectingCalls++
	in.collectTimer = p.timers.Set(at, func(now time.Time, out *era.Out) {
		p.stopCollecting(c)
		p.replyInputRequired(now, c, out)
	})
}

// stopCollecting ends the time in which input requests of a call are collected, if it is under way.
func (p *parking) stopCollecting(c *call) {
	if c.input.collectTimer != nil {
		p.timers.Stop(c.input.collectTimer)
		c.input.collectTimer = nil
		p.collectingCalls--
	}
}

// handleCancelled takes the server's notifications/cancelled for an input request. A
// call without input requests is not parked; a call that is parked already waits
// for its retry all the same.
func (p *parking) handleCancelled(m jsonrpc.Message) {
	if _, q, ok := jsonrpc.Find(p.openRequests, m.CancelledID()); ok {
		p.forgetRequest(q)
	}
}

// forgetRequest removes an input request that has been answered or needs no answer.
func (p *parking) forgetRequest(q *inputRequest) {
	delete(p.openRequests, q.id)
	in := q.call.input
	in.requests = slices.DeleteFunc(in.requests, func(other *inputRequest) bool { return other == q })
}

// refuseRequests answers all open input requests of a call with a refusal, because its
// client will not answer them (C.4.5).
func (p *parking) refuseRequests(c *call, out *era.Out) {
	p.stopCollecting(c)
	for _, q := range c.input.requests {
		delete(p.openRequests, q.id)
		out.Server(q.abandonedResponse())
	}
	c.input.requests = nil
}

// replyInputRequired parks a call: it answers the client with input_required, if any of the call's
// input requests are open. The server goes on with the call, and the client's retry finds it (C.4.1).
// A call that was parked too often, or whose retry has lost a capability that it needs, is rejected.
func (p *parking) replyInputRequired(now time.Time, c *call, out *era.Out) {
	if c.turn.IsWaiting() { // with the answers to some of them
		p.turns.StopWaiting(&c.turn)
		p.deliverAnswers(now, c, out)
	}
	in := c.input
	if in.parked {
		return
	}
	for _, q := range slices.Clone(in.requests) {
		lacking := missingCapability(c.capabilities, q.method, q.params)
		switch {
		case lacking == nil:
		case q.method == "roots/list":
			p.forgetRequest(q)
			out.Server(q.unsupportedResponse())
		default: // the first request had the capability, the retry has not
			p.calls.reject(now, c, missingCapabilityRefusal(lacking), out)
			return
		}
	}
	if len(in.requests) == 0 {
		return
	}
	if in.timesParked == maxInputRounds {
		p.calls.reject(now, c, &era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the call has asked too often", Data: shape.ReasonData("rounds")}, out)
		return
	}
	in.timesParked++
	in.parked = true
	requests := []byte{'{'}
	for _, q := range in.requests {
		q.sentToClient = true
		requests = appendInput(requests, q.key, q.method, q.params)
	}
	state := p.states.newState(now, &c.request)
	state.CallID, state.Round = in.parkedID, in.timesParked
	in.retryTimer = p.timers.Set(state.Expires, func(now time.Time, out *era.Out) { p.expire(now, c, out) })
	delete(p.calls.byClientID, c.id)
	p.parkedCalls[in.parkedID] = c
	p.parkedCount.Store(int64(len(p.parkedCalls)))
	out.Client(p.states.inputRequiredResponse(c.id, append(requests, '}'), state))
	p.turns.Release(now, &c.turn, out)
}

// stopAwaitingRetry removes a call from the parked ones.
func (p *parking) stopAwaitingRetry(c *call) {
	p.timers.Stop(c.input.retryTimer)
	c.input.parked = false
	delete(p.parkedCalls, c.input.parkedID)
	p.parkedCount.Store(int64(len(p.parkedCalls)))
}

// expire ends a parked call whose client has not retried it in time (C.4.5): the call is cancelled
// at the server, unless it is over there.
func (p *parking) expire(now time.Time, c *call, out *era.Out) {
	p.stopAwaitingRetry(c)
	if c.input.outcome == nil {
		p.calls.abort(now, c, nil, out)
	}
}

// forgetAll forgets the parked calls, because the server has ended.
func (p *parking) forgetAll() {
	clear(p.parkedCalls)
	p.parkedCount.Store(0)
}
