package demo

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// listenFilter is what a subscriptions/listen asks for: which notifications are wanted.
type listenFilter struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`      // changes of the list of tools are wanted
	Prompts   bool     `json:"promptsListChanged,omitempty"`    // changes of the list of prompts are wanted
	Resources bool     `json:"resourcesListChanged,omitempty"`  // changes of the list of resources are wanted
	URIs      []string `json:"resourceSubscriptions,omitempty"` // updates of these resources are wanted
}

// wantsList reports whether changes of a list are wanted: "tools", "prompts" or "resources".
func (f listenFilter) wantsList(kind string) bool {
	return kind == "tools" && f.Tools || kind == "prompts" && f.Prompts || kind == "resources" && f.Resources
}

// listen is a receiver of notifications about changes: an open subscriptions/listen, or
// the legacy session, which subscribes to one resource at a time.
type listen struct {
	id           jsonrpc.ID // the id of the subscriptions/listen request; zero: it is the legacy session
	listenFilter            // session.mu guards the URIs of the legacy session
}

// listen opens the subscription of a subscriptions/listen request, and acknowledges it before any other notification (MI21). The
// request is answered when the subscription ends (endListens). If listen returns an error, the caller answers with that.
func (s *session) listen(id jsonrpc.ID, params []byte) error {
	var p struct {
		Notifications *listenFilter `json:"notifications"`
	}
	if err := decode(params, &p); err != nil {
		return err
	}
	if p.Notifications == nil {
		return invalidParams("notifications is missing")
	}
	s.mu.Lock()
	many := len(s.listens) >= maxListens
	s.mu.Unlock()
	if many {
		return &rpcError{code: jsonrpc.CodeInternalError, message: fmt.Sprintf("more than %d subscriptions open", maxListens)}
	}
	l := &listen{id, *p.Notifications}
	slices.Sort(l.URIs)
	l.URIs = slices.DeleteFunc(slices.Compact(l.URIs), func(uri string) bool { return s.srv.resource(uri) == nil })

	s.notifyListen(l, "notifications/subscriptions/acknowledged", map[string]listenFilter{"notifications": l.listenFilter})
	s.mu.Lock()
	s.listens = append(s.listens, l)
	s.mu.Unlock()
	return nil
}

// notifyListen sends a notification to one receiver: a subscription, whose id goes into its _meta, or the legacy session. params may be nil.
func (s *session) notifyListen(l *listen, method string, params any) {
	var raw []byte
	if params != nil {
		raw, _ = encode(params) // strings: they can be encoded
	}
	if !l.id.IsZero() {
		if raw == nil {
			raw = []byte("{}")
		}
		raw = jsonrpc.With(raw, "_meta", l.subscriptionMeta())
	}
	s.send(jsonrpc.NewNotification(method, raw))
}

// subscriptionMeta returns the _meta of all messages of a subscription: it has the id of the
// request, with its JSON type.
func (l *listen) subscriptionMeta() []byte {
	return jsonrpc.With([]byte("{}"), era.KeySubscription, []byte(l.id.String()))
}

// removeListen ends a subscription that the client has cancelled, if there is one with this id. Nothing more is sent about it (ST11).
func (s *session) removeListen(id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.listenIndex(id); i >= 0 {
		s.listens = slices.Delete(s.listens, i, i+1)
	}
}

// listenIndex returns the index in s.listens of a subscription, -1 for none. The caller holds s.mu.
func (s *session) listenIndex(id jsonrpc.ID) int {
	return slices.IndexFunc(s.listens, func(l *listen) bool { return l.id == id && !id.IsZero() })
}

// endListens ends all subscriptions from our side. It answers the request of each with a result, and then cancels the request, too:
// the specification asks for the one in one place and for the other in another (ST13).
func (s *session) endListens() {
	s.mu.Lock()
	open := s.listens
	s.listens = nil
	s.mu.Unlock()
	for _, l := range open {
		if l.id.IsZero() {
			continue
		}
		result := jsonrpc.With([]byte(`{"resultType":"complete"}`), "_meta", l.subscriptionMeta())
		s.respond(l.id, s.withServerInfo(result), nil)
		s.notify("notifications/cancelled", map[string]json.RawMessage{"requestId": json.RawMessage(l.id.String())})
	}
}

// publish sends a notification once to each receiver in s.listens, the legacy session or a subscription, of which wants returns true.
// told reports whether there is any.
func (s *session) publish(method string, params any, wants func(*listen) bool) (told bool) {
	s.mu.Lock()
	listens := slices.Clone(s.listens)
	s.mu.Unlock()
	for _, l := range listens {
		s.mu.Lock()
		open := slices.Contains(s.listens, l) && wants(l) // the client may have cancelled it since
		s.mu.Unlock()
		if open {
			s.notifyListen(l, method, params)
			told = true
		}
	}
	return told
}

// subscribe answers resources/subscribe: from now on the legacy session is told of updates of that resource. A resource that does not
// exist is an error, so that the number of subscriptions is bounded.
func (s *session) subscribe(params []byte) (any, error) {
	uri, err := uriOf(params)
	if err == nil && s.srv.resource(uri) == nil {
		err = notFound(uri)
	}
	if err != nil {
		return nil, err
	}
	s.setURIs(uri, uri)
	return struct{}{}, nil
}

// unsubscribe answers resources/unsubscribe: the legacy session is no longer told of updates of that resource.
func (s *session) unsubscribe(params []byte) (any, error) {
	uri, err := uriOf(params)
	if err != nil {
		return nil, err
	}
	s.setURIs(uri)
	return struct{}{}, nil
}

// setURIs takes the URI without from the resources to which the legacy session has subscribed, and adds those of with.
func (s *session) setURIs(without string, with ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listens[0] // admit has seen to it that there is a legacy session
	l.URIs = append(slices.DeleteFunc(l.URIs, func(u string) bool { return u == without }), with...)
}
