package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// legacyFace is a request of a legacy session: what it may do was agreed on in
// initialize, and the client is asked in the middle of it, by requests.
type legacyFace struct {
	*session
	id     jsonrpc.ID
	method string
}

func (f *legacyFace) client() clientInfo { return f.peer() }

func (f *legacyFace) pause(string) error { return nil }

func (f *legacyFace) reply(result any, err error) {
	var unread *toolError
	var lack *lacking
	switch {
	case errors.As(err, &unread):
		result, err = failure("%s", unread), nil
	case errors.As(err, &lack) && f.method == "tools/call":
		result, err = failure("%s", lack), nil
	}
	var raw []byte
	if err == nil {
		raw, err = encode(result)
	}
	f.respond(f.id, raw, err)
}

// errClientGone is the answer to what we ask of a client that has ended its input.
var errClientGone = &askError{"the client has ended its input and can no longer answer"}

// asked is a question on its way.
type asked struct {
	id     jsonrpc.ID
	answer chan jsonrpc.Message
}

// ask sends the questions as requests and waits for the answers.
func (f *legacyFace) ask(ctx context.Context, questions []question) ([]json.RawMessage, error) {
	var pending []asked
	for _, q := range questions {
		a, err := f.request(q)
		if err != nil {
			f.forget(pending, err)
			return nil, err
		}
		pending = append(pending, a)
	}
	timeout := time.NewTimer(askTimeout)
	defer timeout.Stop()
	var answers []json.RawMessage
	for i, a := range pending {
		m, err := f.await(ctx, a, timeout.C)
		if err != nil {
			f.forget(pending[i:], err)
			return nil, err
		}
		raw, err := result(m)
		if err != nil {
			f.forget(pending[i+1:], err)
			return nil, err
		}
		answers = append(answers, raw)
	}
	return answers, nil
}

// request sends one question.
func (s *session) request(q question) (asked, error) {
	raw, err := encode(q.params)
	if err != nil {
		return asked{}, err
	}
	answer := make(chan jsonrpc.Message, 1)
	s.mu.Lock()
	s.lastID++
	id := jsonrpc.IntID(s.lastID)
	s.pending[id] = answer
	s.mu.Unlock()
	s.send(jsonrpc.NewRequest(id, q.method, raw))
	return asked{id, answer}, nil
}

// await waits for the answer to one question.
func (s *session) await(ctx context.Context, a asked, timeout <-chan time.Time) (jsonrpc.Message, error) {
	select {
	case m := <-a.answer:
		return m, nil
	case <-s.eof:
		select {
		case m := <-a.answer: // it came before the end
			return m, nil
		default:
			return jsonrpc.Message{}, errClientGone
		}
	case <-timeout:
		return jsonrpc.Message{}, &askError{"the client did not answer in time"}
	case <-ctx.Done():
		return jsonrpc.Message{}, &askError{"the call was cancelled"}
	}
}

// forget gives up questions for the reason why, and tells the client, if there is one.
func (s *session) forget(questions []asked, why error) {
	for _, a := range questions {
		s.mu.Lock()
		delete(s.pending, a.id)
		s.mu.Unlock()
		if why != errClientGone && s.ctx.Err() == nil {
			s.notify("notifications/cancelled", struct {
				ID     json.RawMessage `json:"requestId"`
				Reason string          `json:"reason"`
			}{json.RawMessage(a.id.String()), why.Error()})
		}
	}
}

// answered gives a response of the client to the call that waits for it.
// A response that nobody waits for came too late, and is dropped.
func (s *session) answered(m jsonrpc.Message) {
	s.mu.Lock()
	answer := s.pending[m.ID()]
	delete(s.pending, m.ID())
	s.mu.Unlock()
	if answer != nil {
		answer <- m // has room: there is one response at most
	}
}

// result takes a response apart.
func result(m jsonrpc.Message) (json.RawMessage, error) {
	if !m.IsError() {
		return m.Result(), nil
	}
	var e struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(m.ErrorObject(), &e); err != nil {
		return nil, &askError{"the client answered with an error that cannot be read"}
	}
	return nil, &askError{fmt.Sprintf("the client refused, with error %d: %s", e.Code, e.Message)}
}
