package legacyclient

import (
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxURIBytes bounds the total length of the URIs of all subscriptions of a client, because each
// new listen has all of them.
const maxURIBytes = era.MaxListen - 4<<10

// subscribeWaiter is a resources/subscribe without an answer.
type subscribeWaiter struct {
	id  jsonrpc.ID // the id of the request
	uri string     // the resource
}

// subscribe takes the client's resources/subscribe. It answers at once if the server has granted
// the resource already; otherwise the next listen asks for it, and the request waits.
func (l *listener) subscribe(now time.Time, m jsonrpc.Message, out *era.Out) {
	uri, ok := l.subscriptionURI(m, out)
	if !ok {
		return
	}
	known := slices.Contains(l.uris, uri)
	if len(l.waiters) >= era.MaxResources || !known && !l.hasRoom(uri) {
		refuse(m.ID(), jsonrpc.CodeInternalError, "too many subscriptions to resources", shape.ReasonData("busy"), out)
		return
	}
	if !known {
		l.uris = append(l.uris, uri)
	}
	if l.acknowledged != nil && l.unacknowledged == nil && slices.Contains(l.acknowledged.grantedURIs, uri) {
		reply(m.ID(), nil, out)
		return
	}
	l.waiters = append(l.waiters, subscribeWaiter{m.ID(), uri})
	if l.unacknowledged == nil || !slices.Contains(l.unacknowledged.uris, uri) {
		l.planOpen(now.Add(subscribeDelay))
	}
}

// hasRoom reports whether one more subscription, to uri, is allowed.
func (l *listener) hasRoom(uri string) bool {
	size := len(uri)
	for _, other := range l.uris {
		size += len(other)
	}
	return len(l.uris) < era.MaxResources && size <= maxURIBytes
}

// unsubscribe takes resources/unsubscribe. The client gets no more updates of the
// URI; the server is told a little later.
func (l *listener) unsubscribe(now time.Time, m jsonrpc.Message, out *era.Out) {
	uri, ok := l.subscriptionURI(m, out)
	if !ok {
		return
	}
	l.forgetURI(now, uri)
	l.waiters = slices.DeleteFunc(l.waiters, func(w subscribeWaiter) bool {
		if w.uri == uri {
			refuse(w.id, jsonrpc.CodeInvalidParams, "not subscribed: resources/unsubscribe came first", nil, out)
		}
		return w.uri == uri
	})
	reply(m.ID(), nil, out)
}

// subscriptionURI returns params.uri. If it is missing, or the server has no
// subscriptions, it refuses the request.
func (l *listener) subscriptionURI(m jsonrpc.Message, out *era.Out) (uri string, ok bool) {
	if !l.session.server.subscribe {
		refuse(m.ID(), jsonrpc.CodeMethodNotFound, "the server has no subscriptions to resources", nil, out)
		return "", false
	}
	if uri, ok = jsonrpc.Text(m.Lookup("params", "uri")); !ok {
		refuse(m.ID(), jsonrpc.CodeInvalidParams, "params.uri must be a string", nil, out)
	}
	return uri, ok
}

// forgetURI removes the subscription to uri, if there is one. The next listen, soon after now, is
// without it.
func (l *listener) forgetURI(now time.Time, uri string) {
	if i := slices.Index(l.uris, uri); i >= 0 {
		l.uris = slices.Delete(l.uris, i, i+1)
		l.planOpen(now.Add(subscribeDelay))
	}
}

// forgetWaiter removes the resources/subscribe with this id, which the client has cancelled, from
// those that wait. Its subscription goes, too, unless it was granted before or another request waits
// for it. found is false if no resources/subscribe with this id waits.
func (l *listener) forgetWaiter(now time.Time, id jsonrpc.ID) (found bool) {
	i := slices.IndexFunc(l.waiters, func(w subscribeWaiter) bool { return w.id.Equivalent(id) })
	if i < 0 {
		return false
	}
	uri := l.waiters[i].uri
	l.waiters = slices.Delete(l.waiters, i, i+1)
	held := l.acknowledged != nil && slices.Contains(l.acknowledged.grantedURIs, uri)
	if !held && !slices.ContainsFunc(l.waiters, func(w subscribeWaiter) bool { return w.uri == uri }) {
		l.forgetURI(now, uri)
	}
	return true
}

// settleWaiters answers the resources/subscribe requests that have waited for the listen that is
// acknowledged now, as the server has granted them or not.
func (l *listener) settleWaiters(out *era.Out) {
	var refused []string
	l.waiters = slices.DeleteFunc(l.waiters, func(w subscribeWaiter) bool {
		switch {
		case !slices.Contains(l.acknowledged.uris, w.uri):
			return false // the next listen will have it
		case slices.Contains(l.acknowledged.grantedURIs, w.uri):
			reply(w.id, nil, out)
		default:
			refused = append(refused, w.uri)
			refuse(w.id, jsonrpc.CodeInvalidParams, "the resource is not subscribable", nil, out)
		}
		return true
	})
	isRefused := func(uri string) bool { return slices.Contains(refused, uri) }
	l.uris = slices.DeleteFunc(l.uris, isRefused)
	l.acknowledged.uris = slices.DeleteFunc(l.acknowledged.uris, isRefused) // no reason for another listen
}

// covers reports whether a change of uri concerns a subscription: to uri itself,
// or to a resource of which uri is a part.
func covers(subscribed, uri string) bool {
	rest, ok := strings.CutPrefix(uri, subscribed)
	return ok && (rest == "" || strings.HasSuffix(subscribed, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}

// isSubscribing reports whether id is that of a resources/subscribe without an answer.
func (l *listener) isSubscribing(id jsonrpc.ID) bool {
	return slices.ContainsFunc(l.waiters, func(w subscribeWaiter) bool { return w.id == id })
}
