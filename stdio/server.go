package stdio

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// firstWait is how long a client that has connected may take to say
	// something. Until then it has no server.
	firstWait = 30 * time.Second

	// refuseWait bounds the refusal of a client.
	refuseWait = 5 * time.Second
)

// ServerOptions tune a SocketServer. The zero value works.
type ServerOptions struct {
	MaxMessageSize int          // bytes in a line from a client (J9). 0: DefaultMaxMessageSize
	MaxDepth       int          // levels of objects and arrays in a message (J14). 0: jsonrpc.DefaultMaxDepth; negative: any number
	MaxSessions    int          // connections at once; more are refused. 0: 1000
	Admit          bridge.Admit // asked when a client has sent its first message; nil admits everybody
	Logger         hclog.Logger // nil: silence
}

// SocketServer serves clients that connect to a socket and write their messages as
// lines. A connection is a session, and what holds for the client at a
// process's stdin holds for it: at its end of input what it has asked is still
// answered (ST8), and a connection that is lost ends the session.
type SocketServer struct {
	handler bridge.Handler
	opts    ServerOptions

	ctx    context.Context // done when the SocketServer shuts down: sessions drain
	cancel context.CancelFunc
	wg     sync.WaitGroup // connections, and calls of Serve

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	sessions  int // connections that are served, or wait for it
	refusals  int // connections that are being refused
	closing   bool
}

// NewServer makes a SocketServer that gives each connection, as a bridge.Conn, to
// server. Close ends it.
func NewServer(server bridge.Handler, opts ServerOptions) *SocketServer {
	if opts.MaxSessions <= 0 {
		opts.MaxSessions = 1000
	}
	if opts.Logger == nil {
		opts.Logger = hclog.NewNullLogger()
	}
	s := &SocketServer{handler: server, opts: opts, listeners: make(map[net.Listener]struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve takes connections from l and returns nil when it or l was closed, or
// the error that l ended with. It closes l. It may be called for several listeners at a
// time. Who may connect is for l to say. A connection's deadlines must work;
// without a CloseWrite method its client is not told of an end before the end.
func (s *SocketServer) Serve(l net.Listener) error {
	defer l.Close()
	if !s.enter(l) {
		return nil
	}
	defer s.leave(l)
	var pause time.Duration
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = 0
			s.take(nc)
			continue
		}
		if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil
		}
		var t interface{ Temporary() bool }
		if !errors.As(err, &t) || !t.Temporary() {
			return fmt.Errorf("no more connections: %w", err)
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second) // too many open files, most likely
		s.opts.Logger.Warn("a connection could not be accepted", "error", err, "retry", pause)
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
			return nil
		}
	}
}

func (s *SocketServer) enter(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.listeners[l] = struct{}{}
	s.wg.Add(1)
	return true
}

func (s *SocketServer) leave(l net.Listener) {
	s.mu.Lock()
	delete(s.listeners, l)
	s.mu.Unlock()
	s.wg.Done()
}

// Close closes the listeners, lets the sessions finish what is in progress
// (their bridge.Handler's context is done; it bounds the wait), ends them, and
// returns when all of them have ended. It may be called more than once.
func (s *SocketServer) Close() error {
	s.mu.Lock()
	s.closing = true
	s.cancel()
	for l := range s.listeners {
		l.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

// Sessions returns how many connections are served.
func (s *SocketServer) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions
}

// take starts to serve a connection, or to refuse it. Those that are being
// refused cannot pile up.
func (s *SocketServer) take(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, serve := &s.sessions, s.serve
	if s.sessions >= s.opts.MaxSessions {
		count, serve = &s.refusals, s.turnAway
	}
	if s.closing || *count >= s.opts.MaxSessions {
		nc.Close()
		return
	}
	*count++
	s.wg.Go(func() {
		conn := newSocketConn(nc, Options{Peer: Client, MaxMessageSize: s.opts.MaxMessageSize, MaxDepth: s.opts.MaxDepth, OnNoise: s.noise})
		serve(conn)
		conn.Close()
		s.mu.Lock()
		*count--
		s.mu.Unlock()
	})
}

func (s *SocketServer) noise(size int, reason string) {
	s.opts.Logger.Warn("input refused", "bytes", size, "reason", reason)
}

// serve serves one client. Who has said nothing yet gets no server: it may
// only have tried whether somebody listens.
func (s *SocketServer) serve(conn *socketConn) {
	first, err := s.first(conn)
	if err != nil {
		return
	}
	if s.opts.Admit != nil {
		leave, err := s.opts.Admit(s.ctx)
		if err != nil {
			if !errors.Is(err, bridge.ErrBusy) { // its text may not be for clients
				s.opts.Logger.Warn("client not admitted", "error", err)
				err = bridge.ErrBusy
			}
			s.refuse(conn, first, err)
			return
		}
		defer leave()
	}
	conn.Unread(first)
	err = s.handler.ServeConn(s.ctx, conn)
	if err != nil && !(s.ctx.Err() != nil && errors.Is(err, context.Canceled)) {
		s.opts.Logger.Warn("session ended", "error", err)
	}
}

func (s *SocketServer) first(conn *socketConn) (jsonrpc.Message, error) {
	ctx, cancel := context.WithTimeout(s.ctx, firstWait)
	defer cancel()
	return conn.Recv(ctx)
}

// turnAway refuses a client for whom there is no place.
func (s *SocketServer) turnAway(conn *socketConn) {
	if first, err := s.first(conn); err == nil {
		s.refuse(conn, first, bridge.ErrBusy)
	}
}

// refuse answers the client's first request with an error.
func (s *SocketServer) refuse(conn *socketConn, m jsonrpc.Message, why error) {
	s.opts.Logger.Warn("client refused", "error", why)
	ctx, cancel := context.WithTimeout(s.ctx, refuseWait)
	defer cancel()
	var err error
	for m.Kind() != jsonrpc.Request && err == nil {
		m, err = conn.Recv(ctx)
	}
	if err == nil {
		_ = conn.Send(ctx, jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError, why.Error(), []byte(`{"reason":"busy"}`))) // gone: so be it
	}
}
