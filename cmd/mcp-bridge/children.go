package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// supervise sets up what the whole process does for its children. The
// function it returns ends what is left of them.
func supervise(log hclog.Logger) func() {
	stop, err := supervisor.Subreap()
	if err != nil {
		log.Warn("descendants that leave their process group will not be found", "error", err)
		stop = func() {}
	}
	if err := supervisor.StartWatchdog(); err != nil {
		log.Warn("if this process is killed, descendants of servers may stay", "error", err)
	}
	return stop
}

// children is the bridge.Dialer of one command. It counts what runs, for /readyz.
type children struct {
	command stdio.Command
	log     hclog.Logger

	mu        sync.Mutex
	running   int
	lastError string
}

func newChildren(spec supervisor.Spec, maxMessage int, log hclog.Logger) *children {
	log = log.With("server", spec.Name)
	spec.Stderr = func(line []byte) { log.Info("stderr", "line", string(line)) }
	return &children{
		log: log,
		command: stdio.Command{Spec: spec, Options: stdio.Options{
			MaxMessageSize: maxMessage,
			OnNoise: func(n int, reason string) {
				log.Warn("output of the server skipped", "bytes", n, "reason", reason)
			},
		}},
	}
}

// check finds a command that cannot be started before anything is set up for it.
func (c *children) check() error { return c.command.Spec.Check() }

// Dial starts a child.
func (c *children) Dial(ctx context.Context) (bridge.Conn, error) {
	conn, err := c.command.Dial(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.lastError = notStarted
		return nil, err
	}
	c.running++
	return &child{Conn: conn, of: c}, nil
}

// child takes itself off the books when it is closed.
type child struct {
	bridge.Conn
	of   *children
	once sync.Once
}

// Recv notes how the child ended.
func (c *child) Recv(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Conn.Recv(ctx)
	if exit, ok := errors.AsType[*stdio.ExitError](err); ok {
		c.of.failed(exitText(exit))
	}
	return m, err
}

func (c *child) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.of.mu.Lock()
		c.of.running--
		c.of.mu.Unlock()
		if err != nil {
			c.of.failed("the server could not be stopped")
			c.of.log.Error("the server could not be stopped", "error", err)
		}
	})
	return err
}

func (c *children) failed(what string) {
	c.mu.Lock()
	c.lastError = what
	c.mu.Unlock()
}

// What /readyz says is for everybody who reaches the port: neither paths nor
// what a server wrote to its stderr. The log has both.
const notStarted = "the server could not be started; the log says why"

func exitText(e *stdio.ExitError) string {
	if e.Err == nil {
		return "the server ended: exit status 0"
	}
	return "the server ended: " + e.Err.Error()
}

// readiness is what /readyz answers.
type readiness struct {
	Ready     bool   `json:"ready"`
	Running   int    `json:"running"`
	LastError string `json:"lastError,omitempty"`
}

func (c *children) readyz(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	state := readiness{Running: c.running, LastError: c.lastError}
	c.mu.Unlock()
	if state.Ready = state.Running > 0; !state.Ready {
		if state.Ready = c.check() == nil; !state.Ready {
			state.LastError = notStarted
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if !state.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(state)
}

func healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{\"status\":\"ok\"}\n"))
}
