package mux

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is what a Mux says to its server of its own accord.

// queueCancellation has the writer tell the server that nobody waits any more for the call with this serverID.
// The notification is built anew and not passed on: the client's may hold a second key such as RequestID, which a
// careless server takes for requestId, and so cancel another client's call. reason, meta and mark are those of the
// client's notification; nil: it has none. It is called with mu held.
func (s *server) queueCancellation(serverID int64, reason, meta []byte, mark *jsonrpc.Mark) {
	params := append([]byte(`{"requestId":`), jsonrpc.IntID(serverID).String()...)
	if _, ok := jsonrpc.Text(reason); ok {
		params = append(append(params, `,"reason":`...), reason...)
	}
	if len(meta) > 0 {
		params = append(append(params, `,"_meta":`...), meta...)
	}
	s.queueOwnMessage(jsonrpc.NewNotification(ownmsg.Cancelled, append(params, '}')).WithMark(mark))
}

// queueOwnMessage has the writer send a message that no client has sent. It is called with mu held.
func (s *server) queueOwnMessage(m jsonrpc.Message) {
	s.ownMessages = append(s.ownMessages, m)
	signal(s.ownAdded)
}

// maxQueuedAnswers is how many answers to the server's own requests may wait until the server takes them.
const maxQueuedAnswers = 1000

// refuse answers a request of the server in the place of its clients, which must not get one (ST10). If
// maxQueuedAnswers answers wait already, it drops the request.
func (s *server) refuse(m jsonrpc.Message) {
	s.mux.mu.Lock()
	full := s.ownAnswers >= maxQueuedAnswers
	if !full {
		s.ownAnswers++
		s.queueOwnMessage(era.AnswerServerRequest(m))
	}
	s.mux.mu.Unlock()
	switch {
	case full:
		s.mux.reportDropped(m, "the server asks more than it takes answers to")
	case m.Method() != "ping": // of which nobody needs to know
		s.mux.reportDropped(m, "a server of 2026-07-28 makes no requests: it is answered so")
	}
}

// awaitCancellations waits until ownMessages are written, for FinalSendTimeout at most. Close calls it.
func (s *server) awaitCancellations() {
	bye := make(chan struct{})
	s.mux.mu.Lock()
	s.ownWritten = bye
	s.mux.mu.Unlock()
	signal(s.ownAdded)
	t := time.NewTimer(ownmsg.FinalSendTimeout)
	defer t.Stop()
	select {
	case <-bye:
	case <-s.allAnswered:
	case <-t.C:
	}
}

// signalOwnWritten ends awaitCancellations if all of ownMessages is written. The writer calls it.
func (s *server) signalOwnWritten() {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	if s.ownWritten != nil && len(s.ownMessages) == 0 {
		close(s.ownWritten)
		s.ownWritten = nil
	}
}

// takeOwnMessages empties ownMessages and returns them, for the writer to send.
func (s *server) takeOwnMessages() []jsonrpc.Message {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	all := s.ownMessages
	s.ownMessages, s.ownAnswers = nil, 0
	return all
}
