package observe

import "github.com/mcp-bridge/mcp-bridge/jsonrpc"

// Source is a received message, as those that are made of it know it.
type Source struct {
	mark jsonrpc.Mark
	call *Call // of a request
	text jsonrpc.TextID

	// Memo is for the one Watcher that shows messages: what it finds out of the received message need not be found
	// out again of the message that is sent. It is set when the received message is told of, and only read later.
	Memo any
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
