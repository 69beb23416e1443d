// Package sharing lets clients share processes of a server, or connections to it
// (docs/rules.md, D.1 to D.3): which clients share one, how many there may be, how long
// an idle one is kept, and who gets one of its own because its calls end what all share.
// It knows neither eras nor transports: what connects a shared server is the caller's.
package sharing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/internal/limiter"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Key says which clients share a server (D.1): those with the same Key.
type Key struct {
	Legacy       bool   // the server is a legacy one
	Principal    string // the principal whose server it is; "": it is everybody's, or that of those who have not authenticated
	Capabilities string // the client capabilities that the server was told of, as legacyserver.ProjectCapabilities writes them; "": none, or it is a modern server
	Exclusive    uint64 // 0: it may be shared; otherwise the server is for one client, or one request, only, and this is its number
}

// Options tune a Pool. Connect and Logger are needed.
type Options struct {
	// Connect returns the Dialer of one shared server. It is asked once for each; the
	// Dialer's Dial is called again whenever the server has ended and is wanted, never
	// by two at a time. parked reports whether calls wait in the server for something
	// that their clients were asked: such a server is not idle.
	Connect func(s *Server) (d bridge.Dialer, parked func() bool)

	// MaxShared is how many servers there may be that are not Exclusive. 0 or less: any number.
	MaxShared    int
	MaxQueued    int           // how many clients may wait for one more server that is not Exclusive, beside those whose party has no more than an equal part of MaxShared
	QueueTimeout time.Duration // how long a client waits for one more server that is not Exclusive; 0 or less: nobody waits

	// MaxExclusive is how many Exclusive servers there may be, those without a client included. 0: only the Dialers of
	// Connect bound them.
	MaxExclusive int64

	// MaxCalls is how many requests, of all its clients, may be in progress at one server. A request for which there
	// is no room is answered with an error (mux.Options.MaxCalls). 0 means no bound.
	MaxCalls int

	// IdleTimeout is how long a server that is not Exclusive is kept without clients. As long as calls in it wait for
	// clients, it is kept longer. 0: it ends at once, unless such calls wait.
	IdleTimeout time.Duration

	// ParkTimeout is how long an Exclusive server is kept without clients, if calls in it wait for them when the last one
	// leaves. As long as they wait, it is kept longer. If no calls wait when the last client leaves, it ends at once.
	ParkTimeout time.Duration

	// IsolateCrashes says that a principal whose calls end the server that all share (the zero Key) gets one of
	// its own for isolationTime; crashIsolation.noteCrash says which principals those are.
	IsolateCrashes bool

	// Dropped is told of messages that reached nobody, and why, as mux.Options.Dropped is. nil: nobody is told.
	Dropped func(m jsonrpc.Message, reason string)

	// Logger gets restarts and ends of servers.
	Logger hclog.Logger
}

// A Pool has the shared servers of one configured server. All methods may be called
// concurrently.
//
// mu is held while the fields of the Pool and of its Servers are looked at, never across a
// call that may wait. It comes after every other lock: a Mux is asked for its load under it
// (Use), but calls the Pool without its own locks.
type Pool struct {
	opts     Options          // the Options of NewPool
	log      hclog.Logger     // Options.Logger
	limiter  *limiter.Limiter // has the places of servers that are not Exclusive
	isolated crashIsolation   // the principals that IsIsolated reports

	ctx    context.Context    // done at Shutdown: clients that wait for a place give up then
	cancel context.CancelFunc // ends ctx
	wg     sync.WaitGroup     // goroutines that close servers

	exclusive atomic.Int64 // how many Exclusive servers there are

	mu               sync.Mutex            // guards the fields below, and those of Servers
	closed           error                 // why nobody can join any more (Shutdown); nil: everybody can
	servers          map[Key]*Server       // the servers that clients can join, by key
	starting         map[Key]chan struct{} // for each server that is being made: closed when it is there, or could not be made
	serversByID      map[string]*Server    // the servers in servers, by Server.ID
	lastServerNumber int                   // the number in the ID of the server that was made last
}

// NewPool returns a Pool without servers. Shutdown and Wait end it.
func NewPool(o Options) *Pool {
	p := &Pool{
		opts: o, log: o.Logger,
		limiter:     limiter.New(limiter.Options{Max: o.MaxShared, Queue: o.MaxQueued}),
		servers:     make(map[Key]*Server),
		starting:    make(map[Key]chan struct{}),
		serversByID: make(map[string]*Server),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// IsIsolated reports whether a principal has a server of its own now where others share one,
// because the one that all share has ended with calls of the principal in progress (Options.IsolateCrashes).
func (p *Pool) IsIsolated(principal string) bool { return p.isolated.isIsolated(principal) }

// ByID returns the server that has this ID (Server.ID); nil: there is none any more.
func (p *Pool) ByID(id string) *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serversByID[id]
}

// Servers returns the servers that clients can join now, in no order. Those that are still being made (starting) are not among them.
func (p *Pool) Servers() []*Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.servers))
}

// Join makes a client a member of the server with this key, which begins if there is none. ctx has the
// client's principal and party. clientInfo is the raw clientInfo that a legacy server that begins is told of its client
// (nil: none). single: the client joins for a single request that is no subscription. The Member must be closed. The
// error says that there is no place for the server (it wraps bridge.ErrBusy), that the Pool or the server was shut down,
// that the capabilities in key are too long, or that ctx is done.
func (p *Pool) Join(ctx context.Context, key Key, clientInfo []byte, single bool) (*Member, error) {
	s, err := p.enterExisting(key, single)
	if s == nil && err == nil {
		s, err = p.startServer(ctx, key, clientInfo, single)
	}
	if err != nil {
		return nil, err
	}
	conn, err := s.mux.Dial(ctx)
	if err != nil {
		p.leave(s, single)
		return nil, s.endReason(err)
	}
	return s.newMember(conn, single), nil
}

// enterExisting counts a client as a member of the server with this key; nil without an error: there is none. single:
// the client joins for a single request that is no subscription.
func (p *Pool) enterExisting(key Key, single bool) (*Server, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return nil, p.closed
	}
	s := p.servers[key]
	if s != nil {
		s.enterLocked(single)
	}
	return s, nil
}

// startServer makes the server with this key, or waits for another client that is making it, and counts the
// client as a member. If the other one fails, this client tries itself: it may be one that may wait for a
// place longer.
func (p *Pool) startServer(ctx context.Context, key Key, clientInfo []byte, single bool) (*Server, error) {
	party := identity.Party(ctx)
	for {
		p.mu.Lock()
		s, other := p.servers[key], p.starting[key]
		switch {
		case p.closed != nil:
			p.mu.Unlock()
			return nil, p.closed
		case s != nil:
			s.enterLocked(single)
			p.mu.Unlock()
			return s, nil
		case other == nil:
			begun := make(chan struct{})
			p.starting[key] = begun
			p.mu.Unlock()
			return p.createServer(ctx, party, begun, key, clientInfo, single)
		}
		p.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// createServer makes a server for startServer, and counts the client as a member. It closes begun when the
// server is there, or could not be made.
func (p *Pool) createServer(ctx context.Context, party string, begun chan struct{}, key Key, clientInfo []byte, single bool) (*Server, error) {
	s, err := p.newServer(ctx, party, key, clientInfo)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.starting, key)
	close(begun)
	if err != nil {
		return nil, err
	}
	if p.closed != nil {
		s.place.Release()
		return nil, p.closed
	}
	p.addLocked(s)
	s.enterLocked(single)
	return s, nil
}

// MaxIntroductionSize is how many bytes a client's capabilities may have, and how many of a clientInfo are
// kept (a longer one is left out).
const MaxIntroductionSize = 4 << 10

// A publicError is an error whose text clients may see.
type publicError string

// Error returns the text.
func (e publicError) Error() string { return string(e) }

// PublicError is what clients are told (bridge.Serve).
func (e publicError) PublicError() string { return string(e) }

// errCapabilitiesTooLong is the error for a client whose capabilities have more than MaxIntroductionSize.
const errCapabilitiesTooLong publicError = "clientCapabilities are longer than the 4 KiB that a server is told of"

// newServer returns a new server with this key, which nobody can join before addLocked. The server's place counts for
// party; clientInfo is what the server is told of its client. newServer waits for a place if need be, for which the
// limiter may end another server. The error says that there is no place, or that the capabilities in key are too long.
func (p *Pool) newServer(ctx context.Context, party string, key Key, clientInfo []byte) (*Server, error) {
	if len(key.Capabilities) > MaxIntroductionSize {
		return nil, errCapabilitiesTooLong
	}
	if len(clientInfo) > MaxIntroductionSize {
		clientInfo = nil
	}
	s := &Server{pool: p, Key: key, Party: party, ClientInfo: bytes.Clone(clientInfo)}
	s.expiry.Do = s.expire
	if key.Exclusive == 0 {
		if err := p.takePlace(ctx, s); err != nil {
			return nil, err
		}
	} else if most := p.opts.MaxExclusive; most > 0 && p.exclusive.Load() >= most {
		return nil, fmt.Errorf("%w: %d clients have a connection of their own", bridge.ErrBusy, most)
	}
	var dialer bridge.Dialer
	dialer, s.parked = p.opts.Connect(s)
	s.mux = mux.New(mux.Options{
		Dialer: dialer, Dropped: p.opts.Dropped, MaxCalls: p.opts.MaxCalls,
		OnCrash: p.onCrash(key), OnNoServer: p.logNoServer,
	})
	return s, nil
}

// logNoServer is the OnNoServer of a Mux: it logs why there is no server, which has ended or could not be had, and
// after how long another may be tried.
func (p *Pool) logNoServer(err error, wait time.Duration) {
	switch {
	case errors.Is(err, bridge.ErrBusy):
		p.log.Warn("no place for one more process", "error", err)
	case wait <= 0 && mux.IsOrderly(err):
		p.log.Info("the server has ended; it is started again when it is wanted", "error", err)
	default:
		p.log.Warn("the server has ended or could not be started; if it is wanted it is tried again", "error", err, "after", wait)
	}
}

// takePlace takes a place for a server that is not Exclusive, and waits for it, Options.QueueTimeout at most, as long as
// ctx lasts and the Pool is open. The error wraps bridge.ErrBusy if none has come.
func (p *Pool) takePlace(ctx context.Context, s *Server) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	s.place, err = p.limiter.Acquire(ctx, s.Party, s, p.opts.QueueTimeout)
	switch {
	case err == nil:
		return nil
	case p.ctx.Err() != nil:
		return p.errIfClosed()
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %d processes with different clients run: %w", bridge.ErrBusy, p.opts.MaxShared, err)
}

// errIfClosed returns why nobody can join any more; nil: everybody can.
func (p *Pool) errIfClosed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// addLocked gives a server its ID, and lets clients join it. mu is held.
func (p *Pool) addLocked(s *Server) {
	p.lastServerNumber++
	s.registered, s.id, s.idleSince = true, fmt.Sprint(p.lastServerNumber), time.Now()
	if s.Key.Exclusive != 0 {
		p.exclusive.Add(1)
	}
	p.servers[s.Key] = s
	p.serversByID[s.id] = s
}

// ShutdownIf ends the servers for whose key meets returns true. reason is what their clients are told.
func (p *Pool) ShutdownIf(meets func(Key) bool, reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		if meets(s.Key) && p.closed == nil {
			s.reason = reason
			p.endLocked(s)
		}
	}
}

// Shutdown ends all servers, and does not wait for that (Wait does). Who joins from now on gets err.
func (p *Pool) Shutdown(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = err
	p.cancel()
	for _, s := range p.servers {
		p.endLocked(s)
	}
}

// Wait waits until all servers that were ended are closed.
func (p *Pool) Wait() { p.wg.Wait() }

// endLocked removes a server from the Pool, gives its place back, and closes it in a goroutine. mu is held.
func (p *Pool) endLocked(s *Server) {
	s.ended = true
	delete(p.servers, s.Key)
	delete(p.serversByID, s.id)
	s.place.Release()
	if s.Key.Exclusive != 0 {
		p.exclusive.Add(-1)
	}
	p.wg.Go(func() {
		s.expiry.Stop()
		if err := s.mux.Close(); err != nil {
			p.log.Warn("closing", "error", err)
		}
	})
}
