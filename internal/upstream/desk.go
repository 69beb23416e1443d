package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// desk is the Conn of a modern client. Its requests may go to several units:
// each says what capabilities a legacy server may count on, and the server may
// turn out to be of the other era. When there is no server, the next request
// may find one.
//
// It has no goroutine: Recv takes what has come for any of its seats.
type desk struct {
	s         *Server
	ctx       context.Context // the client's, until Close
	cancel    context.CancelCauseFunc
	principal string // the client's
	waiter    *bridge.Waiter
	no        chan jsonrpc.Message // answers to requests that no unit could be had for
	owed      []jsonrpc.Message    // answers to requests whose unit has ended; only poll uses it, and polls
	polls     uint

	mu     sync.Mutex
	seats  []seat
	turn   int                    // the seat that had it last; -1: the next one is the first
	calls  map[jsonrpc.ID]*member // requests in progress
	slow   func()                 // see OnSlow
	closed bool
}

// seat is a client's place in one unit.
type seat struct {
	*member
	key unitKey
}

// deskQueue is how many refusals for the client may wait.
const deskQueue = 64

func newDesk(ctx context.Context, s *Server) *desk {
	d := &desk{s: s, principal: bridge.Principal(ctx), no: make(chan jsonrpc.Message, deskQueue), calls: make(map[jsonrpc.ID]*member)}
	d.waiter = bridge.NewWaiter(d.poll)
	d.ctx, d.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return d
}

func (d *desk) Send(ctx context.Context, m jsonrpc.Message) error {
	switch {
	case m.Kind() == jsonrpc.Request:
		at, err := d.seatFor(bridge.WithPrincipal(ctx, d.principal), m)
		if err != nil {
			return d.refuse(ctx, m, err)
		}
		return at.Send(ctx, m)
	case m.Kind() == jsonrpc.Notification && m.Method() == "notifications/cancelled":
		d.mu.Lock()
		id, at, ok := jsonrpc.Find(d.calls, m.RequestID())
		delete(d.calls, id) // nothing more will come
		d.mu.Unlock()
		if !ok {
			break
		}
		err := at.Send(ctx, m)
		if at.unit.key.alone != 0 {
			d.vacate(at)
		}
		return err
	}
	return nil // nobody whom it could concern
}

// TrySender is what bridge.TrySender says, of requests to units in which the client
// has a place: another one has no server yet.
func (d *desk) TrySender() func(jsonrpc.Message) bool { return d.trySend }

func (d *desk) trySend(m jsonrpc.Message) bool {
	if m.Kind() != jsonrpc.Request {
		return false
	}
	key, ok := d.s.keyAtOnce(d.principal, m)
	if !ok {
		return false
	}
	id := m.ID()
	d.mu.Lock()
	at := d.at(key)
	if at == nil || d.calls[id] != nil {
		d.mu.Unlock()
		return false
	}
	d.calls[id] = at
	d.mu.Unlock()
	if try := bridge.TrySender(at); try != nil && try(m) {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls[id] == at { // its unit may have ended, and then it is answered
		delete(d.calls, id)
		return false
	}
	return true
}

// Keeps is what bridge.Keeps says.
func (d *desk) Keeps() bool {
	modern, known := d.s.era()
	return !known || !modern
}

// seatFor returns the client's Conn to the unit for a request.
func (d *desk) seatFor(ctx context.Context, m jsonrpc.Message) (*member, error) {
	key, clientInfo, err := d.s.keyFor(ctx, m)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, context.Canceled
	}
	at := d.at(key)
	if at == nil {
		if at, err = d.s.join(d.ctx, key, clientInfo, false); err != nil {
			return nil, err
		}
		at.Wake(d.waiter)
		if d.slow != nil {
			bridge.OnSlow(at, d.slow)
		}
		d.seats = append(d.seats, seat{at, key})
	}
	d.calls[m.ID()] = at
	return at, nil
}

// at returns the client's Conn to a unit, if it has one. It is called with mu held.
func (d *desk) at(key unitKey) *member {
	for _, s := range d.seats {
		if s.key == key {
			return s.member
		}
	}
	return nil
}

// OnSlow is that of all seats (bridge.OnSlow).
func (d *desk) OnSlow(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = f
	for _, s := range d.seats {
		bridge.OnSlow(s, f)
	}
}

// refuse answers a request that no unit can be had for.
func (d *desk) refuse(ctx context.Context, m jsonrpc.Message, err error) error {
	select {
	case d.no <- bridge.Unavailable(m.ID(), err):
		d.waiter.Signal()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.ctx.Done():
		return context.Cause(d.ctx)
	}
}

// Recv implements bridge.PullConn.
func (d *desk) Recv(ctx context.Context) (jsonrpc.Message, error) { return d.waiter.Offer(ctx, nil) }

// Offer is what bridge.Offer says.
func (d *desk) Offer(ctx context.Context, take bridge.Taker) (jsonrpc.Message, error) {
	return d.waiter.Offer(ctx, take)
}

// poll returns what has come, if anything has. The units take turns, and so do
// refusals.
func (d *desk) poll() (m jsonrpc.Message, err error, ok bool) {
	if d.polls++; d.polls%2 == 0 {
		if m, ok = d.refused(); ok {
			return m, nil, true
		}
	}
	for asked := 0; ; asked++ {
		if len(d.owed) > 0 {
			m, d.owed = d.owed[0], d.owed[1:]
			return m, nil, true
		}
		at, seats := d.next()
		if asked >= seats {
			break
		}
		m, err, ok = at.Poll()
		switch {
		case ok && err != nil:
			d.left(at, err)
			asked = -1 // there are others now
		case ok:
			d.received(at, m)
			return m, nil, true
		}
	}
	if m, ok = d.refused(); ok {
		return m, nil, true
	}
	if d.ctx.Err() != nil {
		return m, context.Cause(d.ctx), true
	}
	return jsonrpc.Message{}, nil, false
}

func (d *desk) refused() (m jsonrpc.Message, ok bool) {
	select {
	case m = <-d.no:
		return m, true
	default:
		return m, false
	}
}

// next returns the seat whose turn it is, nil if there is none, and how many there are.
func (d *desk) next() (*member, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.seats) == 0 {
		return nil, 0
	}
	d.turn = (d.turn + 1) % len(d.seats)
	return d.seats[d.turn].member, len(d.seats)
}

// received takes note of what the client gets from a unit. One that is for a
// single request is left after the answer.
func (d *desk) received(at *member, m jsonrpc.Message) {
	if m.Kind() != jsonrpc.Response {
		return
	}
	d.mu.Lock()
	delete(d.calls, m.ID())
	d.mu.Unlock()
	if at.unit.key.alone != 0 {
		d.vacate(at)
	}
}

// left is for a unit that has ended, or has cut its client off. What is in
// progress there is answered; other units are not concerned.
func (d *desk) left(at *member, err error) {
	if !d.vacate(at) {
		return
	}
	if errors.Is(err, bridge.ErrSlow) {
		d.cancel(err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, other := range d.calls {
		if other == at {
			d.owed = append(d.owed, bridge.Unavailable(id, err))
			delete(d.calls, id)
		}
	}
}

// vacate leaves a unit, unless that was done already.
func (d *desk) vacate(at *member) bool {
	d.mu.Lock()
	i := slices.IndexFunc(d.seats, func(s seat) bool { return s.member == at })
	if i >= 0 {
		d.seats = slices.Delete(d.seats, i, i+1)
		if i <= d.turn { // nobody is left out
			d.turn--
		}
	}
	d.mu.Unlock()
	if i >= 0 {
		d.s.closed(at)
	}
	return i >= 0
}

// Close implements bridge.PullConn.
func (d *desk) Close() error {
	d.mu.Lock()
	d.closed = true
	seats := d.seats
	d.seats = nil
	d.mu.Unlock()
	d.cancel(context.Canceled)
	d.waiter.Signal()
	var errs []error
	for _, s := range seats {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
