package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

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

// respond answers a request with a result that is encoded, or an error.
func (s *session) respond(id jsonrpc.ID, result []byte, err error) {
	if err == nil {
		s.send(jsonrpc.NewResult(id, result))
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

// logs reports whether the legacy session takes log messages of that level.
func (s *session) logs(level int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return level >= s.level
}

func (s *session) sendLog(level int, logger string, data any) {
	s.notify("notifications/message", struct {
		Level  string `json:"level"`
		Logger string `json:"logger"`
		Data   any    `json:"data"`
	}{levels[level], logger, data})
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
