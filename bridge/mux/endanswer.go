package mux

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is for answers that say that the server has ended. A filter on the way to the server
// gives them before Receive returns. A client that has such an answer may call again at once, and
// that call must get to the next server (ST9).

// endAnswerWait is how long an answer that says that the server has ended is kept until Receive says so too. That
// comes in a moment, unless it was another server that has ended, behind this one.
const endAnswerWait = 50 * time.Millisecond

// maxEndAnswerSize is the size, in bytes, of the largest answer that is kept until the server has ended: a filter
// makes short ones.
const maxEndAnswerSize = 16 << 10

// endAnswer is the answer to a client's call which says that the server has ended. It is kept until the server has
// ended, for endAnswerWait at most, and then given to the client, unless the call is sent again (mayRepeat).
type endAnswer struct {
	call *call           // the call that it answers
	m    jsonrpc.Message // the answer as it came from the server's side: its id is that of call at the server, and the client gets it with its own id
}

// saysServerEnded reports whether an answer is the error with which the bridge says that the server has ended.
func saysServerEnded(m jsonrpc.Message) bool {
	if !m.IsError() {
		return false
	}
	reason, _ := jsonrpc.Text(m.Lookup("error", "data", "reason"))
	return reason == "server_ended"
}

// holdEndAnswer keeps the answer m to call until the server has ended, for endAnswerWait at most. It is called with mu
// held.
func (s *server) holdEndAnswer(call *call, m jsonrpc.Message) {
	s.endAnswers = append(s.endAnswers, endAnswer{call, m})
	s.endTimer.SetAtLatest(time.Now().Add(endAnswerWait))
}

// releaseEndAnswersLocked gives clients the answers that holdEndAnswer has kept, but for those of calls that are sent
// again. It is called with mu held.
func (s *server) releaseEndAnswersLocked() {
	for _, a := range s.endAnswers {
		if a.call.removed {
			s.mux.mu.Drop(a.m, "answers no request that is in progress")
			continue
		}
		if s.end.isSettled.Load() && s.mayRepeat(a.call) { // failCalls sees to it
			continue
		}
		s.mux.finish(a.call, a.m.WithID(a.call.id).WithRelated(a.call.id))
	}
	s.endAnswers = nil
}

// releaseEndAnswers gives clients the answers that were kept, as the server has not ended in time. endTimer calls it.
func (s *server) releaseEndAnswers() {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	s.releaseEndAnswersLocked()
}
