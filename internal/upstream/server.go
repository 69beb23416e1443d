// Package upstream is the server's side of a bridge: one MCP server as it was
// configured, a command that is run for clients or a remote server, with
// what there is to know about it.
package upstream

import (
	"cmp"
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/remote"
	"github.com/mcp-bridge/mcp-bridge/internal/toolfilter"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/schemas"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/sharing"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// A Spec says how a server is reached, by a command or by a URL, and who may use it how.
type Spec struct {
	// Name is the server's name in logs and events.
	Name string

	// Command is what is run, for each client or for several (Isolation), unless URL is set.
	Command supervisor.Spec

	// URL is the remote server's; "": it is a command.
	URL string
	// Remote says how to talk to the server at URL. New sets its MaxMessageSize, MaxDepth, Logger, NoRenew, OnOpened and
	// OnToolsChanged, and with era.Auto ConfirmUpgrade and OnForeignRefusal.
	Remote remote.Options

	// Tools says which tools clients see. What clients send to a hidden tool does not reach the server. The zero Rules
	// hide none.
	Tools toolfilter.Rules

	// Protocol is the era of the protocol that is spoken with the server. The zero value, era.Auto, finds out.
	Protocol era.Eras

	// ClientEras is which eras clients may speak. The zero value is both.
	ClientEras era.Eras

	// Isolation says which clients share a process.
	Isolation Isolation

	// AcquirePlace is asked before a process starts, or a connection is made, for the pool of shared servers or to find out
	// the era. (For what a legacy client has past the pool, admission.AcquireProcessPlace is asked.) nil: there is always
	// a place.
	AcquirePlace admission.AcquirePlaceFunc

	// MaxShared is how many processes there may be that several clients share. To start one more, one is ended
	// that nobody uses, or in which no call is in progress, of the party with most. AcquirePlace bounds those of
	// one client or one request. 0: 100; negative: any number.
	MaxShared int

	// MaxQueued is how many clients may wait for a shared process when MaxShared are there and none can be
	// ended; clients whose party has no more than an equal part of MaxShared, with this process, may wait besides.
	MaxQueued    int
	QueueTimeout time.Duration // how long a client waits for a shared process when MaxShared are there; 0 or less: nobody waits

	// IdleTimeout is how long a shared process without clients is kept. 0: 30 min; negative: for ever.
	IdleTimeout time.Duration

	// ParkTimeout is how long a call of a modern client waits in a legacy server for what its client was asked.
	// 0: 10 min.
	ParkTimeout time.Duration

	// EraWaitTimeout is how long a modern client's request waits where it is not known yet which
	// era the server speaks. Then the request is answered with an error, and the inquiry goes on.
	// 0 or less: it waits as long as it takes to find that out.
	EraWaitTimeout time.Duration

	// TaskIDSecret is the secret with which ids of tasks are bound to their principals (A6).
	// No principal may know all of it. If it stays the same, ids stay valid when the bridge
	// starts anew. nil: a random one.
	TaskIDSecret []byte

	// Observer is told of the messages that pass and of events. nil: nobody is.
	Observer *observe.Observer

	// Dropped is told of messages that reached nobody, and why. It may be called concurrently, with no lock held, and should
	// not wait. nil: nobody is told.
	Dropped func(m jsonrpc.Message, reason string)

	// MaxMessageSize bounds a message from the server, in bytes.
	// 0 means the transport's default.
	MaxMessageSize int

	// MaxDepth bounds the levels of objects and arrays in a message from the server (J14).
	// 0 means jsonrpc.DefaultMaxDepth; negative, any number.
	MaxDepth int

	// Logger gets starts, ends and warnings. nil means no logging.
	Logger hclog.Logger
}

// A Server is one configured server. All methods may be called concurrently.
type Server struct {
	spec       Spec         // the Spec as New has completed it
	log        hclog.Logger // Spec.Logger, with the server's name
	status     status       // what became of its Conns, for State
	goroutines goroutines   // the goroutines that Close waits for
	sealer     *era.Sealer  // seals the requestState of legacy servers' calls, and binds that of modern servers to principals
	taskIDs    *era.TaskIDs // binds ids of tasks to principals

	dialers dialers                    // the ways to the server
	prober  *probe.Prober              // finds out which era the server speaks
	pool    *sharing.Pool              // the shared servers
	keys    keyChooser                 // chooses one of the shared servers for a client
	tools   schemas.Cache[sharing.Key] // the tools of each shared server, by its key

	sessionless atomic.Bool // a remote server has answered the last initialize without beginning a session
}

// maxExclusive is how many servers of the pool there may be that are for one client or one request only, where there
// is no AcquirePlace to bound them: they stay while calls in them wait for their clients.
const maxExclusive = 10_000

// New returns the Server for spec. It starts nothing; Close ends it. The error is about spec.Tools or
// spec.URL.
func New(spec Spec) (*Server, error) {
	if spec.Logger == nil {
		spec.Logger = hclog.NewNullLogger()
	}
	spec.MaxShared = cmp.Or(spec.MaxShared, 100)
	spec.ParkTimeout = cmp.Or(spec.ParkTimeout, 10*time.Minute)
	if spec.IdleTimeout = cmp.Or(spec.IdleTimeout, 30*time.Minute); spec.IdleTimeout < 0 {
		spec.IdleTimeout = math.MaxInt64
	}
	if err := spec.Tools.Validate(); err != nil {
		return nil, err
	}
	s := &Server{spec: spec, log: spec.Logger.With("server", spec.Name)}
	var err error
	if s.sealer, err = era.NewSealer(); err != nil {
		return nil, err
	}
	s.taskIDs = era.NewTaskIDs(spec.Name, spec.TaskIDSecret)
	if err := s.makeDialers(); err != nil {
		return nil, err
	}
	s.goroutines.ctx, s.goroutines.cancel = context.WithCancel(context.Background())
	s.prober = probe.New(s.probeOptions())
	s.pool = sharing.NewPool(s.poolOptions())
	s.keys = keyChooser{isolation: spec.Isolation, eraWaitTimeout: spec.EraWaitTimeout, prober: s.prober, pool: s.pool, sealer: s.sealer}
	return s, nil
}

// probeOptions returns the Options of prober.
func (s *Server) probeOptions() probe.Options {
	o := probe.Options{
		Protocol: s.spec.Protocol, IsCommand: s.IsCommand(), ErrNotModern: remote.ErrNotModern,
		Dial: func(ctx context.Context, h *probe.TransferableHolder, placed func()) (bridge.Conn, error) {
			return s.dialAdmitted(ctx, dialFunc(func(ctx context.Context) (bridge.Conn, error) {
				placed()
				return s.dialers.modern.Dial(ctx)
			}), h)
		},
		NeedsPlace: s.spec.AcquirePlace != nil, Context: s.goroutines.ctx, Spawn: s.goroutines.spawn,
		OnEraFound: s.endOtherEra, OnFailed: s.status.noteFailed, Dropped: s.spec.Dropped, Logger: s.log,
	}
	if !s.IsCommand() {
		o.MinTimeout = httpdial.TimeoutWithSignIn(0, s.spec.Remote.AuthorizeTimeout)
	}
	if s.isHTTP() {
		o.Discover = s.dialers.remote.Discover
	}
	return o
}

// poolOptions returns the Options of pool.
func (s *Server) poolOptions() sharing.Options {
	o := sharing.Options{
		Connect: s.newConnector, MaxShared: s.spec.MaxShared, MaxQueued: s.spec.MaxQueued, QueueTimeout: s.spec.QueueTimeout,
		MaxCalls: 10_000, IdleTimeout: s.spec.IdleTimeout, ParkTimeout: s.spec.ParkTimeout,
		IsolateCrashes: s.spec.Isolation == Auto && s.IsCommand(),
		Dropped:        s.spec.Dropped, Logger: s.log,
	}
	if s.spec.AcquirePlace == nil {
		o.MaxExclusive = maxExclusive
	}
	if s.isHTTP() {
		o.MaxCalls = 1000 // each has a connection
	}
	return o
}

// endOtherEra is called when the era of the server is found. It ends the shared servers that speak the other
// era with a server at an http URL, which is one server for all. (Behind a pipe or a lasting connection there
// may still be the one that it was.)
func (s *Server) endOtherEra(modern bool) {
	if s.isHTTP() {
		s.pool.ShutdownIf(func(k sharing.Key) bool { return k.Legacy == modern }, probe.ErrChanged)
	}
}

// IsCommand reports whether the server is a command that the bridge runs, and not at a URL.
func (s *Server) IsCommand() bool { return s.spec.URL == "" }

// isHTTP reports whether the server is reached at an http or https URL.
func (s *Server) isHTTP() bool { return s.dialers.remote != nil && s.dialers.remote.IsHTTP() }

// Check returns an error if the server is a command whose program is not found or not executable, or whose working
// directory does not exist. It starts nothing. For a remote server it returns nil: that may come up later.
func (s *Server) Check() error {
	if !s.IsCommand() {
		return nil
	}
	return s.spec.Command.Check()
}

// StartAhead has the command start before there is a client, for the first one to take over, so that it need not
// wait and a command that cannot work is found out: failed is called, at most once, if the command cannot be started,
// or if its process ends within two seconds and before a client has taken it over. Without a client the process is
// stopped after half a minute. StartAhead does not wait for the start, is to be called once at most, and does nothing
// for a remote server.
func (s *Server) StartAhead(failed func(error)) {
	if !s.IsCommand() {
		return
	}
	s.status.keepAhead(startAhead(s.dialers.lasting, func(err error) {
		s.status.noteStartFailed(textNotStarted)
		failed(err)
	}, s.log))
}

// AwaitStart returns when the command of StartAhead is started, or failed was told that it cannot be, or ctx is done. It
// returns at once if there was no StartAhead.
func (s *Server) AwaitStart(ctx context.Context) {
	if a := s.status.keptAhead(); a != nil {
		select {
		case <-a.started:
		case <-ctx.Done():
		}
	}
}

// Close ends the shared servers, stops what was started ahead and not taken, and waits for their end. The
// clients must have gone: their Handlers have returned. The error is that of stopping what was started ahead; others are
// logged.
func (s *Server) Close() error {
	s.goroutines.endAll()
	s.pool.Shutdown(errClosed)
	s.prober.Close()
	s.goroutines.wg.Wait()
	s.pool.Wait()
	if a := s.status.keptAhead(); a != nil {
		return a.close()
	}
	return nil
}

// State returns the State now. A command of which no process runs, and that cannot be started (Check), is not
// ready.
func (s *Server) State() State {
	state := s.status.state()
	if state.Running == 0 && s.Check() != nil {
		state.Ready, state.LastError = false, textNotStarted
	}
	return state
}

// ToolSchema returns the input schema of the tool that a modern client calls with call; ctx has the client's
// principal. schema may be nil when it would have no x-mcp-header. known is false if the server has no such
// tool, could not be asked, or has not sent its list of tools within 3 seconds (MI22).
func (s *Server) ToolSchema(ctx context.Context, call jsonrpc.Message, tool string) (schema []byte, known bool) {
	key, clientInfo, err := s.keys.KeyFor(ctx, call)
	if err != nil {
		return nil, false // the call itself will say why
	}
	principal := identity.Principal(ctx)
	return s.table(key).Schema(ctx, tool, schemas.Source{
		Join: func(ctx context.Context) (bridge.Conn, error) { return s.pool.Join(ctx, key, clientInfo, true) },
		Spawn: func(f func(context.Context)) bool {
			return s.goroutines.spawn(func() { f(identity.WithPrincipal(s.goroutines.ctx, principal)) }) == nil
		},
		Meta: era.MetaOf(call),
	})
}

// table returns the tools of the shared servers with this key. The Exclusive of the key does not count: a server of
// one client has the tools that the others have.
func (s *Server) table(key sharing.Key) *schemas.Table {
	key.Exclusive = 0
	return s.tools.Table(key)
}
