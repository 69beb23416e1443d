package legacyserver

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// The errors with which a retry is answered that cannot go on with its call.
var (
	// badStateRefusal: the requestState is not valid for this request, or has expired.
	badStateRefusal = &era.Refusal{Code: jsonrpc.CodeInvalidParams, Text: "Invalid or expired requestState"}
	// usedStateRefusal: no call is parked under the requestState any more.
	usedStateRefusal = &era.Refusal{Code: jsonrpc.CodeInvalidParams, Text: "requestState already used"}
	// serverEndedRefusal: the call was parked in an earlier run of the server.
	serverEndedRefusal = &era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the server has ended", Data: []byte(`{"reason":"server_ended"}`)}
	// badAnswerRefusal: an answer in inputResponses is not valid; the call stays parked.
	badAnswerRefusal = &era.Refusal{Code: jsonrpc.CodeInvalidParams, Text: "an entry of inputResponses is no answer to its request"}
)

// handleRetry takes a request with a requestState (C.4.4): it goes on with the parked call, or
// refuses the request.
func (p *parking) handleRetry(now time.Time, r request, out *era.Out) {
	refuse := func(why *era.Refusal) { out.Client(why.Response(r.id).WithRelated(r.id)) }
	state, ok := p.states.openState(now, &r)
	if !ok {
		refuse(badStateRefusal)
		return
	}
	if state.Replay {
		p.retryAfterURLs(now, r, state, out)
		return
	}
	if state.ServerRun != p.states.serverRun {
		refuse(serverEndedRefusal)
		return
	}
	c := p.parkedCalls[state.CallID]
	if c == nil || c.input.timesParked != state.Round {
		refuse(usedStateRefusal)
		return
	}
	answers, ok := answersTo(c, r.inputResponses)
	if !ok {
		refuse(badAnswerRefusal) // the call stays parked
		return
	}
	p.adoptRetry(now, c, r, answers, out)
}

// answersTo returns the answers in answers, a raw inputResponses, to the input requests of the
// parked call c, in the order of these; nil where there is none. ok is false if an answer is not
// valid.
func answersTo(c *call, answers []byte) (found [][]byte, ok bool) {
	if answers != nil && !shape.IsObject(answers) {
		return nil, string(answers) == "null"
	}
	open := c.input.requests
	found = make([][]byte, len(open))
	for entry := range jsonrpc.Members(answers) {
		i := slices.IndexFunc(open, func(q *inputRequest) bool { return q.sentToClient && q.key == entry.Key })
		if i < 0 {
			continue // answered already, withdrawn, or unknown
		}
		if !isValidAnswer(open[i].method, entry.Value) {
			return nil, false
		}
		found[i] = entry.Value
	}
	return found, true
}

// adoptRetry goes on with the parked call c for its retry r: the client gets the outcome if the call
// is over, otherwise the server gets the answers, perhaps after a wait for the turn.
func (p *parking) adoptRetry(now time.Time, c *call, r request, answers [][]byte, out *era.Out) {
	p.stopAwaitingRetry(c)
	r.urlRounds = c.urlRounds
	c.request, c.arrival = r, p.calls.nextArrival()
	p.calls.byClientID[c.id] = c
	if o := c.input.outcome; o != nil {
		p.calls.answerOrKeep(now, c, *o, out)
		return
	}
	if c.logLevel != nil {
		p.logRouter.raiseLevel(now, era.LogRank(c.logLevel), c.logLevel, out)
	}
	c.input.answers = nil
	for i, a := range answers {
		if a != nil {
			c.input.answers = append(c.input.answers, inputAnswer{c.input.requests[i], a})
		}
	}
	if len(c.input.answers) == 0 || !p.turns.MustWait(now, &c.turn) {
		p.deliverAnswers(now, c, out)
	}
}

// deliverAnswers sends the server the answers that a retry has brought. If input requests of the
// call are open then, the client is asked again.
func (p *parking) deliverAnswers(now time.Time, c *call, out *era.Out) {
	answers := c.input.answers
	c.input.answers = nil
	for _, a := range answers {
		if p.openRequests[a.request.id] == a.request { // otherwise the server has withdrawn it
			p.forgetRequest(a.request)
			out.Server(a.request.answer(a.result))
		}
	}
	if c.input.collectTimer == nil {
		p.replyInputRequired(now, c, out) // again, if some are not answered
	}
}

// retryAfterURLs takes the retry of a call that was answered with URLs to visit. The call
// begins anew, unless the user has declined to visit one, or an answer is not valid. Missing
// answers are not asked for: the server refuses again if it must.
func (p *parking) retryAfterURLs(now time.Time, r request, state era.State, out *era.Out) {
	n, _ := strconv.Atoi(state.CallID)
	for entry := range jsonrpc.Members(r.inputResponses) {
		if i, err := strconv.Atoi(strings.TrimPrefix(entry.Key, "m")); err != nil || i < 1 || i > n {
			continue
		}
		switch actionOf(entry.Value) {
		case "accept":
		case "":
			out.Client(badAnswerRefusal.Response(r.id).WithRelated(r.id))
			return
		default:
			p.answerDeclined(r, out)
			return
		}
	}
	r.urlRounds = state.Round
	p.calls.begin(now, r, out)
}

// answerDeclined answers a call whose user has declined to visit a URL.
func (p *parking) answerDeclined(r request, out *era.Out) {
	const text = "the user has not gone to the URL that the call needs"
	if r.method != "tools/call" {
		refuse(r.id, jsonrpc.CodeInternalError, text, shape.ReasonData("declined"), out)
		return
	}
	out.Client(makeResult(r.id, `"resultType":"complete",`, p.states.resultTranslator.meta,
		[]byte(`{"content":[{"type":"text","text":"`+text+`"}],"isError":true}`)))
}
