package legacyserver

import (
	"bytes"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/timers"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// subscribeTimeout is how long a listen waits for the server to subscribe its
	// resources. The acknowledgement leaves out resources that are not subscribed by
	// then (C.3).
	subscribeTimeout = 5 * time.Second

	// subscriptionLinger is how long a resource stays subscribed after its last listen has
	// ended, because clients often listen again at once.
	subscriptionLinger = 5 * time.Second
)

// subscriptions are the open listens of clients, and the resources that the server
// has subscribed for them.
type subscriptions struct {
	timers           *timers.Timers    // those of the Filter: they end the wait for acknowledgements, and unsubscribe resources later
	ownRequests      *ownRequests      // sends resources/subscribe to the server
	handshake        *handshake        // has the server's capabilities
	resultTranslator *resultTranslator // has the serverInfo for results

	listens   []*openListen        // the open subscriptions/listen of clients, in the order they came
	resources map[string]*resource // the resources that the server has subscribed or is about to, by URI
}

// openListen is an open subscriptions/listen.
type openListen struct {
	id                 jsonrpc.ID          // the client's id of the request
	changeKeys         []string            // the list changes that the client gets, as keys of params.notifications ("toolsListChanged")
	uris               []string            // the resources whose updates the client gets
	pendingURIs        int                 // how many of uris the server has not subscribed yet
	ackTimer           *timers.Timer       // acknowledges the listen even if pendingURIs is not 0
	acked              bool                // the acknowledgement was sent
	earlyNotifications []earlyNotification // notifications that wait until the acknowledgement was sent
}

// earlyNotification is a notification for a listen that came before its acknowledgement was sent.
// Of those with the same method and uri the latest is kept.
type earlyNotification struct {
	method, uri string          // the method of m, and the URI of the resource that it is about; "": it is not notifications/resources/updated
	m           jsonrpc.Message // the server's notification
}

// resource is a resource that the server has subscribed for the bridge, or is
// about to.
type resource struct {
	uri         []byte        // its URI, raw, as the first listen for it has spelled it
	subscribed  bool          // the server has subscribed it; false: it was asked to, and has not answered yet
	refs        int           // how many listens want it
	waiting     []*openListen // listens that wait until it is subscribed
	lingerTimer *timers.Timer // unsubscribes it, subscriptionLinger after the last listen that wanted it; nil: it was never set
}

// listChanges are the list changes that a listen can ask for: the key in params.notifications, the
// server's capability, and the notification.
var listChanges = []struct{ key, capability, method string }{
	{"toolsListChanged", "tools", "notifications/tools/list_changed"},
	{"promptsListChanged", "prompts", "notifications/prompts/list_changed"},
	{"resourcesListChanged", "resources", "notifications/resources/list_changed"},
}

// indexOf returns the index in listens of the listen with this id; -1: there is none.
func (s *subscriptions) indexOf(id jsonrpc.ID) int {
	return slices.IndexFunc(s.listens, func(l *openListen) bool { return l.id == id })
}

// isListening reports whether id is that of an open subscriptions/listen of a client.
func (s *subscriptions) isListening(id jsonrpc.ID) bool { return s.indexOf(id) >= 0 }

// handleListen takes a client's subscriptions/listen (C.3): it subscribes the resources at the
// server, and acknowledges the listen then. Notifications are kept for it from now on, so that no
// change before the acknowledgement is missed.
func (s *subscriptions) handleListen(now time.Time, r request, out *era.Out) {
	l := &openListen{id: r.id}
	wanted, refusal := s.readFilter(l, r)
	if refusal != nil {
		out.Client(refusal.Response(r.id).WithRelated(r.id))
		return
	}
	s.listens = append(s.listens, l)
	for _, uri := range wanted {
		s.addReference(l, uri, out)
	}
	if l.pendingURIs == 0 {
		s.acknowledge(now, l, out)
		return
	}
	l.ackTimer = s.timers.Set(now.Add(subscribeTimeout), func(now time.Time, out *era.Out) {
		for _, uri := range slices.Clone(l.uris) {
			if res := s.resources[uri]; !res.subscribed {
				res.waiting = slices.DeleteFunc(res.waiting, func(w *openListen) bool { return w == l })
				s.removeReference(now, l, uri)
			}
		}
		l.pendingURIs = 0
		s.acknowledge(now, l, out)
	})
}

// readFilter reads params.notifications of a listen, r, into l.changeKeys: changes that the server does not announce are
// left out. It returns the URIs of the resources that are wanted, each as a JSON string with its quotes, none if the
// server has no subscriptions. The Refusal says that params.notifications is not valid, or asks for tasks although the
// client does not have that extension.
func (s *subscriptions) readFilter(l *openListen, r request) (wanted [][]byte, _ *era.Refusal) {
	filter := r.m.Lookup("params", "notifications")
	if !shape.IsObject(filter) {
		return nil, era.InvalidParams("params need notifications, an object") // MI21
	}
	for _, change := range listChanges {
		announced := string(shape.Member(shape.Member(s.handshake.capabilities, change.capability), "listChanged")) == "true"
		switch value := shape.Member(filter, change.key); string(value) {
		case "true":
			if announced {
				l.changeKeys = append(l.changeKeys, change.key)
			}
		case "", "false", "null":
		default:
			return nil, era.InvalidParams("notifications." + change.key + " is no boolean")
		}
	}
	if ids := shape.Member(filter, "taskIds"); ids != nil {
		if !shape.IsObject(shape.Member(shape.Member(r.capabilities, "extensions"), era.ExtensionTasks)) {
			return nil, &era.Refusal{Code: era.CodeMissingCapability, Text: "taskIds need the extension for tasks",
				Data: []byte(`{"requiredCapabilities":{"extensions":{"` + era.ExtensionTasks + `":{}}}}`)}
		}
	}
	uris := shape.Member(filter, "resourceSubscriptions")
	if uris != nil && !shape.IsArray(uris) && string(uris) != "null" {
		return nil, era.InvalidParams("notifications.resourceSubscriptions is no array")
	}
	for _, uri := range jsonrpc.Elements(uris) {
		if uri[0] != '"' {
			return nil, era.InvalidParams("notifications.resourceSubscriptions has an element that is no string")
		}
		if len(wanted) == era.MaxResources {
			return nil, era.InvalidParams("notifications.resourceSubscriptions has too many elements")
		}
		wanted = append(wanted, uri)
	}
	if string(shape.Member(shape.Member(s.handshake.capabilities, "resources"), "subscribe")) != "true" {
		wanted = nil
	}
	return wanted, nil
}

// addReference notes that the listen l wants the resource with the raw URI, and subscribes the
// resource at the server if l is the first.
func (s *subscriptions) addReference(l *openListen, raw []byte, out *era.Out) {
	uri, _ := jsonrpc.Text(raw)
	if slices.Contains(l.uris, uri) {
		return
	}
	l.uris = append(l.uris, uri)
	res := s.resources[uri]
	if res == nil {
		res = &resource{uri: bytes.Clone(raw)} // a copy, so that the whole message is not kept
		if s.resources == nil {
			s.resources = make(map[string]*resource)
		}
		s.resources[uri] = res
		params := append(shape.AppendMember([]byte{'{'}, "uri", raw), '}')
		s.ownRequests.send("resources/subscribe", params, func(now time.Time, m jsonrpc.Message, out *era.Out) {
			s.handleSubscribed(now, uri, res, m, out)
		}, out)
	}
	res.refs++
	s.timers.Stop(res.lingerTimer)
	if !res.subscribed {
		res.waiting = append(res.waiting, l)
		l.pendingURIs++
	}
}

// handleSubscribed takes m, the server's answer to resources/subscribe for res. Listens that have
// waited for nothing else are acknowledged.
func (s *subscriptions) handleSubscribed(now time.Time, uri string, res *resource, m jsonrpc.Message, out *era.Out) {
	waiting := res.waiting
	res.waiting = nil
	res.subscribed = !m.IsError()
	if !res.subscribed {
		delete(s.resources, uri)
		s.timers.Stop(res.lingerTimer)
	} else if res.refs == 0 {
		s.unsubscribeLater(now, uri, res)
	}
	for _, l := range waiting {
		l.pendingURIs--
		if m.IsError() {
			l.uris = slices.DeleteFunc(l.uris, func(u string) bool { return u == uri })
		}
		if l.pendingURIs == 0 {
			s.acknowledge(now, l, out)
		}
	}
}

// removeReference notes that the listen l does not want the resource any more. If it was the last,
// the resource is unsubscribed at the server a while later.
func (s *subscriptions) removeReference(now time.Time, l *openListen, uri string) {
	l.uris = slices.DeleteFunc(l.uris, func(u string) bool { return u == uri })
	res := s.resources[uri]
	if res.refs--; res.refs == 0 && res.subscribed {
		s.unsubscribeLater(now, uri, res)
	}
}

// unsubscribeLater unsubscribes a resource at the server after a while, unless another
// listen wants it by then.
func (s *subscriptions) unsubscribeLater(now time.Time, uri string, res *resource) {
	s.timers.Stop(res.lingerTimer)
	res.lingerTimer = s.timers.Set(now.Add(subscriptionLinger), func(_ time.Time, out *era.Out) {
		delete(s.resources, uri)
		params := append(shape.AppendMember([]byte{'{'}, "uri", res.uri), '}')
		s.ownRequests.send("resources/unsubscribe", params, ignoreResponse, out)
	})
}

// acknowledge sends the client the acknowledgement of its listen, and the notifications that have
// waited for it. A listen that nothing was granted to ends with it: it gets its result.
func (s *subscriptions) acknowledge(now time.Time, l *openListen, out *era.Out) {
	s.timers.Stop(l.ackTimer)
	l.acked = true
	honoured := []byte{'{'}
	for _, change := range l.changeKeys {
		honoured = shape.AppendMember(honoured, change, []byte("true"))
	}
	if len(l.uris) > 0 {
		uris := []byte{'['}
		for i, uri := range l.uris {
			if i > 0 {
				uris = append(uris, ',')
			}
			uris = append(uris, s.resources[uri].uri...)
		}
		honoured = shape.AppendMember(honoured, "resourceSubscriptions", append(uris, ']'))
	}
	meta := append(shape.AppendMember([]byte{'{'}, era.KeySubscription, []byte(l.id.String())), '}')
	params := shape.AppendMember(shape.AppendMember([]byte{'{'}, "_meta", meta), "notifications", append(honoured, '}'))
	out.Client(jsonrpc.NewNotification("notifications/subscriptions/acknowledged", append(params, '}')).WithRelated(l.id))
	for _, e := range l.earlyNotifications {
		if l.wants(e.method, e.uri) { // otherwise the server has not subscribed the resource
			out.Client(l.delivery(e.m))
		}
	}
	l.earlyNotifications = nil
	if len(l.changeKeys) == 0 && len(l.uris) == 0 {
		s.endListen(now, l.id)
		if info := shape.Member(s.resultTranslator.meta, era.KeyServerInfo); info != nil {
			meta = jsonrpc.With(meta, era.KeyServerInfo, info)
		}
		out.Client(makeResult(l.id, `"resultType":"complete",`, meta, []byte("{}")))
	}
}

// endListen removes the open listen with this id. Its client gets no answer from here. now is when: the resources that no listen
// wants any more are unsubscribed a while later.
func (s *subscriptions) endListen(now time.Time, id jsonrpc.ID) {
	i := s.indexOf(id)
	l := s.listens[i]
	s.listens = slices.Delete(s.listens, i, i+1)
	s.timers.Stop(l.ackTimer)
	for _, uri := range slices.Clone(l.uris) {
		res := s.resources[uri]
		res.waiting = slices.DeleteFunc(res.waiting, func(w *openListen) bool { return w == l })
		s.removeReference(now, l, uri)
	}
}

// fanOut sends a notification to each listen that wants it (D7).
func (s *subscriptions) fanOut(m jsonrpc.Message, out *era.Out) {
	method := m.Method()
	uri, _ := jsonrpc.Text(m.Lookup("params", "uri"))
	delivered := false
	for _, l := range s.listens {
		if !l.wants(method, uri) {
			continue
		}
		delivered = true
		if l.acked {
			out.Client(l.delivery(m))
			continue
		}
		l.earlyNotifications = slices.DeleteFunc(l.earlyNotifications, func(e earlyNotification) bool { return e.method == method && e.uri == uri })
		l.earlyNotifications = append(l.earlyNotifications, earlyNotification{method, uri, m})
	}
	if !delivered {
		out.Drop(m, "nobody listens for it")
	}
}

// wants reports whether the listen gets a notification of this method. uri is the URI of the resource that a
// notifications/resources/updated is about; for other methods it does not count.
func (l *openListen) wants(method, uri string) bool {
	if method == "notifications/resources/updated" {
		return slices.Contains(l.uris, uri)
	}
	for _, change := range listChanges {
		if change.method == method {
			return slices.Contains(l.changeKeys, change.key)
		}
	}
	return false
}

// delivery returns the copy of a server's notification for this listen, with the listen's id in _meta.
func (l *openListen) delivery(m jsonrpc.Message) jsonrpc.Message {
	params := m.Params()
	if !shape.IsObject(params) {
		params = []byte("{}")
	}
	meta := shape.Member(params, "_meta")
	if !shape.IsObject(meta) {
		meta = []byte("{}")
	}
	meta = jsonrpc.With(meta, era.KeySubscription, []byte(l.id.String()))
	return jsonrpc.NewNotification(m.Method(), jsonrpc.With(params, "_meta", meta)).WithRelated(l.id)
}
