package legacyserver

import (
	"cmp"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/turns"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// calls are the requests of clients that the server must answer. A call is in byClientID while a
// client waits for its answer, and in byServerID while the server works on it. A call that has not
// been sent yet is only in byClientID. A parked call is only in byServerID, or in neither once the
// server has answered it (callInput.outcome).
type calls struct {
	canAsk           bool                // the server was told that clients accept input requests
	ownRequests      *ownRequests        // makes the ids of requests to the server
	resultTranslator *resultTranslator   // makes results modern
	turns            *turns.Turns[*call] // which calls may be at the server at a time
	logRouter        *logRouter          // sets the log level that a call wants; is told until when log messages may be those of a cancelled call
	taskTools        *taskTools          // which tools must run as tasks
	taskRunner       *taskRunner         // runs calls as tasks
	parking          *parking            // holds calls whose client is asked for input

	byClientID map[jsonrpc.ID]*call // the calls whose client waits for the answer, by the client's id
	byServerID map[jsonrpc.ID]*call // the calls at the server, by the id that the server knows; a call that runs as a task may have several
	byToken    map[jsonrpc.ID]*call // the calls at the server that have a progress token, by the one that the server knows
	arrivals   int64                // the number that nextArrival has returned last
}

// call is a request of a client that the server has to answer. Before it is sent, it may wait in the Filter.
type call struct {
	request                // of the client: the first, or the latest retry
	serverID    jsonrpc.ID // the id that the server knows; zero: the call was not sent yet
	serverToken jsonrpc.ID // the progress token that the server knows; zero: none
	arrival     int64      // the number of the call, or of its latest retry, in the order in which they came

	turn  turns.Asker[*call] // the call as turns knows it
	input *callInput         // the input requests of the server during the call; nil: there was none yet that a client could be asked
	task  *callTask          // the task as which the call runs; nil: it runs as none
}

// nextArrival returns the number for the arrival of a call or a retry: each is higher than the last.
func (k *calls) nextArrival() int64 {
	k.arrivals++
	return k.arrivals
}

// isLive reports whether a client waits for the answer to a call.
func (k *calls) isLive(c *call) bool { return k.byClientID[c.id] == c }

// begin makes a client's request a call. Before the call is sent, it may wait three times: until
// the server has the log level that the call wants, until the list of tools is known, and for its
// turn.
func (k *calls) begin(now time.Time, r request, out *era.Out) {
	c := &call{request: r, arrival: k.nextArrival()}
	c.turn.Call = c
	k.byClientID[c.id] = c
	if c.logLevel == nil || !k.logRouter.mustAwaitLevel(now, c, out) {
		k.continueAfterLevel(now, c, out)
	}
}

// continueAfterLevel goes on with a call that need not, or need no longer, wait for its log level.
func (k *calls) continueAfterLevel(now time.Time, c *call, out *era.Out) {
	if c.method != "tools/call" || !k.taskTools.mustAwaitList(c) {
		k.continueAfterTools(now, c, out)
	}
}

// continueAfterTools goes on with a call that need not, or need no longer, wait for the list of tools, unless the
// client has cancelled the call meanwhile.
func (k *calls) continueAfterTools(now time.Time, c *call, out *era.Out) {
	if !k.isLive(c) {
		return
	}
	if c.method == "tools/call" && k.taskTools.runsAsTask(c) {
		c.task = &callTask{}
	}
	mayBeAsked := k.canAsk && c.task == nil && era.MayAskForInput(c.method)
	k.turns.Begin(&c.turn, mayBeAsked, c.method, c.targetName)
	if !k.turns.MustWait(now, &c.turn) {
		k.send(c, out)
	}
}

// proceed goes on with a call that has waited for its turn. A new call is sent.
// For a retry, the server gets the answers of the client. For an abandoned call,
// the server gets an answer that refuses.
func (k *calls) proceed(now time.Time, a *turns.Asker[*call], out *era.Out) {
	switch a.Priority {
	case turns.Beginning:
		k.send(a.Call, out)
	case turns.Returning:
		k.parking.deliverAnswers(now, a.Call, out)
	case turns.Abandoned:
		k.parking.refuseRequests(a.Call, out)
	}
}

// send sends the call to the server.
func (k *calls) send(c *call, out *era.Out) {
	c.serverID = k.ownRequests.nextID()
	c.turn.Priority = turns.Returning // its next wait is one with answers
	k.byServerID[c.serverID] = c
	if c.serverToken = c.m.ProgressToken(); !c.serverToken.IsZero() {
		k.byToken[c.serverToken] = c
	}
	m := c.forServer(c.serverID)
	if c.task != nil {
		m = m.WithParams(jsonrpc.With(m.Params(), "task", []byte("{}")))
	}
	out.Server(m)
}

// handleResponse takes a response of the server. False: the response is to no call, or to an abandoned one, whose turn ends
// with it.
func (k *calls) handleResponse(now time.Time, m jsonrpc.Message, out *era.Out) bool {
	id, c, ok := jsonrpc.Find(k.byServerID, m.ID())
	switch {
	case !ok: // perhaps to an abandoned call
		if a := k.turns.FindAbandoned(func(a *turns.Asker[*call]) bool { return a.Call.serverID.Equivalent(m.ID()) }); a != nil {
			k.turns.FinishAbandoned(now, a, out)
		}
	case c.task != nil:
		k.taskRunner.handleResponse(now, c, id, m, out)
	default:
		k.complete(now, c, m, out)
	}
	return ok
}

// complete takes m, the server's final response to a call, and answers the client with it, or keeps it
// if the call is parked. Input requests of the call that are open are refused.
func (k *calls) complete(now time.Time, c *call, m jsonrpc.Message, out *era.Out) {
	k.remove(c)
	if c.input != nil {
		k.parking.refuseRequests(c, out)
	}
	if code := shape.ErrorCode(m); code != jsonrpc.CodeMethodNotFound && code != jsonrpc.CodeInvalidParams { // then it has not run
		k.turns.End(now, &c.turn, out)
	}
	k.turns.Release(now, &c.turn, out)
	k.answerOrKeep(now, c, outcome{m: m}, out)
}

// outcome is how a call ends: with a response of the server, or with a refusal of
// the bridge.
type outcome struct {
	m       jsonrpc.Message // the server's response, if refusal is nil
	refusal *era.Refusal    // the bridge's refusal; nil: there is none
}

// answerOrKeep answers the client with the outcome o of a call. If the call is parked, it keeps o for the
// retry.
func (k *calls) answerOrKeep(now time.Time, c *call, o outcome, out *era.Out) {
	if c.input != nil && c.input.parked {
		kept := o // a copy, so that o is on the stack in every other case
		c.input.outcome = &kept
		return
	}
	delete(k.byClientID, c.id)
	switch {
	case o.refusal != nil:
		out.Client(o.refusal.Response(c.id).WithRelated(c.id))
	case o.m.IsError():
		out.Client(k.translateError(now, c, o.m))
	case c.method == "tools/list":
		out.Client(k.resultTranslator.makeResponse(c.id, c.method, k.taskTools.readTools(o.m.Result())))
	default:
		out.Client(k.resultTranslator.translate(c, o.m))
	}
}

// translateError returns the client's response for an error of the server. It replaces the codes
// that 2026-07-28 has reserved (J10), because modern clients do not know what a
// legacy server means by them. A missing capability keeps its code if the data
// says which one is missing.
func (k *calls) translateError(now time.Time, c *call, m jsonrpc.Message) jsonrpc.Message {
	code := shape.ErrorCode(m)
	data := m.Lookup("error", "data")
	instead, reserved := era.ModernCode(code)
	switch {
	case code == era.CodeResourceNotFound:
		data = c.notFoundData(data)
	case code == era.CodeURLElicitation && era.MayAskForInput(c.method):
		if response, ok := k.parking.states.sendToURL(now, c, data); ok {
			return response
		}
		data = withOriginalCode(code, data)
	case !reserved, code == era.CodeMissingCapability && shape.IsObject(shape.Member(data, "requiredCapabilities")):
		return m.WithID(c.id).WithRelated(c.id)
	default:
		data = withOriginalCode(code, data)
	}
	return shape.WithError(m, instead, data).WithID(c.id).WithRelated(c.id)
}

// remove removes a call that is over at the server. The caller must answer its open
// input requests.
func (k *calls) remove(c *call) {
	delete(k.byServerID, c.serverID)
	delete(k.byToken, c.serverToken)
	if c.task != nil {
		k.taskRunner.remove(c)
	}
	k.turns.StopWaiting(&c.turn)
	if c.input != nil {
		k.parking.stopCollecting(c)
	}
}

// abort removes a call, and cancels it at the server if it was sent. If the server answers
// it all the same, the answer is dropped.
func (k *calls) abort(now time.Time, c *call, reason []byte, out *era.Out) {
	k.remove(c)
	if c.serverID.IsZero() {
		return
	}
	k.logRouter.strayLogsUntil = now.Add(strayLogTime)
	asked := c.input != nil && len(c.input.requests) > 0
	if !k.turns.Abandon(now, &c.turn, asked, out) && c.input != nil {
		k.parking.refuseRequests(c, out)
	}
	if c.task != nil {
		k.taskRunner.abort(c, out)
	} else {
		cancelRequest(c.serverID, reason, out)
	}
}

// reject cancels a call at the server and answers the client with a refusal of the
// bridge.
func (k *calls) reject(now time.Time, c *call, why *era.Refusal, out *era.Out) {
	k.abort(now, c, nil, out)
	k.answerOrKeep(now, c, outcome{refusal: why}, out)
}

// handleCancelled takes a client's notifications/cancelled for the call with this id, and cancels
// it at the server. reason is raw JSON. It does nothing if there is no such call.
func (k *calls) handleCancelled(now time.Time, id jsonrpc.ID, reason []byte, out *era.Out) {
	key, c, ok := jsonrpc.Find(k.byClientID, id)
	if !ok {
		return
	}
	delete(k.byClientID, key)
	if !shape.IsString(reason) {
		reason = nil
	}
	k.abort(now, c, reason, out)
}

// forwardProgress passes the server's notifications/progress on to the client, with the token of
// the latest retry: the server uses the token of the first request. It drops progress of
// no call, of one whose answer no client waits for (a parked one, too), and of one whose retry has no token.
func (k *calls) forwardProgress(m jsonrpc.Message, out *era.Out) {
	_, c, ok := jsonrpc.Find(k.byToken, m.ProgressToken())
	if !ok || !k.isLive(c) {
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
	out.Client(c.task.withoutRelatedTask(m).WithRelated(c.id))
}

// onlyCall returns the call in progress at the server if there is exactly one, or else nil.
func (k *calls) onlyCall() *call {
	var only *call
	for _, c := range k.byServerID {
		if only != nil && only != c {
			return nil
		}
		only = c
	}
	return only
}

// findAsker finds the call that an input request belongs to (B.1), and the other calls that it
// could belong to. If neither the transport nor a related task tells, it prefers a call whose
// client has the capability, then the call that has the turn, then one that might ask, then one
// whose client waits, then the latest. c is nil if there is no such call, and while an abandoned
// call has the turn.
func (k *calls) findAsker(m jsonrpc.Message, q *inputRequest) (c *call, others []*turns.Asker[*call]) {
	if id, named := m.During(); named {
		if _, c, ok := jsonrpc.Find(k.byServerID, id); ok && era.MayAskForInput(c.method) {
			return c, nil
		}
		return nil, nil
	}
	if c := k.taskRunner.callOfID(q.relatedTask); c != nil {
		return c, nil
	}
	if k.turns.IsAbandoned() {
		return nil, nil
	}
	best := -1
	for id, other := range k.byServerID {
		if id != other.serverID || !era.MayAskForInput(other.method) {
			continue
		}
		rank := k.rank(other, q)
		if c == nil || rank > best || rank == best && other.arrival > c.arrival {
			c, best = other, rank
		}
		others = append(others, &other.turn)
	}
	return c, slices.DeleteFunc(others, func(other *turns.Asker[*call]) bool { return other.Call == c })
}

// rank returns how likely it is that the input request q belongs to c: the higher, the likelier.
func (k *calls) rank(c *call, q *inputRequest) (n int) {
	if missingCapability(c.capabilities, q.method, q.params) == nil {
		n += 8
	}
	if k.turns.HasTurn(&c.turn) {
		n += 4
	}
	if k.turns.MightAsk(&c.turn) {
		n += 2
	}
	if k.isLive(c) && !c.turn.IsWaiting() {
		n++
	}
	return n
}

// failAll answers all calls with an error, because the server has ended. Those that it has not got, because they have
// waited here or are among unwritten, are Unsent.
func (k *calls) failAll(text string, unwritten []jsonrpc.ID, out *era.Out) {
	unsent := map[jsonrpc.ID]bool{{}: true}
	for _, id := range unwritten {
		unsent[id] = true
	}
	owed := make([]*call, 0, len(k.byClientID))
	for _, c := range k.byClientID {
		owed = append(owed, c)
	}
	slices.SortFunc(owed, func(a, b *call) int { return cmp.Compare(a.arrival, b.arrival) })
	for _, c := range owed {
		if unsent[c.serverID] && c.input == nil {
			out.Unsent = append(out.Unsent, c.m)
			continue
		}
		refuse(c.id, jsonrpc.CodeInternalError, text, shape.ReasonData("server_ended"), out)
	}
	clear(k.byClientID)
}
