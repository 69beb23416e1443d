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

// Bounds on what a State holds.
const (
	maxServerRequests = 1024 // how many requests of the server that the client has not answered are noted
	maxSubscriptions  = 4096 // how many subscriptions of the client are kept
)

// State is what one client knows of its sessions; S is one of them. The zero State is
// that of a client that has not begun. A lock of the State's owner guards it.
type State[S comparable] struct {
	// InitializeRequest is the client's last initialize, whether it was answered or not; zero: there was none, or the Conn
	// has found that it leaves nothing to renew.
	InitializeRequest jsonrpc.Message

	// InitializedNotification is the notifications/initialized that the client has sent since
	// InitializeRequest; zero: it has sent none yet.
	InitializedNotification jsonrpc.Message

	// InitializeSucceeded says that the server has answered InitializeRequest with a result: the client
	// takes the session for granted, and may not initialize again in it (LE16).
	InitializeSucceeded bool

	setLevelRequest   jsonrpc.Message            // the client's last logging/setLevel that has succeeded; zero: none
	subscribeRequests map[string]jsonrpc.Message // the client's resources/subscribe that have succeeded and are not unsubscribed, by the URI as raw JSON

	serverRequests map[jsonrpc.ID]serverRequest[S] // the server's requests, by the id that the client knows
	lastBridgeID   int64                           // the number in the last id that the bridge has made (nextBridgeID), in this State or one before it (AdoptHandoff)
}

// serverRequest is a request of the server that the client has not answered.
type serverRequest[S comparable] struct {
	session  S          // the session in which the server has sent the request
	serverID jsonrpc.ID // the id that the server knows
}

// nextBridgeID returns an id that no request has had before: for a request of the bridge's own to the server, or for a
// request of the server whose own id the client cannot be told (NoteServerRequest).
func (s *State[S]) nextBridgeID() jsonrpc.ID {
	s.lastBridgeID++
	return jsonrpc.StringID("mcp-bridge-" + strconv.FormatInt(s.lastBridgeID, 10))
}

// NoteInitialize notes the client's initialize, and forgets what it has told the session
// before.
func (s *State[S]) NoteInitialize(initialize jsonrpc.Message) {
	s.InitializeRequest, s.InitializedNotification = initialize, jsonrpc.Message{}
	s.setLevelRequest, s.InitializeSucceeded = jsonrpc.Message{}, false
	clear(s.subscribeRequests)
}

// RememberSetting keeps a request of the client that has succeeded, if a new session
// would have to be told as well (LE5), or forgets the subscription that it ends. false:
// it should be kept, but there is no room.
func (s *State[S]) RememberSetting(request jsonrpc.Message) bool {
	uri := func() string { return string(request.Lookup("params", "uri")) }
	switch request.Method() {
	case "logging/setLevel":
		s.setLevelRequest = request
	case "resources/unsubscribe":
		delete(s.subscribeRequests, uri())
	case "resources/subscribe":
		if len(s.subscribeRequests) >= maxSubscriptions {
			return false
		}
		if s.subscribeRequests == nil {
			s.subscribeRequests = make(map[string]jsonrpc.Message)
		}
		s.subscribeRequests[uri()] = request
	}
	return true
}

// OpeningMessages returns the messages that open a new session, in the client's own words but
// for the id of initialize. If the client has not said yet that it is initialized, initialized
// is a message of the bridge's own.
func (s *State[S]) OpeningMessages() (initialize, initialized jsonrpc.Message) {
	initialized = s.InitializedNotification
	if initialized.Kind() == jsonrpc.Invalid {
		initialized = jsonrpc.NewNotification("notifications/initialized", nil)
	}
	return s.InitializeRequest.WithID(s.nextBridgeID()), initialized
}

// SettingRequests returns the requests that set a new session's subscriptions and log
// level, with ids of the bridge's own.
func (s *State[S]) SettingRequests() []jsonrpc.Message {
	requests := slices.Collect(maps.Values(s.subscribeRequests))
	if s.setLevelRequest.Kind() == jsonrpc.Request {
		requests = append(requests, s.setLevelRequest)
	}
	for i, m := range requests {
		requests[i] = m.WithID(s.nextBridgeID())
	}
	return requests
}

// ChangeNotifications returns the notifications that everything may have changed with a new
// session (ST9, C.3): one for each list of whose changes the server tells, according to
// answer, its answer to initialize, and one for each resource that is subscribed.
func (s *State[S]) ChangeNotifications(answer jsonrpc.Message) []jsonrpc.Message {
	var notes []jsonrpc.Message
	for _, list := range []string{"tools", "prompts", "resources"} {
		if string(answer.Lookup("result", "capabilities", list, "listChanged")) == "true" {
			notes = append(notes, jsonrpc.NewNotification("notifications/"+list+"/list_changed", nil))
		}
	}
	for _, uri := range slices.Sorted(maps.Keys(s.subscribeRequests)) {
		notes = append(notes, jsonrpc.NewNotification("notifications/resources/updated", []byte(`{"uri":`+uri+`}`)))
	}
	return notes
}

// NoteServerRequest notes that the server has sent the request m in a session, so that the
// client's response goes to that session or nowhere. It returns m as the client gets it: with
// another id if the client still has an open request with this id from another session, since
// a server begins to count anew in each session. If there is no room, the requests of other
// sessions are forgotten. false: too many requests of this session are open to note one more.
func (s *State[S]) NoteServerRequest(session S, m jsonrpc.Message) (jsonrpc.Message, bool) {
	if len(s.serverRequests) >= maxServerRequests {
		maps.DeleteFunc(s.serverRequests, func(_ jsonrpc.ID, a serverRequest[S]) bool { return a.session != session })
		if len(s.serverRequests) >= maxServerRequests {
			return m, false
		}
	}
	if s.serverRequests == nil {
		s.serverRequests = make(map[jsonrpc.ID]serverRequest[S])
	}
	id := m.ID()
	if before, open := s.serverRequests[id]; open && before.session != session {
		id = s.nextBridgeID()
	}
	s.serverRequests[id] = serverRequest[S]{session: session, serverID: m.ID()}
	if id != m.ID() {
		m = m.WithID(id)
	}
	return m, true
}

// ForgetCancelled forgets the request that the server cancels with m, and returns m
// with that request's id as the client knows it.
func (s *State[S]) ForgetCancelled(session S, m jsonrpc.Message) jsonrpc.Message {
	target := m.CancelledID()
	for id, a := range s.serverRequests {
		if a.session != session || !a.serverID.Equivalent(target) {
			continue
		}
		delete(s.serverRequests, id)
		if id != target {
			m = m.WithCancelledID(id)
		}
		break
	}
	return m
}

// RouteResponse returns the session whose request the client answers with m, and m with the id that the
// server knows, and forgets the request. false: no such request is noted.
func (s *State[S]) RouteResponse(m jsonrpc.Message) (session S, answer jsonrpc.Message, ok bool) {
	id, a, ok := jsonrpc.Find(s.serverRequests, m.ID())
	if !ok {
		return session, m, false
	}
	delete(s.serverRequests, id)
	if a.serverID != m.ID() {
		m = m.WithID(a.serverID)
	}
	return a.session, m, true
}

// CancelNotifications returns notifications that cancel, for the client, the open requests of
// a session that is lost. why is for people. The requests stay noted, because the client
// may have answered already.
func (s *State[S]) CancelNotifications(session S, why string) []jsonrpc.Message {
	var notes []jsonrpc.Message
	for id, a := range s.serverRequests {
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
	// RefusedRenewals is how many renewals in a row the server has refused, by way of
	// one transport or another.
	RefusedRenewals int

	initializeSucceeded     bool                       // State.InitializeSucceeded: the client's initialize was answered with a result
	initializeRequest       jsonrpc.Message            // State.InitializeRequest: the client's last initialize
	initializedNotification jsonrpc.Message            // State.InitializedNotification: the client's notifications/initialized; zero: none yet
	setLevelRequest         jsonrpc.Message            // State.setLevelRequest: the client's last logging/setLevel that has succeeded; zero: none
	subscribeRequests       map[string]jsonrpc.Message // State.subscribeRequests: the client's subscriptions, by the URI as raw JSON
	serverRequestIDs        map[jsonrpc.ID]jsonrpc.ID  // the server's requests that the client has not answered: from the id that the client knows to the server's
	lastBridgeID            int64                      // State.lastBridgeID: the number in the last id that the bridge has made
}

// Handoff returns what AdoptHandoff of another State needs to go on with this one; refused becomes its
// RefusedRenewals.
func (s *State[S]) Handoff(refused int) *Handoff {
	e := &Handoff{
		RefusedRenewals:         refused,
		initializeSucceeded:     s.InitializeSucceeded,
		initializeRequest:       s.InitializeRequest,
		initializedNotification: s.InitializedNotification,
		setLevelRequest:         s.setLevelRequest,
		subscribeRequests:       maps.Clone(s.subscribeRequests),
		serverRequestIDs:        make(map[jsonrpc.ID]jsonrpc.ID, len(s.serverRequests)),
		lastBridgeID:            s.lastBridgeID,
	}
	for id, a := range s.serverRequests {
		e.serverRequestIDs[id] = a.serverID
	}
	return e
}

// AdoptHandoff makes the State what e says, and forgets what it was before. The server's requests in e are noted as requests of
// gone, a session that nothing is sent to, so that no other session gets their answers.
func (s *State[S]) AdoptHandoff(e *Handoff, gone S) {
	*s = State[S]{
		InitializeSucceeded:     e.initializeSucceeded,
		InitializeRequest:       e.initializeRequest,
		InitializedNotification: e.initializedNotification,
		setLevelRequest:         e.setLevelRequest,
		subscribeRequests:       maps.Clone(e.subscribeRequests),
		serverRequests:          make(map[jsonrpc.ID]serverRequest[S], len(e.serverRequestIDs)),
		lastBridgeID:            e.lastBridgeID,
	}
	for id, was := range e.serverRequestIDs {
		s.serverRequests[id] = serverRequest[S]{session: gone, serverID: was}
	}
}
