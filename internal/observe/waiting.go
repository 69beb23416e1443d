package observe

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// WaitingCall is a request that has no answer yet, whether Watchers were told of it or not.
type WaitingCall struct {
	Server  string     // the name of the server that the request is for, or has come from (Dir)
	Session *Session   // the session of the client that has sent the request, or is to answer it; never nil
	Method  string     // the method of the request
	ID      jsonrpc.ID // the request's id at the client's end
	Dir     Direction  // ToServer: a client has sent the request; ToClient: the server has
	Since   time.Time  // when it came
	Told    bool       // Watchers were told of it
}

// WaitingCalls returns the requests in calls that have no answer yet, also those that came while nobody watched. calls are those of
// the server. From now on Watchers are told the Call with the response to such a request. A request
// of 2026-07-28 over HTTP that came while nobody watched gets a Session here, and its end is told with WaitingCallEnded. A nil
// Observer works, and returns none.
func (o *Observer) WaitingCalls(server string, calls *bridge.PendingCalls) (all []WaitingCall) {
	if o == nil {
		return nil
	}
	calls.Visit(func(c bridge.PendingCall) (note any) {
		w := WaitingCall{Server: server, Session: sessionOf(&c), Method: c.Method, ID: c.ID, Dir: ToServer, Since: c.Since}
		if c.ByServer {
			w.Dir = ToClient
		}
		switch {
		case w.Session == nil:
			w.Session = o.OpenUnannounced(server, "http")
			w.Session.era.set("modern")
			note = w.Session
		case c.Note == nil:
			w.Since, w.Told = w.Session.addUnwatchedCall(&w)
		}
		all = append(all, w)
		return note
	})
	return all
}

// sessionOf returns the session of a call; nil: there is none.
func sessionOf(c *bridge.PendingCall) *Session {
	if s, ok := c.Note.(*Session); ok {
		return s
	}
	return SessionOf(c.Ctx)
}

// addUnwatchedCall keeps a request until it is answered, unless it is kept already. It returns since when the request waits,
// and whether Watchers were told of it. The response has not passed the client's end yet. If the session has a server of
// its own, the request is kept at the server's end, too, where it has the same id.
func (s *Session) addUnwatchedCall(w *WaitingCall) (since time.Time, told bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call := s.openCallsAt(Downstream, w.Dir).byID.get(w.ID); call != nil {
		return call.Began(), !call.cameUnwatched
	}
	s.unsampled.someAreKept.Store(true)
	for _, hop := range []Hop{Downstream, Upstream} {
		b := s.openCallsAt(hop, w.Dir)
		if hop == Upstream && s.ServerTransport() == "" || b.byID.count >= maxOpenCalls || b.byID.get(w.ID) != nil {
			continue
		}
		b.add(&Call{ID: w.ID, Method: w.Method, Dir: w.Dir, began: momentOf(w.Since), cameUnwatched: true})
		s.openRequests.Add(1)
		s.unsampledCallsAt(hop, w.Dir).subtract() // if it was counted there
	}
	return w.Since, false
}

// keepsUnwatchedCall reports whether addUnwatchedCall keeps, at this end of the bridge, the request of this direction with this id.
func (s *Session) keepsUnwatchedCall(hop Hop, dir Direction, id jsonrpc.ID) bool {
	if !s.unsampled.someAreKept.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.openCallsAt(hop, dir).byID.get(id)
	return call != nil && call.cameUnwatched
}

// FollowCalls has Watchers told of the calls of a server that are late (CallLate), and of the end of those that nobody knew
// before WaitingCalls (WaitingCallEnded). It is called before there are any calls. A nil Observer works.
func (o *Observer) FollowCalls(server string, calls *bridge.PendingCalls) {
	calls.OnLate = func(c bridge.PendingCall) {
		o.Event(CallLate{Server: server, Session: sessionOf(&c), Method: c.Method, ID: c.ID, Since: c.Since})
	}
	calls.OnNotedEnd = func(c bridge.PendingCall) {
		o.Event(WaitingCallEnded{Server: server, Session: sessionOf(&c), Method: c.Method, ID: c.ID, Since: c.Since})
	}
}

// TimedOutFunc returns a function that tells Watchers that a call of the server has ended because it took longer than within
// (CallTimedOut). A nil Observer works.
func (o *Observer) TimedOutFunc(server string, within time.Duration) func(bridge.PendingCall) {
	return func(c bridge.PendingCall) {
		o.Event(CallTimedOut{Server: server, Session: sessionOf(&c), Method: c.Method, ID: c.ID, Since: c.Since, Timeout: within})
	}
}

// DroppedFunc returns a function that tells Watchers that a message from or to the server reached nobody (Dropped). A nil Observer works.
func (o *Observer) DroppedFunc(server string) func(m jsonrpc.Message, reason string) {
	return func(m jsonrpc.Message, reason string) {
		o.Event(Dropped{Server: server, Message: m, Reason: reason})
	}
}

// IsCallOfSession reports whether a call belongs to the Session with this Name.
func IsCallOfSession(c bridge.PendingCall, session string) bool {
	s := sessionOf(&c)
	return s != nil && s.Name == session
}
