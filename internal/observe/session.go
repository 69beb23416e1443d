package observe

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Session is one conversation of a client, or the one of a process that clients share with its
// server. Its methods may be called concurrently.
type Session struct {
	o *Observer // nil: nobody is told anything

	// Server is the configured name of the server, Transport the client's: "http", "sse",
	// "websocket", "socket" or "stdio"; "" is a shared process.
	Server, Transport string

	// Name is a pseudonym: a session id is a credential, and never told. It begins with "s" for a session of a client, and with
	// "q" for what OpenUnannounced has begun. "": there is no Observer.
	Name string

	Began time.Time // when the session began

	// Remote is where the client comes from, Principal who it is; "": not known, or nobody.
	Remote, Principal string

	origin *SessionOrigin // what its transport says of the client and of the end of the session; nil: nothing

	stop context.CancelCauseFunc // ends the session; see Stop. nil: it is no session of a client

	watcherValues watcherValues // what Watchers keep with the session (WatcherValue)

	clientKnown     atomic.Bool  // the client has said who it is, or there is nothing more to look for
	pid             atomic.Int64 // what PID returns: the id of the latest process of the session; 0: none
	serverTransport atomicString // what ServerTransport returns
	era, revision   atomicString // what Era and Revision return; without the lock, because every record asks for them

	_ CacheLinePad // what follows changes with every message, and what is above seldom

	mu           sync.Mutex            // guards openCalls, client, initializeID, opened and finished
	openRequests atomic.Int64          // how many requests openCalls have, without those that were cancelled
	calls        atomic.Uint64         // how many requests the client has made
	openCalls    [2][2]openCalls       // by Hop and Direction: requests that wait for an answer
	unsampled    sessionUnsampledCalls // the requests that nobody was told of, because the Sampler does not want them
	client       Implementation        // what Client returns: who the client says it is
	initializeID jsonrpc.ID            // the id of the latest initialize; zero: there was none
	opened       bool                  // the client has said who it is, so Watchers were told of SessionOpened unless the session had ended before
	finished     bool                  // End was called
}

// atomicString is a text that is set later, and asked for often. The zero value is "".
type atomicString struct{ text atomic.Pointer[string] }

// set changes the text.
func (s *atomicString) set(text string) { s.text.Store(&text) }

// get returns the text; "": it was not set.
func (s *atomicString) get() string {
	if text := s.text.Load(); text != nil {
		return *text
	}
	return ""
}

// Implementation is who a client or server says it is.
type Implementation struct {
	Name    string `json:"name"`    // its name
	Version string `json:"version"` // its version
}

// OpenSession begins a session of a client with a server; transport is the client's. The Watchers hear of it once the client has
// said who it is. A nil Observer works.
func (o *Observer) OpenSession(server, transport string) *Session {
	s := &Session{o: o, Server: server, Transport: transport, Began: time.Now()}
	if o != nil {
		s.Name = "s" + strconv.FormatUint(o.sessionCount.Add(1), 10)
	}
	return s
}

// OpenUnannounced begins what is no session of a client, and of which no SessionOpened is told: a
// request of 2026-07-28 over HTTP, which is alone, or a process that clients share, whose
// transport is "".
func (o *Observer) OpenUnannounced(server, transport string) *Session {
	s := o.OpenSession(server, transport)
	s.clientKnown.Store(true)
	if o != nil {
		s.Name = "q" + s.Name[1:]
	}
	return s
}

// Serve returns h so that the Watchers are told of the sessions that it serves. Without an Observer that is h itself.
func (o *Observer) Serve(server, transport string, h bridge.Handler) bridge.Handler {
	if o == nil {
		return h
	}
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		s := o.OpenSession(server, transport)
		s.setOrigin(originOf(ctx))
		ctx, s.stop = context.WithCancelCause(ctx)
		defer s.stop(nil)
		s.tellConnection()
		err := h.ServeConn(WithSession(ctx, s), s.Conn(client, Downstream))
		s.finish(err)
		return err
	})
}

// tellConnection tells that the connection of the client is open, if the session is one: over WebSocket and HTTP+SSE.
func (s *Session) tellConnection() {
	if s.Transport == "sse" || s.Transport == "websocket" {
		s.Stream(Stream{Hop: Downstream, Action: "opened"})
	}
}

// finish ends a session whose Handler has returned err: it tells which requests have no answer, that the connection is closed if
// the session is one, and that the session is over.
func (s *Session) finish(err error) {
	s.tellAllUnanswered(Downstream, nil)
	if s.Transport == "sse" || s.Transport == "websocket" {
		how, _ := s.origin.describeEnd(err)
		s.Stream(Stream{Hop: Downstream, Action: "closed", Reason: how})
	}
	s.End(err)
}

// ServeRequests is Serve for a Handler of single requests of 2026-07-28. Requests that come while nobody watches get no Session.
func (o *Observer) ServeRequests(server, transport string, h bridge.Handler) bridge.Handler {
	if o == nil {
		return h
	}
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		if !o.IsWatched() {
			return h.ServeConn(ctx, client)
		}
		s := o.OpenUnannounced(server, transport)
		s.era.set("modern")
		err := h.ServeConn(WithSession(ctx, s), s.Conn(client, Downstream))
		s.tellAllUnanswered(Downstream, nil)
		return err
	})
}

// ErrEndedOnRequest says that somebody who looks after the bridge has ended a session (Stop). It is the cause of the end of its
// context.
var ErrEndedOnRequest = errors.New("the session was ended on request")

// Stop has the session end, as all sessions do when the bridge shuts down: calls in progress
// may finish within the grace. It does not wait. It does nothing to what is no session of a client.
func (s *Session) Stop() {
	if s.stop != nil {
		s.stop(ErrEndedOnRequest)
	}
}

// WatcherValue returns the value that a Watcher keeps with the session under its key. If there is none, it keeps what make returns. Of
// several that are made at the same time, one is kept, which all callers get.
func (s *Session) WatcherValue(key any, make func() any) any {
	return s.watcherValues.GetOrMake(key, make)
}

// Calls returns how many requests the client has made so far.
func (s *Session) Calls() uint64 { return s.calls.Load() }

// End tells that the session is over: with SessionEnded if it was opened, else, if something went wrong, with SessionFailed. err is
// what its Handler has returned. Only the first call counts.
func (s *Session) End(err error) {
	s.mu.Lock()
	first, opened := !s.finished, s.opened
	s.finished = true
	s.mu.Unlock()
	if !first {
		return
	}
	how, failed := s.origin.describeEnd(err)
	lasted := time.Since(s.Began)
	if !failed {
		err = nil
	}
	switch {
	case opened:
		s.o.Event(SessionEnded{Session: s, Err: err, Reason: how, Lasted: lasted, Calls: s.calls.Load()})
	case err != nil:
		s.o.Event(SessionFailed{Session: s, Err: err, Lasted: lasted})
	}
}

// WantsExchanges reports whether there is a Watcher that needs to be told of HTTP exchanges; of a nil Session, false.
func (s *Session) WantsExchanges() bool { return s != nil && s.o.WantsExchanges() }

// Stream tells of e, whose Server and Session it sets. A nil Session tells nothing.
func (s *Session) Stream(e Stream) {
	if s != nil {
		e.Server, e.Session = s.Server, s
		s.o.Event(e)
	}
}

// Exchange tells of an HTTP exchange with the session's server, whose Server and Session it sets. A nil Session tells nothing.
func (s *Session) Exchange(e *Exchange) {
	if s != nil {
		e.Server, e.Session = s.Server, s
		s.o.Event(e)
	}
}

// Client returns who the client says it is; zero: it has not said so, or the session was begun by OpenUnannounced.
func (s *Session) Client() Implementation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// Era returns what the client speaks, "legacy" or "modern"; "": not known yet, or it is a shared process.
func (s *Session) Era() string { return s.era.get() }

// Revision returns the protocol version that was negotiated, or that a modern client has named; "": not known yet, or the session
// was begun by OpenUnannounced.
func (s *Session) Revision() string { return s.revision.get() }

// PID returns the id of the latest process that works or has worked for the session; 0: none.
func (s *Session) PID() int { return int(s.pid.Load()) }

// SetPID notes the id of the process that works for the session from now on. With a nil Session it does nothing.
func (s *Session) SetPID(pid int) {
	if s != nil {
		s.pid.Store(int64(pid))
	}
}

// ServerTransport returns how the bridge speaks with the server: "stdio", "http", "websocket",
// "socket" or "tcp"; "": it does not yet, or the client shares the server, whose process has a Session of its own.
func (s *Session) ServerTransport() string { return s.serverTransport.get() }

// SetServerTransport notes how the bridge speaks with the server (see ServerTransport). With a nil Session it does nothing.
func (s *Session) SetServerTransport(transport string) {
	if s != nil {
		s.serverTransport.set(transport)
	}
}

// Network returns what OpenTelemetry calls network.transport and network.protocol.name at one end of the bridge; "": there is none,
// or it is not known.
func (s *Session) Network(hop Hop) (transport, protocol string) {
	name := s.Transport
	if hop == Upstream {
		name = s.ServerTransport()
	}
	switch name {
	case "http", "sse":
		return "tcp", "http"
	case "websocket":
		return "tcp", "websocket"
	case "tcp":
		return "tcp", ""
	case "socket":
		return "unix", ""
	case "stdio":
		return "pipe", ""
	}
	return "", ""
}

// sessionKey is the key of a Session in a context.
type sessionKey struct{}

// WithSession returns a ctx that carries s, for those who work for the session.
func WithSession(ctx context.Context, s *Session) context.Context {
	return context.WithValue(ctx, sessionKey{}, s)
}

// SessionOf returns the Session of a ctx; nil: there is none.
func SessionOf(ctx context.Context) *Session {
	s, _ := ctx.Value(sessionKey{}).(*Session)
	return s
}

// noteClient looks in what passes at the client's end for who the client is, its era, and the protocol version.
func (s *Session) noteClient(m *jsonrpc.Message, dir Direction) {
	switch kind := m.Kind(); {
	case dir == ToServer && kind == jsonrpc.Request && m.Method() == "initialize":
		s.mu.Lock()
		s.initializeID = m.ID()
		s.era.set("legacy")
		s.client = s.o.parseImplementation(m.Lookup("params", "clientInfo"))
		s.mu.Unlock()
	case dir == ToServer && kind == jsonrpc.Request && m.Method() != "ping":
		meta := func(key string) []byte { return m.Lookup("params", "_meta", "io.modelcontextprotocol/"+key) }
		if version := meta("protocolVersion"); version != nil {
			s.mu.Lock()
			s.era.set("modern")
			s.revision.set(s.o.excerpt(version))
			s.client = s.o.parseImplementation(meta("clientInfo"))
			s.mu.Unlock()
			s.tellOpened()
		}
	case dir == ToClient && kind == jsonrpc.Response:
		s.mu.Lock()
		ours := !s.initializeID.IsZero() && m.ID().Equivalent(s.initializeID) && !m.IsError()
		if ours {
			s.revision.set(s.o.excerpt(m.Lookup("result", "protocolVersion")))
		}
		s.mu.Unlock()
		if ours {
			s.tellOpened()
		}
	}
}

// maxExcerpt is how many bytes are kept of a name or version that a peer gives itself, and of what a
// request is about: a session keeps them as long as it lasts, and no budget counts them.
const maxExcerpt = 512

// parseImplementation returns who a peer says it is. A member that is no string stays empty.
func (o *Observer) parseImplementation(info []byte) Implementation {
	return Implementation{o.excerpt(jsonrpc.Lookup(info, "name")), o.excerpt(jsonrpc.Lookup(info, "version"))}
}

// excerpt returns the text of value, a JSON string, as shortText does; "": it is no string.
func (o *Observer) excerpt(value []byte) string {
	text, _ := jsonrpc.Text(value)
	return o.shortText(text)
}

// shortText returns a text as it is; of one that is longer than maxExcerpt the beginning, without secrets.
func (o *Observer) shortText(text string) string { return printable.Clip(o.redact(text), maxExcerpt) }

// redact takes secrets out of a text that is longer than maxExcerpt, because it will be cut. It leaves other texts as they are.
func (o *Observer) redact(text string) string {
	if len(text) <= maxExcerpt || o.Redact == nil {
		return text
	}
	return o.Redact(text)
}

// tellOpened notes that the client has said who it is, and tells of it, once and unless the session has ended.
func (s *Session) tellOpened() {
	s.clientKnown.Store(true)
	s.mu.Lock()
	told := s.opened || s.finished
	s.opened = true
	s.mu.Unlock()
	if !told {
		s.o.Event(SessionOpened{s})
	}
}
