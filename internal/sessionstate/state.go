// Package sessionstate remembers what a client must know to renew a lost session in its
// user's place: what the new session has to be told, and which of the server's requests
// belonged to the old one. It knows no transport.
package sessionstate

import (
	"maps"
	"slices"
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// mostAsked and mostSubs bound what is remembered on behalf of others.
const (
	maxAsked = 1024
	maxSubs  = 4096
)

// State is what one client knows of its sessions; S is one of them. The zero State is
// that of a client that has not begun. A lock of the State's owner guards it.
type State[S comparable] struct {
	// What the client has sent last to open its session. Without Initialize
	// there is none to renew; Initialized may be missing.
	Initialize, Initialized jsonrpc.Message

	// Begun says that Initialize was answered to the client with a result: it
	// takes the session for granted, and may not initialize again in it (LE16).
	Begun bool

	level jsonrpc.Message            // logging/setLevel
	subs  map[string]jsonrpc.Message // resources/subscribe, by URI

	asked     map[jsonrpc.ID]asked[S] // the server's requests, as the client knows them
	lastOwnID int64                   // the number in the last id that ownID has returned
}

type asked[S comparable] struct {
	session S
	id      jsonrpc.ID // as the server knows it
}

// ownID returns an id for a request of the bridge's own.
func (s *State[S]) ownID() jsonrpc.ID {
	s.lastOwnID++
	return jsonrpc.StringID("mcp-bridge-" + strconv.FormatInt(s.lastOwnID, 10))
}

// Begin notes the client's initialize, and forgets what it has told the session
// before.
func (s *State[S]) Begin(initialize jsonrpc.Message) {
	s.Initialize, s.Initialized, s.level, s.Begun = initialize, jsonrpc.Message{}, jsonrpc.Message{}, false
	clear(s.subs)
}

// Remember keeps a request of the client that has succeeded, if a new session
// would have to be told as well (LE5). false: it should be kept, but there is no room.
func (s *State[S]) Remember(request jsonrpc.Message) bool {
	uri := func() string { return string(request.Lookup("params", "uri")) }
	switch request.Method() {
	case "logging/setLevel":
		s.level = request
	case "resources/unsubscribe":
		delete(s.subs, uri())
	case "resources/subscribe":
		if len(s.subs) >= maxSubs {
			return false
		}
		if s.subs == nil {
			s.subs = make(map[string]jsonrpc.Message)
		}
		s.subs[uri()] = request
	}
	return true
}

// Opening returns what opens a new session, in the client's own words but for
// the id of initialize. A client that was too slow to say that it is
// initialized is spoken for.
func (s *State[S]) Opening() (initialize, initialized jsonrpc.Message) {
	initialized = s.Initialized
	if initialized.Kind() == jsonrpc.Invalid {
		initialized = jsonrpc.NewNotification("notifications/initialized", nil)
	}
	return s.Initialize.WithID(s.ownID()), initialized
}

// Settings returns the requests that set a new session's subscriptions and log
// level, with ids of the bridge's own.
func (s *State[S]) Settings() []jsonrpc.Message {
	requests := slices.Collect(maps.Values(s.subs))
	if s.level.Kind() == jsonrpc.Request {
		requests = append(requests, s.level)
	}
	for i, m := range requests {
		requests[i] = m.WithID(s.ownID())
	}
	return requests
}

// ChangeNotifications returns what the server of a new session might have said had it known
// the old one: that every list may have changed of whose changes it tells,
// according to its answer to initialize, and every resource that is subscribed
// (ST9, C.3).
func (s *State[S]) ChangeNotifications(answer jsonrpc.Message) []jsonrpc.Message {
	var notes []jsonrpc.Message
	for _, list := range []string{"tools", "prompts", "resources"} {
		if string(answer.Lookup("result", "capabilities", list, "listChanged")) == "true" {
			notes = append(notes, jsonrpc.NewNotification("notifications/"+list+"/list_changed", nil))
		}
	}
	for _, uri := range slices.Sorted(maps.Keys(s.subs)) {
		notes = append(notes, jsonrpc.NewNotification("notifications/resources/updated", []byte(`{"uri":`+uri+`}`)))
	}
	return notes
}

// NoteServerRequest notes a request of the server in a session, so that its response goes
// there or nowhere, and returns it as the client is to know it: the id is
// another one where the client has one like it open from a session that is
// gone, because servers count from the start again. false: too many requests
// of this session are open to note one more.
func (s *State[S]) NoteServerRequest(session S, m jsonrpc.Message) (jsonrpc.Message, bool) {
	if len(s.asked) >= maxAsked {
		maps.DeleteFunc(s.asked, func(_ jsonrpc.ID, a asked[S]) bool { return a.session != session })
		if len(s.asked) >= maxAsked {
			return m, false
		}
	}
	if s.asked == nil {
		s.asked = make(map[jsonrpc.ID]asked[S])
	}
	id := m.ID()
	if before, open := s.asked[id]; open && before.session != session {
		id = s.ownID()
	}
	s.asked[id] = asked[S]{session: session, id: m.ID()}
	if id != m.ID() {
		m = m.WithID(id)
	}
	return m, true
}

// ForgetCancelled forgets the request that the server cancels with m, and returns m
// with that request's id as the client knows it.
func (s *State[S]) ForgetCancelled(session S, m jsonrpc.Message) jsonrpc.Message {
	target := m.CancelledID()
	for id, a := range s.asked {
		if a.session != session || !a.id.Equivalent(target) {
			continue
		}
		delete(s.asked, id)
		if id != target {
			m = m.WithCancelledID(id)
		}
		break
	}
	return m
}

// RouteResponse returns the session that has asked what the client answers with m,
// and m with the id that the server knows. false: no session has, as far as is noted.
func (s *State[S]) RouteResponse(m jsonrpc.Message) (session S, answer jsonrpc.Message, ok bool) {
	id, a, ok := jsonrpc.Find(s.asked, m.ID())
	if !ok {
		return session, m, false
	}
	delete(s.asked, id)
	if a.id != m.ID() {
		m = m.WithID(a.id)
	}
	return a.session, m, true
}

// Cancellations returns what the client has to be told of a session that is lost:
// nobody waits any more for what it has asked. why is for people. What was
// asked stays noted, because the client may have answered already.
func (s *State[S]) Cancellations(session S, why string) []jsonrpc.Message {
	var notes []jsonrpc.Message
	for id, a := range s.asked {
		if a.session == session {
			notes = append(notes, jsonrpc.NewNotification("notifications/cancelled",
				[]byte(`{"requestId":`+id.String()+`,"reason":`+strconv.QuoteToASCII(why)+`}`)))
		}
	}
	return notes
}

// Handoff is what remains of a State when the client goes over to another transport,
// whose sessions are others.
type Handoff struct {
	// Refused is how many renewals in a row the server has refused, by way of
	// one transport or another.
	Refused int

	begun                          bool
	initialize, initialized, level jsonrpc.Message
	subs                           map[string]jsonrpc.Message
	asked                          map[jsonrpc.ID]jsonrpc.ID // as the client knows them, as the server did
	lastOwnID                      int64
}

// Handoff returns what Adopt needs.
func (s *State[S]) Handoff(refused int) *Handoff {
	e := &Handoff{Refused: refused, begun: s.Begun, initialize: s.Initialize, initialized: s.Initialized, level: s.level,
		subs: maps.Clone(s.subs), asked: make(map[jsonrpc.ID]jsonrpc.ID, len(s.asked)), lastOwnID: s.lastOwnID}
	for id, a := range s.asked {
		e.asked[id] = a.id
	}
	return e
}

// Adopt makes the State what e says. What the server has asked is noted as of
// gone, a session that nothing is sent to, so that no other one gets the answers.
func (s *State[S]) Adopt(e *Handoff, gone S) {
	*s = State[S]{Begun: e.begun, Initialize: e.initialize, Initialized: e.initialized, level: e.level,
		subs: maps.Clone(e.subs), asked: make(map[jsonrpc.ID]asked[S], len(e.asked)), lastOwnID: e.lastOwnID}
	for id, was := range e.asked {
		s.asked[id] = asked[S]{session: gone, id: was}
	}
}
