package sharing

import (
	"errors"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/internal/limiter"
)

// A Server is one server process, or connection to a remote server, that clients share (D.2). The process may
// end and be started again; the Server stays.
type Server struct {
	Key        Key    // says which clients share the server
	Party      string // the party that has begun it, for which its place counts
	ClientInfo []byte // the clientInfo that a legacy server is told of; nil: none

	pool   *Pool           // the Pool that it is in
	expiry lazytimer.Timer // is set when the last member leaves; calls expire, which ends the Server if none has come
	mux    *mux.Mux        // gives each member a Conn to the one process
	parked func() bool     // reports whether calls in the server wait for their clients (Options.Connect)
	id     string          // the number, as text, that ID returns; "": no client can join the Server yet

	registered bool           // addLocked was called, so that clients can join it, or could; under Pool.mu
	members    int            // how many clients have joined and not left; under Pool.mu
	requests   int            // how many of the members have joined for a single request; under Pool.mu
	place      *limiter.Place // the server's place in the Pool's limiter; nil: it is Exclusive, and needs none; under Pool.mu
	joinedAt   time.Time      // when the last member joined that did not join for a single request; zero: none did yet; under Pool.mu
	idleSince  time.Time      // when the last member has left; before the first one, when addLocked was called; not changed while there are members; under Pool.mu
	ended      bool           // it is closed, or is being closed; under Pool.mu
	reason     error          // what clients are told why it was ended; nil: that it has ended; under Pool.mu
}

// ID returns a number, as text, that tells the Server from others of its Pool; "": no client can join it yet.
func (s *Server) ID() string { return s.id }

// Shutdown ends the Server; the next client begins another one. reason is what its clients are told.
func (s *Server) Shutdown(reason error) {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.ended && p.closed == nil {
		s.reason = reason
		p.endLocked(s)
	}
}

// endReason returns err, or if that says that the Server is closed, the reason for clients, if there is one.
func (s *Server) endReason(err error) error {
	if !errors.Is(err, bridge.ErrClosing) {
		return err
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.reason != nil {
		return s.reason
	}
	return err
}

// Use implements limiter.Holder. A Server that has members is Busy as long as one of them waits for an
// answer, or was asked for something; otherwise it is Idle, since the last of these was over or the last member
// joined: a subscription may begin anew elsewhere. Without members it is Spare, since the last one left (before the
// first one came: since the Server was made), or Busy as long as calls in it wait for their clients.
func (s *Server) Use() (limiter.Use, time.Time) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.useLocked()
}

// useLocked is Use with Pool.mu held.
func (s *Server) useLocked() (use limiter.Use, since time.Time) {
	switch {
	case s.ended:
		return limiter.Ending, since
	case !s.registered || s.requests > 0 || s.parked():
		return limiter.Busy, since
	case s.members == 0:
		return limiter.Spare, s.idleSince
	}
	load := s.mux.Load()
	if load.Calls > 0 {
		return limiter.Busy, since
	}
	if since = s.joinedAt; load.QuietSince.After(since) {
		since = load.QuietSince
	}
	return limiter.Idle, since
}

// Reclaim implements limiter.Holder: it ends the Server if that is Idle or Spare, and reports whether it was.
func (s *Server) Reclaim() bool {
	p := s.pool
	p.mu.Lock()
	use, _ := s.useLocked()
	members := s.members
	ok := use == limiter.Idle || use == limiter.Spare
	if ok {
		s.reason = bridge.ErrReclaimed
		p.endLocked(s)
	}
	p.mu.Unlock()
	if use == limiter.Idle {
		p.log.Info("a process is ended in which no call is in progress: its place goes to another client, who has fewer", "client", s.Party, "clients", members)
	}
	return ok
}

// enterLocked counts a client as a member; single: it joins for a single request that is no subscription. Pool.mu is held.
func (s *Server) enterLocked(single bool) {
	s.members++
	if single {
		s.requests++
	} else {
		s.joinedAt = time.Now()
	}
}

// leave counts a member of s less, when that is closed; single: it had joined for a single request that is no
// subscription. Without members, an Exclusive server ends at once, or, if calls wait in it, after Options.ParkTimeout;
// another one after Options.IdleTimeout.
func (p *Pool) leave(s *Server, single bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.members--
	if single {
		s.requests--
	}
	if s.members > 0 || s.ended {
		return
	}
	s.idleSince = time.Now()
	if s.Key.Exclusive != 0 && !s.parked() {
		p.endLocked(s)
		return
	}
	s.expiry.Set(s.idleSince.Add(p.idleTimeoutOf(s)))
}

// idleTimeoutOf returns how long a server is kept after its last member has left: Options.IdleTimeout, or ParkTimeout if
// it is Exclusive. An Exclusive server gets that time only if calls wait in it; otherwise leave ends it at once.
func (p *Pool) idleTimeoutOf(s *Server) time.Duration {
	if s.Key.Exclusive != 0 {
		return p.opts.ParkTimeout
	}
	return p.opts.IdleTimeout
}

// expire ends the Server if it has had no members for long enough (idleTimeoutOf). One in which calls wait stays, and
// is looked at again a minute later.
func (s *Server) expire() {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	end := s.idleSince.Add(p.idleTimeoutOf(s))
	switch {
	case s.members > 0 || s.ended: // when they leave the time is set anew
	case time.Now().Before(end):
		s.expiry.Set(end)
	case s.parked():
		s.expiry.SetAfter(time.Minute)
	default:
		p.endLocked(s)
	}
}
