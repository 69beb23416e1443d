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

// Key says which clients share a server (D.1): those with the same one.
type Key struct {
	Legacy       bool   // the server is a legacy one
	Principal    string // of those who may use it; "": of everybody, or of those who have not authenticated
	Capabilities string // that the server was told of, as legacyserver.ProjectCapabilities writes them
	Exclusive    uint64 // not 0: the server is of one client only, or of one request
}

// Options tune a Pool.
type Options struct {
	// Connect returns the Dialer of one shared server. It is asked once for each; the
	// Dialer's Dial is called again whenever the server has ended and is wanted, never
	// by two at a time. parked reports whether calls wait in the server for something
	// that their clients were asked: such a server is not idle.
	Connect func(s *Server) (d bridge.Dialer, parked func() bool)

	// MaxShared is how many servers there may be that are not Exclusive. MaxQueued and
	// QueueTimeout are Queue and Wait of limiter.Options.
	MaxShared    int
	MaxQueued    int
	QueueTimeout time.Duration

	// MaxExclusive bounds the Exclusive servers. 0: Connect's Dialers do.
	MaxExclusive int64

	// MaxCalls is how many requests of all its clients one server is given at once.
	MaxCalls int

	// IdleTimeout is how long a server without clients is kept; ParkTimeout, an Exclusive one
	// in which calls wait.
	IdleTimeout, ParkTimeout time.Duration

	// IsolateCrashes: a principal whose calls end the server that all share (the zero
	// Key) gets one of its own for a while (see IsIsolated).
	IsolateCrashes bool

	// Dropped is told of messages that reached nobody. nil is fine.
	Dropped func(m jsonrpc.Message, reason string)

	// Logger is told of starts and ends.
	Logger hclog.Logger
}

// A Pool has the shared servers of one configured server. All methods may be called
// concurrently.
//
// mu is held while the fields of the Pool and of its Servers are looked at, never across a
// call that may wait. It comes after every other lock: a Mux is asked for its load under it
// (Use), but calls the Pool without its own locks.
type Pool struct {
	opts     Options
	log      hclog.Logger
	limiter  *limiter.Limiter // of servers that are not Exclusive
	isolated crashIsolation

	ctx    context.Context // ends with Shutdown
	cancel context.CancelFunc
	wg     sync.WaitGroup // closing of servers

	exclusive atomic.Int64 // how many of those there are

	mu               sync.Mutex
	closed           error // why nobody may join any more; nil: everybody may
	servers          map[Key]*Server
	starting         map[Key]chan struct{} // of servers that are being made; closed when the server is there, or will not be
	serversByID      map[string]*Server
	lastServerNumber int // the id of the server that was made last
}

// NewPool returns a Pool without servers. Shutdown and Wait end it.
func NewPool(o Options) *Pool {
	p := &Pool{
		opts: o, log: o.Logger,
		limiter:     limiter.New(limiter.Options{Max: o.MaxShared, Queue: o.MaxQueued, Wait: o.QueueTimeout}),
		servers:     make(map[Key]*Server),
		starting:    make(map[Key]chan struct{}),
		serversByID: make(map[string]*Server),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// IsIsolated reports whether a principal has a server of its own where others share one,
// because its calls have ended the one that all share.
func (p *Pool) IsIsolated(principal string) bool { return p.isolated.isIsolated(principal) }

// ByID returns the server that has this ID (Server.ID); nil: there is none any more.
func (p *Pool) ByID(id string) *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serversByID[id]
}

// Servers returns the servers that there are.
func (p *Pool) Servers() []*Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.servers))
}

// Join makes a client a member of the server with this key, which begins if there is
// none. ctx carries the client's principal and party. clientInfo is what a server that
// begins is told of its client. single: the client joins for a single request that is no
// subscription. The Member must be closed.
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

// enterExisting counts a client as a member of the server with this key; nil: there is none.
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

// startServer is enterExisting for a client that has found no server: it makes one, unless another
// client does. If that fails, this client tries itself: it may be one who may wait for
// a place longer.
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

// createServer makes a server, and closes begun when there is one, or will be none.
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

// MaxIntroductionSize bounds what is kept of a client's capabilities, and of its clientInfo,
// in bytes.
const MaxIntroductionSize = 4 << 10

type publicError string

func (e publicError) Error() string { return string(e) }

// PublicError is what clients are told (bridge.Serve).
func (e publicError) PublicError() string { return string(e) }

const errCapabilitiesTooLong publicError = "clientCapabilities are longer than the 4 KiB that a server is told of"

// newServer makes a server, when there may be one more. If need be, it ends one that clients share for
// that, or waits for the end of one. Nobody knows of the server before addLocked.
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
		OnCrash: p.onCrash(key), OnRestart: p.logRestart,
	})
	return s, nil
}

// logRestart is told why a server that has ended is started again, and when.
func (p *Pool) logRestart(err error, wait time.Duration) {
	switch {
	case errors.Is(err, bridge.ErrBusy):
		p.log.Warn("no place for one more process", "error", err)
	case wait <= 0 && mux.IsOrderly(err):
		p.log.Info("the server has ended; it is started again when it is wanted", "error", err)
	default:
		p.log.Warn("the server has ended or could not be started; if it is wanted it is tried again", "error", err, "after", wait)
	}
}

// takePlace takes the place of a server that clients share, and waits for it as long as
// ctx lasts and the Pool is open.
func (p *Pool) takePlace(ctx context.Context, s *Server) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	s.place, err = p.limiter.Acquire(ctx, s.Party, s)
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

func (p *Pool) errIfClosed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// addLocked makes a server known.
func (p *Pool) addLocked(s *Server) {
	p.lastServerNumber++
	s.registered, s.id, s.idleSince = true, fmt.Sprint(p.lastServerNumber), time.Now()
	if s.Key.Exclusive != 0 {
		p.exclusive.Add(1)
	}
	p.servers[s.Key] = s
	p.serversByID[s.id] = s
}

// ShutDownIf ends the servers whose key meets a condition, for the reason that their
// clients get.
func (p *Pool) ShutDownIf(meets func(Key) bool, reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		if meets(s.Key) && p.closed == nil {
			s.reason = reason
			p.endLocked(s)
		}
	}
}

// Shutdown ends all servers. Who joins from now on gets err. Wait waits for their end.
func (p *Pool) Shutdown(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = err
	p.cancel()
	for _, s := range p.servers {
		p.endLocked(s)
	}
}

// Wait waits until the servers have ended that Shutdown, or anything before it, has ended.
func (p *Pool) Wait() { p.wg.Wait() }

// endLocked takes a server out and closes it.
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
