package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// trialTime is how long after its start the end of a server that was started ahead counts as a failed start.
	trialTime = 2 * time.Second
	// maxAheadWait is how long a server that was started ahead waits for its first client. Then it is stopped.
	maxAheadWait = 30 * time.Second
)

// An aheadServer is one server that was started before there was a client, so that a command that cannot work
// is found out at once, and the first client need not wait.
type aheadServer struct {
	onFailed func(error)  // told, once at most, that the server cannot be started, or has ended by itself within trialTime and before it was taken
	log      hclog.Logger // gets a warning if the server ends by itself after trialTime, and before it is taken

	cancel  context.CancelFunc // ends watch, which then keeps the server
	started chan struct{}      // closed when the server is started, or onFailed was told that it cannot be
	done    chan struct{}      // closed when watch has ended, or the server cannot be started: process and ready are set then
	wg      sync.WaitGroup     // the goroutine of run

	process *process // the server's process; nil: it is no command, or cannot be started

	mu    sync.Mutex  // guards ready
	ready bridge.Conn // the Conn to the server, for take; nil: the server cannot be started, has ended, or was taken
}

// startAhead has a server start ahead, with a Conn of d, and does not wait for that. failed is told, once at most, that
// the server cannot be started, or has ended by itself within trialTime and before it was taken. log gets a warning if
// the server ends by itself later without having been taken. A server that nobody takes within maxAheadWait is stopped;
// neither failed nor log is told of that.
func startAhead(d bridge.Dialer, failed func(error), log hclog.Logger) *aheadServer {
	ctx, cancel := context.WithCancel(context.Background())
	s := &aheadServer{onFailed: failed, log: log, cancel: cancel, started: make(chan struct{}), done: make(chan struct{})}
	s.wg.Go(func() { s.run(ctx, d) })
	return s
}

// run starts the server and watches it.
func (s *aheadServer) run(ctx context.Context, d bridge.Dialer) {
	defer s.cancel()
	conn, err := s.start(d)
	if err != nil {
		close(s.done)
		s.onFailed(err)
		close(s.started)
		return
	}
	close(s.started)
	ctx, cancel := context.WithTimeout(ctx, maxAheadWait)
	defer cancel()
	s.watch(ctx, conn)
}

// start starts the server, and returns the Conn to it. It sets process if d starts commands.
func (s *aheadServer) start(d bridge.Dialer) (conn bridge.Conn, err error) {
	if command, ok := d.(*processDialer); ok {
		conn, s.process, err = command.start(context.Background())
		return conn, err
	}
	return d.Dial(context.Background())
}

// maxEarlyMessages is how many messages of a server are kept that come before it has a client. More are left
// in its pipe.
const maxEarlyMessages = 100

// watch waits until the server ends, take is called, or maxAheadWait has passed. What the server sends
// meanwhile is kept for the client. If nobody takes the server, it is closed; if it ends by itself within trialTime,
// onFailed is told, and if later, log.
func (s *aheadServer) watch(ctx context.Context, conn bridge.Conn) {
	started := time.Now()
	early := &earlyConn{Conn: conn}
	err := conn.Receive(ctx, earlySink{early})
	var keep bridge.Conn
	if errors.Is(ctx.Err(), context.Canceled) && errors.Is(err, context.Canceled) { // asked for
		keep = conn
		if len(early.earlyMessages) > 0 {
			keep = early
		}
	}
	s.mu.Lock()
	s.ready = keep
	s.mu.Unlock()
	close(s.done)
	if keep != nil {
		return
	}
	closeErr := conn.Close(nil)
	switch {
	case ctx.Err() != nil: // nobody has come for it
	case time.Since(started) < trialTime:
		s.onFailed(fmt.Errorf("the server ended at once: %w; to find out why: mcp-bridge doctor -- COMMAND", errors.Join(err, closeErr)))
	default:
		s.log.Warn("the server that was started ahead has ended", "error", err)
	}
}

// take returns the Conn to the server, the first time, and waits until the server is started; nil: the server cannot
// be started, has ended, was stopped because nobody came for it, or was taken before.
func (s *aheadServer) take() bridge.Conn {
	s.cancel()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := s.ready
	s.ready = nil
	return conn
}

// assignSession sets the session for which the server works, after take has returned it.
func (s *aheadServer) assignSession(session *observe.Session) {
	if s.process != nil {
		s.process.setSession(session)
	}
}

// close stops the server, unless it was taken, and waits for the goroutine of run. The error is that of stopping.
func (s *aheadServer) close() error {
	defer s.wg.Wait()
	if conn := s.take(); conn != nil {
		return conn.Close(nil)
	}
	return nil
}

// An earlyConn is the Conn to a server that has sent messages before it had a client.
type earlyConn struct {
	bridge.Conn
	earlyMessages []jsonrpc.Message // the messages that came early, and that Receive has not handed on yet
}

// An earlySink keeps what a server sends, in conn.earlyMessages, up to maxEarlyMessages.
type earlySink struct {
	conn *earlyConn // where the messages are kept
}

// TrySend implements bridge.Sink: it keeps m; false: there are too many.
func (s earlySink) TrySend(m jsonrpc.Message) bool {
	if len(s.conn.earlyMessages) == maxEarlyMessages {
		return false
	}
	s.conn.earlyMessages = append(s.conn.earlyMessages, m)
	return true
}

// Send implements bridge.Sink: it keeps m, or blocks until ctx is done if there are too many.
func (s earlySink) Send(ctx context.Context, m jsonrpc.Message) error {
	if s.TrySend(m) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// Receive hands on the messages that came early, and then what the server sends.
func (c *earlyConn) Receive(ctx context.Context, sink bridge.Sink) error {
	for len(c.earlyMessages) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := sink.Send(ctx, c.earlyMessages[0]); err != nil {
			return err
		}
		c.earlyMessages = c.earlyMessages[1:]
	}
	return c.Conn.Receive(ctx, sink)
}
