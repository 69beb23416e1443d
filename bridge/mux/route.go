package mux

import (
	"bytes"
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// subscription is what a Mux remembers of an open subscriptions/listen.
type subscription struct {
	listenRequest jsonrpc.Message // the request with which it is opened again, at this server or another (era.KeptListen)
	acknowledged  []byte          // the notifications that the first server to acknowledge it has agreed to, as raw JSON; nil: none has acknowledged it
	reopening     bool            // it was lost, with its server or at it, and is sent again
	tries         int             // how many times in a row the subscription was sent again to a server that lives, without lasting
	ackedAt       time.Time       // when it was acknowledged; zero: it was not since it was sent
	ackDeadline   time.Time       // when the server must have acknowledged it; zero: nothing is awaited
}

// Send implements bridge.Sink: it takes a message from the server and hands it to the client that it is for, and refuses
// a request. It waits only for a client whose inbox is full, and not for long (pushOrEndClient); so it needs no ctx.
func (s *server) Send(_ context.Context, m jsonrpc.Message) error {
	s.take(m, true)
	return nil
}

// TrySend implements bridge.Sink: it takes a message from the server, as Send does, if that needs no waiting; false: it needs it, or may.
func (s *server) TrySend(m jsonrpc.Message) bool { return s.take(m, false) }

// take takes a message from the server and hands it to the client that it is for, drops it if there is none, or refuses it
// if it is a request; all of that counts as taken. Without mayWait it returns false, and has done nothing, where it would have,
// or might have, to wait.
func (s *server) take(m jsonrpc.Message, mayWait bool) (taken bool) {
	switch m.Kind() {
	case jsonrpc.Response:
		return s.routeAnswer(m, mayWait)
	case jsonrpc.Notification:
		return s.route(m, mayWait)
	case jsonrpc.Request:
		s.refuse(m)
	}
	return true
}

// routeAnswer hands a response to the client that has asked. taken is false, without mayWait only, if it would have to
// wait.
func (s *server) routeAnswer(m jsonrpc.Message, mayWait bool) (taken bool) {
	x := s.mux
	x.mu.Lock()
	call := s.callOf(m.ID())
	switch {
	case call == nil: // J12
		x.mu.Unlock()
		x.reportDropped(m, "answers no request that is in progress")
		return true
	case call.listen != nil && call.listen.acknowledged != nil && saysServerLost(m):
		s.relistenLater(call)
		x.mu.Unlock()
		return true
	case !mayWait && call.conn.lacksRoom(m):
		x.mu.Unlock()
		return false
	case call.listen == nil && m.Size() <= maxEndAnswerSize && saysServerEnded(m) && !call.conn.lacksRoom(m):
		s.holdEndAnswer(call, m)
		x.mu.Unlock()
		return true
	}
	if !s.answered && !m.IsError() && call.listen == nil && !call.isDiscover {
		s.answered = !asksForInput(m)
	}
	m = m.WithID(call.id).WithRelated(call.id)
	ends := call.listen != nil && !m.IsError()
	if ends || mayWait && call.conn.lacksRoom(m) {
		x.mu.Unlock() // for what takes time
		if ends {
			m = ownmsg.WithSubscription(m, call.id)
		}
		if mayWait {
			call.conn.awaitRoomOrEnd(m)
		}
		x.mu.Lock()
	}
	gone := call.removed
	switch {
	case gone:
	case ends: // ST13
		x.finish(call, m, ownmsg.SubscriptionCancelled(call.id).WithRelated(call.id))
	default:
		x.finishWithoutWake(call, m)
	}
	alone := x.ledger.requestCount() == 0
	x.mu.Unlock()
	switch {
	case gone:
		x.reportDropped(m, "answers no request that is in progress")
	case alone: // nobody waits for us meanwhile
		call.conn.inbox.Deliver()
	default:
		call.conn.inbox.Wake()
	}
	return true
}

// asksForInput reports whether a response asks the client for input, so that the request will be sent again with that
// (MI20).
func asksForInput(m jsonrpc.Message) bool {
	kind, _ := jsonrpc.Text(m.Lookup("result", "resultType"))
	return kind == "input_required"
}

// callOf returns the call with this serverID; nil: there is none, or the server has guessed the id of a call that it
// has not got. It is called with mu held.
func (s *server) callOf(id jsonrpc.ID) *call {
	n, ok := serverIDNumber(id)
	if !ok {
		return nil
	}
	call := s.mux.ledger.calls[n]
	if call == nil || !s.mayKnow(call) {
		return nil
	}
	return call
}

// mayKnow reports whether a call was written to this server, or is being written. It is called with mu held.
func (s *server) mayKnow(call *call) bool { return call.server == s && call.written }

// serverIDNumber returns the integer that an id of the server's stands for; false: it is none. The server may have
// decoded and encoded it, so 7.0 is 7.
func serverIDNumber(id jsonrpc.ID) (int64, bool) {
	text := id.String()
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(text, 64)
	return int64(f), err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53
}

// serverToken returns the progress token that the server gets, in the place of the client's, for the call with this serverID.
func (x *Mux) serverToken(serverID int64) jsonrpc.ID {
	return jsonrpc.StringID(x.tokenPrefix + strconv.FormatInt(serverID, 10))
}

// route hands a notification to the one client that it is about, and drops it if that cannot be found out. taken is
// false, without mayWait only, if it would have to wait, or might have (routeToListen).
func (s *server) route(m jsonrpc.Message, mayWait bool) (taken bool) {
	x := s.mux
	switch m.Method() {
	case ownmsg.Progress:
		return s.routeProgress(m, mayWait)
	case ownmsg.Cancelled:
		s.routeListenCancelled(m)
		return true
	}
	if id := ownmsg.SubscriptionOf(m); !id.IsZero() {
		return s.routeToListen(m, id, mayWait)
	}
	log := m.Method() == ownmsg.Log
	x.mu.Lock()
	var call *call
	if id, named := m.During(); named {
		call = s.callOf(id)
	} else if log {
		call = s.onlyLoggingCall()
	}
	x.mu.Unlock()
	switch {
	case call != nil && call.listen != nil: // it does not say so itself
		return s.routeToListen(m, m.Related(), mayWait)
	case call == nil: // B.1
		x.reportDropped(m, "cannot be attributed to a request in progress")
	case log && !call.wantsLog(m):
		x.reportDropped(m, "a log message that its request has not asked for")
	default:
		return call.deliver(m, mayWait)
	}
	return true
}

// deliver hands the call's client a message about the call. taken is false, without mayWait only, if it would have to
// wait.
func (call *call) deliver(m jsonrpc.Message, mayWait bool) (taken bool) {
	m = m.WithRelated(call.id)
	if !mayWait {
		return call.conn.tryPush(call, m)
	}
	call.conn.pushOrEndClient(call, m)
	return true
}

// wantsLog reports whether the call has asked for log messages of m's level (MI18). If that level is none that MCP knows,
// any call that has asked for log messages wants it.
func (call *call) wantsLog(m jsonrpc.Message) bool {
	rank := era.LogRank(m.Lookup("params", "level"))
	return call.logLevel >= 0 && (rank < 0 || rank >= call.logLevel)
}

// isStray reports whether m came in the course of another request than call: what it says of call is not the server's
// to say there (MI14, D.2). It is called with mu held.
func (s *server) isStray(m jsonrpc.Message, call *call) bool {
	id, named := m.During()
	return named && s.callOf(id) != call
}

// onlyLoggingCall returns the call that a log message which names none must be about: the only one that the server
// has, if that call has asked for log messages; otherwise nil. A call that has not asked counts, for the server may
// log all the same. An open subscription does not count, for no log message is about one. It is nil also while the
// message may be about a call that another client has cancelled. It is called with mu held.
func (s *server) onlyLoggingCall() *call {
	x := s.mux
	var only *call
	for _, call := range x.ledger.calls {
		switch {
		case !s.mayKnow(call) || call.listen != nil:
			continue
		case only != nil:
			return nil
		}
		only = call
	}
	if only == nil || only.logLevel < 0 || x.ledger.mayBeStrayLog(only.conn) {
		return nil
	}
	return only
}

// routeProgress hands a progress notification to the client of the call that its token belongs to, with the client's
// own token (D.2, J13), or drops it if there is none. taken is false, without mayWait only, if it would have to wait.
func (s *server) routeProgress(m jsonrpc.Message, mayWait bool) (taken bool) {
	x := s.mux
	text := m.ProgressToken().String()
	tail, ours := strings.CutPrefix(strings.Trim(text, `"`), x.tokenPrefix)
	var call *call
	if n, err := strconv.ParseInt(tail, 10, 64); ours && err == nil {
		x.mu.Lock()
		call = x.ledger.calls[n]
		if call != nil && (!s.mayKnow(call) || call.token.IsZero() || s.isStray(m, call)) {
			call = nil
		}
		x.mu.Unlock()
	}
	if call == nil {
		x.reportDropped(m, "progress of no request that is in progress")
		return true
	}
	return call.deliver(m.WithProgressToken(call.token), mayWait)
}

// routeListenCancelled deals with a cancellation from the server: it ends the subscription that m cancels, with the
// messages that a client of any transport understands (ST13).
func (s *server) routeListenCancelled(m jsonrpc.Message) {
	x := s.mux
	x.mu.Lock()
	call := s.callOf(m.CancelledID())
	ours := call != nil && call.listen != nil && !s.isStray(m, call)
	if ours {
		result, _ := ownmsg.ListenEnd(call.id)
		x.finish(call, result, m.WithCancelledID(call.id).WithRelated(call.id))
	}
	x.mu.Unlock()
	if !ours {
		x.reportDropped(m, "cancels no subscription that is open")
	}
}

// routeToListen hands a notification to the client of the subscription that the server knows by id (ST12, D.2), if that has
// asked for it, and otherwise drops it. An acknowledgement of a subscription that was opened again is not handed on: the
// client is told that all may have changed (announceChanges). taken is false, without mayWait only, if it would have to
// wait, and for each acknowledgement, which may need a wait. What is dropped counts as taken.
func (s *server) routeToListen(m jsonrpc.Message, id jsonrpc.ID, mayWait bool) (taken bool) {
	x := s.mux
	acknowledged := m.Method() == ownmsg.Acknowledged
	if acknowledged && !mayWait { // it may be the beginning of several messages
		return false
	}
	var known []byte // of a subscription that its client has open already
	x.mu.Lock()
	call := s.callOf(id)
	if call != nil && (call.listen == nil || s.isStray(m, call)) {
		call = nil
	}
	if call != nil && acknowledged {
		known = call.listen.acknowledged
		call.listen.ackedAt, call.listen.ackDeadline = time.Now(), time.Time{}
		if known == nil {
			call.listen.acknowledged = bytes.Clone(m.Lookup("params", "notifications"))
		}
	}
	x.mu.Unlock()
	switch {
	case call == nil:
		x.reportDropped(m, "belongs to no subscription that is open")
	case known != nil:
		call.announceChanges(known)
	case !call.listen.asksFor(m.Method()):
		x.reportDropped(m, "its subscription has not asked for it")
	default:
		return call.deliver(ownmsg.WithSubscription(m, call.id), mayWait)
	}
	return true
}

// asksFor reports whether the client has subscribed to notifications of this method (MI21): for resources/updated, whether
// to any resource. It is false for log messages and progress, which belong to requests, and true for every method that is
// not named here: the acknowledgement, and what the bridge does not know.
func (l *subscription) asksFor(method string) bool {
	key := ""
	switch method {
	case ownmsg.Log, ownmsg.Progress:
		return false
	case "notifications/tools/list_changed":
		key = "toolsListChanged"
	case "notifications/prompts/list_changed":
		key = "promptsListChanged"
	case "notifications/resources/list_changed":
		key = "resourcesListChanged"
	case "notifications/resources/updated":
		asked := l.listenRequest.Lookup("params", "notifications", "resourceSubscriptions")
		return len(asked) > 0 && asked[0] == '['
	default:
		return true
	}
	return string(l.listenRequest.Lookup("params", "notifications", key)) == "true"
}

// announceChanges notifies the client of a subscription that all it has subscribed to may have changed, because the
// subscription was interrupted (ST9). honoured is what the first server has agreed to, as raw JSON.
func (call *call) announceChanges(honoured []byte) {
	meta := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + call.id.String() + `}`
	notify := func(method, params string) {
		call.conn.pushOrEndClient(call, jsonrpc.NewNotification(method, []byte("{"+meta+params+"}")).WithRelated(call.id))
	}
	for member := range jsonrpc.Members(honoured) {
		wanted := string(member.Value) == "true"
		switch {
		case member.Key == "toolsListChanged" && wanted:
			notify("notifications/tools/list_changed", "")
		case member.Key == "promptsListChanged" && wanted:
			notify("notifications/prompts/list_changed", "")
		case member.Key == "resourcesListChanged" && wanted:
			notify("notifications/resources/list_changed", "")
		case member.Key == "resourceSubscriptions":
			for _, uri := range jsonrpc.Elements(member.Value) {
				notify("notifications/resources/updated", `,"uri":`+string(uri))
			}
		}
	}
}
