package observe

import (
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Sampler is a Watcher that wants to be told of some of the requests, of their responses, and of the notifications that pass in
// their sessions meanwhile. It also changes requests that are about to be sent, to the server or to the client. It is
// called in the goroutines that carry the traffic, concurrently, and never waits. If there are no Watchers, nobody looks further
// at the other requests and their responses: that saves most of what it costs to observe a call.
type Sampler interface {
	Watcher

	// Sample is called once for each request that is received and looked at, before the Watchers are told of it. wanted says
	// whether the Sampler is to be told of it, too. sample is kept as Source.Sample.
	Sample(m jsonrpc.Message) (sample any, wanted bool)

	// Rewrite returns what is sent in the place of p.Message, with the same id. p is a request that is about to be sent, but none
	// of those for which RewriteUnsampled is called: the bridge itself may have made it. If the peer has not taken the request at
	// once, Rewrite is called again, in nearly all cases (maxUnsentRequests) with the same p.Call, and must then return the same
	// bytes. The Watchers are told what it returns.
	Rewrite(p *Passed) jsonrpc.Message

	// RewriteUnsampled returns what is sent in the place of m, with the same id. m is a request that was made of a received one that
	// the Sampler does not want. sample is what Sample has returned of that one.
	RewriteUnsampled(m jsonrpc.Message, sample any) jsonrpc.Message
}

// WatchSamples sets the Sampler, until stop is called. There is one at most.
func (o *Observer) WatchSamples(s Sampler) (stop func()) {
	stopEvents := o.WatchEvents(s)
	o.sampler.Store(&s)
	return sync.OnceFunc(func() {
		stopEvents()
		o.sampler.Store(nil)
	})
}

// isUnsampled reports whether m, which is to be sent, is a request that was made of a received one that the Sampler does not want,
// and there are no Watchers of messages: nobody is told of m then.
func (c *conn) isUnsampled(m *jsonrpc.Message) bool {
	if m.Kind() != jsonrpc.Request || c.session.o.messageWatchers.Load() != nil {
		return false
	}
	source := sourceOf(m)
	return source != nil && source.unsampled
}

// beginUnsampled makes *m what is sent in the place of an unsampled request. counted is false if the request is not counted,
// because WaitingCalls has returned it and keeps its Call.
func (c *conn) beginUnsampled(m *jsonrpc.Message) (counted bool) {
	if counted = !c.session.keepsUnwatchedCall(c.hop, c.outDirection(), m.ID()); counted {
		c.session.unsampledCallsAt(c.hop, c.outDirection()).add()
	}
	if sampler := c.session.o.sampler.Load(); sampler != nil {
		*m = (*sampler).RewriteUnsampled(*m, sourceOf(m).Sample)
	}
	return counted
}

// rewriteForSampler makes p.Message what the Sampler sends in the place of a request.
func (o *Observer) rewriteForSampler(p *Passed) {
	sampler := o.sampler.Load()
	switch {
	case sampler == nil:
	case p.isUnsampled():
		p.Message = (*sampler).RewriteUnsampled(p.Message, p.Source.Sample)
	default:
		p.Message = (*sampler).Rewrite(p)
	}
}

// isUnsampled reports whether p is a received request that the Sampler does not want, or was made of one. The Sampler is not told
// of p then; the Watchers are.
func (p *Passed) isUnsampled() bool { return p.Source != nil && p.Source.unsampled }

// maxUnsentRequests is how many requests are kept for each Conn that its peer has not taken at once. If there are more, those so
// far are told as unanswered, and then rewritten as if they were new.
const maxUnsentRequests = 256

// unsentRequests are the requests that a Conn was offered with TrySend, while there was a Sampler, and has not taken: Send
// follows. The zero value works, and any number of goroutines may use it.
type unsentRequests struct {
	count atomic.Int32        // len(calls)
	mu    sync.Mutex          // guards calls
	calls map[unsentKey]*Call // the requests; nil: there are none
}

// unsentKey identifies a request: it is the same each time that somebody tries to send the request.
type unsentKey struct {
	mark *jsonrpc.Mark // the Mark of the message; nil: it has none
	id   jsonrpc.ID    // the id of the request
}

// add keeps a request. It returns those that had to make room; nil: none.
func (o *unsentRequests) add(m *jsonrpc.Message, call *Call) (left map[unsentKey]*Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calls == nil || len(o.calls) >= maxUnsentRequests {
		left, o.calls = o.calls, make(map[unsentKey]*Call)
	}
	o.calls[unsentKey{m.Mark(), m.ID()}] = call
	o.count.Store(int32(len(o.calls)))
	return left
}

// clear forgets all requests, and returns them.
func (o *unsentRequests) clear() map[unsentKey]*Call {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := o.calls
	o.calls = nil
	o.count.Store(0)
	return left
}

// takeCall removes and returns the Call of an earlier attempt to send m; nil: there was none, or it is not kept any more.
func (o *unsentRequests) takeCall(m *jsonrpc.Message) *Call {
	if o.count.Load() == 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	key := unsentKey{m.Mark(), m.ID()}
	call := o.calls[key]
	if call != nil && call.Method != m.Method() {
		return nil
	}
	delete(o.calls, key)
	o.count.Store(int32(len(o.calls)))
	return call
}
