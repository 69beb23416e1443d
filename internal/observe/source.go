package observe

import (
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Source is a received message, as those that are made of it know it.
type Source struct {
	mark jsonrpc.Mark
	call *Call // of a request
	text jsonrpc.TextID

	failed atomic.Int32 // see Passed.Failed; 0: nobody has asked; -1: no; 1: yes

	// Memo is for the one Watcher that shows messages: what it finds out of the received message need not be found
	// out again of the message that is sent. It is set when the received message is told of, and only read later.
	Memo any
}

// newSource returns the Source of a received message. The Call of a request is no part of it:
// an open Call is kept for long, and text would keep the bytes of the message with it.
func newSource(m *jsonrpc.Message) *Source {
	s := &Source{text: m.TextID()}
	if m.Kind() == jsonrpc.Request {
		s.call = new(Call)
	}
	s.mark.Of = s
	return s
}

// Failed reports whether the message is a response whose result says that a tool has failed (isError). It is found out
// once for a message, by the first who asks, and not again where the message is sent on as it was.
func (p *Passed) Failed() bool {
	m := &p.Message
	if m.Kind() != jsonrpc.Response || m.IsError() {
		return false
	}
	known := p.Source != nil && (p.CauseSeq == 0 || p.Source.IsWhole(m))
	if known {
		if f := p.Source.failed.Load(); f != 0 {
			return f > 0
		}
	}
	verdict := int32(-1)
	if string(m.Lookup("result", "isError")) == "true" {
		verdict = 1
	}
	if known {
		p.Source.failed.Store(verdict)
	}
	return verdict > 0
}

// IsWhole reports whether a message that was made of the received one has its bytes, but for the id.
func (s *Source) IsWhole(m *jsonrpc.Message) bool { return s != nil && m.TextID() == s.text }

// sourceOf returns the received message that m was made of; nil: the bridge has made m, or nobody watched.
func sourceOf(m *jsonrpc.Message) *Source {
	mark := m.Mark()
	if mark == nil {
		return nil
	}
	source, _ := mark.Of.(*Source)
	return source
}
