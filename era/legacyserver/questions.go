package legacyserver

import (
	"slices"
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// Questions that come within askWindow of the last are asked together, but
	// the first is not kept waiting for longer than askWindowMax (C.4.1).
	askWindow    = 30 * time.Millisecond
	askWindowMax = 200 * time.Millisecond

	// maxQuestions is how many questions of one call may be open.
	maxQuestions = 100
)

// question is a request of the server that is to be answered by a client.
type question struct {
	id     jsonrpc.ID // the server's
	key    string     // the client's, in inputRequests
	method string
	params []byte // as the client gets them
	task   []byte // the related-task that it came with; nil: none
	call   *call
	shown  bool // it is in the inputRequests that the call is parked with
}

// callInput is what the server has asked in the course of a call.
type callInput struct {
	questions  []*question // that are open, in order
	keys       int         // how many there have been
	firstAsked time.Time   // of those in the window
	window     *timer      // they are being collected; nil: no
	generation int         // which inputRequests are the current ones
	rounds     int         // how often the call was parked

	parked   bool // it waits for the retry
	name     string
	deadline *timer
	outcome  *outcome // the server has finished meanwhile; nil: no

	answers []questionAnswer // of the retry, for the server
}

type questionAnswer struct {
	q      *question
	result []byte // raw
}

// question takes a request of the server.
func (f *Filter) question(now time.Time, m jsonrpc.Message, out *era.Out) {
	method := m.Method()
	switch {
	case method == "ping":
		out.Server(jsonrpc.NewResult(m.ID(), nil))
		return
	case !isQuestion(method):
		out.Server(jsonrpc.NewError(m.ID(), jsonrpc.CodeMethodNotFound, "there is no method "+method, nil))
		return
	}
	if _, _, again := jsonrpc.Find(f.asked, m.ID()); again {
		out.Drop(m, "its id is that of another question that is open")
		return
	}
	q := newQuestion(m)
	f.overheard(now, m, out)
	c, others := f.attribute(m, q)
	if c == nil {
		out.Server(q.noCall())
		return
	}
	_, named := m.During()
	f.hasAsked(c, named, others)
	lacking := missingCapability(c.capabilities, q.method, q.params)
	undeclared := missingCapability(f.o.Capabilities, q.method, q.params) != nil
	switch {
	case lacking == nil && !undeclared:
		f.take(now, c, q, out)
	case lacking == nil || len(others) > 0 || q.method == "roots/list":
		out.Server(q.unsupported()) // D5; and servers list roots just to see whether they can (C.4.3)
	default:
		out.Server(q.unsupported())
		f.rejectCall(now, c, lacking, out)
	}
}

// newQuestion makes the edits that a question needs (C.4.1): a modern client has
// no tasks, no progress to report, and no ids of elicitations.
func newQuestion(m jsonrpc.Message) *question {
	q := &question{id: m.ID(), method: m.Method(), params: jsonrpc.Without(m.Params(), "task", "elicitationId")}
	if meta := shape.Member(q.params, "_meta"); shape.IsObject(meta) {
		q.task = shape.Member(meta, era.KeyRelatedTask)
		rest := jsonrpc.Without(meta, "progressToken", era.KeyRelatedTask)
		switch {
		case len(rest) == len(meta):
		case shape.IsEmpty(rest):
			q.params = jsonrpc.Without(q.params, "_meta")
		default:
			q.params = jsonrpc.With(q.params, "_meta", rest)
		}
	}
	return q
}

// attribute finds the call in whose course a question came (B.1), and what
// others it could be of. Of several calls it is the one that has the floor;
// others have not waited for it because no question was expected of them, or have
// taken too long. If it is one of those, then one that has more to ask,
// whose client waits, and that came last.
func (f *Filter) attribute(m jsonrpc.Message, q *question) (c *call, others []*call) {
	if id, named := m.During(); named {
		if _, c, ok := jsonrpc.Find(f.sent, id); ok && era.MayAskForInput(c.method) {
			return c, nil
		}
		return nil, nil
	}
	if c := f.callOfTaskID(q.task); c != nil {
		return c, nil
	}
	if f.floor.gone {
		return nil, nil // it is the last word of a call that was given up
	}
	best := -1
	for id, other := range f.sent {
		if id != other.atServer || !era.MayAskForInput(other.method) {
			continue
		}
		rank := f.rank(other, q)
		if c == nil || rank > best || rank == best && other.turn > c.turn {
			c, best = other, rank
		}
		others = append(others, other)
	}
	return c, slices.DeleteFunc(others, func(other *call) bool { return other == c })
}

// rank says how likely it is that a question is of a call.
func (f *Filter) rank(c *call, q *question) (n int) {
	if missingCapability(c.capabilities, q.method, q.params) == nil {
		n += 8
	}
	if c == f.floor.holder {
		n += 4
	}
	if f.mayAsk(c) {
		n += 2
	}
	if c.live(f) && c.waits == nil {
		n++
	}
	return n
}

// take adds a question to those of a call. A parked call goes on waiting for the
// answers to those that the client knows.
func (f *Filter) take(now time.Time, c *call, q *question, out *era.Out) {
	if f.o.Sealer == nil {
		out.Server(q.refusal(jsonrpc.CodeInternalError, "nobody can be asked here"))
		return
	}
	if c.input == nil {
		c.input = &callInput{name: strconv.FormatInt(f.nextTurn(), 10)}
	}
	in := c.input
	idle := !in.parked && in.window == nil
	if len(in.questions) >= maxQuestions || idle && len(f.records)+f.asking+f.returning() >= f.o.MaxParked {
		out.Server(q.refusal(jsonrpc.CodeInternalError, "too many questions are open"))
		return
	}
	in.keys++
	q.key, q.call = "m"+strconv.Itoa(in.keys), c
	in.questions = append(in.questions, q)
	f.asked[q.id] = q
	if in.parked {
		f.parkFloor(now, c, out)
		return
	}
	if idle {
		in.firstAsked = now
	}
	f.closeWindow(c)
	at := now.Add(askWindow)
	if last := in.firstAsked.Add(askWindowMax); last.Before(at) {
		at = last
	}
	f.asking++
	in.window = f.timers.set(at, func(now time.Time, out *era.Out) {
		f.closeWindow(c)
		f.park(now, c, out)
	})
}

func (f *Filter) closeWindow(c *call) {
	if c.input.window != nil {
		f.timers.stop(c.input.window)
		c.input.window = nil
		f.asking--
	}
}

// withdrawn takes the server's notifications/cancelled: it has no use for the
// answer to a question any more. A call without questions is not parked; one that
// is parked already comes back for what it has missed.
func (f *Filter) withdrawn(m jsonrpc.Message) {
	if _, q, ok := jsonrpc.Find(f.asked, m.RequestID()); ok {
		f.forget(q)
	}
}

// forget takes a question off the list; it has been answered, or nobody waits for an answer.
func (f *Filter) forget(q *question) {
	delete(f.asked, q.id)
	in := q.call.input
	in.questions = slices.DeleteFunc(in.questions, func(other *question) bool { return other == q })
}

// settle answers all open questions of a call for the user who will not (C.4.5).
func (f *Filter) settle(c *call, out *era.Out) {
	f.closeWindow(c)
	for _, q := range c.input.questions {
		delete(f.asked, q.id)
		out.Server(q.abandoned())
	}
	c.input.questions = nil
}

// rejectCall ends a call whose client lacks a capability (C.4.3).
func (f *Filter) rejectCall(now time.Time, c *call, lacking []byte, out *era.Out) {
	f.abort(now, c, nil, out)
	data := append(shape.AppendMember([]byte{'{'}, "requiredCapabilities", lacking), '}')
	f.conclude(now, c, outcome{refusal: &era.Refusal{Code: era.CodeMissingCapability, Text: "the call needs a capability that the client does not have", Data: data}}, out)
}

// answer is the response to a question with a client's answer.
func (q *question) answer(result []byte) jsonrpc.Message {
	if q.task != nil { // what belongs to a task says so (2025-11-25, tasks)
		meta := shape.Member(result, "_meta")
		if !shape.IsObject(meta) {
			meta = []byte("{}")
		}
		result = jsonrpc.With(result, "_meta", jsonrpc.With(meta, era.KeyRelatedTask, q.task))
	}
	return jsonrpc.NewResult(q.id, result)
}

func (q *question) refusal(code int, text string) jsonrpc.Message {
	return jsonrpc.NewError(q.id, code, text, nil)
}

func (q *question) unsupported() jsonrpc.Message {
	return q.refusal(jsonrpc.CodeMethodNotFound, q.method+" is not supported by the client")
}

// abandoned is the answer when the user does not give one.
func (q *question) abandoned() jsonrpc.Message {
	switch q.method {
	case "elicitation/create":
		return q.answer([]byte(`{"action":"cancel"}`))
	case "sampling/createMessage":
		return q.refusal(-1, "User rejected sampling request") // the words of 2025-11-25
	}
	return q.refusal(jsonrpc.CodeInternalError, "the client has not answered")
}

// noCall is the answer when there is no call in whose course a client could be
// asked: a modern client has no other way to be (B.3).
func (q *question) noCall() jsonrpc.Message {
	switch q.method {
	case "elicitation/create":
		return q.answer([]byte(`{"action":"cancel"}`))
	case "roots/list":
		return q.unsupported()
	}
	return q.refusal(jsonrpc.CodeInternalError, "no call is in progress that could ask the client")
}
