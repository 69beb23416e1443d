package sharing

import (
	"errors"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/internal/limiter"
)

// A Server is one server process, or connection to a remote server, that clients share
// (D.2). The process may end and be started again; the Server stays.
type Server struct {
	Key        Key
	Party      string // who has begun it: its places count for that
	ClientInfo []byte // what the server is told of its client

	pool   *Pool
	expiry lazytimer.Timer // ends the Server when it was idle for long enough
	mux    *mux.Mux
	parked func() bool // see Options.Connect
	id     string      // see ID

	// Under Pool.mu.
	registered bool           // it is in Pool.servers, or was
	members    int            // how many clients have joined and not left
	requests   int            // of the members, those with a single request
	place      *limiter.Place // nil: it needs none
	idleSince  time.Time      // when the last member has left; it means nothing while there are members
	ended      bool           // it is closed, or is being closed
	reason     error          // why the Server was ended, for its clients; nil: they need not know
}

// ID names the Server among those of its Pool. It is known once the Server is dialled.
func (s *Server) ID() string { return s.id }

// ShutDown ends the Server for a reason that its clients get: the next client begins
// another one.
func (s *Server) ShutDown(reason error) {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.ended && p.closed == nil {
		s.reason = reason
		p.endLocked(s)
	}
}

// endReason returns why the Server has ended, if err says that it has.
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

// Use implements limiter.Holder. A Server that has members is in use as long as
// one of them waits for an answer, or was asked for something: a subscription may
// begin anew elsewhere.
func (s *Server) Use() (limiter.Use, time.Time) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.useLocked(), s.idleSince
}

func (s *Server) useLocked() limiter.Use {
	switch {
	case s.ended:
		return limiter.Ending
	case !s.registered || s.requests > 0 || s.parked():
		return limiter.Busy
	case s.members == 0:
		return limiter.Spare
	case s.mux.Load().Calls > 0:
		return limiter.Busy
	}
	return limiter.Idle
}

// Reclaim implements limiter.Holder.
func (s *Server) Reclaim() bool {
	p := s.pool
	p.mu.Lock()
	use, members := s.useLocked(), s.members
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

// enterLocked counts a member.
func (s *Server) enterLocked(single bool) {
	s.members++
	if single {
		s.requests++
	}
}

// leave is what members do when they are closed.
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

// idleTimeoutOf returns how long a server without members stays.
func (p *Pool) idleTimeoutOf(s *Server) time.Duration {
	if s.Key.Exclusive != 0 {
		return p.opts.ParkTimeout
	}
	return p.opts.IdleTimeout
}

// expire ends the Server if it has been idle for long enough. One in which calls wait stays.
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
