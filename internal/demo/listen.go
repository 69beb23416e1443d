package demo

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// filter is what a subscriptions/listen asks for.
type filter struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`
	Prompts   bool     `json:"promptsListChanged,omitempty"`
	Resources bool     `json:"resourcesListChanged,omitempty"`
	URIs      []string `json:"resourceSubscriptions,omitempty"`
}

func (f filter) lists(kind string) bool {
	return kind == "tools" && f.Tools || kind == "prompts" && f.Prompts || kind == "resources" && f.Resources
}

// listen is one open subscriptions/listen.
type listen struct {
	id jsonrpc.ID
	filter
}

// listen opens a subscription: it is acknowledged first of all (MI21), and
// answered when it ends.
func (s *session) listen(id jsonrpc.ID, params []byte) error {
	var p struct {
		Notifications *filter `json:"notifications"`
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
	l.URIs = slices.DeleteFunc(slices.Compact(l.URIs), func(uri string) bool { return s.read(uri) == nil })

	s.notifyListen(l, "notifications/subscriptions/acknowledged", struct {
		Notifications filter `json:"notifications"`
	}{l.filter})
	s.mu.Lock()
	s.listens = append(s.listens, l)
	s.mu.Unlock()
	if slices.Contains(l.URIs, clockURI) && s.clock == nil {
		s.startClock()
	}
	return nil
}

// notifyListen sends a notification that belongs to a subscription.
func (s *session) notifyListen(l *listen, method string, params any) {
	raw := []byte("{}")
	if params != nil {
		var err error
		if raw, err = encode(params); err != nil {
			return // cannot happen: params hold strings
		}
	}
	s.send(jsonrpc.NewNotification(method, jsonrpc.With(raw, "_meta", l.meta())))
}

// meta is the _meta of everything that belongs to a subscription: the id of its
// request, with its JSON type.
func (l *listen) meta() []byte {
	return jsonrpc.With([]byte("{}"), era.KeySubscription, []byte(l.id.String()))
}

// unlisten ends a subscription that the client has cancelled: no word more about it (ST11).
func (s *session) unlisten(id jsonrpc.ID) {
	s.mu.Lock()
	if i := s.listenAt(id); i >= 0 {
		s.listens = slices.Delete(s.listens, i, i+1)
	}
	s.mu.Unlock()
	if !s.subscribed(clockURI) {
		s.stopClock()
	}
}

// listenAt returns the index in s.listens, -1 for none. The caller holds s.mu.
func (s *session) listenAt(id jsonrpc.ID) int {
	return slices.IndexFunc(s.listens, func(l *listen) bool { return l.id == id })
}

// endListens ends all subscriptions from our side: with the result that says
// so, and then the cancellation that another part of the specification wants (ST13).
func (s *session) endListens() {
	s.mu.Lock()
	open := s.listens
	s.listens = nil
	s.mu.Unlock()
	for _, l := range open {
		result := jsonrpc.With([]byte(`{"resultType":"complete"}`), "_meta", l.meta())
		s.respond(l.id, s.signed(result), nil)
		s.notify("notifications/cancelled", map[string]json.RawMessage{"requestId": json.RawMessage(l.id.String())})
	}
}

// changed tells whoever wants to know it that a list ("tools", "prompts",
// "resources") has changed; it reports whether anybody does.
func (s *session) changed(kind string) bool {
	return s.publish("notifications/"+kind+"/list_changed", nil, s.initialized(),
		func(l *listen) bool { return l.lists(kind) })
}

// updated does the same for a resource.
func (s *session) updated(uri string) bool {
	s.mu.Lock()
	legacy := s.subs[uri]
	s.mu.Unlock()
	return s.publish("notifications/resources/updated", map[string]string{"uri": uri}, legacy,
		func(l *listen) bool { return slices.Contains(l.URIs, uri) })
}

// publish sends a notification to the legacy session if that wants it, and once
// for each subscription that does.
func (s *session) publish(method string, params any, legacy bool, wants func(*listen) bool) bool {
	if legacy {
		s.notify(method, params)
	}
	told := legacy
	s.mu.Lock()
	listens := slices.Clone(s.listens)
	s.mu.Unlock()
	for _, l := range listens {
		s.mu.Lock()
		open := s.listenAt(l.id) >= 0 // the client may have cancelled it since
		s.mu.Unlock()
		if open && wants(l) {
			s.notifyListen(l, method, params)
			told = true
		}
	}
	return told
}

// initialized reports whether there is a legacy session.
func (s *session) initialized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hello.Revision != ""
}
