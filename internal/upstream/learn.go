package upstream

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/probe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// This file has what lies around the Conn of a shared server.

// watchLegacyServer returns the Conn of a legacy server with a look at two kinds of its messages before they are
// translated: notifications/tools/list_changed, on which it forgets the tools, and the first response, which answers
// initialize (handleInitialized). It takes stderr out of the error of Receive (withoutStderr).
func (c *connector) watchLegacyServer(conn bridge.Conn) bridge.Conn {
	initialized := false
	return bridge.Intercept(conn, bridge.Hooks{
		Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) {
			c.forgetChangedTools(m)
			if !initialized && m.Kind() == jsonrpc.Response {
				initialized = true
				c.handleInitialized(*m)
			}
			return nil
		},
		Ended: withoutStderr,
	})
}

// forgetChangedTools forgets the tools of the server if m, a message of the server, says that they have changed.
func (c *connector) forgetChangedTools(m *jsonrpc.Message) {
	if m.Kind() == jsonrpc.Notification && m.Method() == "notifications/tools/list_changed" {
		c.toolSchemas.Forget()
	}
}

// withoutStderr returns err without the last lines of a process on stderr. They may be about one of the
// clients that share it, and all of these are told of its end.
func withoutStderr(err error) error {
	if exit, ok := errors.AsType[*stdio.ExitError](err); ok {
		return &stdio.ExitError{Name: exit.Name, Err: exit.Err}
	}
	return err
}

// handleInitialized is called with m, the answer of a legacy server to initialize. If m is an error, or has a version
// without initialize, the shared server is ended: at once if m itself says that the server is a modern one by now and
// --protocol leaves the era open, otherwise as endIfChanged decides. An answer in the place of a server that is not
// there says nothing.
func (c *connector) handleInitialized(m jsonrpc.Message) {
	if c.s.prober.IsUnasked(m) {
		return
	}
	claimed := probe.ClaimsModern(m)
	if isRefusal(m) {
		c.s.log.Warn("the server has refused initialize; --protocol says what is spoken with it", "code", string(m.Lookup("error", "code")))
	} else if claimed != "" {
		c.s.log.Warn("the server has answered initialize with a version that has none; --protocol says what is spoken with it", "version", claimed)
	}
	switch {
	case !m.IsError() && claimed == "":
	case c.s.spec.Protocol == era.Auto && probe.AnswersModern(m): // it says so itself
		c.s.prober.NoteEra(true)
		c.shared.Shutdown(probe.ErrChanged)
	default:
		c.endIfChanged()
	}
}

// isRefusal reports whether a response is an error of the server. One in the place of a server that is not there has a reason in its data.
func isRefusal(m jsonrpc.Message) bool {
	return m.IsError() && m.Lookup("error", "data", "reason") == nil
}

// watchModernServer returns the Conn of a modern server with a look at its messages: it learns the tools, forgets them
// when they have changed, and notices that the server's era has changed (ED9). It puts the versions that clients may
// speak into answers to server/discover, and takes stderr out of the error of Receive (withoutStderr).
func (c *connector) watchModernServer(conn bridge.Conn) bridge.Conn {
	w := c.newResponseWatcher(true)
	return bridge.Intercept(conn, bridge.Hooks{Sending: w.noteSent, Receive: w.handleReceived, Ended: withoutStderr})
}

// watchTranslated returns the Conn of a legacy server, as it speaks through translation, with a look at its answers: it
// learns the tools, and puts the versions that clients may speak into answers to server/discover.
func (c *connector) watchTranslated(conn bridge.Conn) bridge.Conn {
	w := c.newResponseWatcher(false)
	return bridge.Intercept(conn, bridge.Hooks{Sending: w.noteSent, Receive: w.handleReceived})
}

// newResponseWatcher returns a responseWatcher that knows of no request. modern says that the server is a modern one,
// which is not translated.
func (c *connector) newResponseWatcher(modern bool) *responseWatcher {
	return &responseWatcher{connector: c, modern: modern, awaited: make(map[jsonrpc.ID]question)}
}

// A responseWatcher remembers the requests to a server whose responses are of interest: tools/list and
// server/discover.
type responseWatcher struct {
	*connector
	modern bool // the server is modern; false: it is a legacy one, behind translation

	hasAwaited  atomic.Bool             // awaited is not empty. Mostly it is empty, and then takeQuestion does not take mu
	mu          sync.Mutex              // guards the fields below
	awaited     map[jsonrpc.ID]question // the requests that have no response yet, by id
	discoverIDs []jsonrpc.ID            // the ids of the last server/discover, answered or not, at most maxDiscovers
}

// A question is a request whose response is of interest; the zero value is none.
type question struct {
	method      string // "tools/list" or "server/discover"
	listVersion uint64 // schemas.Table.ListVersion when the request was sent
}

// maxDiscovers is how many server/discover are remembered: a client that has given one up does not say so,
// and the server may never answer it.
const maxDiscovers = 1000

// noteSent is bridge.Hooks.Sending: it remembers requests whose responses are of interest, and forgets those that the client cancels.
func (l *responseWatcher) noteSent(m jsonrpc.Message) {
	switch method := m.Method(); method {
	case "tools/list", "server/discover":
		l.noteQuestion(m.ID(), method)
	case "notifications/cancelled":
		l.takeQuestion(m.CancelledID())
	}
}

// noteQuestion remembers a request until it is answered. It may be called twice for the same.
func (l *responseWatcher) noteQuestion(id jsonrpc.ID, method string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, again := l.awaited[id]
	l.awaited[id] = question{method, l.toolSchemas.ListVersion()}
	l.hasAwaited.Store(true)
	if method != "server/discover" || again {
		return
	}
	if l.discoverIDs = append(l.discoverIDs, id); len(l.discoverIDs) > maxDiscovers {
		delete(l.awaited, l.discoverIDs[0])
		l.discoverIDs = l.discoverIDs[1:]
	}
}

// takeQuestion returns the question with this id, and forgets it; zero: there is none.
func (l *responseWatcher) takeQuestion(id jsonrpc.ID) (asked question) {
	if !l.hasAwaited.Load() {
		return question{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	asked = l.awaited[id]
	delete(l.awaited, id)
	l.hasAwaited.Store(len(l.awaited) > 0)
	return asked
}

// handleReceived is bridge.Hooks.Receive: it learns the tools in the answer to a tools/list, puts the versions that
// clients may speak into the answer to server/discover, and calls endIfChanged if an error says that a modern server is
// none any more. It forgets the tools of a modern server that have changed; watchLegacyServer does so for a legacy one.
func (l *responseWatcher) handleReceived(m *jsonrpc.Message) (reply *jsonrpc.Message) {
	if l.modern {
		l.forgetChangedTools(m)
	}
	if m.Kind() != jsonrpc.Response {
		return nil
	}
	switch asked := l.takeQuestion(m.ID()); asked.method {
	case "tools/list":
		l.toolSchemas.Learn(m.Result(), asked.listVersion)
	case "server/discover":
		if l.modern && isRefusal(*m) {
			l.s.log.Warn("the server has refused server/discover; --protocol says what is spoken with it", "code", string(m.Lookup("error", "code")))
		}
		*m = l.s.withServedVersions(*m)
	}
	if m.IsError() && l.modern && probe.RefusesModern(*m) {
		l.endIfChanged()
	}
	return nil
}

// withServedVersions returns the answer m to server/discover with the versions that clients may speak to the
// bridge in the place of the server's: the bridge understands more (MI9). An answer without a modern version
// stays, and so does each where clients may speak legacy revisions only.
func (s *Server) withServedVersions(m jsonrpc.Message) jsonrpc.Message {
	if m.Lookup("result", "supportedVersions") == nil || s.spec.ClientEras == era.OnlyLegacy || !probe.AnswersModern(m) {
		return m
	}
	list := []byte{'['}
	for i, v := range s.spec.ClientEras.Versions() {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, jsonrpc.Quote(v)...)
	}
	return m.WithResult(jsonrpc.With(m.Result(), "supportedVersions", append(list, ']')))
}

// lastAnswersTimeout is how long after a failed initialize the Conn goes on, for the answers that clients
// must get.
const lastAnswersTimeout = 100 * time.Millisecond

// errInitialize is the error of a Conn to a server that could not be initialized: another one that is started in its
// place may be (D4).
var errInitialize = errors.New("the server could not be initialized")

// An initializingConn is a Conn to a translated legacy server. If that could not be initialized, Receive ends
// with errInitialize, soon after the answers that clients must get.
type initializingConn struct {
	bridge.Conn
	filter *legacyserver.Filter // knows whether initialize has failed
}

// Receive implements bridge.Conn. It ends with errInitialize if the server could not be initialized.
func (c *initializingConn) Receive(ctx context.Context, sink bridge.Sink) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	last := lazytimer.Timer{Do: func() { cancel(errInitialize) }}
	defer last.Stop()
	err := c.Conn.Receive(ctx, &lastSink{Sink: sink, filter: c.filter, endTimer: &last})
	if context.Cause(ctx) == errInitialize {
		return errInitialize
	}
	return err
}

// A lastSink is the Sink of an initializingConn: it hands all messages on, and sets endTimer once initialize has failed.
type lastSink struct {
	bridge.Sink
	filter   *legacyserver.Filter // knows whether initialize has failed
	endTimer *lazytimer.Timer     // ends the Receive of the initializingConn, lastAnswersTimeout after it was set
	timerSet bool                 // endTimer was set
}

// TrySend implements bridge.Sink: it hands m on, and then checks whether initialize has failed.
func (s *lastSink) TrySend(m jsonrpc.Message) bool {
	if !s.Sink.TrySend(m) {
		return false
	}
	s.checkFailed()
	return true
}

// Send implements bridge.Sink: it hands m on, and then checks whether initialize has failed.
func (s *lastSink) Send(ctx context.Context, m jsonrpc.Message) error {
	err := s.Sink.Send(ctx, m)
	s.checkFailed()
	return err
}

// checkFailed sets endTimer, once, if initialize has failed.
func (s *lastSink) checkFailed() {
	if !s.timerSet && s.filter.HasFailed() {
		s.timerSet = true
		s.endTimer.SetAfter(lastAnswersTimeout)
	}
}
