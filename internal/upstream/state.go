package upstream

import (
	"context"
	"errors"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// State is what there is to know about a server, fit for everybody who reaches
// the port: neither paths nor what a server wrote to its stderr. The log has both.
type State struct {
	Ready     bool   `json:"ready"`   // one runs, or nothing speaks against starting one
	Running   int    `json:"running"` // processes, or connections to a remote server
	LastError string `json:"lastError,omitempty"`
}

const notStarted = "the server could not be started; the log says why"

// status is what is known of a server's Conns.
type status struct {
	mu        sync.Mutex
	running   int
	lastError string
	ahead     *ahead // nil: none was started ahead
}

func (s *status) state() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{Running: s.running, LastError: s.lastError}
}

func (s *status) failed(what string) {
	s.mu.Lock()
	s.lastError = what
	s.mu.Unlock()
}

func (s *status) count(n int) {
	s.mu.Lock()
	s.running += n
	s.mu.Unlock()
}

func (s *status) keep(a *ahead) {
	s.mu.Lock()
	s.ahead = a
	s.mu.Unlock()
}

func (s *status) kept() *ahead {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead
}

// counted is a Dialer whose Conns count in the status. The first one is the
// Conn that was started ahead, if there is one.
type counted struct {
	of     *status
	log    hclog.Logger
	dialer bridge.Dialer
}

func (c *counted) Dial(ctx context.Context) (bridge.Conn, error) {
	var conn bridge.PullConn
	if a := c.of.kept(); a != nil {
		conn = a.take()
	}
	if conn == nil {
		var err error
		if conn, err = bridge.PullDialed(c.dialer.Dial(ctx)); err != nil {
			c.of.failed(notStarted)
			return nil, err
		}
	}
	c.of.count(1)
	counted := &countedConn{PullConn: conn, of: c.of, log: c.log}
	counted.from, _ = conn.(bridge.Offerer)
	return bridge.Push(counted), nil
}

// countedConn counts no more when it is closed.
type countedConn struct {
	bridge.PullConn
	from bridge.Offerer // Conn; nil: it is none
	of   *status
	log  hclog.Logger
	once sync.Once
	told bool // the first answer was seen; only Offer uses it
}

// Recv notes how the first request, initialize, was answered, and how a
// process ended.
func (c *countedConn) Recv(ctx context.Context) (jsonrpc.Message, error) { return c.Offer(ctx, nil) }

// Offer is what bridge.Offer says, once that answer was received.
func (c *countedConn) Offer(ctx context.Context, take bridge.Taker) (m jsonrpc.Message, err error) {
	if c.told && take != nil && c.from != nil {
		m, err = c.from.Offer(ctx, take)
	} else {
		m, err = c.PullConn.Recv(ctx)
	}
	if !c.told && m.Kind() == jsonrpc.Response {
		c.told = true
		if m.IsError() {
			c.of.failed("the server refused to initialize or could not be reached; the log says more")
		} else {
			c.of.failed("") // it works
		}
	}
	if err != nil {
		if exit, ok := errors.AsType[*stdio.ExitError](err); ok {
			c.of.failed(exitText(exit))
		}
	}
	return m, err
}

// TrySender passes on what the Conn has.
func (c *countedConn) TrySender() func(jsonrpc.Message) bool { return bridge.TrySender(c.PullConn) }

func (c *countedConn) Close() error {
	err := c.PullConn.Close()
	c.once.Do(func() {
		c.of.count(-1)
		if err != nil {
			c.of.failed("the server could not be stopped")
			c.log.Error("the server could not be stopped", "error", err)
		}
	})
	return err
}

func exitText(e *stdio.ExitError) string {
	if e.Err == nil {
		return "the server ended: exit status 0"
	}
	return "the server ended: " + e.Err.Error()
}
