package mux

import (
	"iter"
	"maps"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// clientCalls are the calls of one client that are in progress, by the client's ids. The zero
// value has none. Most clients have a single call and no other ever, for each POST of 2026-07-28
// is a client: that call is kept without a map. Mux.mu guards all.
type clientCalls struct {
	only *call                // the single call; nil: there is none, or the calls are in more
	more map[jsonrpc.ID]*call // the calls, once there were several at a time; nil: there never were
}

// len returns how many calls there are.
func (s *clientCalls) len() int {
	if s.only != nil {
		return 1
	}
	return len(s.more)
}

// get returns the call whose id is spelled like this; nil: there is none.
func (s *clientCalls) get(id jsonrpc.ID) *call {
	if s.only != nil && s.only.id == id {
		return s.only
	}
	return s.more[id]
}

// find returns the call whose id is spelled like this, or else is the same JSON value (jsonrpc.Find); nil: there is
// none.
func (s *clientCalls) find(id jsonrpc.ID) *call {
	if s.only != nil && s.only.id.Equivalent(id) {
		return s.only
	}
	_, call, _ := jsonrpc.Find(s.more, id)
	return call
}

// add enters a call, whose id must not be in use.
func (s *clientCalls) add(c *call) {
	switch {
	case s.more != nil:
		s.more[c.id] = c
	case s.only == nil:
		s.only = c
	default:
		s.more = map[jsonrpc.ID]*call{s.only.id: s.only, c.id: c}
		s.only = nil
	}
}

// remove takes a call out of the client's calls, if it is in them.
func (s *clientCalls) remove(call *call) {
	if s.only == call {
		s.only = nil
		return
	}
	delete(s.more, call.id)
}

// all returns all calls, in no order.
func (s *clientCalls) all() iter.Seq[*call] {
	return func(yield func(*call) bool) {
		if s.only != nil {
			yield(s.only)
			return
		}
		maps.Values(s.more)(yield)
	}
}
