package legacyclient

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	subscribeDelay  = 20 * time.Millisecond // subscriptions of the client within this time share one new listen
	ackTimeout      = 10 * time.Second      // how long the server may take to acknowledge a listen
	minSteadyListen = 5 * time.Second       // a listen that the server ends sooner after its acknowledgement counts as a failure
	listenBackoff   = time.Second           // how long the next listen waits after the first failure; doubled after each further one
	maxBackoff      = time.Minute           // the longest that the next listen waits after failures
	maxReopens      = 5                     // how many lost listens may be opened again in a row; then one more in each reopenRefill
	reopenRefill    = time.Minute           // the time after which one more lost listen may be opened again (see maxReopens)
)

// listSet is a set of the lists that a server can have: those of whose changes somebody tells, or wants to be told.
type listSet struct {
	tools     bool // the list of tools is in the set
	prompts   bool // the list of prompts is in the set
	resources bool // the list of resources is in the set
}

// listener is the session's subscription to changes: one subscriptions/listen
// (C.2). A listen cannot be changed. To replace it, another one is opened first,
// and the old one is closed when the server has acknowledged the new one. So no
// change is missed.
type listener struct {
	session *session // what client and server have said about themselves

	lists          listSet           // the lists whose changes the client gets; none before notifications/initialized
	uris           []string          // the resources that the client has subscribed to, in order
	acknowledged   *listenStream     // the listen that the server has acknowledged; nil: there is none
	unacknowledged *listenStream     // the listen that will replace acknowledged once the server acknowledges it; nil: there is none
	waiters        []subscribeWaiter // resources/subscribe requests that wait until a listen with their URI is acknowledged

	openAt            time.Time // when to open the next listen, or to close the last one if nothing is wanted any more; zero: not planned
	needsResync       bool      // changes may have been missed: at the next acknowledgement the client is told that all may have changed
	failures          int       // how many listens have failed in a row: were not acknowledged, or have ended within minSteadyListen of that
	reopens           int       // how often the next listen was planned after a lost or failed one, less one for each reopenRefill since
	reopensRefilledAt time.Time // the time from which reopenRefill counts to the next lowering of reopens: that of the last one, or when reopens rose from 0
}

// listenStream is one subscriptions/listen.
type listenStream struct {
	id           jsonrpc.ID // the id of the subscriptions/listen
	lists        listSet    // the lists that it asks for
	uris         []string   // the resources that it asks for
	grantedURIs  []string   // the resources that the server has granted
	grantedLists listSet    // the lists that the server has granted
	ackDeadline  time.Time  // until when the server must have acknowledged it
	ackedAt      time.Time  // when the server has acknowledged it; zero: it has not
}

// nextDue returns when tick must be called; zero: never.
func (l *listener) nextDue() time.Time {
	if l.unacknowledged != nil {
		return l.unacknowledged.ackDeadline // openAt comes after that
	}
	return l.openAt
}

// planOpen has tick open the next listen at this time, or earlier if that is planned.
func (l *listener) planOpen(at time.Time) { l.openAt = earlier(l.openAt, at) }

// handleInitialized takes notifications/initialized: from now on the client may get
// changes.
func (l *listener) handleInitialized(now time.Time, out *era.Out) {
	if l.lists = l.session.server.announcedLists; l.lists != (listSet{}) {
		l.planOpen(now)
		l.tick(now, out)
	}
}

// tick gives up a listen that is not acknowledged in time, or does what openAt was set for: it opens the next listen, or
// closes the last one, if the client wants nothing any more. A listen that asks for the same as the last one is not opened.
func (l *listener) tick(now time.Time, out *era.Out) {
	if due := l.nextDue(); due.IsZero() || due.After(now) {
		return
	}
	if l.unacknowledged != nil {
		id := l.unacknowledged.id
		closeListen(id, out)
		l.failNext(now, &era.Refusal{Code: jsonrpc.CodeInternalError, Text: era.NotAcknowledged, Data: shape.ReasonData("timeout")}, out)
		return
	}
	l.openAt = time.Time{}
	if l.lists == (listSet{}) && len(l.uris) == 0 {
		l.needsResync = false
		if l.acknowledged != nil {
			closeListen(l.acknowledged.id, out)
			l.acknowledged = nil
		}
		return
	}
	if l.acknowledged != nil && len(l.waiters) == 0 && l.acknowledged.lists == l.lists && slices.Equal(l.acknowledged.uris, l.uris) {
		return
	}
	l.open(now, out)
}

// open sends the listen that will replace the acknowledged one.
func (l *listener) open(now time.Time, out *era.Out) {
	l.unacknowledged = &listenStream{id: l.session.nextID(), lists: l.lists, uris: slices.Clone(l.uris), ackDeadline: now.Add(ackTimeout)}
	filter := []byte("{")
	for _, kind := range []struct {
		key string
		on  bool
	}{
		{"toolsListChanged", l.lists.tools},
		{"promptsListChanged", l.lists.prompts},
		{"resourcesListChanged", l.lists.resources},
	} {
		if kind.on {
			filter = shape.AppendMember(filter, kind.key, []byte("true"))
		}
	}
	if len(l.uris) > 0 {
		uris := []byte("[")
		for i, uri := range l.uris {
			if i > 0 {
				uris = append(uris, ',')
			}
			uris = append(uris, jsonrpc.Quote(uri)...)
		}
		filter = shape.AppendMember(filter, "resourceSubscriptions", append(uris, ']'))
	}
	out.Server(jsonrpc.NewRequest(l.unacknowledged.id, "subscriptions/listen", l.session.ownParams(`,"notifications":`+string(filter)+`}`)))
}

// closeListen ends a listen at the server.
func closeListen(id jsonrpc.ID, out *era.Out) {
	out.Server(jsonrpc.NewNotification("notifications/cancelled", []byte(`{"requestId":`+id.String()+`}`)))
}

// listenIDOf returns the id of the subscriptions/listen request to whose subscription a
// notification of the server belongs; zero: to none. It may also be the id of another
// request, so callers compare it with that of a listen.
func listenIDOf(m jsonrpc.Message) jsonrpc.ID {
	id, ok := jsonrpc.ParseID(m.Lookup("params", "_meta", era.KeySubscription))
	if !ok && m.Related() != jsonrpc.NullID {
		id = m.Related()
	}
	return id
}

// handleAcknowledged takes the server's acknowledgement of a listen, which says what the server
// grants. The listen before it is closed. The resources/subscribe requests that wait for it are answered. With
// needsResync, the client is told that all may have changed.
func (l *listener) handleAcknowledged(now time.Time, m jsonrpc.Message, out *era.Out) {
	if l.unacknowledged == nil || !l.unacknowledged.id.Equivalent(listenIDOf(m)) {
		out.Drop(m, "it acknowledges no listen that waits for it")
		return
	}
	if l.acknowledged != nil {
		closeListen(l.acknowledged.id, out)
	}
	l.acknowledged, l.unacknowledged = l.unacknowledged, nil
	s := l.acknowledged
	s.ackedAt = now
	s.readGranted(m.Lookup("params", "notifications"))
	l.settleWaiters(out)
	if l.needsResync {
		l.needsResync = false
		l.announceAll(out)
	}
}

// readGranted notes what the server has granted: notifications is the raw member of the acknowledgement.
func (s *listenStream) readGranted(notifications []byte) {
	for m := range jsonrpc.Members(notifications) {
		on := string(m.Value) == "true"
		switch m.Key {
		case "toolsListChanged":
			s.grantedLists.tools = on
		case "promptsListChanged":
			s.grantedLists.prompts = on
		case "resourcesListChanged":
			s.grantedLists.resources = on
		case "resourceSubscriptions":
			for _, e := range jsonrpc.Elements(m.Value) {
				if uri, ok := jsonrpc.Text(e); ok {
					s.grantedURIs = append(s.grantedURIs, uri)
				}
			}
		}
	}
}

// announceAll tells the client that everything it listens to may have changed.
func (l *listener) announceAll(out *era.Out) {
	notify := func(method string, params []byte) {
		out.Client(jsonrpc.NewNotification(method, params).WithRelated(jsonrpc.NullID))
	}
	if l.acknowledged.grantedLists.tools && l.lists.tools {
		notify("notifications/tools/list_changed", nil)
	}
	if l.acknowledged.grantedLists.prompts && l.lists.prompts {
		notify("notifications/prompts/list_changed", nil)
	}
	if l.acknowledged.grantedLists.resources && l.lists.resources {
		notify("notifications/resources/list_changed", nil)
	}
	for _, uri := range l.acknowledged.grantedURIs {
		if slices.Contains(l.uris, uri) {
			notify("notifications/resources/updated", []byte(`{"uri":`+string(jsonrpc.Quote(uri))+`}`))
		}
	}
}

// isOfListen reports whether a notification belongs to the session's acknowledged listen.
func (l *listener) isOfListen(m jsonrpc.Message) bool {
	return l.acknowledged != nil && l.acknowledged.id.Equivalent(listenIDOf(m))
}

// forwardChange passes the server's notification of a change on to the client, or drops it if it
// comes over no listen of the session or the client does not want it.
func (l *listener) forwardChange(m jsonrpc.Message, method string, out *era.Out) {
	if !l.isOfListen(m) {
		out.Drop(m, "it comes over no listen of the session")
		return
	}
	wanted := false
	switch method {
	case "notifications/tools/list_changed":
		wanted = l.lists.tools
	case "notifications/prompts/list_changed":
		wanted = l.lists.prompts
	case "notifications/resources/list_changed":
		wanted = l.lists.resources
	case "notifications/resources/updated":
		uri, _ := jsonrpc.Text(m.Lookup("params", "uri"))
		wanted = slices.ContainsFunc(l.uris, func(of string) bool { return covers(of, uri) })
	}
	if !wanted {
		out.Drop(m, "the client has not subscribed to it")
		return
	}
	out.Client(legacyNotification(m).WithRelated(jsonrpc.NullID))
}

// endListen is called when the server has ended request id; m is the response, if
// there is one. It returns false if id is not that of a listen. A result, an error
// or notifications/cancelled ends a listen (ST13).
func (l *listener) endListen(now time.Time, id jsonrpc.ID, m jsonrpc.Message, out *era.Out) bool {
	switch {
	case l.unacknowledged != nil && l.unacknowledged.id.Equivalent(id):
		why := &era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the server has ended subscriptions/listen", Data: shape.ReasonData("listen_ended")}
		if m.IsError() {
			if text, ok := jsonrpc.Text(m.Lookup("error", "message")); ok {
				why.Text += ": " + text
			}
			if code := shape.ErrorCode(m); code == jsonrpc.CodeMethodNotFound || code == jsonrpc.CodeInvalidParams {
				why.Code = code
			}
		}
		l.failNext(now, why, out)
	case l.acknowledged != nil && l.acknowledged.id.Equivalent(id):
		s := l.acknowledged
		l.acknowledged = nil
		if s.grantedLists == (listSet{}) && len(s.grantedURIs) == 0 {
			return true // the server granted nothing, and will grant nothing again
		}
		l.needsResync = true
		if now.Sub(s.ackedAt) >= minSteadyListen {
			l.failures = 0
			l.planReopen(now, 0)
		} else {
			l.planAfterFailure(now)
		}
	default:
		return false
	}
	return true
}

// failNext is called when the unacknowledged listen has failed, for the reason why. The
// resources/subscribe requests that wait for it are refused with why, except those for a URI that
// the acknowledged listen was granted. Earlier subscriptions stay.
func (l *listener) failNext(now time.Time, why *era.Refusal, out *era.Out) {
	s := l.unacknowledged
	l.unacknowledged = nil
	l.waiters = slices.DeleteFunc(l.waiters, func(w subscribeWaiter) bool {
		switch {
		case !slices.Contains(s.uris, w.uri):
			return false
		case l.acknowledged != nil && slices.Contains(l.acknowledged.grantedURIs, w.uri): // the client has subscribed to it before
			reply(w.id, nil, out)
			return true
		}
		l.uris = slices.DeleteFunc(l.uris, func(uri string) bool { return uri == w.uri })
		out.Client(why.Response(w.id).WithRelated(w.id))
		return true
	})
	if l.acknowledged == nil && why.Code == jsonrpc.CodeInternalError {
		l.needsResync = true
		l.planAfterFailure(now)
	}
}

// planAfterFailure plans the next listen after a failure, with backoff.
func (l *listener) planAfterFailure(now time.Time) {
	wait := listenBackoff << min(l.failures, 10)
	l.failures++
	l.planReopen(now, min(wait, maxBackoff))
}

// planReopen plans the next listen after a lost one: after wait, or later if there were too many
// (maxReopens), so that a server which accepts listens and ends them is not kept busy.
func (l *listener) planReopen(now time.Time, wait time.Duration) {
	if l.reopens == 0 {
		l.reopensRefilledAt = now
	}
	for l.reopens > 0 && now.Sub(l.reopensRefilledAt) >= reopenRefill {
		l.reopens--
		l.reopensRefilledAt = l.reopensRefilledAt.Add(reopenRefill)
	}
	if l.reopens >= maxReopens {
		wait = max(wait, l.reopensRefilledAt.Add(reopenRefill).Sub(now))
	}
	l.reopens++
	l.planOpen(now.Add(wait))
}
