package upstream

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// A State is what everybody who reaches the port may know about a server: neither paths nor what the server
// wrote to its stderr. The log has both.
type State struct {
	Ready             bool   `json:"ready"`                  // it can be used; false: its last starts have failed or it has refused everybody, a minute ago at most, or its command cannot be started
	Running           int    `json:"running"`                // how many processes there are, or Conns to a remote server; one that was started ahead counts once a client has it
	FailedStarts      int    `json:"failedStarts,omitempty"` // how many starts have failed, or processes ended before their first answer, since a server has answered without an error
	Calls             int    `json:"calls"`                  // how many calls of clients wait for their answers. Server.State leaves it 0: who has the PendingCalls sets it
	OldestCallSeconds int    `json:"oldestCallSeconds"`      // for how many whole seconds the call has waited that waits longest; 0: none waits, or not for a second; set like Calls
	LastError         string `json:"lastError,omitempty"`    // what was wrong last, in words that are fit for everybody; "": nothing since the first answer of a Conn was no error
}

// How a server comes to be called not ready, although it could be tried.
const (
	// maxFailedStarts is how many starts in a row must have failed for a server to be called not ready.
	maxFailedStarts = 3

	// failureExpiry is how long after the last failure a server is called not ready: where nobody is sent to a
	// server that is not ready, nobody would find out that it works again.
	failureExpiry = time.Minute
)

const (
	textNotStarted = "the server could not be started; the log says why"                           // State.LastError of a server that could not be started or reached
	textRefusesAll = "the server refused to initialize or could not be reached; the log says more" // State.LastError of a server that has answered the first request of a Conn with an error, or refuses everybody
)

// status is what State is made of: what became of a server's Conns.
type status struct {
	mu           sync.Mutex   // guards the fields below
	running      int          // how many Conns are open
	lastError    string       // what was wrong last; "": nothing since noteAnswered was called
	failedStarts int          // how many starts have failed, or processes ended before their first answer, since noteAnswered was called
	refuses      bool         // it is a remote server, and has refused to serve anybody since noteAnswered was called
	failedAt     time.Time    // when the last start failed, or the server last refused
	ahead        *aheadServer // the server that was started ahead; nil: none was
}

// state returns the State, as far as it is known here.
func (s *status) state() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	failing := (s.refuses || s.failedStarts >= maxFailedStarts) && time.Since(s.failedAt) < failureExpiry
	return State{Ready: !failing, Running: s.running, FailedStarts: s.failedStarts, LastError: s.lastError}
}

// noteStartFailed counts a failed start, or the end of a process before its first answer. The text what becomes
// State.LastError.
func (s *status) noteStartFailed(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastError, s.failedAt = what, time.Now()
	s.failedStarts++
}

// noteRefused notes that a remote server refuses to serve anybody.
func (s *status) noteRefused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastError, s.failedAt, s.refuses = textRefusesAll, time.Now(), true
}

// noteAnswered notes that the server has answered without an error, so that earlier failures do not count. It is called
// for the first answer of a Conn, and for the first one after a refusal.
func (s *status) noteAnswered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastError, s.failedStarts, s.refuses = "", 0, false
}

// noteFailed notes what was wrong, for State.LastError. The server stays ready.
func (s *status) noteFailed(what string) {
	s.mu.Lock()
	s.lastError = what
	s.mu.Unlock()
}

// addRunning adds n to the number of open Conns.
func (s *status) addRunning(n int) {
	s.mu.Lock()
	s.running += n
	s.mu.Unlock()
}

// keepAhead notes the server that was started ahead.
func (s *status) keepAhead(a *aheadServer) {
	s.mu.Lock()
	s.ahead = a
	s.mu.Unlock()
}

// keptAhead returns the server that was started ahead, also if it was taken; nil: none was.
func (s *status) keptAhead() *aheadServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead
}

// A countingDialer is a Dialer whose Conns, made by dialer, count in the status. Of all countingDialers with the same
// status, the first that dials returns the Conn that was started ahead, if there is one.
type countingDialer struct {
	status    *status       // the status in which the Conns count
	log       hclog.Logger  // gets errors of stopping
	dialer    bridge.Dialer // makes the Conns
	transport string        // the name of the transport to the server, for the Observer (transportName)
	remote    bool          // the server is at a URL
}

// Dial implements bridge.Dialer: it returns the Conn that was started ahead, or one of dialer, which counts
// in the status until it is closed. An error counts as a failed start, unless ctx is done.
func (c *countingDialer) Dial(ctx context.Context) (bridge.Conn, error) {
	conn, p, err := c.dialOrTake(ctx)
	if err != nil {
		if ctx.Err() == nil {
			c.status.noteStartFailed(textNotStarted)
		}
		return nil, err
	}
	c.status.addRunning(1)
	observe.SessionOf(ctx).SetServerTransport(c.transport)
	return observe.SessionOf(ctx).Conn(c.trackState(conn, p), observe.Upstream), nil
}

// dialOrTake returns the Conn that was started ahead, or one of dialer, and its process; nil: it has none.
func (c *countingDialer) dialOrTake(ctx context.Context) (bridge.Conn, *process, error) {
	if a := c.status.keptAhead(); a != nil {
		if conn := a.take(); conn != nil {
			a.assignSession(observe.SessionOf(ctx))
			return conn, a.process, nil
		}
	}
	if command, ok := c.dialer.(*processDialer); ok {
		return command.start(ctx)
	}
	conn, err := c.dialer.Dial(ctx)
	return conn, nil, err
}

// trackState returns conn with hooks that note in the status how its first request, such as initialize, is answered,
// whether a remote server refuses later ones because it serves nobody, how a process ends, and when the Conn is closed.
// p, which may be nil, is told that it has answered.
func (c *countingDialer) trackState(conn bridge.Conn, p *process) bridge.Conn {
	answered, refused := false, false
	return bridge.Intercept(conn, bridge.Hooks{
		Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) {
			if m.Kind() != jsonrpc.Response {
				return nil
			}
			switch isError := m.IsError(); {
			case isError && c.remote && refusesService(m, !answered):
				refused = true
				c.status.noteRefused()
			case isError && !answered: // of what is asked first; it may accept what is asked then
				refused = true
				c.status.noteFailed(textRefusesAll)
			case !isError && (!answered || refused):
				refused = false
				c.status.noteAnswered()
			}
			if !answered {
				answered = true
				p.noteAnswered()
			}
			return nil
		},
		Ended: func(err error) error {
			exit, ok := errors.AsType[*stdio.ExitError](err)
			switch {
			case ok && !answered:
				c.status.noteStartFailed(exitText(exit))
			case ok:
				c.status.noteFailed(exitText(exit))
			}
			return err
		},
		Closed: func(err error) error {
			c.status.addRunning(-1)
			if err != nil {
				c.status.noteFailed("the server could not be stopped")
				c.log.Error("the server could not be stopped", "error", err)
			}
			return err
		},
	})
}

// refusesService reports whether an error response says that a remote server serves nobody: it cannot be
// reached, lets us not in, or is no MCP server. (What is wrong with one request says nothing about others.)
// first: it is the first answer of a Conn, where every code counts that does not blame the request.
func refusesService(m *jsonrpc.Message, first bool) bool {
	reason, _ := jsonrpc.Text(m.Lookup("error", "data", "reason"))
	switch reason {
	case httpdial.ReasonUnreachable, httpdial.ReasonTLS, httpdial.ReasonAuthRequired, httpdial.ReasonAuthFailed, httpdial.ReasonAuthServerUnavailable, httpdial.ReasonForbidden, httpdial.ReasonRedirect,
		httpdial.ReasonNotMCP, httpdial.ReasonServerDown, httpdial.ReasonInitializeRefused:
		return true
	case httpdial.ReasonHTTPStatus:
		status := string(m.Lookup("error", "data", "status"))
		return first || strings.HasPrefix(status, "5") || status == "429"
	case "":
		switch string(m.Lookup("error", "code")) {
		case "-32600", "-32601", "-32602", "-32700", "-32020", "-32021", "-32022":
			return false
		}
		return first
	}
	return false
}

// exitText returns the text for State.LastError about a process that has ended.
func exitText(e *stdio.ExitError) string {
	if e.Err == nil {
		return "the server ended: exit status 0"
	}
	return "the server ended: " + e.Err.Error()
}
