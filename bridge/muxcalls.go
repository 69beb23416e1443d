package bridge

import (
	"iter"
	"maps"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// muxCalls are the calls of one client that are in progress, by its ids. The zero
// value has none. Of many clients each has one call and no other ever, as each
// POST of 2026-07-28 is one: that is kept without a map.
type muxCalls struct {
	only *muxCall
	more map[jsonrpc.ID]*muxCall // nil: there was never more than one at a time
}

func (s *muxCalls) len() int {
	if s.only != nil {
		return 1
	}
	return len(s.more)
}

// by returns the call with this very id; nil: there is none.
func (s *muxCalls) by(id jsonrpc.ID) *muxCall {
	if s.only != nil && s.only.id == id {
		return s.only
	}
	return s.more[id]
}

// find returns the call that an id means, as jsonrpc.Find does; nil: there is none.
func (s *muxCalls) find(id jsonrpc.ID) *muxCall {
	if s.only != nil && s.only.id.Equivalent(id) {
		return s.only
	}
	_, call, _ := jsonrpc.Find(s.more, id)
	return call
}

// add enters a call whose id is not in use.
func (s *muxCalls) add(call *muxCall) {
	switch {
	case s.more != nil:
		s.more[call.id] = call
	case s.only == nil:
		s.only = call
	default:
		s.more = map[jsonrpc.ID]*muxCall{s.only.id: s.only, call.id: call}
		s.only = nil
	}
}

func (s *muxCalls) remove(call *muxCall) {
	if s.only == call {
		s.only = nil
		return
	}
	delete(s.more, call.id)
}

func (s *muxCalls) all() iter.Seq[*muxCall] {
	return func(yield func(*muxCall) bool) {
		if s.only != nil {
			yield(s.only)
			return
		}
		maps.Values(s.more)(yield)
	}
}
