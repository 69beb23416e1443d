package legacyserver

import (
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
