package stdio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// firstMessageTimeout is how long a client that has connected to a SocketServer may
// take to send its first message. Until then it has no server. It is also how long a
// client for whom there is no place may take to send the request that is refused.
const firstMessageTimeout = 30 * time.Second

// defaultChunkTimeout is ServerOptions.ChunkTimeout by default.
const defaultChunkTimeout = 30 * time.Second

// ServerOptions tune a SocketServer. The zero value works.
type ServerOptions struct {
	MaxMessageSize int // the longest line that a client may send, in bytes (J9). 0: 64 MiB
	// how many levels of objects and arrays a client's message may have (J14). 0:
	// jsonrpc.DefaultMaxDepth; negative: any number
	MaxDepth    int
	MaxSessions int // how many connections are served at once; more are refused. 0 or less: 1000
	// Logger is told what goes wrong; nil: nothing is logged
	Logger hclog.Logger

	// ChunkTimeout is how long a client may take to send each 64 KiB of a line, or
	// what there is of it; then the connection ends. 0: 30 s; negative: no limit
	ChunkTimeout time.Duration

	// Budget is the memory for lines that are being received, or wait for their
	// server to take them; a line of up to 64 KiB does not count. A connection ends
	// if the Budget has no room for its line. The Budget may be shared with others. nil: one
	// of its own, for messages of MaxMessageSize.
	//
	// Until a client has sent one valid message, its lines may have 1 MiB at most, and no
	// more than MaxMessageSize.
	Budget *budget.Budget

	// AcquirePlace is asked for a place when a bridge.Handler wants one for a client,
	// before it starts a server (admission.AcquireProcessPlace). nil: there always is
	// one.
	AcquirePlace admission.AcquirePlaceFunc

	// Party returns the party that a client belongs to: places and memory are shared
	// out among parties. nil: all are one party.
	Party func(net.Conn) string
}

// SocketServer serves clients that connect to a socket and write their messages as
// lines. A connection is a session, and what holds for the client at a
// process's stdin holds for it: at its end of input what it has asked is still
// answered (ST8), and a connection that is lost ends the session. So does one that the client
// has closed both ways, where the system tells that from an end of input (Linux, Unix sockets).
type SocketServer struct {
	handler bridge.Handler // the Handler that serves each connection
	opts    ServerOptions  // NewSocketServer's, with the defaults filled in

	ctx     context.Context       // done when the SocketServer shuts down: sessions drain
	control *admission.Controller // gives the connections their places; at Close it waits until they have left
	wg      sync.WaitGroup        // waits for the connections' goroutines, and for calls of Serve

	mu        sync.Mutex                // guards listeners, refusing and closing
	listeners map[net.Listener]struct{} // the listeners that Serve takes connections from
	refusing  int                       // how many connections are being refused (addRefusals)
	closing   bool                      // Close was called: listeners and connections that come are closed
}

// NewSocketServer makes a SocketServer that gives each connection, as a bridge.Conn, to
// server. Close ends it.
func NewSocketServer(server bridge.Handler, opts ServerOptions) *SocketServer {
	if opts.MaxSessions <= 0 {
		opts.MaxSessions = 1000
	}
	opts.ChunkTimeout = cmp.Or(opts.ChunkTimeout, defaultChunkTimeout)
	if opts.Budget == nil {
		opts.Budget = budget.ForMessages(cmp.Or(opts.MaxMessageSize, defaultMaxMessageSize))
	}
	if opts.Party == nil {
		opts.Party = func(net.Conn) string { return "" }
	}
	if opts.Logger == nil {
		opts.Logger = hclog.NewNullLogger()
	}
	s := &SocketServer{handler: server, opts: opts, listeners: make(map[net.Listener]struct{})}
	s.control = admission.New(opts.MaxSessions, opts.AcquirePlace)
	s.ctx = s.control.Context()
	return s
}

// Serve takes connections from l. It returns nil when the SocketServer or l was closed, or
// the error that l ended with, and closes l. It may be called for several listeners at a
// time. Who may connect is for l to say. The deadlines of l's connections must work. A
// connection without a CloseWrite method is closed without a wait for the client to read
// what it was sent.
func (s *SocketServer) Serve(l net.Listener) error {
	defer l.Close()
	if !s.addListener(l) {
		return nil
	}
	defer s.removeListener(l)
	var pause time.Duration
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = 0
			s.startConn(nc)
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

// addListener enters a listener, for Close to close; false: Close was called.
func (s *SocketServer) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.listeners[l] = struct{}{}
	s.wg.Add(1)
	return true
}

// removeListener takes a listener out that Serve has done with.
func (s *SocketServer) removeListener(l net.Listener) {
	s.mu.Lock()
	delete(s.listeners, l)
	s.mu.Unlock()
	s.wg.Done()
}

// Close closes the listeners, lets the sessions finish what is in progress
// (their bridge.Handler's context is done, and the Handler bounds the wait), ends them, and
// returns nil when all of them have ended. It may be called more than once.
func (s *SocketServer) Close() error {
	s.mu.Lock()
	s.closing = true
	for l := range s.listeners {
		l.Close()
	}
	s.mu.Unlock()
	s.control.Close()
	s.wg.Wait()
	return nil
}

// Sessions returns how many connections have a place, those included whose client has
// not said anything yet.
func (s *SocketServer) Sessions() int { return s.control.Sessions() }

// startConn starts the goroutine of a new connection, which serves or refuses the
// client. After Close it only closes the connection.
func (s *SocketServer) startConn(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		nc.Close()
		return
	}
	s.wg.Go(func() {
		conn, slot, err := s.admit(nc)
		defer conn.releaseIntake()
		defer conn.Close(nil)
		if err != nil {
			s.refuse(conn)
			return
		}
		s.serve(slot, conn)
		slot.ClientGone()
		conn.Close(nil)
		slot.Release()
	})
}

// admit makes the Conn of a new connection, and takes a place for it. If there is no
// place, the error says why, and the Conn is there all the same.
func (s *SocketServer) admit(nc net.Conn) (*socketConn, *admission.Slot, error) {
	conn := newSocketConn(nc, Options{Peer: Client, MaxMessageSize: s.opts.MaxMessageSize, MaxDepth: s.opts.MaxDepth, OnNoise: s.logNoise})
	party := s.opts.Party(nc)
	conn.limitIntake(s.opts.Budget.Share(party), s.opts.ChunkTimeout)
	slot, err := s.control.AcquireLazily(identity.WithParty(s.ctx, party))
	return conn, slot, err
}

// refuse tells a client that there is no place for it, in the goroutine of its connection. If
// MaxSessions others are being told so, the client is told nothing.
func (s *SocketServer) refuse(conn *socketConn) {
	if s.addRefusals(1) {
		s.answerRefused(conn)
		s.addRefusals(-1)
	}
}

// addRefusals adds one, which is +1 or -1, to the number of connections being refused; false:
// there are MaxSessions already, and nothing was added.
func (s *SocketServer) addRefusals(one int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one > 0 && s.refusing >= s.opts.MaxSessions {
		return false
	}
	s.refusing += one
	return true
}

// logNoise is Options.OnNoise of the clients' Conns: it logs a warning about input that is not handed on, because it is
// no valid message or too long.
func (s *SocketServer) logNoise(size int, reason string) {
	s.opts.Logger.Warn("input refused", "bytes", size, "reason", reason)
}

// serve waits for a client's first message, and has the handler serve the client. A
// client that says nothing gets no server: it may only have tried whether somebody
// listens. How the session has ended is logged if that was an error, or for another
// client's sake, unless the Observer tells it.
func (s *SocketServer) serve(slot *admission.Slot, conn *socketConn) {
	ctx := slot.Context()
	how := func(err error) (string, bool) { return endText(ctx, err) }
	seen := &observe.SessionOrigin{Remote: "socket", DescribeEnd: how}
	err := s.awaitFirst(ctx, conn)
	if err == nil {
		err = s.handler.ServeConn(observe.WithOrigin(ctx, seen), conn)
	} else {
		err = nil // nothing has gone wrong
	}
	text, failed := how(err)
	switch {
	case seen.Observed():
	case failed:
		s.opts.Logger.Warn("session ended", "error", err)
	case context.Cause(ctx) == bridge.ErrReclaimed:
		s.opts.Logger.Info("session ended: " + text)
	}
}

// endText returns how a session has ended, in words. ctx is the session's, and err is what its bridge.Handler has
// returned. failed: the end is an error, which is worth a warning.
func endText(ctx context.Context, err error) (text string, failed bool) {
	switch {
	case context.Cause(ctx) == bridge.ErrReclaimed:
		return "it was idle, and its place goes to another client, who has fewer than " + identity.Party(ctx), false
	case errors.Is(err, errClosedBothWays): // as clients leave
		return "the client has gone", false
	case err != nil && !(ctx.Err() != nil && errors.Is(err, context.Canceled)):
		return err.Error(), true
	case ctx.Err() != nil:
		return "the bridge ends it", false
	}
	return "the client has gone", false
}

// awaitFirst waits for the first message of a client, for no longer than
// firstMessageTimeout. It does not take the message: the next Receive begins with it. The
// error says that none has come.
func (s *SocketServer) awaitFirst(ctx context.Context, conn *socketConn) error {
	defer admission.MarkUnused(ctx)()
	ctx, cancel := context.WithTimeout(ctx, firstMessageTimeout)
	defer cancel()
	_, err := bridge.First(ctx, conn)
	return err
}

// answerRefused refuses a client for whom there is no place: its first request is
// answered with an error.
func (s *SocketServer) answerRefused(conn *socketConn) {
	s.opts.Logger.Warn("client refused", "error", bridge.ErrBusy)
	ctx, cancel := context.WithTimeout(s.ctx, firstMessageTimeout)
	defer cancel()
	_ = conn.Receive(ctx, refusingSink{conn}) // however it ends: the client is refused
}

// refusingSink is the Sink of a client that is refused: it drops notifications and
// answers the first request with an error, which ends the Receive.
type refusingSink struct {
	client bridge.Sink // the client, to which the error is sent
}

// TrySend implements bridge.Sink: it takes nothing, so that Send is called.
func (t refusingSink) TrySend(jsonrpc.Message) bool { return false }

// Send implements bridge.Sink. It returns bridge.ErrBusy once a request was answered.
func (t refusingSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() != jsonrpc.Request {
		return nil
	}
	_ = t.client.Send(ctx, jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError, bridge.ErrBusy.Error(), []byte(`{"reason":"busy"}`))) // gone: so be it
	return bridge.ErrBusy
}
