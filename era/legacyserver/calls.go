package legacyserver

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// call is a request of a client that the server works on. It is in calls
// while the client waits for its answer, and in sent while the server owes one;
// a parked call is only in sent, one that waits to be sent only in calls.
type call struct {
	request             // the client's: the first, or the retry that came last
	atServer jsonrpc.ID // the id of our request; zero: not sent yet
	token    jsonrpc.ID // the progress token in it
	turn     int64      // when it, or its last retry, came

	input   *callInput // what the server has asked; nil: nothing yet
	asked   int        // how many questions there have been
	beside  []*call    // of which others they could have been
	waits   *timer     // it waits for the floor until then; nil: it does not
	givenUp bool       // only answers to its questions may be owed, to the server
	task    *callTask  // it runs as a task; nil: as an ordinary call
}

// live reports whether a client waits for the answer.
func (c *call) live(f *Filter) bool { return f.calls[c.id] == c }

// call takes a request that is the server's to answer.
func (f *Filter) call(now time.Time, r request, out *era.Out) {
	if r.state != nil {
		f.retry(now, r, out)
		return
	}
	f.begin(now, r, out)
}

// begin starts a call, once the server has the log level that it wants and it
// is known how the tool is run.
func (f *Filter) begin(now time.Time, r request, out *era.Out) {
	c := &call{request: r, turn: f.nextTurn()}
	f.calls[c.id] = c
	if c.logLevel != nil && f.awaitLevel(now, c, out) {
		return
	}
	f.beginTool(now, c, out)
}

func (f *Filter) beginTool(now time.Time, c *call, out *era.Out) {
	if c.method == "tools/call" && f.awaitTools(c) {
		return
	}
	f.beginTurn(now, c, out)
}

func (f *Filter) beginTurn(now time.Time, c *call, out *era.Out) {
	if c.method == "tools/call" && f.runsAsTask(c) {
		c.task = &callTask{}
	}
	if !f.awaitFloor(now, c) {
		f.send(c, out)
	}
}

// send sends the call to the server.
func (f *Filter) send(c *call, out *era.Out) {
	c.atServer = f.nextID()
	f.sent[c.atServer] = c
	if c.token = c.m.ProgressToken(); !c.token.IsZero() {
		f.tokens[c.token] = c
	}
	m := c.forServer(c.atServer)
	if c.task != nil {
		m = m.WithParams(jsonrpc.With(m.Params(), "task", []byte("{}")))
	}
	out.Server(m)
}

// complete takes the server's last word on a call.
func (f *Filter) complete(now time.Time, c *call, m jsonrpc.Message, out *era.Out) {
	f.leave(c)
	if c.input != nil {
		f.settle(c, out)
	}
	if code := shape.ErrorCode(m); code != jsonrpc.CodeMethodNotFound && code != jsonrpc.CodeInvalidParams { // then it has not run
		f.learn(now, c, out)
	}
	f.leaveFloor(now, c, out)
	f.conclude(now, c, outcome{m: m}, out)
}

// outcome is how a call ends: by the server's response, or for a reason of our own.
type outcome struct {
	m       jsonrpc.Message
	refusal *era.Refusal
}

// conclude answers the client, or keeps the outcome for the retry of a parked call.
func (f *Filter) conclude(now time.Time, c *call, o outcome, out *era.Out) {
	if c.input != nil && c.input.parked {
		kept := o // a copy, so that o is on the stack in every other case
		c.input.outcome = &kept
		return
	}
	delete(f.calls, c.id)
	if o.refusal != nil {
		out.Client(o.refusal.Response(c.id).WithRelated(c.id))
		return
	}
	if o.m.IsError() {
		out.Client(f.failure(now, c, o.m))
		return
	}
	if c.method == "tools/list" {
		out.Client(f.resultMessage(c.id, c.method, f.readTools(o.m.Result())))
		return
	}
	out.Client(f.resultOf(c, o.m))
}

// leave forgets a call that is over at the server, but for its open questions:
// those get an answer, which the server does not need any more but is owed.
func (f *Filter) leave(c *call) {
	delete(f.sent, c.atServer)
	delete(f.tokens, c.token)
	if c.task != nil {
		f.leaveTask(c)
	}
	f.unwait(c)
	if c.input != nil {
		f.closeWindow(c)
	}
}

// abort ends a call at the server. Its answer, should one come, is dropped.
func (f *Filter) abort(now time.Time, c *call, reason []byte, out *era.Out) {
	f.leave(c)
	if c.atServer.IsZero() {
		return
	}
	f.logs.quiet = now.Add(quietTime)
	c.givenUp = true
	if !f.giveUpFloor(now, c, out) && c.input != nil {
		f.settle(c, out)
	}
	if c.task != nil {
		f.abortTask(c, out)
	} else {
		f.cancelAtServer(c.atServer, reason, out)
	}
}

// cancelAtServer cancels a request of ours; reason is raw JSON, nil for none.
func (f *Filter) cancelAtServer(id jsonrpc.ID, reason []byte, out *era.Out) {
	params := shape.AppendMember([]byte{'{'}, "requestId", []byte(id.String()))
	if reason != nil {
		params = shape.AppendMember(params, "reason", reason)
	}
	out.Server(jsonrpc.NewNotification("notifications/cancelled", append(params, '}')))
}

// cancelled takes a client's notifications/cancelled. Nothing more is said about
// the request (J12). A parked call has been answered and cannot be cancelled.
func (f *Filter) cancelled(now time.Time, m jsonrpc.Message, out *era.Out) {
	id := m.RequestID()
	for i, held := range f.link.held {
		if held.ID().Equivalent(id) {
			f.link.held = append(f.link.held[:i], f.link.held[i+1:]...)
			return
		}
	}
	if f.subs.listening(id) {
		f.endListen(now, id)
		return
	}
	key, c, ok := jsonrpc.Find(f.calls, id)
	if !ok {
		return
	}
	delete(f.calls, key)
	reason := m.Lookup("params", "reason")
	if _, text := jsonrpc.Text(reason); !text {
		reason = nil
	}
	f.abort(now, c, reason, out)
}

// progress passes on what a call of a waiting client has got to. The server
// knows the token of the first request; after a retry the client knows another.
func (f *Filter) progress(m jsonrpc.Message, out *era.Out) {
	_, c, ok := jsonrpc.Find(f.tokens, m.ProgressToken())
	if !ok || !c.live(f) {
		out.Drop(m, "progress of no call that is in progress") // J13
		return
	}
	token := c.m.ProgressToken()
	if token.IsZero() {
		out.Drop(m, "the retry of the call does not ask for progress")
		return
	}
	if token != m.ProgressToken() {
		m = m.WithProgressToken(token)
	}
	out.Client(f.ofTask(c, m).WithRelated(c.id))
}
