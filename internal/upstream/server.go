// Package upstream is the server's side of a bridge: one MCP server as it was
// configured, a command that is run for clients or a remote server, with
// what there is to know about it.
package upstream

import (
	"cmp"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/admission"
	"github.com/mcp-bridge/mcp-bridge/internal/remote"
	"github.com/mcp-bridge/mcp-bridge/internal/toolfilter"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
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

	// Clients is what clients may speak. The zero value is both.
	Clients era.Eras

	// Isolation says which clients share a process.
	Isolation Isolation

	// Admit is asked before a process starts that clients share, or that is
	// probed. nil: there is always a place.
	Admit bridge.Admit

	// MaxUnits is how many processes that clients share there may be; for one
	// more, one that nobody uses is ended, or one of the party with most in which no
	// call is in progress. Those of one client or request are Admit's to bound. 0: 100.
	MaxUnits int

	// Queue is how many clients may wait where none can be ended, beside those whose
	// party has less than an equal part of MaxUnits, and QueueTimeout for how long;
	// 0: nobody waits.
	Queue        int
	QueueTimeout time.Duration

	// Idle is how long a process without clients is kept. 0: 30 min; negative: for ever.
	Idle time.Duration

	// ParkTimeout is how long a call waits for what its client was asked for. 0: 10 min.
	ParkTimeout time.Duration

	// Secret is what ids of tasks are bound to their principals with (A6): no
	// principal may know it as a whole. If it stays the same, ids stay valid when
	// the bridge starts anew. nil: a random one.
	Secret []byte

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
	spec   Spec
	log    hclog.Logger
	books  books
	sealer *era.Sealer

	taskIDs *era.TaskIDs

	lasting, once bridge.Dialer  // see Dialer
	telling       bridge.Dialer  // lasting, of units: says when the session was renewed; nil: is lasting
	modern        bridge.Dialer  // Conns that speak modern, if the server does
	remote        *remote.Dialer // of a URL

	verdict verdict
	settled time.Duration // the constants, but in tests
	patient time.Duration
	number  atomic.Uint64 // of units that are not shared
	alone   atomic.Int64  // how many of those there are

	introduced atomic.Pointer[introduction] // of some modern client; see introductionOf
	missed     atomic.Uint32                // requests that have said something else

	apart apart // principals that do not share the process of all

	sessionless atomic.Bool // a remote server has answered initialize without beginning a session

	shared *admission.Limiter // of units that are not of one client only

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	ended     bool
	units     map[unitKey]*unit
	beginning map[unitKey]chan struct{} // units that are being made, each closed when it is done
	tools     map[unitKey]*schemas
	byID      map[string]*unit
	count     int // of units there have been
}

// New returns the Server for spec. It starts nothing; Close ends it.
func New(spec Spec) (*Server, error) {
	s := &Server{spec: spec, log: spec.Logger}
	if s.log == nil {
		s.log = hclog.NewNullLogger()
	}
	s.log = s.log.With("server", spec.Name)
	if err := spec.Tools.Validate(); err != nil {
		return nil, err
	}
	var err error
	if s.sealer, err = era.NewSealer(); err != nil {
		return nil, err
	}
	s.taskIDs = era.NewTaskIDs(spec.Name, spec.Secret)
	s.spec.MaxUnits = cmp.Or(spec.MaxUnits, 100)
	s.shared = admission.New(admission.Options{Max: s.spec.MaxUnits, Queue: spec.Queue, Wait: spec.QueueTimeout})
	s.beginning = make(map[unitKey]chan struct{})
	s.spec.ParkTimeout = cmp.Or(spec.ParkTimeout, 10*time.Minute)
	if s.spec.Idle = cmp.Or(spec.Idle, 30*time.Minute); s.spec.Idle < 0 {
		s.spec.Idle = math.MaxInt64
	}
	s.settled, s.patient = settled, probeWait
	s.tools = make(map[unitKey]*schemas)
	s.units, s.byID = make(map[unitKey]*unit), make(map[string]*unit)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if s.IsCommand() {
		s.lasting = s.command()
		s.once = s.lasting
		s.modern = s.wrapped(s.lasting)
		return s, nil
	}
	if err := remote.CheckURL(spec.URL); err != nil {
		return nil, err
	}
	opts := spec.Remote
	opts.MaxMessageSize, opts.MaxDepth, opts.Logger = spec.MaxMessageSize, spec.MaxDepth, s.log
	opts.Opened = func(session bool) { s.sessionless.Store(!session) }
	opts.ToolsChanged = s.forgetTools
	if spec.Protocol == era.Auto {
		opts.Upgraded, opts.Foreign = s.upgraded, s.wonder
	}
	opts.NoRenew = false
	s.lasting = &remote.Dialer{URL: spec.URL, Options: opts}
	telling := opts
	telling.TellRenewed = true
	s.telling = &remote.Dialer{URL: spec.URL, Options: telling}
	opts.NoRenew = true
	s.remote = &remote.Dialer{URL: spec.URL, Options: opts}
	s.once = s.remote
	s.modern = s.wrapped(s.remote.Modern())
	return s, nil
}

// command returns the Dialer that starts the command.
func (s *Server) command() bridge.Dialer {
	skipped := new(noise) // of all its processes
	spec := s.spec.Command
	spec.Name = s.spec.Name
	spec.Stderr = func(line []byte) { s.log.Info("stderr", "line", string(line)) }
	spec.OnContainer = s.containerKilled
	// The name says which command it is: there may be secrets in its arguments.
	started := func(pid int) { s.log.Debug("server process started", "pid", pid) }
	return &stdio.Command{Spec: spec, OnStart: started, Options: stdio.Options{
		MaxMessageSize: s.spec.MaxMessageSize, MaxDepth: s.spec.MaxDepth,
		OnNoise: func(n int, reason string) {
			if lines, bytes, due := skipped.add(time.Now(), n); due {
				s.log.Warn("output of the server skipped", "lines", lines, "bytes", bytes, "reason", reason)
			}
		},
	}}
}

// containerKilled tells of a container that a server's process left behind.
func (s *Server) containerKilled(id string, err error) {
	short := id[:min(len(id), 12)]
	switch {
	case err == nil:
		s.log.Warn("the server's container did not end and was killed", "container", short)
	case id == "":
		s.log.Warn("the server's container is not known: it goes on if its client is killed", "error", err)
	default:
		s.log.Error("the server's container did not end", "container", short, "error", err)
	}
}

// IsCommand reports whether the server is a command that is run, not a remote one.
func (s *Server) IsCommand() bool { return s.spec.URL == "" }

// Check finds a command that cannot be started before anything is set up for
// it. Of a remote server it knows nothing: that may come up later.
func (s *Server) Check() error {
	if !s.IsCommand() {
		return nil
	}
	return s.spec.Command.Check()
}

// Dialer returns what gives a client its Conn to the server.
//
// With lasting the Conn outlives the session of a remote server: when the
// server has forgotten it, or the connection broke, a new one is made with the
// client's own initialize (LE5). Otherwise the Conn ends with it, for clients
// whose own connection is their session (C.6). A command's Conn ends with the
// process in any case (ST9).
func (s *Server) Dialer(lasting bool) bridge.Dialer {
	d := s.once
	if lasting {
		d = s.lasting
	}
	return s.wrapped(d)
}

// legacyDialer returns what gives a unit its Conn to a legacy server: clients that
// listen have to hear of what they cannot see, a session that was renewed (C.3).
func (s *Server) legacyDialer() bridge.Dialer {
	if s.telling == nil {
		return s.Dialer(true)
	}
	return s.wrapped(s.telling)
}

// wrapped returns a Dialer whose Conns are counted and filtered.
func (s *Server) wrapped(d bridge.Dialer) bridge.Dialer {
	return toolfilter.Wrap(&counted{of: &s.books, log: s.log, dialer: d}, s.spec.Tools)
}

// dialAdmitted takes a place for as long as the Conn is open, for the Party of
// ctx. u is the unit that the Conn is for; nil: none yet.
func (s *Server) dialAdmitted(ctx context.Context, d bridge.Dialer, u *unit) (bridge.PullConn, error) {
	if s.spec.Admit == nil {
		return bridge.PullDialed(d.Dial(ctx))
	}
	t := new(unitHolder)
	t.unit.Store(u)
	leave, err := s.spec.Admit(bridge.WithHolder(ctx, t))
	if err != nil {
		return nil, err
	}
	conn, err := bridge.PullDialed(d.Dial(ctx))
	if err != nil {
		leave()
		return nil, err
	}
	return &placed{PullConn: conn, unitHolder: t, leave: sync.OnceFunc(leave)}, nil
}

// placed is a Conn with a place.
type placed struct {
	bridge.PullConn
	*unitHolder
	leave func()
}

// unitHolder is the admission.Holder of a process's place: the unit that has it. A
// process that is being asked what it speaks has none yet.
type unitHolder struct{ unit atomic.Pointer[unit] }

// Use implements admission.Holder.
func (t *unitHolder) Use() (admission.Use, time.Time) {
	if u := t.unit.Load(); u != nil {
		return u.Use()
	}
	return admission.Busy, time.Time{}
}

// Reclaim implements admission.Holder.
func (t *unitHolder) Reclaim() bool {
	u := t.unit.Load()
	return u != nil && u.Reclaim()
}

// TrySender passes on what the Conn has.
func (p *placed) TrySender() func(jsonrpc.Message) bool { return bridge.TrySender(p.PullConn) }

func (p *placed) Close() error {
	defer p.leave()
	return p.PullConn.Close()
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
	a, err := startAhead(s.lasting, failed, s.log)
	if err != nil {
		return err
	}
	s.books.keep(a)
	return nil
}

// spawn runs f in a goroutine that Close awaits; false: the Server is closed.
func (s *Server) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.wg.Go(f)
	return true
}

// Close ends what clients share, stops what was started ahead and not taken,
// and waits for it. The clients must have gone: their Handlers have returned.
func (s *Server) Close() error {
	s.mu.Lock()
	s.ended = true
	s.cancel()
	for _, u := range s.units {
		s.end(u)
	}
	s.mu.Unlock()
	s.dropSpare()
	s.wg.Wait()
	if a := s.books.kept(); a != nil {
		return a.close()
	}
	return nil
}

// State returns the state now.
func (s *Server) State() State {
	state := s.books.state()
	if state.Ready = state.Running > 0 || s.Check() == nil; !state.Ready {
		state.LastError = notStarted
	}
	return state
}
