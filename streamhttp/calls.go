package streamhttp

import (
	"slices"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxCalls is how many requests of the client may wait for the server's
// answers. A server that answers none must not make the table grow for ever.
const maxCalls = 10_000

// call is a client's request in flight.
type call struct {
	id         jsonrpc.ID
	method     string
	token      jsonrpc.ID
	isTask     bool   // augmented as a task: its token outlives the response (J13)
	resultTask string // the task that a tasks/result is about, as raw JSON
	number     uint64
	stream     *stream
}

// isInitialize reports whether c is the initialize request: no other comes first.
func (c *call) isInitialize() bool { return c.number == 1 }

// canCarry reports whether a message of the server may travel on c's stream.
func (c *call) canCarry() bool {
	st := c.stream
	return !c.isInitialize() && !st.unresumable && (st.reader != nil || st.committed)
}

// callTable has the client's requests in flight, and the progress tokens that the
// server may name them by. The session's lock guards it; the zero value is empty.
type callTable struct {
	byID   map[jsonrpc.ID]*call
	tokens map[jsonrpc.ID]*call
	tasks  map[jsonrpc.ID]struct{} // progress tokens of tasks whose call is over
	count  uint64                  // calls that there have been
}

// unusableID returns an id that cannot be used: by a call in flight, or twice among requests (J3).
func (t *callTable) unusableID(requests []jsonrpc.Message) (used jsonrpc.ID, ok bool) {
	for i, m := range requests {
		_, used := t.byID[m.ID()]
		if used || slices.ContainsFunc(requests[:i], func(o jsonrpc.Message) bool { return o.ID() == m.ID() }) {
			return m.ID(), true
		}
	}
	return jsonrpc.ID{}, false
}

// add enters a request that is answered on st.
func (t *callTable) add(m jsonrpc.Message, st *stream) {
	t.count++
	c := &call{id: m.ID(), method: m.Method(), token: m.ProgressToken(), number: t.count, stream: st}
	if t.byID == nil {
		t.byID = make(map[jsonrpc.ID]*call)
	}
	t.byID[c.id] = c
	if c.method == "tasks/result" {
		c.resultTask = string(m.Lookup("params", "taskId"))
	}
	if !c.token.IsZero() {
		if t.tokens == nil {
			t.tokens = make(map[jsonrpc.ID]*call)
		}
		t.tokens[c.token] = c
		c.isTask = m.Lookup("params", "task") != nil
	}
}

// remove takes a call out. The token of a task is remembered.
func (t *callTable) remove(c *call) {
	delete(t.byID, c.id)
	if c.token.IsZero() || t.tokens[c.token] != c {
		return
	}
	delete(t.tokens, c.token)
	if c.isTask {
		if len(t.tasks) >= maxDeferred || t.tasks == nil {
			t.tasks = make(map[jsonrpc.ID]struct{})
		}
		t.tasks[c.token] = struct{}{}
	}
}

// isTask reports whether a progress token is that of a task whose call is over.
func (t *callTable) isTask(token jsonrpc.ID) bool {
	_, ok := t.tasks[token]
	return ok
}

// anyCall returns one of the calls in flight; nil: there is none.
func (t *callTable) anyCall() *call {
	for _, c := range t.byID {
		return c
	}
	return nil
}

// callNamedBy returns the tasks/result in flight for the task that m is about (B.1.4).
func (t *callTable) callNamedBy(m jsonrpc.Message) *call {
	var task []byte
	for _, c := range t.byID {
		if c.resultTask == "" || !c.canCarry() {
			continue
		}
		if task == nil {
			if task = taskOf(m); task == nil {
				return nil
			}
		}
		if c.resultTask == string(task) {
			return c
		}
	}
	return nil
}

// taskOf returns the id of the task that m is about, as raw JSON.
func taskOf(m jsonrpc.Message) []byte {
	if m.Method() == "notifications/tasks/status" {
		return m.Lookup("params", "taskId")
	}
	return m.Lookup("params", "_meta", "io.modelcontextprotocol/related-task", "taskId")
}

// likeliest returns the call that a message without a relation most likely belongs to:
// the only one, else the one made last among those in whose course servers ask
// (B.1.8). Only calls made after since count.
func (t *callTable) likeliest(since uint64) *call {
	var best *call
	for _, c := range t.byID {
		if !c.canCarry() || c.number <= since {
			continue
		}
		if best == nil || c.likelihood() > best.likelihood() || (c.likelihood() == best.likelihood() && c.number > best.number) {
			best = c
		}
	}
	return best
}

// likelihood is a number: the higher it is, the likelier a message without a relation belongs to c.
func (c *call) likelihood() (rank int) {
	if c.stream.reader != nil {
		rank += 2
	}
	switch c.method {
	case "tools/call", "prompts/get", "resources/read", "tasks/result":
		rank++
	}
	return rank
}

// sentRequests are the server's requests that have gone to the client, with the
// stream of each, so that a cancellation follows it (B.1.3). The session's lock
// guards them; the zero value is empty.
type sentRequests map[jsonrpc.ID]*stream

func (r *sentRequests) add(id jsonrpc.ID, st *stream) {
	if *r == nil || len(*r) >= maxDeferred { // a client that answers nothing: forget
		*r = make(sentRequests)
	}
	(*r)[id] = st
}

// answered forgets the request that the client has answered, however it spells the id.
func (r sentRequests) answered(id jsonrpc.ID) {
	if id, _, ok := jsonrpc.Find(r, id); ok {
		delete(r, id)
	}
}

// handshake is how far the opening of a session has come. The session's lock guards it.
type handshake struct {
	version  string // negotiated; until then what the client has asked for
	answered bool   // initialize was answered with a result
	ready    bool   // notifications/initialized has arrived (LI29)

	// Of a stateless POST, in which the bridge itself initializes the server:
	initializing bool // the bridge's own initialize request is not answered with a result (yet)
	rejected     bool // it was answered with an error
}

// accepted takes note of the result of initialize.
func (h *handshake) accepted(m jsonrpc.Message) {
	h.answered = true
	if version, _ := jsonrpc.Text(m.Lookup("result", "protocolVersion")); version != "" {
		h.version = version
	}
}

// isTooEarly reports whether a message of the server must wait until the client has said
// notifications/initialized (LI29), or until initialize was answered.
func (h *handshake) isTooEarly(m jsonrpc.Message) bool {
	if h.ready {
		return false
	}
	if !h.answered {
		return true
	}
	return m.Method() != "ping" && m.Method() != "notifications/message"
}
