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

// maxInputRounds is how often a call may be parked (C.4.4).
const maxInputRounds = 16

// parking parks calls during which the server sends input requests (C.4). Each
// input request is answered exactly once, also if its call is cancelled or the
// client does not come back.
type parking struct {
	timers *timers.Timers
	calls  *calls
	turns  *turns.Turns[*call]
	logs   *logs
	states stateIssuer

	maxParked int    // calls that may be parked at a time
	declared  []byte // the capabilities that the server was told of, raw

	openRequests map[jsonrpc.ID]*inputRequest // the open input requests, by the server's id
	parkedCalls  map[string]*call             // parked calls
	collecting   int                          // calls whose input requests are being collected
	count        atomic.Int64                 // of records
}

// request takes an input request of the server.
func (p *parking) request(now time.Time, m jsonrpc.Message, out *era.Out) {
	if _, _, again := jsonrpc.Find(p.openRequests, m.ID()); again {
		out.Drop(m, "its id is that of another question that is open")
		return
	}
	q := newInputRequest(m)
	_, named := m.During()
	p.turns.Heard(now, named, m.Related() == jsonrpc.NullID, out)
	c, others := p.calls.asking(m, q)
	if c == nil {
		out.Server(q.noCall())
		return
	}
	p.turns.RecordInputRequest(&c.turn, others)
	lacking := missingCapability(c.capabilities, q.method, q.params)
	undeclared := missingCapability(p.declared, q.method, q.params) != nil
	switch {
	case lacking == nil && !undeclared:
		p.addRequest(now, c, q, out)
	case lacking == nil || len(others) > 0 || q.method == "roots/list":
		out.Server(q.unsupported()) // D5; and servers list roots just to see whether they can (C.4.3)
	default:
		out.Server(q.unsupported())
		p.calls.reject(now, c, lackingCapability(lacking), out)
	}
}

// addRequest adds an input request to its call. If the call is parked already, the
// client learns of the request after its retry.
func (p *parking) addRequest(now time.Time, c *call, q *inputRequest, out *era.Out) {
	if p.states.sealer == nil {
		out.Server(q.refusal(jsonrpc.CodeInternalError, "nobody can be asked here"))
		return
	}
	if c.input == nil {
		c.input = &callInput{name: strconv.FormatInt(p.calls.next(), 10)}
	}
	in := c.input
	idle := !in.parked && in.window == nil
	if len(in.requests) >= maxInputRequests || idle && len(p.parkedCalls)+p.collecting+p.turns.Retries() >= p.maxParked {
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
		in.firstAsked = now
	}
	p.cancelWindow(c)
	at := now.Add(collectWindow)
	if last := in.firstAsked.Add(maxCollectWindow); last.Before(at) {
		at = last
	}
	p.collecting++
	in.window = p.timers.Set(at, func(now time.Time, out *era.Out) {
		p.cancelWindow(c)
		p.replyInputRequired(now, c, out)
	})
}

func (p *parking) cancelWindow(c *call) {
	if c.input.window != nil {
		p.timers.Stop(c.input.window)
		c.input.window = nil
		p.collecting--
	}
}

// cancelled takes the server's notifications/cancelled for an input request. A
// call without input requests is not parked; a call that is parked already waits
// for its retry all the same.
func (p *parking) cancelled(m jsonrpc.Message) {
	if _, q, ok := jsonrpc.Find(p.openRequests, m.CancelledID()); ok {
		p.forget(q)
	}
}

// forget removes an input request that has been answered or needs no answer.
func (p *parking) forget(q *inputRequest) {
	delete(p.openRequests, q.id)
	in := q.call.input
	in.requests = slices.DeleteFunc(in.requests, func(other *inputRequest) bool { return other == q })
}

// refuseRequests answers all open input requests of a call with a refusal, because its
// client will not answer them (C.4.5).
func (p *parking) refuseRequests(c *call, out *era.Out) {
	p.cancelWindow(c)
	for _, q := range c.input.requests {
		delete(p.openRequests, q.id)
		out.Server(q.abandoned())
	}
	c.input.requests = nil
}

// replyInputRequired answers a call with input_required. The server goes on with it, and the
// retry finds it (C.4.1).
func (p *parking) replyInputRequired(now time.Time, c *call, out *era.Out) {
	if c.turn.IsWaiting() { // with the answers to some of them
		p.turns.StopWaiting(&c.turn)
		p.deliver(now, c, out)
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
			p.forget(q)
			out.Server(q.unsupported())
		default: // the first request had the capability, the retry has not
			p.calls.reject(now, c, lackingCapability(lacking), out)
			return
		}
	}
	if len(in.requests) == 0 {
		return
	}
	if in.rounds == maxInputRounds {
		p.calls.reject(now, c, &era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the call has asked too often", Data: shape.Reason("rounds")}, out)
		return
	}
	in.rounds++
	in.generation++
	in.parked = true
	requests := []byte{'{'}
	for _, q := range in.requests {
		q.sentToClient = true
		requests = appendInput(requests, q.key, q.method, q.params)
	}
	state := p.states.newState(now, &c.request)
	state.CallID, state.Round = in.name, in.generation
	in.deadline = p.timers.Set(state.Expires, func(now time.Time, out *era.Out) { p.expire(now, c, out) })
	delete(p.calls.open, c.id)
	p.parkedCalls[in.name] = c
	p.count.Store(int64(len(p.parkedCalls)))
	out.Client(p.states.inputRequired(c.id, append(requests, '}'), state))
	p.turns.Release(now, &c.turn, out)
}

// stopAwaitingRetry removes a call from the parked ones.
func (p *parking) stopAwaitingRetry(c *call) {
	p.timers.Stop(c.input.deadline)
	c.input.parked = false
	delete(p.parkedCalls, c.input.name)
	p.count.Store(int64(len(p.parkedCalls)))
}

// expire ends a parked call whose client has not retried it in time (C.4.5).
func (p *parking) expire(now time.Time, c *call, out *era.Out) {
	p.stopAwaitingRetry(c)
	if c.input.outcome == nil {
		p.calls.abort(now, c, nil, out)
	}
}

// serverEnded forgets the parked calls.
func (p *parking) serverEnded() {
	clear(p.parkedCalls)
	p.count.Store(0)
}
