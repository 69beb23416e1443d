package upstream

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/limiter"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/remote"
	"github.com/mcp-bridge/mcp-bridge/internal/toolfilter"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// dialers are the Dialers of a server. All but modern are still to be wrapped (wrapDialer), so that their Conns count
// and hide tools.
type dialers struct {
	lasting          bridge.Dialer  // makes Conns that outlive the session of a remote server; see Server.clientDialer
	singleSession    bridge.Dialer  // makes Conns that end with the session of a remote server; for a command, the same as lasting
	reportingRenewal bridge.Dialer  // makes Conns for a server that clients share, which outlive the session of a remote server and say when it was renewed; nil: it is a command, and lasting is used
	modern           bridge.Dialer  // makes Conns that speak modern, if the server does
	remote           *remote.Dialer // the Dialer of a server at a URL; nil: it is a command
}

// A dialFunc is a bridge.Dialer that is a function.
type dialFunc func(ctx context.Context) (bridge.Conn, error)

// Dial implements bridge.Dialer: it calls the function.
func (f dialFunc) Dial(ctx context.Context) (bridge.Conn, error) { return f(ctx) }

// makeDialers sets dialers. The error is about the URL.
func (s *Server) makeDialers() error {
	d := &s.dialers
	if s.IsCommand() {
		d.lasting = s.commandDialer()
		d.singleSession = d.lasting
		d.modern = s.wrapDialer(d.lasting)
		return nil
	}
	if err := remote.CheckURL(s.spec.URL); err != nil {
		return err
	}
	opts := s.spec.Remote
	opts.MaxMessageSize, opts.MaxDepth, opts.Logger = s.spec.MaxMessageSize, s.spec.MaxDepth, s.log
	opts.OnOpened = func(session bool) { s.sessionless.Store(!session) }
	opts.OnToolsChanged = s.tools.Forget
	if s.spec.Protocol == era.Auto {
		opts.ConfirmUpgrade = func(ctx context.Context, refusal jsonrpc.Message) bool { return s.prober.Upgraded(ctx, refusal) }
		opts.OnForeignRefusal = func() { s.prober.Recheck() }
	}
	opts.NoRenew = false
	d.lasting = &remote.Dialer{URL: s.spec.URL, Options: opts}
	telling := opts
	telling.NotifyAfterRenewal = true
	d.reportingRenewal = &remote.Dialer{URL: s.spec.URL, Options: telling}
	opts.NoRenew = true
	d.remote = &remote.Dialer{URL: s.spec.URL, Options: opts}
	d.singleSession = d.remote
	d.modern = s.wrapDialer(d.remote.ModernDialer())
	return nil
}

// commandDialer returns the Dialer that starts the command, for each Conn.
func (s *Server) commandDialer() bridge.Dialer {
	skipped := new(noiseLimiter) // of all its processes
	spec := s.spec.Command
	spec.Name = s.spec.Name
	spec.OnContainer = s.reportKilledContainer
	// The name says which command it is: there may be secrets in its arguments.
	return &processDialer{s: s, program: programOf(cmp.Or(spec.ShownPath, spec.Path)), command: stdio.Command{Spec: spec, Options: stdio.Options{
		MaxMessageSize: s.spec.MaxMessageSize, MaxDepth: s.spec.MaxDepth,
		OnNoise: func(n int, reason string) {
			if lines, bytes, due := skipped.add(time.Now(), n); due {
				s.log.Warn("output of the server skipped", "lines", lines, "bytes", bytes, "reason", reason)
			}
		},
	}}}
}

// reportKilledContainer logs what became of a container that was left when a server's process was killed: err
// nil, it was killed too. id "": its id is not known.
func (s *Server) reportKilledContainer(id string, err error) {
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

// clientDialer returns the Dialer of a client's Conns to the server, which are counted and filtered.
//
// With lasting a Conn outlives the session of a remote server: when the server has forgotten it, or the
// connection broke, a new one is made with the client's own initialize (LE5). Otherwise the Conn ends with
// it, for clients whose own connection is their session (C.6). A command's Conn ends with the process in any
// case (ST9).
func (s *Server) clientDialer(lasting bool) bridge.Dialer {
	d := s.dialers.singleSession
	if lasting {
		d = s.dialers.lasting
	}
	return s.wrapDialer(d)
}

// sharedLegacyDialer returns the Dialer of a shared server's Conns to a legacy server. When the session of a
// remote server was renewed, Receive of such a Conn brings notifications that everything may have changed:
// clients that listen cannot see the renewal (C.3).
func (s *Server) sharedLegacyDialer() bridge.Dialer {
	if s.dialers.reportingRenewal == nil {
		return s.clientDialer(true)
	}
	return s.wrapDialer(s.dialers.reportingRenewal)
}

// wrapDialer returns a Dialer whose Conns, made by d, count in the status and hide tools (Spec.Tools).
func (s *Server) wrapDialer(d bridge.Dialer) bridge.Dialer {
	return toolfilter.Wrap(&countingDialer{status: &s.status, log: s.log, dialer: d, transport: s.transportName(), remote: !s.IsCommand()}, s.spec.Tools)
}

// transportName returns the name of the transport to the server, as observe.Session takes it: "stdio",
// "http", "websocket", "socket" or "tcp".
func (s *Server) transportName() string {
	scheme, _, _ := strings.Cut(s.spec.URL, ":")
	switch scheme {
	case "":
		return "stdio"
	case "ws", "wss":
		return "websocket"
	case "unix":
		return "socket"
	case "tcp":
		return "tcp"
	}
	return "http"
}

// dialAdmitted takes a place for the Party of ctx (Spec.AcquirePlace; without one, none is needed), and returns a Conn
// of d, which gives the place back when it is closed. h holds the place. To the Observer the Conn is that of no session.
func (s *Server) dialAdmitted(ctx context.Context, d bridge.Dialer, h limiter.Holder) (bridge.Conn, error) {
	ctx = observe.WithSession(ctx, s.spec.Observer.OpenUnannounced(s.spec.Name, ""))
	if s.spec.AcquirePlace == nil {
		return d.Dial(ctx)
	}
	leave, err := s.spec.AcquirePlace(admission.WithHolder(ctx, h))
	if err != nil {
		return nil, err
	}
	conn, err := d.Dial(ctx)
	if err != nil {
		leave()
		return nil, err
	}
	return bridge.Intercept(conn, bridge.Hooks{Closed: func(err error) error {
		leave()
		return err
	}}), nil
}
