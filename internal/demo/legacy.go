package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// legacyRequest is a request of a legacy session: capabilities were agreed on in
// initialize, and the client is asked by requests while this one is in progress.
type legacyRequest struct {
	*session            // the session that the request came in
	id       jsonrpc.ID // the request's id
	method   string     // the request's method
}

// client returns what the client has said of itself in initialize.
func (f *legacyRequest) client() clientInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clientInfo
}

// reply answers the request: with result, which is encoded as JSON, or with err if that is not nil. A *missingCapability counts as a
// *toolError.
func (f *legacyRequest) reply(result any, err error) {
	var missing *missingCapability
	if errors.As(err, &missing) {
		err = &toolError{missing.Error()}
	}
	raw, err := encodeResult(f.method, result, err)
	f.respond(f.id, raw, err)
}

// encodeResult returns result as JSON, or err if that is not nil. If method is tools/call, a *toolError is no error but becomes a
// result with isError.
func encodeResult(method string, result any, err error) ([]byte, error) {
	var toolErr *toolError
	if method == "tools/call" && errors.As(err, &toolErr) {
		result, err = Failure(toolErr.message), nil
	}
	if err != nil {
		return nil, err
	}
	return encode(result)
}

// Why a legacy client has not answered a question: its input has ended, askTimeout has passed, or the call that has asked was cancelled.
var (
	errClientGone = &toolError{"the client has ended its input and can no longer answer"} // why a question has no answer: the input of the client has ended
	errAskTimeout = &toolError{"the client did not answer in time"}                       // why a question has no answer: askTimeout has passed
	errCancelled  = &toolError{"the call was cancelled"}                                  // why a question has no answer: the call that has asked was cancelled
)

// ask asks the client one question after another, each by a request, and returns the results. It stops at the first error.
func (f *legacyRequest) ask(ctx context.Context, questions []Question) ([]json.RawMessage, error) {
	var answers []json.RawMessage
	for _, q := range questions {
		m, err := f.request(ctx, q)
		if err != nil {
			return nil, err
		}
		if m.IsError() {
			return nil, refusal(m)
		}
		answers = append(answers, m.Result())
	}
	return answers, nil
}

// request sends a question to the client and waits for the response, which may be an error response. It gives up if the client's
// input ends, after askTimeout, or when ctx is done, and returns a *toolError. It then cancels the question at the client, unless the
// input or the session has ended.
func (s *session) request(ctx context.Context, q Question) (jsonrpc.Message, error) {
	raw, err := encode(q.Params)
	if err != nil {
		return jsonrpc.Message{}, err
	}
	answer := make(chan jsonrpc.Message, 1)
	s.mu.Lock()
	s.lastID++
	id := jsonrpc.IntID(s.lastID)
	s.pendingRequests[id] = answer
	s.mu.Unlock()
	s.send(jsonrpc.NewRequest(id, q.Method, raw))

	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, errAskTimeout)
	defer cancel()
	why := errCancelled
	select {
	case m := <-answer:
		return m, nil
	case <-s.eof:
		select {
		case m := <-answer: // it came before the end
			return m, nil
		default:
			why = errClientGone
		}
	case <-ctx.Done():
		if context.Cause(ctx) == errAskTimeout {
			why = errAskTimeout
		}
	}
	s.mu.Lock()
	delete(s.pendingRequests, id)
	s.mu.Unlock()
	if why != errClientGone && s.ctx.Err() == nil {
		s.notify("notifications/cancelled", struct {
			ID     json.RawMessage `json:"requestId"`
			Reason string          `json:"reason"`
		}{json.RawMessage(id.String()), why.message})
	}
	return jsonrpc.Message{}, why
}

// handleResponse gives a response of the client to the call that waits for it.
// A response that nobody waits for came too late, and is dropped.
func (s *session) handleResponse(m jsonrpc.Message) {
	s.mu.Lock()
	answer := s.pendingRequests[m.ID()]
	delete(s.pendingRequests, m.ID())
	s.mu.Unlock()
	if answer != nil {
		answer <- m // has room: there is one response at most
	}
}

// refusal returns an error response of the client as a *toolError, which a model can read.
func refusal(m jsonrpc.Message) error {
	var e struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(m.ErrorObject(), &e); err != nil {
		return &toolError{"the client answered with an error that cannot be read"}
	}
	return &toolError{fmt.Sprintf("the client refused, with error %d: %s", e.Code, e.Message)}
}
