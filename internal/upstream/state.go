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

// Dial implements bridge.Dialer.
func (c *counted) Dial(ctx context.Context) (conn bridge.Conn, err error) {
	if a := c.of.kept(); a != nil {
		conn = a.take()
	}
	if conn == nil {
		if conn, err = c.dialer.Dial(ctx); err != nil {
			c.of.failed(notStarted)
			return nil, err
		}
	}
	c.of.count(1)
	return c.trackState(conn), nil
}

// trackState notes how the first request, initialize, was answered, how a process has
// ended, and when the Conn is closed.
func (c *counted) trackState(conn bridge.Conn) bridge.Conn {
	answered := false
	return bridge.Intercept(conn, bridge.Hooks{
		Receive: func(m jsonrpc.Message) (in, reply jsonrpc.Message) {
			if !answered && m.Kind() == jsonrpc.Response {
				answered = true
				if m.IsError() {
					c.of.failed("the server refused to initialize or could not be reached; the log says more")
				} else {
					c.of.failed("") // it works
				}
			}
			return m, jsonrpc.Message{}
		},
		Ended: func(err error) error {
			if exit, ok := errors.AsType[*stdio.ExitError](err); ok {
				c.of.failed(exitText(exit))
			}
			return err
		},
		Closed: func(err error) error {
			c.of.count(-1)
			if err != nil {
				c.of.failed("the server could not be stopped")
				c.log.Error("the server could not be stopped", "error", err)
			}
			return err
		},
	})
}

func exitText(e *stdio.ExitError) string {
	if e.Err == nil {
		return "the server ended: exit status 0"
	}
	return "the server ended: " + e.Err.Error()
}
