package sharing

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Keys says which server of a Pool a request goes to.
type Keys interface {
	// KeyFor returns the key of a modern client's request, and what a server that
	// begins with it is told of its client. ctx has the client's principal. KeyFor may
	// wait until it is known what the server speaks.
	KeyFor(ctx context.Context, m jsonrpc.Message) (key Key, clientInfo []byte, err error)

	// KeyAtOnce is KeyFor where that needs no waiting, and the request has no server of
	// its own. False: it does.
	KeyAtOnce(principal string, m jsonrpc.Message) (key Key, ok bool)
}

// Router is the Conn of a modern client. Its requests may go to several servers:
// each request says what capabilities a legacy server may count on, and the server may
// turn out to be of the other era. When there is no server, the next request
// may find one.
//
// It has no goroutine: Recv takes what has come for any of itm memberships.
type Router struct {
	pool      *Pool
	keys      Keys
	keeps     func() bool     // see Keeps
	ctx       context.Context // the client's, until Close
	cancel    context.CancelCauseFunc
	principal string // the client's
	waiter    *bridge.Waiter
	no        chan jsonrpc.Message // answers to requests that no server could be had for
	owed      []jsonrpc.Message    // answers to requests whose server has ended; only poll uses it, and polls
	polls     uint

	mu          sync.Mutex
	memberships []membership
	turn        int                    // the membership whose turn was last; -1: the next one is the first
	calls       map[jsonrpc.ID]*Member // requests in progress
	slow        func()                 // see OnSlow
	closed      bool
}

// membership is a client's place in one server.
type membership struct {
	*Member
	key Key
}

// refusalQueue is how many refusals for the client may wait.
const refusalQueue = 64

// NewRouter returns the Conn of the client that ctx is of. keeps is what bridge.Keeps
// says of the servers.
func NewRouter(ctx context.Context, p *Pool, k Keys, keeps func() bool) *Router {
	r := &Router{pool: p, keys: k, keeps: keeps, principal: bridge.Principal(ctx), no: make(chan jsonrpc.Message, refusalQueue), calls: make(map[jsonrpc.ID]*Member)}
	r.waiter = bridge.NewWaiter(r.poll)
	r.ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return r
}

// Send implements bridge.PullConn.
func (r *Router) Send(ctx context.Context, m jsonrpc.Message) error {
	switch {
	case m.Kind() == jsonrpc.Request:
		at, err := r.memberFor(bridge.WithPrincipal(ctx, r.principal), m)
		if err != nil {
			return r.refuse(ctx, m, err)
		}
		return at.Send(ctx, m)
	case m.Kind() == jsonrpc.Notification && m.Method() == "notifications/cancelled":
		r.mu.Lock()
		id, at, ok := jsonrpc.Find(r.calls, m.RequestID())
		delete(r.calls, id) // nothing more will come
		r.mu.Unlock()
		if !ok {
			break
		}
		err := at.Send(ctx, m)
		if at.server.Key.Exclusive != 0 {
			r.leave(at)
		}
		return err
	}
	return nil // nobody whom it could concern
}

// TrySender is what bridge.TrySender says, of requests to servers in which the client
// has a place: another one has no server yet.
func (r *Router) TrySender() func(jsonrpc.Message) bool { return r.trySend }

func (r *Router) trySend(m jsonrpc.Message) bool {
	if m.Kind() != jsonrpc.Request {
		return false
	}
	key, ok := r.keys.KeyAtOnce(r.principal, m)
	if !ok {
		return false
	}
	id := m.ID()
	r.mu.Lock()
	at := r.at(key)
	if at == nil || r.calls[id] != nil {
		r.mu.Unlock()
		return false
	}
	r.calls[id] = at
	r.mu.Unlock()
	if try := bridge.TrySender(at); try != nil && try(m) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls[id] == at { // its server may have ended, and then it is answered
		delete(r.calls, id)
		return false
	}
	return true
}

// Keeps is what bridge.Keeps says.
func (r *Router) Keeps() bool { return r.keeps() }

// memberFor returns the client's Conn to the server for a request.
func (r *Router) memberFor(ctx context.Context, m jsonrpc.Message) (*Member, error) {
	key, clientInfo, err := r.keys.KeyFor(ctx, m)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, context.Canceled
	}
	at := r.at(key)
	if at == nil {
		if at, err = r.pool.Join(r.ctx, key, clientInfo, false); err != nil {
			return nil, err
		}
		at.Wake(r.waiter)
		if r.slow != nil {
			bridge.OnSlow(at, r.slow)
		}
		r.memberships = append(r.memberships, membership{at, key})
	}
	r.calls[m.ID()] = at
	return at, nil
}

// at returns the client's Conn to a server, if it has one. It is called with mu held.
func (r *Router) at(key Key) *Member {
	for _, s := range r.memberships {
		if s.key == key {
			return s.Member
		}
	}
	return nil
}

// OnSlow is that of all memberships (bridge.OnSlow).
func (r *Router) OnSlow(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow = f
	for _, s := range r.memberships {
		bridge.OnSlow(s, f)
	}
}

// refuse answers a request that no server can be had for.
func (r *Router) refuse(ctx context.Context, m jsonrpc.Message, err error) error {
	select {
	case r.no <- bridge.Unavailable(m.ID(), err):
		r.waiter.Signal()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}

// Recv implements bridge.PullConn.
func (r *Router) Recv(ctx context.Context) (jsonrpc.Message, error) { return r.waiter.Offer(ctx, nil) }

// Offer is what bridge.Offer says.
func (r *Router) Offer(ctx context.Context, take bridge.Taker) (jsonrpc.Message, error) {
	return r.waiter.Offer(ctx, take)
}

// poll returns what has come, if anything has. The servers take turns, and so do
// refusals.
func (r *Router) poll() (m jsonrpc.Message, err error, ok bool) {
	if r.polls++; r.polls%2 == 0 {
		if m, ok = r.refused(); ok {
			return m, nil, true
		}
	}
	for asked := 0; ; asked++ {
		if len(r.owed) > 0 {
			m, r.owed = r.owed[0], r.owed[1:]
			return m, nil, true
		}
		at, memberships := r.next()
		if asked >= memberships {
			break
		}
		m, err, ok = at.Poll()
		switch {
		case ok && err != nil:
			r.ended(at, err)
			asked = -1 // there are others now
		case ok:
			r.received(at, m)
			return m, nil, true
		}
	}
	if m, ok = r.refused(); ok {
		return m, nil, true
	}
	if r.ctx.Err() != nil {
		return m, context.Cause(r.ctx), true
	}
	return jsonrpc.Message{}, nil, false
}

func (r *Router) refused() (m jsonrpc.Message, ok bool) {
	select {
	case m = <-r.no:
		return m, true
	default:
		return m, false
	}
}

// next returns the membership whose turn it is, nil if there is none, and how many there are.
func (r *Router) next() (*Member, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.memberships) == 0 {
		return nil, 0
	}
	r.turn = (r.turn + 1) % len(r.memberships)
	return r.memberships[r.turn].Member, len(r.memberships)
}

// received takes note of what the client gets from a server. One that is for a
// single request is left after the answer.
func (r *Router) received(at *Member, m jsonrpc.Message) {
	if m.Kind() != jsonrpc.Response {
		return
	}
	r.mu.Lock()
	delete(r.calls, m.ID())
	r.mu.Unlock()
	if at.server.Key.Exclusive != 0 {
		r.leave(at)
	}
}

// ended is for a server that has ended, or has cut its client off. What is in
// progress there is answered; other servers are not concerned.
func (r *Router) ended(at *Member, err error) {
	if !r.leave(at) {
		return
	}
	if errors.Is(err, bridge.ErrSlow) {
		r.cancel(err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, other := range r.calls {
		if other == at {
			r.owed = append(r.owed, bridge.Unavailable(id, err))
			delete(r.calls, id)
		}
	}
}

// leave leaves a server, unless that was done already.
func (r *Router) leave(at *Member) bool {
	r.mu.Lock()
	i := slices.IndexFunc(r.memberships, func(m membership) bool { return m.Member == at })
	if i >= 0 {
		r.memberships = slices.Delete(r.memberships, i, i+1)
		if i <= r.turn { // nobody is left out
			r.turn--
		}
	}
	r.mu.Unlock()
	if i >= 0 {
		if err := at.Close(); err != nil {
			r.pool.log.Warn("closing", "error", err)
		}
	}
	return i >= 0
}

// Close implements bridge.PullConn.
func (r *Router) Close() error {
	r.mu.Lock()
	r.closed = true
	memberships := r.memberships
	r.memberships = nil
	r.mu.Unlock()
	r.cancel(context.Canceled)
	r.waiter.Signal()
	var errs []error
	for _, s := range memberships {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
