package sharing

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Keys says which server of a Pool a request goes to.
type Keys interface {
	// KeyFor returns the key of a modern client's request, and what a server that
	// begins with it is told of its client. ctx has the client's principal. KeyFor may
	// wait until it is known what the server speaks.
	KeyFor(ctx context.Context, m jsonrpc.Message) (key Key, clientInfo []byte, err error)

	// KeyWithoutWaiting returns the key that KeyFor would return for a request of the principal. ok
	// is false if that would have to wait, or if the request has a server of its own.
	KeyWithoutWaiting(principal string, m jsonrpc.Message) (key Key, ok bool)
}

// A Router is the Conn of a modern client to the shared servers. Its requests may go to several: each request
// says what capabilities a legacy server may count on, and the server may turn out to be of the other era.
// When there is no server, the next request may find one.
//
// Each membership has a goroutine that receives from its server. What the client gets from all of them goes
// through one Inbox: in order for each server, and in the order in which it comes for several. mu is never
// held across a call of a Conn or of the Inbox.
type Router struct {
	pool      *Pool              // has the servers
	keys      Keys               // says to which server a request goes
	principal string             // the client's principal; "": it has not authenticated
	ctx       context.Context    // has the values of the client's ctx (principal, party), and is done at Close only
	cancel    context.CancelFunc // ends ctx
	inbox     bridge.Inbox       // what the client is to get
	receivers sync.WaitGroup     // the goroutines that receive from servers
	sinkCalls atomic.Int32       // how many receivers are handing a message on to the client now; Close waits for the receivers only if it is 0

	mu          sync.Mutex                 // guards the fields below
	memberships []*membership              // the memberships of the servers that the client has joined
	calls       map[jsonrpc.ID]*membership // the membership of the server that is to answer each request in progress, by the request's id
	closed      bool                       // Close was called
}

// A membership is the Member by which a Router has joined one server.
type membership struct {
	*Member
	router *Router // the client's Router
	key    Key     // the server's key
}

// NewRouter returns the Router of the client whose principal and party are in ctx. It sends requests to servers of
// p, which k chooses.
func NewRouter(ctx context.Context, p *Pool, k Keys) *Router {
	r := &Router{pool: p, keys: k, principal: identity.Principal(ctx), calls: make(map[jsonrpc.ID]*membership)}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return r
}

// Send implements bridge.Conn: it sends a request to the server that is to answer it, and a cancellation to
// the server that has the request; all else is dropped. A request for which there is no server is answered
// with an error.
func (r *Router) Send(ctx context.Context, m jsonrpc.Message) error {
	switch {
	case m.Kind() == jsonrpc.Request:
		at, err := r.memberFor(identity.WithPrincipal(ctx, r.principal), m)
		if err != nil {
			return r.inbox.Send(ctx, bridge.Unavailable(m.ID(), err))
		}
		return at.Send(ctx, m)
	case m.Kind() == jsonrpc.Notification && m.Method() == "notifications/cancelled":
		r.mu.Lock()
		id, at, ok := jsonrpc.Find(r.calls, m.CancelledID())
		delete(r.calls, id) // nothing more will come
		r.mu.Unlock()
		if !ok {
			break
		}
		err := at.Send(ctx, m)
		if at.key.Exclusive != 0 {
			r.leave(at)
		}
		return err
	}
	return ctx.Err() // nobody whom it could concern
}

// TrySend implements bridge.Conn. It takes only requests to servers that the client has joined, with an id
// that is not in use: another server has to be found first, or to be started.
func (r *Router) TrySend(m jsonrpc.Message) bool {
	if m.Kind() != jsonrpc.Request {
		return false
	}
	key, ok := r.keys.KeyWithoutWaiting(r.principal, m)
	if !ok {
		return false
	}
	id := m.ID()
	r.mu.Lock()
	at := r.membershipLocked(key)
	if at == nil || r.calls[id] != nil {
		r.mu.Unlock()
		return false
	}
	r.calls[id] = at
	r.mu.Unlock()
	if at.TrySend(m) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls[id] == at { // its server may have ended, and then the call is answered
		delete(r.calls, id)
		return false
	}
	return true
}

// memberFor returns the membership of the server that is to answer a request, which the client joins if need be, and
// enters the request in calls.
func (r *Router) memberFor(ctx context.Context, m jsonrpc.Message) (*membership, error) {
	key, clientInfo, err := r.keys.KeyFor(ctx, m)
	if err != nil {
		return nil, err
	}
	if at, err := r.enter(key, m.ID(), nil); at != nil || err != nil {
		return at, err
	}
	joined, err := r.pool.Join(r.ctx, key, clientInfo, false)
	if err != nil {
		return nil, err
	}
	at, err := r.enter(key, m.ID(), joined)
	if at == nil || at.Member != joined { // closed, or another Send has joined the same server
		r.close(joined)
	}
	return at, err
}

// enter enters the request id in calls, for the server with this key, and returns the membership there; nil: the
// client has not joined that server, and joined is nil. joined, if not nil, becomes that membership, unless there is one
// by now. The error says that the Router is closed.
func (r *Router) enter(key Key, id jsonrpc.ID, joined *Member) (*membership, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, io.ErrClosedPipe
	}
	at := r.membershipLocked(key)
	if at == nil {
		if joined == nil {
			return nil, nil
		}
		at = &membership{Member: joined, router: r, key: key}
		r.memberships = append(r.memberships, at)
		r.receivers.Go(func() { r.memberEnded(at, at.Receive(r.ctx, at.sink())) })
	}
	r.calls[id] = at
	return at, nil
}

// membershipLocked returns the client's membership of the server with this key; nil: there is none. mu is
// held.
func (r *Router) membershipLocked(key Key) *membership {
	for _, at := range r.memberships {
		if at.key == key {
			return at
		}
	}
	return nil
}

// Receive implements bridge.Conn: it hands on what is in the inbox, and what comes.
func (r *Router) Receive(ctx context.Context, sink bridge.Sink) error {
	return r.inbox.Receive(ctx, sink)
}

// A memberSink takes what the server of a membership sends, and puts it into the inbox of the Router's client (Router.inbox).
type memberSink struct {
	membership *membership // the membership whose server sends
}

// sink returns the Sink for the messages of its server.
func (at *membership) sink() bridge.Sink { return memberSink{at} }

// TrySend implements bridge.Sink: it puts m into the client's inbox if that takes it at once. If m is a response, its
// request is over then; and if the server is Exclusive, so is the membership. false: it has done nothing.
func (s memberSink) TrySend(m jsonrpc.Message) bool {
	r := s.membership.router
	r.sinkCalls.Add(1)
	defer r.sinkCalls.Add(-1)
	open := r.endCall(s.membership, &m)
	if !r.inbox.TrySend(m) {
		r.unanswered(s.membership, &m, open)
		return false
	}
	s.leaveIfAnswered(&m)
	return true
}

// Send implements bridge.Sink: it puts m into the client's inbox. If m is a response, its request is over then;
// and if the server is Exclusive, so is the membership.
func (s memberSink) Send(ctx context.Context, m jsonrpc.Message) error {
	r := s.membership.router
	r.sinkCalls.Add(1)
	defer r.sinkCalls.Add(-1)
	open := r.endCall(s.membership, &m)
	if err := r.inbox.Send(ctx, m); err != nil {
		r.unanswered(s.membership, &m, open)
		return err
	}
	s.leaveIfAnswered(&m)
	return nil
}

// leaveIfAnswered leaves an Exclusive server once the client has got m, the response to its request.
func (s memberSink) leaveIfAnswered(m *jsonrpc.Message) {
	if s.membership.key.Exclusive != 0 && m.Kind() == jsonrpc.Response {
		s.membership.router.leave(s.membership)
	}
}

// endCall removes the request that m answers from calls, before the client gets m: it may use the id again at
// once. It reports whether there was such a request to this server.
func (r *Router) endCall(at *membership, m *jsonrpc.Message) bool {
	if m.Kind() != jsonrpc.Response {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls[m.ID()] != at {
		return false
	}
	delete(r.calls, m.ID())
	return true
}

// unanswered undoes endCall, which has returned open, since the client could not be given m.
func (r *Router) unanswered(at *membership, m *jsonrpc.Message, open bool) {
	if !open {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls[m.ID()] == nil {
		r.calls[m.ID()] = at
	}
}

// memberEnded is called when a server has ended, with err: the client's calls in progress there are answered
// with an error, and those at other servers go on. If the server has cut the client off because it reads too
// slowly (bridge.ErrSlow), the Router ends with that error.
func (r *Router) memberEnded(at *membership, err error) {
	if !r.leave(at) {
		return
	}
	if errors.Is(err, bridge.ErrSlow) {
		r.inbox.Abort(err)
		return
	}
	r.mu.Lock()
	var owed []jsonrpc.ID
	for id, other := range r.calls {
		if other == at {
			owed = append(owed, id)
			delete(r.calls, id)
		}
	}
	r.mu.Unlock()
	for _, id := range owed {
		if r.inbox.Send(r.ctx, bridge.Unavailable(id, err)) != nil {
			return
		}
	}
}

// leave leaves the server of a membership. left is false if that was done already.
func (r *Router) leave(at *membership) (left bool) {
	r.mu.Lock()
	i := slices.Index(r.memberships, at)
	if i >= 0 {
		r.memberships = slices.Delete(r.memberships, i, i+1)
	}
	r.mu.Unlock()
	if i >= 0 {
		r.close(at.Member)
	}
	return i >= 0
}

// close closes a Member, and logs the error of that, if there is one.
func (r *Router) close(m *Member) {
	if err := m.Close(nil); err != nil {
		r.pool.log.Warn("closing", "error", err)
	}
}

// Close implements bridge.Conn. It waits for the receivers, unless one of them is
// handing a message on: then it may be called in that, and the receiver ends soon after.
func (r *Router) Close(reason error) error {
	r.mu.Lock()
	r.closed = true
	left := r.memberships
	r.memberships = nil
	r.mu.Unlock()
	r.cancel()
	r.inbox.Abort(io.ErrClosedPipe)
	var errs []error
	for _, at := range left {
		errs = append(errs, at.Member.Close(reason))
	}
	if r.sinkCalls.Load() == 0 {
		r.receivers.Wait()
	}
	return errors.Join(errs...)
}
