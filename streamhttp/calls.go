package streamhttp

import (
	"slices"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxCalls is how many requests of the client of a session may wait for the server's
// answers. A server that answers none must not make the table grow for ever.
const maxCalls = 10_000

// call is a client's request in flight.
type call struct {
	id              jsonrpc.ID // the client's id of the request
	method          string     // the method of the request
	progressToken   jsonrpc.ID // the progress token of the request; zero: it has none
	isTaskAugmented bool       // the call has a progress token and is to run as a task: the token outlives the response (J13)
	resultTaskID    string     // the task that a tasks/result is about, as raw JSON; "": it is another method
	seq             uint64     // the call's number in its session: 1 is initialize (a stateless POST begins with 2), and the newest call has the highest (likeliestCall)
	stream          *stream    // the stream of its POST, on which it is answered
}

// isInitialize reports whether c is the initialize request that has opened the session: no other request comes first. A
// stateless POST has none.
func (c *call) isInitialize() bool { return c.seq == 1 }

// canCarryServerMessage reports whether a message of the server other than the response may travel
// on c's stream.
func (c *call) canCarryServerMessage() bool {
	st := c.stream
	return !c.isInitialize() && !st.unresumable && (st.reader != nil || st.committed)
}

// callTable has the client's requests in flight, and the progress tokens that the
// server may name them by. The session's lock guards it; the zero value is empty.
type callTable struct {
	byID       map[jsonrpc.ID]*call    // the calls in flight, by id
	byToken    map[jsonrpc.ID]*call    // the calls in flight that have a progress token, by it; of several with the same one the newest
	taskTokens map[jsonrpc.ID]struct{} // progress tokens of tasks whose call is over, as far as they are remembered (remove)
	lastSeq    uint64                  // seq of the call that was added last
}

// unusableID returns an id that a call in flight has, or that stands twice among requests (J3). ok is
// false if there is no such id.
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
	t.lastSeq++
	c := &call{id: m.ID(), method: m.Method(), progressToken: m.ProgressToken(), seq: t.lastSeq, stream: st}
	if t.byID == nil {
		t.byID = make(map[jsonrpc.ID]*call)
	}
	t.byID[c.id] = c
	if c.method == "tasks/result" {
		c.resultTaskID = string(m.Lookup("params", "taskId"))
	}
	if !c.progressToken.IsZero() {
		if t.byToken == nil {
			t.byToken = make(map[jsonrpc.ID]*call)
		}
		t.byToken[c.progressToken] = c
		c.isTaskAugmented = m.Lookup("params", "task") != nil
	}
}

// remove takes a call out. The token of a task is remembered (isTaskToken); if there are too many already, all of these
// are forgotten.
func (t *callTable) remove(c *call) {
	delete(t.byID, c.id)
	if c.progressToken.IsZero() || t.byToken[c.progressToken] != c {
		return
	}
	delete(t.byToken, c.progressToken)
	if c.isTaskAugmented {
		if len(t.taskTokens) >= maxDeferred || t.taskTokens == nil {
			t.taskTokens = make(map[jsonrpc.ID]struct{})
		}
		t.taskTokens[c.progressToken] = struct{}{}
	}
}

// isTaskToken reports whether a progress token is known to be that of a task whose call is over.
func (t *callTable) isTaskToken(token jsonrpc.ID) bool {
	_, ok := t.taskTokens[token]
	return ok
}

// anyCall returns one of the calls in flight; nil: there is none.
func (t *callTable) anyCall() *call {
	for _, c := range t.byID {
		return c
	}
	return nil
}

// taskResultCall returns the tasks/result in flight for the task that m is about (B.1.4); nil:
// there is none, or m is about no task.
func (t *callTable) taskResultCall(m jsonrpc.Message) *call {
	var task []byte
	for _, c := range t.byID {
		if c.resultTaskID == "" || !c.canCarryServerMessage() {
			continue
		}
		if task == nil {
			if task = taskIDOf(m); task == nil {
				return nil
			}
		}
		if c.resultTaskID == string(task) {
			return c
		}
	}
	return nil
}

// taskIDOf returns the id of the task that m is about, as raw JSON; nil: m is about no task.
func taskIDOf(m jsonrpc.Message) []byte {
	if m.Method() == "notifications/tasks/status" {
		return m.Lookup("params", "taskId")
	}
	return m.Lookup("params", "_meta", "io.modelcontextprotocol/related-task", "taskId")
}

// likeliestCall returns the call that a message without a relation most likely belongs to
// (B.1.8): the only one; else one whose stream somebody reads; of several, one in whose course
// servers ask; of several, the one made last. Only calls with a seq above afterSeq that can carry
// a message of the server count. nil: there is none.
func (t *callTable) likeliestCall(afterSeq uint64) *call {
	var best *call
	for _, c := range t.byID {
		if !c.canCarryServerMessage() || c.seq <= afterSeq {
			continue
		}
		if best == nil || c.likelihood() > best.likelihood() || (c.likelihood() == best.likelihood() && c.seq > best.seq) {
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

// sentRequests are the server's requests that have gone to the client and are neither answered nor cancelled, with the
// stream of each, so that a cancellation follows it (B.1.3). The session's lock
// guards them; the zero value is empty.
type sentRequests map[jsonrpc.ID]*stream

// add notes that the request with this id travels on st. If there are too many already, all of these are forgotten.
func (r *sentRequests) add(id jsonrpc.ID, st *stream) {
	if *r == nil || len(*r) >= maxDeferred { // a client that answers nothing
		*r = make(sentRequests)
	}
	(*r)[id] = st
}

// remove forgets the request that the client has answered, however it spells the id.
func (r sentRequests) remove(id jsonrpc.ID) {
	if id, _, ok := jsonrpc.Find(r, id); ok {
		delete(r, id)
	}
}

// handshake is how far the opening of a session has come. The session's lock guards it.
type handshake struct {
	version        string // the protocol version that was negotiated; until then what the client has asked for
	accepted       bool   // initialize was answered with a result; of a stateless POST always set
	gotInitialized bool   // notifications/initialized has arrived (LI29); of a stateless POST always set

	ownInitializePending  bool // of a stateless POST: the server has not answered the bridge's own initialize with a result (yet)
	ownInitializeRejected bool // of a stateless POST: the server has answered the bridge's own initialize with an error
}

// noteAccepted notes that initialize was answered with a result, m, and which version that has.
func (h *handshake) noteAccepted(m jsonrpc.Message) {
	h.accepted = true
	if version, _ := jsonrpc.Text(m.Lookup("result", "protocolVersion")); version != "" {
		h.version = version
	}
}

// isTooEarly reports whether a message of the server must wait until the client has said
// notifications/initialized (LI29), or until initialize was answered.
func (h *handshake) isTooEarly(m jsonrpc.Message) bool {
	if h.gotInitialized {
		return false
	}
	if !h.accepted {
		return true
	}
	return m.Method() != "ping" && m.Method() != "notifications/message"
}
