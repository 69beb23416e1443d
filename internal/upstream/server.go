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

// Spec says how a server is reached: by a command or by a URL.
type Spec struct {
	// Name is what the log calls it.
	Name string

	// Command is run, for each client or for several (Isolation), unless URL is set.
	Command supervisor.Spec

	// URL is the remote server's, and Remote says how to talk to it.
	URL    string
	Remote remote.Options

	// Tools says which tools clients see. The zero Rules hide none.
	Tools toolfilter.Rules

	// Protocol is what is spoken with the server. The zero value finds out.
	Protocol era.Eras

	// ClientEras is what clients may speak. The zero value is both.
	ClientEras era.Eras

	// Isolation says which clients share a process.
	Isolation Isolation

	// AcquirePlace is asked before a process starts that clients share, or that is
	// probed. nil: there is always a place.
	AcquirePlace admission.AcquirePlaceFunc

	// MaxShared is how many processes that clients share there may be. For one more, one is ended that
	// nobody uses, or one of the party with most in which no call is in progress. AcquirePlace bounds
	// those of one client or one request. 0: 100.
	MaxShared int

	// MaxQueued is how many clients may wait where none can be ended, beside those whose
	// party has less than an equal part of MaxShared, and QueueTimeout for how long;
	// 0: nobody waits.
	MaxQueued    int
	QueueTimeout time.Duration

	// IdleTimeout is how long a process without clients is kept. 0: 30 min; negative: for ever.
	IdleTimeout time.Duration

	// ParkTimeout is how long a call waits for what its client was asked for. 0: 10 min.
	ParkTimeout time.Duration

	// EraWaitTimeout is how long a modern client's request waits where it is not known yet which
	// era the server speaks. Then the request is answered with an error, and the inquiry goes on.
	// 0: it waits as long as it takes to find that out.
	EraWaitTimeout time.Duration

	// TaskIDSecret is the secret with which ids of tasks are bound to their principals (A6).
	// No principal may know all of it. If it stays the same, ids stay valid when the bridge
	// starts anew. nil: a random one.
	TaskIDSecret []byte

	// Observer is told of what passes and what happens. nil: nobody is.
	Observer *observe.Observer

	// Dropped is told of messages that reached nobody. nil is fine.
	Dropped func(m jsonrpc.Message, reason string)

	// MaxMessageSize bounds a message from the server, in bytes.
	// 0 means the transport's default.
	MaxMessageSize int

	// MaxDepth bounds the levels of objects and arrays in a message from the server (J14).
	// 0 means jsonrpc.DefaultMaxDepth; negative, any number.
	MaxDepth int

	// Logger is told of starts, ends and stderr. nil means no logging.
	Logger hclog.Logger
}

// Server is one configured server. All methods may be called concurrently.
type Server struct {
	spec       Spec
	log        hclog.Logger
	status     status
	goroutines goroutines
	sealer     *era.Sealer  // binds requestState to principals
	taskIDs    *era.TaskIDs // binds ids of tasks to principals

	dialers dialers
	prober  *probe.Prober
	pool    *sharing.Pool
	keys    keyChooser
	tools   schemas.Cache[sharing.Key]

	sessionless atomic.Bool // a remote server has answered initialize without beginning a session
}

// maxExclusive bounds the shared servers of one client each where there is no AcquirePlace: calls
// may wait for their clients in them.
const maxExclusive = 10_000

// New returns the Server for spec. It starts nothing; Close ends it.
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

// endOtherEra ends what clients share that speaks the other era with a server at an http URL,
// which is one server for all. (Behind a pipe or a lasting connection there may
// still be the one that it was.)
func (s *Server) endOtherEra(modern bool) {
	if s.isHTTP() {
		s.pool.ShutDownIf(func(k sharing.Key) bool { return k.Legacy == modern }, probe.ErrChanged)
	}
}

// IsCommand reports whether the server is a command that is run, not a remote one.
func (s *Server) IsCommand() bool { return s.spec.URL == "" }

// isHTTP reports whether the server is reached at an http or https URL.
func (s *Server) isHTTP() bool { return s.dialers.remote != nil && s.dialers.remote.IsHTTP() }

// Check finds a command that cannot be started before anything is set up for
// it. Of a remote server it knows nothing: that may come up later.
func (s *Server) Check() error {
	if !s.IsCommand() {
		return nil
	}
	return s.spec.Command.Check()
}

// StartAhead starts the command once before there is a client, for the first
// one to take over, so that it need not wait and a command that cannot work is
// found out: failed is called, at most once, when it has ended within two
// seconds. Without a client it is stopped after half a minute. The error is
// that of the start. It does nothing for a remote server.
func (s *Server) StartAhead(failed func(error)) error {
	if !s.IsCommand() {
		return nil
	}
	a, err := startAhead(s.dialers.lasting, func(err error) {
		s.status.noteStartFailed(textNotStarted)
		failed(err)
	}, s.log)
	if err != nil {
		return err
	}
	s.status.keepAhead(a)
	return nil
}

// Close ends what clients share, stops what was started ahead and not taken,
// and waits for it. The clients must have gone: their Handlers have returned.
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

// State returns the state now.
func (s *Server) State() State {
	state := s.status.state()
	if state.Running == 0 && s.Check() != nil {
		state.Ready, state.LastError = false, textNotStarted
	}
	return state
}

// ToolSchema returns the input schema of the tool that a modern client calls.
// It may be nil when the schema has no x-mcp-header. known is false if the server
// has no such tool, or has not said so soon after it was asked (MI22).
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

// table returns the tools of the servers with this key. Exclusive does not count: a server of one client has the tools that
// the others have.
func (s *Server) table(key sharing.Key) *schemas.Table {
	key.Exclusive = 0
	return s.tools.Table(key)
}
