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

// watchServer looks at what the server sends before any of it is translated: that its tools have changed, which goes no
// further where nobody listens, and how a legacy server answers initialize, which is its first answer.
func (c *connector) watchServer(conn bridge.Conn) bridge.Conn {
	initialized := !c.shared.Key.Legacy
	return bridge.Intercept(conn, bridge.Hooks{
		Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) {
			switch {
			case m.Kind() == jsonrpc.Notification && m.Method() == "notifications/tools/list_changed":
				c.tools.Forget()
			case !initialized && m.Kind() == jsonrpc.Response:
				initialized = true
				c.initialized(*m)
			}
			return nil
		},
		Ended: withoutStderr,
	})
}

// withoutStderr returns err without the last words of a process on stderr. They may be about one of the clients that share it,
// and all of these are told of its end.
func withoutStderr(err error) error {
	if exit, ok := errors.AsType[*stdio.ExitError](err); ok {
		return &stdio.ExitError{Name: exit.Name, Err: exit.Err}
	}
	return err
}

// initialized is told how a legacy server has answered initialize.
func (c *connector) initialized(m jsonrpc.Message) {
	claimed := probe.ClaimsModern(m)
	if m.IsError() && m.Lookup("error", "data", "reason") == nil { // else there is no server
		c.s.log.Warn("the server has refused initialize; --protocol says what is spoken with it", "code", string(m.Lookup("error", "code")))
	} else if claimed != "" {
		c.s.log.Warn("the server has answered initialize with a version that has none; --protocol says what is spoken with it", "version", claimed)
	}
	switch {
	case !m.IsError() && claimed == "":
	case c.s.spec.Protocol == era.Auto && probe.AnswersModern(m): // it says so itself
		c.s.prober.NoteEra(true)
		c.shared.ShutDown(probe.ErrChanged)
	default:
		c.endIfChanged()
	}
}

// learn sees the lists of tools pass by, and what says that the server's era is another
// one than was thought (ED9). f is nil for a modern server.
func (c *connector) learn(conn bridge.Conn, f *legacyserver.Filter) bridge.Conn {
	l := &responseWatcher{connector: c, modern: f == nil, asked: make(map[jsonrpc.ID]question)}
	return bridge.Intercept(conn, bridge.Hooks{Send: l.sent, Receive: l.received})
}

// responseWatcher has the questions whose answers are of interest.
type responseWatcher struct {
	*connector
	modern bool // the server is

	hasAsked  atomic.Bool // asked has one: mostly there is none, and nobody locks
	mu        sync.Mutex
	asked     map[jsonrpc.ID]question // tools/list and server/discover in progress
	discovers []jsonrpc.ID            // the server/discover that were asked last
}

type question struct {
	method string
	age    uint64 // of the list of tools
}

// maxDiscovers is how many server/discover one is looked for behind: who has
// given it up does not say so, and the server may never answer it.
const maxDiscovers = 1000

// sent is the hook for what the server is sent.
func (l *responseWatcher) sent(m jsonrpc.Message) (out, reply jsonrpc.Message, refused error) {
	switch method := m.Method(); method {
	case "tools/list", "server/discover":
		l.note(m.ID(), method)
	case "notifications/cancelled":
		l.answered(m.CancelledID())
	}
	return m, jsonrpc.Message{}, nil
}

// note keeps what is asked, until it is answered. It may be called twice for the same.
func (l *responseWatcher) note(id jsonrpc.ID, method string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, again := l.asked[id]
	l.asked[id] = question{method, l.tools.Age()}
	l.hasAsked.Store(true)
	if method != "server/discover" || again {
		return
	}
	if l.discovers = append(l.discovers, id); len(l.discovers) > maxDiscovers {
		delete(l.asked, l.discovers[0])
		l.discovers = l.discovers[1:]
	}
}

// answered returns what a response with this id answers, if that is of interest.
func (l *responseWatcher) answered(id jsonrpc.ID) (asked question) {
	if !l.hasAsked.Load() {
		return question{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	asked = l.asked[id]
	delete(l.asked, id)
	l.hasAsked.Store(len(l.asked) > 0)
	return asked
}

// received is the hook for what the server has said: it makes of it what clients get.
func (l *responseWatcher) received(m *jsonrpc.Message) (reply *jsonrpc.Message) {
	if m.Kind() != jsonrpc.Response {
		return nil
	}
	switch asked := l.answered(m.ID()); asked.method {
	case "tools/list":
		l.tools.Learn(m.Result(), asked.age)
	case "server/discover":
		if m.IsError() && l.modern {
			l.s.log.Warn("the server has refused server/discover; --protocol says what is spoken with it", "code", string(m.Lookup("error", "code")))
		}
		*m = l.s.served(*m)
	}
	if m.IsError() && l.modern && probe.RefusesModern(*m) {
		l.endIfChanged()
	}
	return nil
}

// served returns the answer to server/discover with the versions that clients
// may speak to us: the bridge understands more than its server (MI9).
func (s *Server) served(m jsonrpc.Message) jsonrpc.Message {
	if m.Lookup("result", "supportedVersions") == nil || s.spec.Clients == era.OnlyLegacy || !probe.AnswersModern(m) {
		return m
	}
	list := []byte{'['}
	for i, v := range s.spec.Clients.Versions() {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, jsonrpc.Quote(v)...)
	}
	return m.WithResult(jsonrpc.With(m.Result(), "supportedVersions", append(list, ']')))
}

// lastAnswers is how long what a server still owes may take that could not be
// initialized.
const lastAnswers = 100 * time.Millisecond

// errInitialize ends a server that could not be initialized: the next may (D4).
var errInitialize = errors.New("the server could not be initialized")

// initializing is a Conn to a translated server. Receive ends with errInitialize when
// that could not be initialized, once all is said.
type initializing struct {
	bridge.Conn
	filter *legacyserver.Filter
}

// Receive implements bridge.Conn.
func (c *initializing) Receive(ctx context.Context, sink bridge.Sink) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	last := lazytimer.Timer{Do: func() { cancel(errInitialize) }}
	defer last.Stop()
	err := c.Conn.Receive(ctx, &lastSink{Sink: sink, filter: c.filter, last: &last})
	if context.Cause(ctx) == errInitialize {
		return errInitialize
	}
	return err
}

// lastSink sets a timer when the server could not be initialized.
type lastSink struct {
	bridge.Sink
	filter *legacyserver.Filter
	last   *lazytimer.Timer
	set    bool
}

func (s *lastSink) TrySend(m jsonrpc.Message) bool {
	if !s.Sink.TrySend(m) {
		return false
	}
	s.check()
	return true
}

func (s *lastSink) Send(ctx context.Context, m jsonrpc.Message) error {
	err := s.Sink.Send(ctx, m)
	s.check()
	return err
}

func (s *lastSink) check() {
	if !s.set && s.filter.HasFailed() {
		s.set = true
		s.last.After(lastAnswers)
	}
}
