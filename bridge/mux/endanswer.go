package mux

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is for answers that say that the server has ended. A filter on the way to the server
// gives them before Receive returns. A client that has such an answer may call again at once, and
// that call must get to the next server (ST9).

// endAnswerWait is how long such an answer is kept for the end that it speaks of. That end comes
// in a moment, unless another server has ended, behind this one.
const endAnswerWait = 50 * time.Millisecond

// maxEndAnswerSize is the size, in bytes, above which an answer is not kept: a filter makes short ones.
const maxEndAnswerSize = 16 << 10

// endAnswer is an answer that says that the server has ended.
type endAnswer struct {
	call *call
	m    jsonrpc.Message
}

// saysServerEnded reports whether an answer says that the server has ended.
func saysServerEnded(m jsonrpc.Message) bool {
	if !m.IsError() {
		return false
	}
	reason, _ := jsonrpc.Text(m.Lookup("error", "data", "reason"))
	return reason == "server_ended"
}

// holdEndAnswer keeps an answer until the server has ended. It is called with mu held.
func (s *server) holdEndAnswer(call *call, m jsonrpc.Message) {
	s.endAnswers = append(s.endAnswers, endAnswer{call, m})
	s.endTimer.SetAtLatest(time.Now().Add(endAnswerWait))
}

// releaseEndAnswersLocked gives clients the answers that were kept. It is called with mu held.
func (s *server) releaseEndAnswersLocked() {
	for _, a := range s.endAnswers {
		if a.call.removed {
			s.mux.mu.Drop(a.m, "answers no request that is in progress")
			continue
		}
		s.mux.finish(a.call, a.m.WithID(a.call.id).WithRelated(a.call.id))
	}
	s.endAnswers = nil
}

// releaseEndAnswers is releaseEndAnswersLocked for endTimer: the server has not ended in time.
func (s *server) releaseEndAnswers() {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	s.releaseEndAnswersLocked()
}
