package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// send writes one message. It runs under the session's context and not under
// that of a call: a call may be cancelled, but half a message would break the framing.
func (s *session) send(m jsonrpc.Message) {
	err := s.conn.Send(s.ctx, m)
	if err == nil {
		return
	}
	select {
	case <-s.eof: // the client has left altogether, which is a clean end too
		s.fail(errSessionOver)
	default:
		s.fail(fmt.Errorf("demo: send: %w", err))
	}
}

// reply answers a request.
func (s *session) reply(id jsonrpc.ID, result any, err error) {
	var raw []byte
	if err == nil {
		raw, err = encode(result)
	}
	if err == nil {
		s.send(jsonrpc.NewResult(id, raw))
		return
	}
	code, data := jsonrpc.CodeInternalError, []byte(nil)
	var e *rpcError
	if errors.As(err, &e) {
		code = e.code
		if e.data != nil {
			data, _ = encode(e.data) // ours or checked: it can be encoded
		}
	}
	s.send(jsonrpc.NewError(id, code, err.Error(), data))
}

// notify sends a notification.
func (s *session) notify(method string, params any) {
	var raw []byte
	if params != nil {
		var err error
		if raw, err = encode(params); err != nil {
			return // cannot happen: params hold strings and checked JSON
		}
	}
	s.send(jsonrpc.NewNotification(method, raw))
}

// encode is json.Marshal that leaves <, > and & as they are, so that what a
// client sent comes back with the same bytes.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// errClientGone is the answer to what we ask of a client that has ended its input.
var errClientGone = errors.New("the client has ended its input and can no longer answer")

// ask sends a request to the client and waits for the result.
// An error response of the client is returned as an *rpcError.
func (s *session) ask(ctx context.Context, method string, params any) (json.RawMessage, error) {
	raw, err := encode(params)
	if err != nil {
		return nil, err
	}
	answer := make(chan jsonrpc.Message, 1)
	s.mu.Lock()
	s.lastID++
	id := jsonrpc.IntID(s.lastID)
	s.pending[id] = answer
	s.mu.Unlock()

	s.send(jsonrpc.NewRequest(id, method, raw))
	timeout := time.NewTimer(askTimeout)
	defer timeout.Stop()
	select {
	case m := <-answer:
		return result(m)
	case <-s.eof:
		select {
		case m := <-answer: // it came before the end
			return result(m)
		default:
			err = errClientGone
		}
	case <-timeout.C:
		err = errors.New("the client did not answer in time")
	case <-ctx.Done():
		err = errors.New("the call was cancelled")
	}
	s.mu.Lock()
	delete(s.pending, id)
	s.mu.Unlock()
	if err != errClientGone && s.ctx.Err() == nil {
		s.notify("notifications/cancelled", struct {
			ID     json.RawMessage `json:"requestId"`
			Reason string          `json:"reason"`
		}{json.RawMessage(id.String()), err.Error()})
	}
	return nil, err
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
		return nil, errors.New("the client answered with an error that cannot be read")
	}
	return nil, &rpcError{code: e.Code, message: e.Message}
}

// Levels of RFC 5424 as MCP names them, the least severe first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

const levelInfo = 1 // the level at start

func levelIndex(name string) int {
	for i, l := range levels {
		if l == name {
			return i
		}
	}
	return -1
}

// log sends a log message unless the client asked for more severe ones only; it reports whether it did.
func (s *session) log(level int, logger string, data any) bool {
	s.mu.Lock()
	wanted := level >= s.level
	s.mu.Unlock()
	if wanted {
		s.notify("notifications/message", struct {
			Level  string `json:"level"`
			Logger string `json:"logger"`
			Data   any    `json:"data"`
		}{levels[level], logger, data})
	}
	return wanted
}

func (s *session) setLevel(params []byte) (any, error) {
	var p struct {
		Level string `json:"level"`
	}
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	level := levelIndex(p.Level)
	if level < 0 {
		return nil, invalidParams("level must be one of debug, info, notice, warning, error, critical, alert, emergency")
	}
	s.mu.Lock()
	s.level = level
	s.mu.Unlock()
	return struct{}{}, nil
}
