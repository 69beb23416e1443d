package upstream

import (
	"context"
	"errors"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Handler returns what serves clients of both eras on connections of their
// own: a socket, our stdin. What lasting means is said at Dialer.
func (s *Server) Handler(lasting bool, o bridge.PumpOptions) bridge.Handler {
	return bridge.ByEra(asLegacy(s.Legacy(lasting, o)), s.Modern(o))
}

// Legacy returns what serves the sessions of legacy clients.
func (s *Server) Legacy(lasting bool, o bridge.PumpOptions) bridge.Handler {
	if s.spec.Clients == era.OnlyModern {
		return refuse(s.spec.Clients)
	}
	var h bridge.Handler
	translated := &translator{s}
	own := s.Dialer(lasting)
	switch {
	case s.spec.Protocol == era.OnlyModern:
		h = bridge.Serve(translated, o)
	case s.spec.Isolation == PerPrincipal || s.spec.Isolation == Shared:
		h = s.sharing(o)
	case s.spec.Protocol == era.OnlyLegacy:
		h = bridge.Serve(own, o)
	default:
		h = bridge.Serve(&finder{s: s, first: own, other: translated}, o)
	}
	return h
}

// asLegacy returns h for clients whose initialize may ask for a modern version.
func asLegacy(h bridge.Handler) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		m, err := client.Recv(ctx)
		if err != nil {
			return h.ServeConn(ctx, client) // which sees the same
		}
		return h.ServeConn(ctx, bridge.Unread(client, era.LegacyInitialize(m)))
	})
}

// LegacyOnly returns what serves clients of a transport that has no place for
// modern requests (SS9): each of those is refused.
func (s *Server) LegacyOnly(o bridge.PumpOptions) bridge.Handler {
	served := era.OnlyLegacy
	if s.spec.Clients == era.OnlyModern {
		served = era.OnlyModern
	}
	return bridge.ByEra(asLegacy(s.Legacy(false, o)), refuse(served))
}

// SharesAlways reports whether no client ever has a process of its own.
func (s *Server) SharesAlways() bool {
	return s.spec.Protocol == era.OnlyModern || s.spec.Isolation == PerPrincipal || s.spec.Isolation == Shared
}

// translator is the Dialer of legacy clients for a modern server.
type translator struct{ s *Server }

func (t *translator) Dial(ctx context.Context) (bridge.Conn, error) {
	return t.s.translated(ctx, t.s.sessionKey(ctx), nil)
}

func (s *Server) translated(ctx context.Context, key unitKey, clientInfo []byte) (bridge.Conn, error) {
	conn, err := s.join(ctx, key, clientInfo)
	if err != nil {
		return nil, err
	}
	return bridge.Translate(conn, era.LegacyClient(era.LegacyClientOptions{Dropped: s.spec.Dropped})), nil
}

// sharing returns what serves legacy clients that share a server. Which one may
// depend on what initialize says.
func (s *Server) sharing(o bridge.PumpOptions) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		m, err := opening(ctx, client)
		if err != nil {
			return err
		}
		d := dialFunc(func(ctx context.Context) (bridge.Conn, error) {
			modern, err := s.speaksModern(ctx)
			if err != nil {
				return nil, err
			}
			if modern {
				return s.translated(ctx, s.sessionKey(ctx), nil)
			}
			key := unitKey{legacy: true}
			if s.spec.Isolation == Shared {
				return s.translated(ctx, key, nil)
			}
			key.principal = bridge.Principal(ctx)
			key.capabilities = string(era.ProjectCapabilities(m.Lookup("params", "capabilities")))
			return s.translated(ctx, key, m.Lookup("params", "clientInfo"))
		})
		return bridge.Serve(d, o).ServeConn(ctx, bridge.Unread(client, m))
	})
}

// opening returns a legacy client's first message but for pings, which need no
// server, and notifications, which can mean nothing yet.
func opening(ctx context.Context, client bridge.Conn) (jsonrpc.Message, error) {
	for {
		m, err := client.Recv(ctx)
		switch {
		case err != nil:
			return m, err
		case m.Kind() != jsonrpc.Request:
		case m.Method() != "ping":
			return m, nil
		default:
			if err := client.Send(ctx, jsonrpc.NewResult(m.ID(), nil)); err != nil {
				return m, err
			}
		}
	}
}

type dialFunc func(ctx context.Context) (bridge.Conn, error)

func (f dialFunc) Dial(ctx context.Context) (bridge.Conn, error) { return f(ctx) }

// modernKey returns which unit of a modern server a request uses.
func (s *Server) modernKey(ctx context.Context) unitKey {
	switch s.spec.Isolation {
	case PerPrincipal, PerSession:
		return unitKey{principal: bridge.Principal(ctx)}
	case PerRequest:
		return unitKey{alone: s.number.Add(1)}
	}
	return unitKey{}
}

// sessionKey returns which unit of a modern server a legacy client's session uses.
func (s *Server) sessionKey(ctx context.Context) unitKey {
	if s.spec.Isolation == PerSession {
		return unitKey{alone: s.number.Add(1)}
	}
	return s.modernKey(ctx)
}

// keyFor returns which unit a modern request goes to, and what that is told of
// its client if it begins with it.
func (s *Server) keyFor(ctx context.Context, m jsonrpc.Message) (key unitKey, clientInfo []byte, err error) {
	modern, err := s.speaksModern(ctx)
	if err != nil || modern {
		return s.modernKey(ctx), nil, err
	}
	if key, ok := s.keyOfState(ctx, m); ok {
		return key, nil, nil
	}
	key.legacy = true
	if s.spec.Isolation == Shared {
		return key, nil, nil
	}
	meta := era.MetaOf(m)
	key.principal = bridge.Principal(ctx)
	key.capabilities = string(era.ProjectCapabilities(meta.Capabilities))
	if s.spec.Isolation == PerRequest {
		key.alone = s.number.Add(1)
	}
	return key, meta.ClientInfo, nil
}

// keyOfState returns the unit in which the call waits that m goes on with, if
// it is the client's (C.4.2).
func (s *Server) keyOfState(ctx context.Context, m jsonrpc.Message) (unitKey, bool) {
	text, ok := era.StateOf(m)
	if !ok {
		return unitKey{}, false
	}
	state, err := s.sealer.Open(text)
	if err != nil {
		return unitKey{}, false // the unit that gets it will say so
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.byID[state.Unit]
	if u == nil || u.key.principal != bridge.Principal(ctx) {
		return unitKey{}, false
	}
	return u.key, true
}

// memberFor makes the client who sends a modern request a member of the unit
// that is to answer it.
func (s *Server) memberFor(ctx context.Context, m jsonrpc.Message) (*member, error) {
	key, clientInfo, err := s.keyFor(ctx, m)
	if err != nil {
		return nil, err
	}
	return s.join(ctx, key, clientInfo)
}

// Exchange returns what serves the single request of a modern client's Conn.
func (s *Server) Exchange(o bridge.PumpOptions) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		m, err := client.Recv(ctx)
		if err != nil {
			return err
		}
		m, ok, err := s.unbound(ctx, client, m)
		if !ok {
			return err
		}
		client = s.bind(ctx, bridge.Unread(client, m), false)
		conn, err := s.memberFor(ctx, m)
		if err != nil {
			return errors.Join(err, bridge.Serve(failing{err}, o).ServeConn(ctx, client))
		}
		err = bridge.Exchange(ctx, client, conn, o)
		return errors.Join(err, conn.Close())
	})
}

// failing is a Dialer that fails.
type failing struct{ err error }

func (f failing) Dial(context.Context) (bridge.Conn, error) { return nil, f.err }

// Modern returns what serves modern clients that send many requests on one Conn.
func (s *Server) Modern(o bridge.PumpOptions) bridge.Handler {
	if s.spec.Clients == era.OnlyLegacy {
		return refuse(s.spec.Clients)
	}
	h := bridge.Serve(dialFunc(func(ctx context.Context) (bridge.Conn, error) {
		bridge.GiveBack(ctx) // units ask for places themselves
		return newDesk(ctx, s), nil
	}), o)
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		return h.ServeConn(ctx, s.bind(ctx, client, true))
	})
}

// refuse returns what answers clients of an era that is not served (ED5).
func refuse(served era.Eras) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		for {
			m, err := client.Recv(ctx)
			if err != nil {
				return nil
			}
			if m.Kind() != jsonrpc.Request {
				continue
			}
			asked := era.MetaOf(m).Revision()
			if v, ok := jsonrpc.Text(m.Lookup("params", "protocolVersion")); ok && asked == "" {
				asked = v
			}
			if err := client.Send(ctx, era.Unsupported(served, asked).Response(m.ID())); err != nil {
				return err
			}
		}
	})
}

// desk is the Conn of a modern client. Its requests may go to several units:
// each says what capabilities a legacy server may count on, and the server may
// turn out to be of the other era. When there is no server, the next request
// may find one.
type desk struct {
	s      *Server
	ctx    context.Context // the client's, until Close
	cancel context.CancelCauseFunc
	in     chan jsonrpc.Message
	wg     sync.WaitGroup

	mu     sync.Mutex
	seats  map[unitKey]*member
	calls  map[jsonrpc.ID]*member // requests in progress
	closed bool
}

// deskQueue is how many messages for the client may wait.
const deskQueue = 64

func newDesk(ctx context.Context, s *Server) *desk {
	d := &desk{s: s, in: make(chan jsonrpc.Message, deskQueue), seats: make(map[unitKey]*member), calls: make(map[jsonrpc.ID]*member)}
	d.ctx, d.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return d
}

func (d *desk) Send(ctx context.Context, m jsonrpc.Message) error {
	switch {
	case m.Kind() == jsonrpc.Request:
		seat, err := d.seatFor(bridge.WithPrincipal(ctx, bridge.Principal(d.ctx)), m)
		if err != nil {
			return d.refuse(ctx, m, err)
		}
		return seat.Send(ctx, m)
	case m.Kind() == jsonrpc.Notification && m.Method() == "notifications/cancelled":
		d.mu.Lock()
		id, seat, ok := jsonrpc.Find(d.calls, m.RequestID())
		delete(d.calls, id) // nothing more will come
		d.mu.Unlock()
		if !ok {
			break
		}
		err := seat.Send(ctx, m)
		if key := seat.unit.key; key.alone != 0 && d.vacate(key) {
			d.wg.Go(func() { d.s.closed(seat) })
		}
		return err
	}
	return nil // nobody whom it could concern
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
	seat := d.seats[key]
	if seat == nil {
		if seat, err = d.s.join(d.ctx, key, clientInfo); err != nil {
			return nil, err
		}
		d.seats[key] = seat
		d.wg.Go(func() { d.read(seat, key) })
	}
	d.calls[m.ID()] = seat
	return seat, nil
}

// refuse answers a request that no unit can be had for.
func (d *desk) refuse(ctx context.Context, m jsonrpc.Message, err error) error {
	select {
	case d.in <- bridge.Unavailable(m.ID(), err):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.ctx.Done():
		return context.Cause(d.ctx)
	}
}

// read hands on what comes from one unit. One that is for a single request is
// left after the answer.
func (d *desk) read(seat *member, key unitKey) {
	for {
		m, err := seat.Recv(d.ctx)
		if err != nil {
			d.left(seat, key, err)
			return
		}
		answer := m.Kind() == jsonrpc.Response
		if answer {
			d.mu.Lock()
			delete(d.calls, m.ID())
			d.mu.Unlock()
		}
		if !d.hand(m) {
			return
		}
		if answer && key.alone != 0 {
			if d.vacate(key) {
				d.s.closed(seat)
			}
			return
		}
	}
}

// hand gives a message to Recv; false: the desk is closed.
func (d *desk) hand(m jsonrpc.Message) bool {
	select {
	case d.in <- m:
		return true
	default:
	}
	select {
	case d.in <- m:
		return true
	case <-d.ctx.Done():
		return false
	}
}

// left is for a unit that has ended, or has cut its client off. What is in
// progress there is answered; other units are not concerned.
func (d *desk) left(seat *member, key unitKey, err error) {
	if !d.vacate(key) {
		return
	}
	d.s.closed(seat)
	if errors.Is(err, bridge.ErrSlow) {
		d.cancel(err)
		return
	}
	d.mu.Lock()
	var owed []jsonrpc.ID
	for id, s := range d.calls {
		if s == seat {
			owed = append(owed, id)
			delete(d.calls, id)
		}
	}
	d.mu.Unlock()
	for _, id := range owed {
		if !d.hand(bridge.Unavailable(id, err)) {
			return
		}
	}
}

// vacate takes a seat from the desk. It is true for who is to close it.
func (d *desk) vacate(key unitKey) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.seats[key]
	delete(d.seats, key)
	return ok
}

func (d *desk) Recv(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-d.in:
		return m, nil
	default:
	}
	select {
	case m := <-d.in:
		return m, nil
	case <-ctx.Done():
		return jsonrpc.Message{}, ctx.Err()
	case <-d.ctx.Done():
	}
	select {
	case m := <-d.in: // it came before
		return m, nil
	default:
		return jsonrpc.Message{}, context.Cause(d.ctx)
	}
}

func (d *desk) Close() error {
	d.mu.Lock()
	d.closed = true
	seats := d.seats
	d.seats = nil
	d.mu.Unlock()
	d.cancel(context.Canceled)
	var errs []error
	for _, seat := range seats {
		errs = append(errs, seat.Close())
	}
	d.wg.Wait()
	return errors.Join(errs...)
}
