package mux

import (
	"cmp"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is for calls that a server has not taken when it ends: no server has seen them, so the next one gets them
// (ST9). A call of which a server may know is never sent again, unless it only reads: then it is sent again once if the
// server has ended in an orderly way.
//
// A call that is not written is in somebody's hand: of its Send or TrySend, which goes on with it itself, or of the
// Mux, which then has the request in call.request. Whoever writes it when the server ends settles it afterwards, for
// nobody else knows whether the server has taken it.

// leaveToWriter is called by a Send that is about to put a request into the queue of the writer. Unless the Send waits
// with it there (outItem.written), the request is the Mux's from now on. false: the call is no longer wanted at this
// server.
func (s *server) leaveToWriter(it outItem) bool {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	if it.call.removed || it.call.server != s {
		return false
	}
	it.call.request = it.requestForMux()
	return true
}

// requestForMux returns the request that the Mux keeps for as long as it is not written; nil: its Send or TrySend goes
// on with it, or it is a subscription, which is kept anyway.
func (it outItem) requestForMux() *jsonrpc.Message {
	if it.m.Kind() == jsonrpc.Invalid || it.written != nil || it.call.listen != nil {
		return nil
	}
	m := it.m
	return &m
}

// endWrite is called when the server has been given the message it since withServerIDs; taken: it has taken it. If not,
// its request is the Mux's, unless it.m is zero (writeDirectly). The caller has writeMu.
func (s *server) endWrite(it outItem, taken bool) {
	call := it.call
	if call == nil {
		return
	}
	if !taken {
		s.mux.mu.Lock()
		if !call.removed && call.server == s {
			call.written, call.request = false, it.requestForMux()
		}
		s.mux.mu.Unlock()
	}
	s.writing.Store(nil)
	if s.end.isSettled.Load() { // perhaps serverEnded has left the call to us
		s.settle(call, taken)
	}
}

// takeBack takes back requests that the server's Conn has taken, but the server has not got. It is called with mu held.
func (s *server) takeBack(requests []jsonrpc.Message) {
	for _, m := range requests {
		if call := s.callOf(m.ID()); call != nil && call.listen == nil {
			call.written, call.request = false, &m
		}
	}
}

// settle answers a call, or passes it on, that was being written when the server ended; taken: the server has taken it.
func (s *server) settle(call *call, taken bool) {
	x := s.mux
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.settled != nil { // the call that is being written is this one: nobody else has writeMu
		close(s.settled)
		s.settled = nil
	}
	switch {
	case call.removed || call.server != s || call.listen != nil: // it is settled
	case taken && call.written: // else it was taken back
		x.endLost(call, s)
	default:
		x.passOn(call, s)
	}
}

// mayRepeat reports whether a call of which s may know is sent again, as s has ended. It is called with mu held, once
// s.end is settled.
func (s *server) mayRepeat(call *call) bool {
	return s.end.orderly && call.repeat != nil
}

// endLost answers a call that s has not answered before it has ended, or sends it again (mayRepeat). It is called with
// mu held.
func (x *Mux) endLost(call *call, s *server) {
	if !s.mayRepeat(call) {
		x.finish(call, refusal(call, s.end.text, s.end.data))
		return
	}
	call.request, call.repeat = call.repeat, nil
	x.passOn(call, s)
}

// passOn has the next server get a call that s has not taken, or that is sent again (endLost), as if the call had come after
// the end of s. A call that was passed on to a server which has then answered nothing is answered with an error instead,
// and so is any while the breaker is open: servers that end as soon as they are started would keep it waiting. It is called
// with mu held.
func (x *Mux) passOn(call *call, s *server) {
	if call.passedOn && !s.answered || x.serverState.breaker.isOpen(time.Now()) {
		x.finish(call, refusal(call, s.end.text, s.end.data))
		return
	}
	call.server, call.written, call.passedOn = nil, false, true
	if call.request != nil { // else its sender goes on with it
		x.serverState.passedOn = append(x.serverState.passedOn, call)
		signal(x.wake)
	}
}

// isPassingOn reports whether calls of the last server wait for the next. It is called with mu held.
func (x *Mux) isPassingOn() bool {
	return slices.ContainsFunc(x.serverState.passedOn, func(call *call) bool { return !call.removed })
}

// takePassedOn returns the calls that s gets because the last server has not taken them, or because they are sent again
// (endLost), in the order in which they came. It is called with mu held.
func (x *Mux) takePassedOn(s *server) (all []outItem) {
	calls := x.serverState.passedOn
	x.serverState.passedOn = nil
	slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.serverID, b.serverID) })
	for _, call := range calls {
		if !call.removed {
			call.server = s
			all = append(all, outItem{call: call, m: *call.request})
		}
	}
	return all
}

// isBackWithSender reports whether a server has ended without taking a call that its Send had given to it, so that the
// Send goes on with the call.
func (x *Mux) isBackWithSender(call *call) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !call.removed && call.listen == nil && call.server == nil && call.request == nil
}

// has reports whether the call is the server's, and not settled.
func (s *server) has(call *call) bool {
	s.mux.mu.Lock()
	defer s.mux.mu.Unlock()
	return !call.removed && call.server == s
}
