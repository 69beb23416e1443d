package upstream

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver"
	"github.com/mcp-bridge/mcp-bridge/internal/admission"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// unitKey says which clients share a unit (D.1).
type unitKey struct {
	legacy       bool   // the server is a legacy one
	principal    string // of those who may use it
	capabilities string // that the server was told of, as ProjectCapabilities writes them
	alone        uint64 // not 0: of one client only
}

// unit is one server process, or connection to a remote server, that clients
// share (D.2). The server may end and be started again; the unit stays.
type unit struct {
	s          *Server
	key        unitKey
	party      string // who has begun it: its places count for that
	id         string // in states
	clientInfo []byte
	mux        *mux.Mux
	filter     atomic.Pointer[legacyserver.Filter] // of a legacy server, once it was started

	starts, failed int // of servers; failed: ended at the question which era they speak. Only Dial uses them

	// Under Server.mu.
	turned  bool // its server speaks the other era by now
	taken   bool // its place is for another party
	known   bool // it is in Server.units
	members int
	asking  int              // of them, those with a single request that is no subscription
	place   *admission.Place // nil: it needs none
	since   time.Time        // when it was last left: it is idle if it has no members
	idle    *time.Timer      // calls expire, which finds out whether it is idle still; nil: it was not left since that ran
	gone    bool
}

// Dial starts the server, or connects to it, as one that speaks modern. It is
// what the Mux calls.
func (u *unit) Dial(ctx context.Context) (bridge.Conn, error) {
	return bridge.PushDialed(u.dial(bridge.WithParty(ctx, u.party)))
}

func (u *unit) dial(ctx context.Context) (bridge.PullConn, error) {
	if !u.key.legacy {
		conn := u.s.takeSpare()
		if p, ok := conn.(*placed); ok {
			p.unit.Store(u)
		}
		if conn == nil {
			var err error
			if conn, err = u.s.dialAdmitted(ctx, u.s.modern, u); err != nil {
				return nil, err
			}
			if err := u.check(ctx, conn); err != nil {
				return nil, errors.Join(err, conn.Close())
			}
		}
		u.starts++
		return newTap(&discreet{PullConn: conn, unit: u}, u, nil), nil
	}
	conn, err := u.s.dialAdmitted(ctx, u.s.legacyDialer(), u)
	if err != nil {
		return nil, err
	}
	conn = &discreet{PullConn: conn, unit: u, asked: true}
	f := legacyserver.New(legacyserver.Options{
		Capabilities: []byte(u.key.capabilities), ClientInfo: u.clientInfo,
		Principal: u.key.principal, Unit: u.id, Instance: rand.Text(), Sealer: u.s.sealer,
		ParkTimeout: u.s.spec.ParkTimeout,
	})
	u.filter.Store(f)
	return newTap(bridge.Pull(translate.Wrap(bridge.Push(conn), f, u.s.spec.Dropped)), u, f), nil
}

// errChanged is why a unit ends whose server is one of the other era by now.
var errChanged = publicError("the server has changed its protocol; try again")

// maxFailed is how many servers in a row may end at the question which era
// they speak. An older one may do just that.
const maxFailed = 3

// check asks a process that takes the place of one that has ended whether it
// still speaks 2026-07-28: what it is started from may have changed. (A server
// at a URL says so with each answer.)
func (u *unit) check(ctx context.Context, conn bridge.PullConn) error {
	if u.starts == 0 || u.s.spec.Protocol != era.Auto || u.s.isHTTP() {
		return nil
	}
	m, err := u.s.answer(ctx, conn, discover(), u.s.patient)
	switch {
	case answersModern(m):
		u.failed = 0
		return nil
	case err != nil:
		if u.failed++; u.failed < maxFailed {
			return err
		}
	}
	if !u.doubt() {
		return err
	}
	return errChanged
}

// doubt ends the unit if the server may be one of the other era by now: the
// next client finds out. A server at an http URL is asked first.
func (u *unit) doubt() bool {
	switch {
	case u.s.spec.Protocol != era.Auto:
		return false
	case u.s.isHTTP():
		u.s.wonder()
		return false
	case !u.s.doubt():
		return false
	}
	u.retire()
	return true
}

// retire ends the unit, whose server is to be asked again: the next client
// begins another.
func (u *unit) retire() {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if !u.gone && !u.s.ended {
		u.turned = true
		u.s.end(u)
	}
}

// discreet is a Conn to a server that clients share. How the server has ended is
// said to all of them, but not its last words on stderr: they may be about one.
type discreet struct {
	bridge.PullConn
	unit  *unit
	asked bool // initialize, which is not answered yet; only Recv uses it
}

// TrySender passes on what the Conn has.
func (d *discreet) TrySender() func(jsonrpc.Message) bool { return bridge.TrySender(d.PullConn) }

func (d *discreet) Recv(ctx context.Context) (jsonrpc.Message, error) {
	m, err := d.PullConn.Recv(ctx)
	if m.Kind() == jsonrpc.Notification && m.Method() == "notifications/tools/list_changed" {
		d.unit.s.table(d.unit.key).forget() // nobody may listen, and then it goes no further
	}
	if d.asked && m.Kind() == jsonrpc.Response {
		d.asked = false
		claimed := claimsModern(m)
		if m.IsError() && m.Lookup("error", "data", "reason") == nil { // else there is no server
			d.unit.s.log.Warn("the server has refused initialize; --protocol says what is spoken with it", "code", string(m.Lookup("error", "code")))
		} else if claimed != "" {
			d.unit.s.log.Warn("the server has answered initialize with a version that has none; --protocol says what is spoken with it", "version", claimed)
		}
		switch {
		case !m.IsError() && claimed == "":
		case d.unit.s.spec.Protocol == era.Auto && answersModern(m): // it says so itself
			d.unit.s.decided(true)
			d.unit.retire()
		default:
			d.unit.doubt()
		}
	}
	if exit, ok := errors.AsType[*stdio.ExitError](err); ok {
		err = &stdio.ExitError{Name: exit.Name, Err: exit.Err}
	}
	return m, err
}

// parked reports whether calls wait for their clients in the unit.
func (u *unit) parked() bool {
	f := u.filter.Load()
	return f != nil && f.Parked() > 0
}

// member is a client's Conn to a unit. Close leaves the unit.
type member struct {
	bridge.Poller
	unit   *unit
	asking bool // see unit
	left   atomic.Bool
}

// Unwrap returns the Conn within.
func (m *member) Unwrap() bridge.PullConn { return m.Poller }

// Recv says why a unit has ended that was retired.
func (m *member) Recv(ctx context.Context) (jsonrpc.Message, error) {
	got, err := m.Poller.Recv(ctx)
	return got, m.why(err)
}

// Offer is what bridge.Offer says.
func (m *member) Offer(ctx context.Context, take bridge.Taker) (jsonrpc.Message, error) {
	got, err := bridge.Offer(ctx, m.Poller, take)
	return got, m.why(err)
}

// TrySender passes on what the Conn has.
func (m *member) TrySender() func(jsonrpc.Message) bool { return bridge.TrySender(m.Poller) }

// Poll does as Recv does.
func (m *member) Poll() (jsonrpc.Message, error, bool) {
	got, err, ok := m.Poller.Poll()
	return got, m.why(err), ok
}

func (m *member) why(err error) error { return m.unit.why(err) }

// why returns why the unit has ended, if err says that it has.
func (u *unit) why(err error) error {
	if !errors.Is(err, bridge.ErrClosing) {
		return err
	}
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	switch {
	case u.turned:
		return errChanged
	case u.taken:
		return bridge.ErrReclaimed
	}
	return err
}

func (m *member) Close() error {
	err := m.Poller.Close()
	if m.left.CompareAndSwap(false, true) {
		m.unit.s.leave(m.unit, m.asking)
	}
	return err
}

// join makes a client a member of the unit with this key, which begins if
// there is none. ctx carries the client's principal and party. asking: it is for a
// single request that is no subscription.
func (s *Server) join(ctx context.Context, key unitKey, clientInfo []byte, asking bool) (*member, error) {
	u, err := s.enter(key, asking)
	if u == nil && err == nil {
		u, err = s.begin(ctx, key, clientInfo, asking)
	}
	if err != nil {
		return nil, err
	}
	conn, err := u.mux.Join(ctx)
	if err != nil {
		s.leave(u, asking)
		return nil, u.why(err)
	}
	return &member{Poller: conn, unit: u, asking: asking}, nil
}

// enter counts a client as a member of the unit with this key; nil: there is none.
func (s *Server) enter(key unitKey, asking bool) (*unit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, errClosed
	}
	u := s.units[key]
	if u != nil {
		u.enter(asking)
	}
	return u, nil
}

// enter counts a member. The caller holds s.mu.
func (u *unit) enter(asking bool) {
	u.members++
	if asking {
		u.asking++
	}
}

// begin is enter for a client that has found no unit: it makes one, unless another
// client does. If that fails, this client tries itself: it may be one who may wait for
// a place longer.
func (s *Server) begin(ctx context.Context, key unitKey, clientInfo []byte, asking bool) (*unit, error) {
	party := bridge.Party(ctx)
	for {
		s.mu.Lock()
		u, other := s.units[key], s.beginning[key]
		switch {
		case s.ended:
			s.mu.Unlock()
			return nil, errClosed
		case u != nil:
			u.enter(asking)
			s.mu.Unlock()
			return u, nil
		case other == nil:
			begun := make(chan struct{})
			s.beginning[key] = begun
			s.mu.Unlock()
			return s.create(ctx, party, begun, key, clientInfo, asking)
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// create makes a unit, and closes begun when there is one, or will be none.
func (s *Server) create(ctx context.Context, party string, begun chan struct{}, key unitKey, clientInfo []byte, asking bool) (*unit, error) {
	u, err := s.newUnit(ctx, party, key, clientInfo)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.beginning, key)
	close(begun)
	if err != nil {
		return nil, err
	}
	if s.ended {
		u.place.Release()
		return nil, errClosed
	}
	s.add(u)
	u.enter(asking)
	return u, nil
}

// maxCapabilities bounds what is kept of a client's capabilities, in bytes.
const maxCapabilities = 4 << 10

var errCapabilities = publicError("clientCapabilities are longer than the 4 KiB that a server is told of")

// publicError is an error that clients may see (bridge.Serve).
type publicError string

func (e publicError) Error() string       { return string(e) }
func (e publicError) PublicError() string { return string(e) }

// maxAlone bounds the units of one client each where there is no Admit: calls
// may wait for their clients in them.
const maxAlone = 10_000

// newUnit makes a unit, when there may be one more: of those that clients share one
// is ended for it if need be, or waited for. Those of one client are bounded by Admit.
// The unit is not known before add.
func (s *Server) newUnit(ctx context.Context, party string, key unitKey, clientInfo []byte) (*unit, error) {
	if len(key.capabilities) > maxCapabilities {
		return nil, errCapabilities
	}
	if len(clientInfo) > maxCapabilities {
		clientInfo = nil
	}
	u := &unit{s: s, key: key, party: party, clientInfo: bytes.Clone(clientInfo)}
	if key.alone == 0 {
		if err := u.acquire(ctx); err != nil {
			return nil, err
		}
	} else if s.spec.Admit == nil && s.alone.Load() >= maxAlone {
		return nil, fmt.Errorf("%w: %d clients have a connection of their own", bridge.ErrBusy, maxAlone)
	}
	u.mux = mux.New(mux.Options{
		Dialer: u, Dropped: s.spec.Dropped, MaxCalls: s.maxCalls(), Keeps: key.legacy, Crashed: s.crashes(key),
		Restarting: func(err error, wait time.Duration) {
			if errors.Is(err, bridge.ErrBusy) {
				s.log.Warn("no place for one more process", "error", err)
				return
			}
			if wait <= 0 && mux.IsOrderly(err) {
				s.log.Info("the server has ended; it is started again when it is wanted", "error", err)
				return
			}
			s.log.Warn("the server has ended or could not be started; if it is wanted it is tried again", "error", err, "after", wait)
		},
	})
	return u, nil
}

// acquire takes the place of a unit that clients share, and waits for it as long as
// ctx lasts and the Server is open.
func (u *unit) acquire(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.s.ctx, cancel)()
	u.place, err = u.s.shared.Acquire(ctx, u.party, u)
	switch {
	case err == nil:
		return nil
	case u.s.ctx.Err() != nil:
		return errClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %d processes with different clients run: %w", bridge.ErrBusy, u.s.spec.MaxUnits, err)
}

// add makes a unit known. The caller holds s.mu.
func (s *Server) add(u *unit) {
	s.count++
	u.known, u.id, u.since = true, fmt.Sprint(s.count), time.Now()
	if u.key.alone != 0 {
		s.alone.Add(1)
	}
	s.units[u.key] = u
	s.byID[u.id] = u
}

// maxCalls is how many requests of all clients one server is given at once.
func (s *Server) maxCalls() int {
	if s.isHTTP() {
		return 1000 // each has a connection
	}
	return 10_000
}

// Use implements admission.Holder. A unit that has members is in use as long as
// one of them waits for an answer, or was asked for something: a subscription may
// begin anew elsewhere.
func (u *unit) Use() (admission.Use, time.Time) {
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	return u.use(), u.since
}

// use is Use for who holds s.mu.
func (u *unit) use() admission.Use {
	switch {
	case u.gone:
		return admission.Ending
	case !u.known || u.asking > 0 || u.parked():
		return admission.Busy
	case u.members == 0:
		return admission.Spare
	case u.mux.Load().Calls > 0:
		return admission.Busy
	}
	return admission.Idle
}

// Reclaim implements admission.Holder.
func (u *unit) Reclaim() bool {
	u.s.mu.Lock()
	use, members := u.use(), u.members
	ok := use == admission.Idle || use == admission.Spare
	if ok {
		u.taken = true
		u.s.end(u)
	}
	u.s.mu.Unlock()
	if use == admission.Idle {
		u.s.log.Info("a process is ended in which no call is in progress: its place goes to another client, who has fewer", "client", u.party, "clients", members)
	}
	return ok
}

// leave is what members do.
func (s *Server) leave(u *unit, asking bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.members--
	if asking {
		u.asking--
	}
	if u.members > 0 || u.gone {
		return
	}
	u.since = time.Now()
	if u.key.alone != 0 && !u.parked() {
		s.end(u)
		return
	}
	if u.idle == nil { // each request joins and leaves: what it puts off costs nothing
		s.expireIn(u, s.idleFor(u))
	}
}

// expireIn has expire called. The caller holds s.mu.
func (s *Server) expireIn(u *unit, wait time.Duration) {
	u.idle = time.AfterFunc(wait, func() { s.expire(u) })
}

// idleFor returns how long a unit without members stays.
func (s *Server) idleFor(u *unit) time.Duration {
	if u.key.alone != 0 {
		return s.spec.ParkTimeout
	}
	return s.spec.Idle
}

// expire ends a unit that has been idle for long enough. One in which calls wait stays.
func (s *Server) expire(u *unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.idle = nil
	rest := s.idleFor(u) - time.Since(u.since)
	switch {
	case u.members > 0 || u.gone:
	case rest > 0: // it had members meanwhile
		s.expireIn(u, rest)
	case u.parked():
		s.expireIn(u, time.Minute)
	default:
		s.end(u)
	}
}

// end takes a unit out and closes it. The caller holds s.mu.
func (s *Server) end(u *unit) {
	u.gone = true
	if u.idle != nil {
		u.idle.Stop()
	}
	delete(s.units, u.key)
	delete(s.byID, u.id)
	u.place.Release()
	if u.key.alone != 0 {
		s.alone.Add(-1)
	}
	s.wg.Go(func() {
		if err := u.mux.Close(); err != nil {
			s.log.Warn("closing", "error", err)
		}
	})
}
