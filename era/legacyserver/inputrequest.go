package legacyserver

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/timers"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// collectWindow is how long the client is not asked yet after each input request of a call, so that
	// further ones that come meanwhile are asked in the same result (C.4.1).
	collectWindow = 30 * time.Millisecond

	// maxCollectWindow is the longest that the first of the input requests that are being collected waits for
	// others, to be put to the client in the same result.
	maxCollectWindow = 200 * time.Millisecond

	// maxInputRequests is how many input requests of one call may be open. Further ones are refused.
	maxInputRequests = 100
)

// inputRequest is a request of the server that a client has to answer.
type inputRequest struct {
	id           jsonrpc.ID // the server's id of the request
	key          string     // its key in the inputRequests of the result
	method       string     // the method of the request
	params       []byte     // the params as the client gets them; raw
	relatedTask  []byte     // the related-task that it came with; nil: none
	call         *call      // the call in whose course the server asks
	sentToClient bool       // the client was asked, in an input_required
}

// callInput is what parking knows of a call during which the server has sent input requests: those that
// are open, and how far the call is with its retries.
type callInput struct {
	requests     []*inputRequest // the input requests that the server waits for, in order
	lastKey      int             // the number in the key ("m1") of the latest input request; 0: there was none
	firstAskedAt time.Time       // when the first of the input requests that are being collected came
	collectTimer *timers.Timer   // ends the collecting; nil: none are being collected
	timesParked  int             // how often the call was parked; the Round in its latest State

	parked     bool          // the call waits for its retry
	parkedID   string        // names the call in its States
	retryTimer *timers.Timer // ends the wait for the retry; nil: the call was never parked
	outcome    *outcome      // how the call has ended while it is parked, for its retry; nil: it goes on

	answers []inputAnswer // the answers that the latest retry has brought and the server has not got
}

// inputAnswer is a client's answer to an input request, as its retry has brought it.
type inputAnswer struct {
	request *inputRequest // the request that is answered
	result  []byte        // the client's result, raw
}

// newInputRequest returns the inputRequest for m, a request of the server, as a modern client gets
// it (C.4.1): without task, progress token and elicitation id.
func newInputRequest(m jsonrpc.Message) *inputRequest {
	q := &inputRequest{id: m.ID(), method: m.Method(), params: jsonrpc.Without(m.Params(), "task", "elicitationId")}
	if meta := shape.Member(q.params, "_meta"); shape.IsObject(meta) {
		q.relatedTask = shape.Member(meta, era.KeyRelatedTask)
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

// answer returns the response to the server with a client's answer.
func (q *inputRequest) answer(result []byte) jsonrpc.Message {
	if q.relatedTask != nil { // messages of a task must name it (2025-11-25, tasks)
		meta := shape.Member(result, "_meta")
		if !shape.IsObject(meta) {
			meta = []byte("{}")
		}
		result = jsonrpc.With(result, "_meta", jsonrpc.With(meta, era.KeyRelatedTask, q.relatedTask))
	}
	return jsonrpc.NewResult(q.id, result)
}

// refusal returns the response to the server that is an error with this code and text.
func (q *inputRequest) refusal(code int, text string) jsonrpc.Message {
	return jsonrpc.NewError(q.id, code, text, nil)
}

// unsupportedResponse returns the response to the server if the client lacks the capability.
func (q *inputRequest) unsupportedResponse() jsonrpc.Message {
	return q.refusal(jsonrpc.CodeMethodNotFound, q.method+" is not supported by the client")
}

// abandonedResponse returns the response to the server if the client does not answer.
func (q *inputRequest) abandonedResponse() jsonrpc.Message {
	switch q.method {
	case "elicitation/create":
		return q.answer([]byte(`{"action":"cancel"}`))
	case "sampling/createMessage":
		return q.refusal(-1, "User rejected sampling request") // the words of 2025-11-25
	}
	return q.refusal(jsonrpc.CodeInternalError, "the client has not answered")
}

// noCallResponse returns the response to the server if no call is in progress: a modern
// client can be asked only during a call (B.3).
func (q *inputRequest) noCallResponse() jsonrpc.Message {
	switch q.method {
	case "elicitation/create":
		return q.answer([]byte(`{"action":"cancel"}`))
	case "roots/list":
		return q.unsupportedResponse()
	}
	return q.refusal(jsonrpc.CodeInternalError, "no call is in progress that could ask the client")
}
