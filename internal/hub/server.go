package hub

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
	"github.com/mcp-bridge/mcp-bridge/legacysse"
	"github.com/mcp-bridge/mcp-bridge/stdio"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
	"github.com/mcp-bridge/mcp-bridge/ws"
)

// Defaults of Spec.
const (
	defaultMaxMessageSize  = 64 << 20         // the largest message of a client, in bytes, where Spec.MaxMessageSize is 0
	DefaultMaxSessions     = 1000             // how many sessions each transport may have where Spec.MaxSessions is 0
	defaultRequestChildren = 32               // how many processes a server with one process for each request may have where Spec.MaxChildren is 0
	DefaultQueue           = 100              // how many clients may wait for a process where Spec.Queue is 0
	DefaultQueueTimeout    = 10 * time.Second // how long a client waits for a process to end where Spec.QueueTimeout is 0
)

// Spec is one server and how it is exposed. The zero value of everything but
// Name and Upstream works.
type Spec struct {
	// Name is the server's name in paths, in the index (/servers) and in the log.
	Name string

	// Description is a text for people who read the index (/servers).
	Description string

	// Fingerprint is a text that changes whenever anything of the server but its Description changes: Apply leaves a server alone whose
	// Name and Fingerprint stay.
	Fingerprint string

	// Upstream says how the server is reached. The Hub sets those of its fields that follow from the rest of the Spec and from its Options,
	// such as Isolation and Observer.
	Upstream upstream.Spec

	// Pump tunes the conversation of each client with the server, such as how long calls may take. The Hub sets its Budget, its functions, and
	// what ends calls and counts them.
	Pump bridge.PumpOptions

	// Clients are the eras that clients may speak. The zero value is both.
	Clients era.Eras

	// Isolation says which clients share a server process.
	Isolation upstream.Isolation

	// ParkTimeout is how long a modern client's call waits in a legacy server for the client's answers to input requests. 0: 10 min.
	ParkTimeout time.Duration

	MaxMessageSize int           // how large a client's message may be, in bytes. 0: 64 MiB
	MaxDepth       int           // how many levels of objects and arrays a client's message may have (J14). 0: jsonrpc.DefaultMaxDepth
	MaxSessions    int           // how many sessions each transport may have; further clients are refused (503 over HTTP). 0: DefaultMaxSessions
	SessionTimeout time.Duration // how long a Streamable HTTP session may be idle, and a shared process have no clients, before it is ended. 0: 30 min; negative: for ever

	MaxChildren  int           // how many processes the server may have at once, if it is a command. 0: as many as sessions, and 100 that clients share; or defaultRequestChildren with one for each request
	Queue        int           // how many clients may wait for a process to end. 0: DefaultQueue; negative: none
	QueueTimeout time.Duration // how long a client waits for a process to end before it is refused. 0: DefaultQueueTimeout; negative: not at all

	// Eager has one process started before there is a client, if the server is a command.
	Eager bool

	// OnStartFailure is called if the process that Eager starts cannot be started, or has ended within two seconds. nil: that is only logged.
	OnStartFailure func(error)
}

// withDefaults returns s with the defaults where its limits are not set. A negative Queue or QueueTimeout, which means that nobody
// may wait, becomes 0: what it returns must not be given defaults again.
func (s Spec) withDefaults() Spec {
	if s.MaxSessions <= 0 {
		s.MaxSessions = DefaultMaxSessions
	}
	if s.MaxChildren <= 0 && s.Isolation == upstream.PerRequest {
		s.MaxChildren = defaultRequestChildren
	}
	if s.Queue == 0 {
		s.Queue = DefaultQueue
	}
	s.Queue = max(s.Queue, 0)
	if s.QueueTimeout == 0 {
		s.QueueTimeout = DefaultQueueTimeout
	}
	s.QueueTimeout = max(s.QueueTimeout, 0)
	return s
}

// upstream returns Upstream, completed by what the Spec and o say of the server's side. acquirePlace is asked for places for the server's processes;
// nil: it needs none.
func (s Spec) upstream(acquirePlace admission.AcquirePlaceFunc, o *Options) upstream.Spec {
	up := s.Upstream
	up.TaskIDSecret, up.Observer = o.taskIDSecret(), o.Observer
	up.ClientEras, up.Isolation, up.ParkTimeout = s.Clients, s.Isolation, s.ParkTimeout
	up.EraWaitTimeout = s.Pump.RequestTimeout
	up.AcquirePlace, up.IdleTimeout, up.Dropped = acquirePlace, s.SessionTimeout, o.Observer.DroppedFunc(s.Name)
	up.MaxShared, up.MaxQueued, up.QueueTimeout = s.MaxChildren, s.Queue, s.QueueTimeout
	return up
}

// firstMessageTimeout is how long a client of HTTP+SSE or WebSocket may be connected before it sends its first message; then it is
// disconnected.
const firstMessageTimeout = 30 * time.Second

// server is a Spec at work: the server on all listening transports.
type server struct {
	spec     Spec             // what the server was made of, without defaults: a restart makes a new server of it
	upstream *upstream.Server // how the server itself is reached
	log      hclog.Logger     // the Logger of the server: its name is in each line

	calls bridge.PendingCalls // the requests without an answer: those of all clients, and those of the server to its clients

	isRemoved atomic.Bool // a new configuration or a restart has removed the server, while the hub goes on

	streamHTTP *streamhttp.Handler // serves clients over Streamable HTTP
	legacySSE  *legacysse.Handler  // serves clients over HTTP+SSE
	webSockets *ws.Handler         // serves clients over WebSocket
	lines      *stdio.SocketServer // serves clients that send messages in lines
}

// newServer makes the server that spec describes, with a handler for each transport. It starts no process.
func newServer(spec Spec, h *Hub) (*server, error) {
	o, clientBudget, base := &h.opts, h.clientBudget, h.pathPrefix(spec.Name)
	s := &server{spec: spec, log: o.Logger.With("server", spec.Name)}
	spec = spec.withDefaults()
	var acquirePlace admission.AcquirePlaceFunc
	if spec.Upstream.URL == "" {
		acquirePlace = acquireFromLimits(spec.QueueTimeout, newProcessLimit(spec.MaxChildren, spec.Queue, "--max-children"), h.totalProcesses)
	}
	var err error
	if s.upstream, err = upstream.New(spec.upstream(acquirePlace, o)); err != nil {
		return nil, err
	}
	upstreamServer := s.upstream
	if upstreamServer.SharesAlways() {
		acquirePlace = nil // sessions need no processes of their own
	}
	pump := spec.Pump
	s.observeCalls(&pump, o.Observer)
	pump.ShutdownGraceFor, pump.Shutdown, pump.Budget = s.grace, h.closed, clientBudget
	observeHandler := func(transport string, h bridge.Handler) bridge.Handler {
		return o.Observer.Serve(spec.Name, transport, h)
	}
	// Over Streamable HTTP and on a line, a session that the remote server has
	// forgotten is renewed: the client notices nothing (LE5). Where the
	// connection is the session, its end tells the client (C.6).
	s.streamHTTP = streamhttp.NewHandler(observeHandler("http", upstreamServer.LegacyHandler(true, pump)), streamhttp.HandlerOptions{
		Guard: o.Guard, Budget: clientBudget, ResumeBudget: h.resumeBudget, MaxMessageSize: spec.MaxMessageSize, MaxDepth: spec.MaxDepth, MaxSessions: spec.MaxSessions,
		SessionTimeout: spec.SessionTimeout, Stateless: spec.Isolation == upstream.PerRequest, AcquirePlace: acquirePlace, Logger: s.log,
		Eras: spec.Clients, Modern: o.Observer.ServeRequests(spec.Name, "http", upstreamServer.ExchangeHandler(pump)), ToolSchema: upstreamServer.ToolSchema,
	})
	// A process starts, and its place is taken, with the first message and not with
	// the connection.
	s.legacySSE = legacysse.NewHandler(observeHandler("sse", bridge.AwaitFirst(upstreamServer.LegacyOnlyHandler(pump), firstMessageTimeout)), legacysse.HandlerOptions{
		Guard: o.Guard, Budget: clientBudget, MaxMessageSize: spec.MaxMessageSize, MaxDepth: spec.MaxDepth, MaxSessions: spec.MaxSessions, AcquirePlace: acquirePlace, Logger: s.log,
		MessageURL: func(r *http.Request) string { return o.publicPrefix(r) + base + "/message" },
	})
	s.webSockets = ws.NewHandler(observeHandler("websocket", bridge.AwaitFirst(upstreamServer.Handler(false, pump), firstMessageTimeout)), ws.HandlerOptions{
		Guard: o.Guard, Budget: clientBudget, MaxMessageSize: spec.MaxMessageSize, MaxDepth: spec.MaxDepth, MaxSessions: spec.MaxSessions, AcquirePlace: acquirePlace, Logger: s.log,
	})
	s.lines = stdio.NewSocketServer(observeHandler("socket", upstreamServer.Handler(true, pump)), stdio.ServerOptions{
		Budget: clientBudget, MaxMessageSize: spec.MaxMessageSize, MaxDepth: spec.MaxDepth, MaxSessions: spec.MaxSessions, AcquirePlace: acquirePlace, Party: o.party, Logger: s.log,
	})
	return s, nil
}

// observeCalls completes the options of the server's conversations: they note calls in s.calls, and tell the Observer of calls that
// wait too long for their answers or time out, and of messages that are dropped.
func (s *server) observeCalls(pump *bridge.PumpOptions, o *observe.Observer) {
	o.FollowCalls(s.spec.Name, &s.calls)
	pump.PendingCalls, pump.Dropped = &s.calls, o.DroppedFunc(s.spec.Name)
	pump.TimedOut = o.TimedOutFunc(s.spec.Name, s.spec.Pump.RequestTimeout)
}

// state returns whether the server works and what it does now, as /readyz and the index (/servers) show it.
func (s *server) state() upstream.State {
	state := s.upstream.State()
	n, oldest := s.calls.CountAndOldest()
	if state.Calls = n; n > 0 {
		state.OldestCallSeconds = int(time.Since(oldest).Seconds())
	}
	return state
}

// grace returns how long the calls in progress of a session that ends may still take. why is why it ends: if its token has expired, a
// minute. If the server was removed, nobody waits for its end: as long as at the end of a client's input (DrainTimeout), until the hub is
// closed (bridge.PumpOptions.Shutdown). Otherwise ShutdownGrace.
func (s *server) grace(why error) time.Duration {
	if errors.Is(why, access.ErrExpired) {
		return time.Minute
	}
	if s.isRemoved.Load() {
		return cmp.Or(s.spec.Pump.DrainTimeout, bridge.DefaultDrainTimeout)
	}
	return cmp.Or(s.spec.Pump.ShutdownGrace, bridge.DefaultShutdownGrace)
}

// hidesEndpoint reports whether an endpoint of the server, such as "sse", is not served because clients may speak 2026-07-28 only, which
// HTTP+SSE does not have (SS10). A nil server hides none.
func (s *server) hidesEndpoint(name string) bool {
	return s != nil && s.spec.Clients == era.OnlyModern && (name == "sse" || name == "message")
}

// endpoint returns the handler of an endpoint of the server: "mcp", "sse", "message" or "ws". nil: there is no such endpoint, or s is nil.
func (s *server) endpoint(name string) http.Handler {
	if s == nil || s.hidesEndpoint(name) {
		return nil
	}
	switch name {
	case "mcp":
		return s.streamHTTP
	case "sse":
		return http.HandlerFunc(s.legacySSE.ServeSSE)
	case "message":
		return http.HandlerFunc(s.legacySSE.ServeMessage)
	case "ws":
		return s.webSockets
	}
	return nil
}

// endpoints are the endpoints whose addresses people have to know. Of the other one, "message", the event stream tells clients.
var endpoints = []string{"mcp", "sse", "ws"}

// EndpointPaths returns the paths of a server's endpoints, not percent-encoded, that of Streamable HTTP first. alone is
// Options.SingleServer.
func EndpointPaths(name string, alone bool) []string {
	base := ""
	if !alone {
		base = "/servers/" + name
	}
	return []string{base + "/mcp", base + "/sse", base + "/message", base + "/ws"}
}

// basePath returns the path in front of a named server's endpoints, percent-encoded: /servers/NAME.
func basePath(name string) string { return "/servers/" + url.PathEscape(name) }

// sessions returns how many sessions the server has over all transports.
func (s *server) sessions() int {
	return s.streamHTTP.Sessions() + s.legacySSE.Sessions() + s.webSockets.Sessions() + s.lines.Sessions()
}

// startEagerly has a process start before there is a client, if Spec.Eager says so. It does not wait for that.
func (s *server) startEagerly() {
	if !s.spec.Eager {
		return
	}
	failed := s.spec.OnStartFailure
	if failed == nil {
		failed = func(err error) { s.log.Error("the server cannot work as configured", "error", err) }
	}
	s.upstream.StartAhead(failed)
}

// close lets the sessions finish what is in progress, ends them, and returns
// when everything has ended.
func (s *server) close() {
	var wg sync.WaitGroup
	for _, end := range []func() error{s.streamHTTP.Close, s.legacySSE.Close, s.webSockets.Close, s.lines.Close} {
		wg.Go(func() { s.logCloseError(end()) })
	}
	wg.Wait()
	s.logCloseError(s.upstream.Close()) // what clients share, once they have gone
	s.calls.Close()
}

// logCloseError logs an error of closing; nil: there was none.
func (s *server) logCloseError(err error) {
	if err != nil {
		s.log.Warn("closing", "error", err)
	}
}
