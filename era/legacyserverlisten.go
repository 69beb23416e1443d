package era

import (
	"bytes"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// subscribeTimeout is how long a listen waits for the server to subscribe its
	// resources; what is not subscribed by then is not honoured (C.3).
	subscribeTimeout = 5 * time.Second

	// lingerTime is how long a resource that nobody listens for stays subscribed:
	// the next listen often comes at once.
	lingerTime = 5 * time.Second

	// maxResources is how many resources one listen may name.
	maxResources = 1000
)

// subscriptions is who listens for what.
type subscriptions struct {
	listens   []*listening // in the order they came
	resources map[string]*resource
}

// listening is an open subscriptions/listen.
type listening struct {
	id      jsonrpc.ID
	changes []string // list changes that are honoured: keys of the filter
	uris    []string // resources that are to be honoured, or after the ack are
	pending int      // resources that are being subscribed
	overdue *alarm
	acked   bool
	early   []early // notifications that came before the ack
}

// early is a notification that came before the ack; of those that say the same, the last.
type early struct {
	method, uri string
	m           jsonrpc.Message
}

// resource is a resource that the server has subscribed for us, or is about to.
type resource struct {
	uri        []byte // raw
	subscribed bool
	refs       int
	waiting    []*listening
	linger     *alarm
}

// listChanges are the list changes that a listen can ask for.
var listChanges = []struct{ key, capability, method string }{
	{"toolsListChanged", "tools", "notifications/tools/list_changed"},
	{"promptsListChanged", "prompts", "notifications/prompts/list_changed"},
	{"resourcesListChanged", "resources", "notifications/resources/list_changed"},
}

func (s *subscriptions) find(id jsonrpc.ID) int {
	return slices.IndexFunc(s.listens, func(l *listening) bool { return l.id == id })
}

func (s *subscriptions) listening(id jsonrpc.ID) bool { return s.find(id) >= 0 }

// listen takes a subscriptions/listen (C.3). It takes part in deliveries at
// once, so that no change falls between the subscribing and the ack.
func (f *LegacyServerFilter) listen(now time.Time, r request, out *Out) {
	l := &listening{id: r.id}
	wanted, refusal := f.readFilter(l, r)
	if refusal != nil {
		out.Client(refusal.Response(r.id).WithRelated(r.id))
		return
	}
	f.subs.listens = append(f.subs.listens, l)
	for _, uri := range wanted {
		f.reference(l, uri, out)
	}
	if l.pending == 0 {
		f.acknowledge(now, l, out)
		return
	}
	l.overdue = f.alarms.set(now.Add(subscribeTimeout), func(now time.Time, out *Out) {
		for _, uri := range slices.Clone(l.uris) {
			if res := f.subs.resources[uri]; !res.subscribed {
				res.waiting = slices.DeleteFunc(res.waiting, func(w *listening) bool { return w == l })
				f.dereference(now, l, uri)
			}
		}
		l.pending = 0
		f.acknowledge(now, l, out)
	})
}

// readFilter reads params.notifications: what the server does not announce is not
// honoured. It returns the raw URIs that are wanted.
func (f *LegacyServerFilter) readFilter(l *listening, r request) (wanted [][]byte, _ *Refusal) {
	filter := r.m.Lookup("params", "notifications")
	if !isObject(filter) {
		return nil, invalid("params need notifications, an object") // MI21
	}
	for _, change := range listChanges {
		announced := string(member(member(f.link.capabilities, change.capability), "listChanged")) == "true"
		switch value := member(filter, change.key); string(value) {
		case "true":
			if announced {
				l.changes = append(l.changes, change.key)
			}
		case "", "false", "null":
		default:
			return nil, invalid("notifications." + change.key + " is no boolean")
		}
	}
	if ids := member(filter, "taskIds"); ids != nil {
		if !isObject(member(member(r.capabilities, "extensions"), extensionTasks)) {
			return nil, &Refusal{CodeMissingCapability, "taskIds need the extension for tasks",
				[]byte(`{"requiredCapabilities":{"extensions":{"` + extensionTasks + `":{}}}}`)}
		}
	}
	uris := member(filter, "resourceSubscriptions")
	if uris != nil && !isArray(uris) && string(uris) != "null" {
		return nil, invalid("notifications.resourceSubscriptions is no array")
	}
	for _, uri := range jsonrpc.Elements(uris) {
		if uri[0] != '"' {
			return nil, invalid("notifications.resourceSubscriptions has an element that is no string")
		}
		if len(wanted) == maxResources {
			return nil, invalid("notifications.resourceSubscriptions has too many elements")
		}
		wanted = append(wanted, uri)
	}
	if string(member(member(f.link.capabilities, "resources"), "subscribe")) != "true" {
		wanted = nil
	}
	return wanted, nil
}

// reference counts a listen that wants a resource, and subscribes it for the first.
func (f *LegacyServerFilter) reference(l *listening, raw []byte, out *Out) {
	uri, _ := jsonrpc.Text(raw)
	if slices.Contains(l.uris, uri) {
		return
	}
	l.uris = append(l.uris, uri)
	res := f.subs.resources[uri]
	if res == nil {
		res = &resource{uri: bytes.Clone(raw)} // not all of the message
		if f.subs.resources == nil {
			f.subs.resources = make(map[string]*resource)
		}
		f.subs.resources[uri] = res
		params := append(appendMember([]byte{'{'}, "uri", raw), '}')
		f.ask("resources/subscribe", params, func(now time.Time, m jsonrpc.Message, out *Out) {
			f.subscribed(now, uri, res, m, out)
		}, out)
	}
	res.refs++
	f.alarms.stop(res.linger)
	if !res.subscribed {
		res.waiting = append(res.waiting, l)
		l.pending++
	}
}

// subscribed takes the answer to resources/subscribe.
func (f *LegacyServerFilter) subscribed(now time.Time, uri string, res *resource, m jsonrpc.Message, out *Out) {
	waiting := res.waiting
	res.waiting = nil
	res.subscribed = !m.IsError()
	if !res.subscribed {
		delete(f.subs.resources, uri)
		f.alarms.stop(res.linger)
	} else if res.refs == 0 {
		f.lingering(now, uri, res)
	}
	for _, l := range waiting {
		l.pending--
		if m.IsError() {
			l.uris = slices.DeleteFunc(l.uris, func(u string) bool { return u == uri })
		}
		if l.pending == 0 {
			f.acknowledge(now, l, out)
		}
	}
}

// dereference counts a listen that does not want a resource any more.
func (f *LegacyServerFilter) dereference(now time.Time, l *listening, uri string) {
	l.uris = slices.DeleteFunc(l.uris, func(u string) bool { return u == uri })
	res := f.subs.resources[uri]
	if res.refs--; res.refs == 0 && res.subscribed {
		f.lingering(now, uri, res)
	}
}

// lingering has the server unsubscribe a resource in a while, unless a listen wants it before.
func (f *LegacyServerFilter) lingering(now time.Time, uri string, res *resource) {
	f.alarms.stop(res.linger)
	res.linger = f.alarms.set(now.Add(lingerTime), func(_ time.Time, out *Out) {
		delete(f.subs.resources, uri)
		params := append(appendMember([]byte{'{'}, "uri", res.uri), '}')
		f.ask("resources/unsubscribe", params, func(time.Time, jsonrpc.Message, *Out) {}, out)
	})
}

// acknowledge tells the client what is honoured, which is the first that it
// hears. A listen for nothing ends with that.
func (f *LegacyServerFilter) acknowledge(now time.Time, l *listening, out *Out) {
	f.alarms.stop(l.overdue)
	l.acked = true
	honoured := []byte{'{'}
	for _, change := range l.changes {
		honoured = appendMember(honoured, change, []byte("true"))
	}
	if len(l.uris) > 0 {
		uris := []byte{'['}
		for i, uri := range l.uris {
			if i > 0 {
				uris = append(uris, ',')
			}
			uris = append(uris, f.subs.resources[uri].uri...)
		}
		honoured = appendMember(honoured, "resourceSubscriptions", append(uris, ']'))
	}
	meta := append(appendMember([]byte{'{'}, KeySubscription, []byte(l.id.String())), '}')
	params := appendMember(appendMember([]byte{'{'}, "_meta", meta), "notifications", append(honoured, '}'))
	out.Client(jsonrpc.NewNotification("notifications/subscriptions/acknowledged", append(params, '}')).WithRelated(l.id))
	for _, e := range l.early {
		if l.wants(e.method, e.uri) { // else the server has not subscribed it after all
			out.Client(l.delivery(e.m))
		}
	}
	l.early = nil
	if len(l.changes) == 0 && len(l.uris) == 0 {
		f.endListen(now, l.id)
		if info := member(f.link.meta, KeyServerInfo); info != nil {
			meta = jsonrpc.With(meta, KeyServerInfo, info)
		}
		out.Client(makeResult(l.id, `"resultType":"complete",`, meta, []byte("{}")))
	}
}

// endListen forgets a listen; its client is told nothing.
func (f *LegacyServerFilter) endListen(now time.Time, id jsonrpc.ID) {
	i := f.subs.find(id)
	l := f.subs.listens[i]
	f.subs.listens = slices.Delete(f.subs.listens, i, i+1)
	f.alarms.stop(l.overdue)
	for _, uri := range slices.Clone(l.uris) {
		res := f.subs.resources[uri]
		res.waiting = slices.DeleteFunc(res.waiting, func(w *listening) bool { return w == l })
		f.dereference(now, l, uri)
	}
}

// fanOut delivers a notification to every listen that has asked for it (D7).
func (f *LegacyServerFilter) fanOut(m jsonrpc.Message, out *Out) {
	method := m.Method()
	uri, _ := jsonrpc.Text(m.Lookup("params", "uri"))
	delivered := false
	for _, l := range f.subs.listens {
		if !l.wants(method, uri) {
			continue
		}
		delivered = true
		if l.acked {
			out.Client(l.delivery(m))
			continue
		}
		l.early = slices.DeleteFunc(l.early, func(e early) bool { return e.method == method && e.uri == uri })
		l.early = append(l.early, early{method, uri, m})
	}
	if !delivered {
		out.Drop(m, "nobody listens for it")
	}
}

func (l *listening) wants(method, uri string) bool {
	if method == "notifications/resources/updated" {
		return slices.Contains(l.uris, uri)
	}
	for _, change := range listChanges {
		if change.method == method {
			return slices.Contains(l.changes, change.key)
		}
	}
	return false
}

// delivery is the copy of a notification for one listen.
func (l *listening) delivery(m jsonrpc.Message) jsonrpc.Message {
	params := m.Params()
	if !isObject(params) {
		params = []byte("{}")
	}
	meta := member(params, "_meta")
	if !isObject(meta) {
		meta = []byte("{}")
	}
	meta = jsonrpc.With(meta, KeySubscription, []byte(l.id.String()))
	return jsonrpc.NewNotification(m.Method(), jsonrpc.With(params, "_meta", meta)).WithRelated(l.id)
}
