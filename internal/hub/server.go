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
	defaultMaxMessageSize = 64 << 20
	DefaultMaxSessions    = 1000
	defaultMaxRequests    = 32 // MaxChildren with a process for each request
	DefaultQueue          = 100
	DefaultQueueTimeout   = 10 * time.Second
)

// Spec is one server and how it is exposed. The zero value of everything but
// Name and Upstream works.
type Spec struct {
	// Name is the server's in the paths, the index and the log.
	Name string

	// Description is for people who read the index.
	Description string

	// Fingerprint tells a server that was configured anew from one that was
	// not: Apply leaves a server alone whose Name and Fingerprint stay.
	Fingerprint string

	// Upstream says how the server is reached.
	Upstream upstream.Spec

	// Pump tunes each conversation.
	Pump bridge.PumpOptions

	// Clients is what clients may speak. The zero value is both eras.
	Clients era.Eras

	// Isolation says which clients share a server process.
	Isolation upstream.Isolation

	// ParkTimeout is how long a call waits for what its client was asked. 0: 10 min.
	ParkTimeout time.Duration

	MaxMessageSize int           // of a client's message, in bytes. 0: 64 MiB
	MaxDepth       int           // levels of objects and arrays in a client's message (J14). 0: jsonrpc.DefaultMaxDepth
	MaxSessions    int           // of each transport; more are answered 503. 0: DefaultMaxSessions
	SessionTimeout time.Duration // idle Streamable HTTP sessions end after it. 0: 30 min; negative: never

	MaxChildren  int           // processes at once. 0: as many as sessions may be, and 100 that clients share, or defaultMaxRequests with one for each request
	Queue        int           // clients that may wait for one. 0: DefaultQueue; negative: none
	QueueTimeout time.Duration // and for how long. 0: DefaultQueueTimeout

	// Eager starts one process before there is a client.
	Eager bool

	// OnStartFailure is told when that one has ended at once, and one that cannot
	// even be started is an error of Apply. nil: both are only logged.
	OnStartFailure func(error)
}

func (s Spec) withDefaults() Spec {
	if s.MaxSessions <= 0 {
		s.MaxSessions = DefaultMaxSessions
	}
	if s.MaxChildren <= 0 && s.Isolation == upstream.PerRequest {
		s.MaxChildren = defaultMaxRequests
	}
	if s.Queue == 0 {
		s.Queue = DefaultQueue
	}
	s.Queue = max(s.Queue, 0)
	if s.QueueTimeout <= 0 {
		s.QueueTimeout = DefaultQueueTimeout
	}
	return s
}

// upstream describes the server's side; acquirePlace is asked for places for its processes.
func (s Spec) upstream(acquirePlace admission.AcquirePlaceFunc, o *Options) upstream.Spec {
	up := s.Upstream
	up.TaskIDSecret, up.Observer = o.taskIDSecret(), o.Observer
	up.ClientEras, up.Isolation, up.ParkTimeout = s.Clients, s.Isolation, s.ParkTimeout
	up.EraWaitTimeout = s.Pump.RequestTimeout
	up.AcquirePlace, up.IdleTimeout, up.Dropped = acquirePlace, s.SessionTimeout, o.Observer.DroppedFunc(s.Name)
	up.MaxShared, up.MaxQueued, up.QueueTimeout = s.MaxChildren, s.Queue, s.QueueTimeout
	return up
}

// firstMessageTimeout is how long a client of HTTP+SSE or WebSocket may be connected
// before it says anything.
const firstMessageTimeout = 30 * time.Second

// server is a Spec at work: the server on all listening transports.
type server struct {
	spec     Spec
	upstream *upstream.Server
	log      hclog.Logger

	calls bridge.PendingCalls // of all clients

	isRemoved atomic.Bool // by a new configuration, while the hub goes on

	streamHTTP *streamhttp.Handler
	legacySSE  *legacysse.Handler
	webSockets *ws.Handler
	lines      *stdio.SocketServer
}

// newServer makes a server of a hub.
func newServer(spec Spec, h *Hub) (*server, error) {
	spec = spec.withDefaults()
	o, clientBudget, base := &h.opts, h.clientBudget, h.pathPrefix(spec.Name)
	s := &server{spec: spec, log: o.Logger.With("server", spec.Name)}
	var acquirePlace admission.AcquirePlaceFunc
	if spec.Upstream.URL == "" {
		acquirePlace = acquireFromLimits(newProcessLimit(spec.MaxChildren, spec.Queue, spec.QueueTimeout, "--max-children"), h.totalProcesses)
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

// observeCalls has the Observer told of calls that wait for their answers too long, and of
// messages that reach nobody.
func (s *server) observeCalls(pump *bridge.PumpOptions, o *observe.Observer) {
	o.FollowCalls(s.spec.Name, &s.calls)
	pump.PendingCalls, pump.Dropped = &s.calls, o.DroppedFunc(s.spec.Name)
	pump.TimedOut = o.TimedOutFunc(s.spec.Name, s.spec.Pump.RequestTimeout)
}

// state returns what /readyz and the index say of the server.
func (s *server) state() upstream.State {
	state := s.upstream.State()
	n, oldest := s.calls.CountAndOldest()
	if state.Calls = n; n > 0 {
		state.OldestCallSeconds = int(time.Since(oldest).Seconds())
	}
	return state
}

// grace returns how long calls in progress may take at the end: nobody waits
// for the end of a server that was removed, so those have as long as at the end
// of a client's input, until the hub is closed (bridge.PumpOptions.Shutdown). A session whose token
// has expired has a minute.
func (s *server) grace(why error) time.Duration {
	if errors.Is(why, access.ErrExpired) {
		return time.Minute
	}
	if s.isRemoved.Load() {
		return cmp.Or(s.spec.Pump.DrainTimeout, bridge.DefaultDrainTimeout)
	}
	return cmp.Or(s.spec.Pump.ShutdownGrace, bridge.DefaultShutdownGrace)
}

// hidesEndpoint reports whether one of the server's paths is that of a transport which
// has nothing that its clients may speak: HTTP+SSE, where that is 2026-07-28 only (SS10).
func (s *server) hidesEndpoint(name string) bool {
	return s != nil && s.spec.Clients == era.OnlyModern && (name == "sse" || name == "message")
}

// endpoint returns the handler of one of the server's paths, nil: there is none.
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

// endpoints are the names that clients have to know: of "message" the stream
// tells them.
var endpoints = []string{"mcp", "sse", "ws"}

// EndpointPaths returns the paths of a server's endpoints, as requests have them when they are read: that of
// Streamable HTTP first. alone is Options.SingleServer.
func EndpointPaths(name string, alone bool) []string {
	base := ""
	if !alone {
		base = "/servers/" + name
	}
	return []string{base + "/mcp", base + "/sse", base + "/message", base + "/ws"}
}

// basePath is what stands in front of a named server's endpoints.
func basePath(name string) string { return "/servers/" + url.PathEscape(name) }

func (s *server) sessions() int {
	return s.streamHTTP.Sessions() + s.legacySSE.Sessions() + s.webSockets.Sessions() + s.lines.Sessions()
}

// startEagerly starts a process before there is a client, if that is wanted.
func (s *server) startEagerly() error {
	if !s.spec.Eager {
		return nil
	}
	failed := s.spec.OnStartFailure
	if failed == nil {
		failed = func(err error) { s.log.Error("the server cannot work as configured", "error", err) }
	}
	err := s.upstream.StartAhead(failed)
	if err != nil && s.spec.OnStartFailure == nil {
		failed(err)
		return nil
	}
	return err
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

func (s *server) logCloseError(err error) {
	if err != nil {
		s.log.Warn("closing", "error", err)
	}
}
