package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/inspect"
	"github.com/mcp-bridge/mcp-bridge/internal/listen"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// inspectFlags say whether a browser can look at the bridge, and who may. serve, connect, record and replay --serve have them.
type inspectFlags struct {
	addr      string // --inspect: the address of the page for browsers, HOST:PORT or unix:PATH; "": there is none
	tokenFile string // --inspect-token-file: the file of the tokens that the page asks for; "": one that is made for this run
}

// defaultInspectAddr is the address of --inspect without a value: any free port of this machine.
const defaultInspectAddr = "127.0.0.1:0"

// register adds the flags of inspectFlags to fs, and gives the fields their defaults.
func (f *inspectFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.addr, "inspect", "", "")
	fs.Lookup("inspect").NoOptDefVal = defaultInspectAddr
	fs.StringVar(&f.tokenFile, "inspect-token-file", "", "")
}

// check returns the first mistake in these flags that can be found without a look at files or the network; nil: there is none.
func (f *inspectFlags) check() error {
	if f.addr == "" && f.tokenFile != "" {
		return usagef("--inspect-token-file needs --inspect")
	}
	return nil
}

// inspectedRun is a run that can be looked at.
type inspectedRun struct {
	name         string                                  // what the run is called: "serve", or "connect" and the name of the server
	addresses    []string                                // the addresses at which clients reach the run; none: it has a client at stdin
	observer     *observe.Observer                       // what is watched: it tells its Watchers what passes through the run
	recorder     *trace.Recorder                         // makes records of what passes, for those who look and for the file of --trace or --record
	servers      func() []inspect.Server                 // returns the state of the servers now
	restart      func(server string) error               // restarts a server; nil: that cannot be done
	cancelCalls  func(func(bridge.PendingCall) bool) int // cancels the calls that match, and returns how many did
	waitingCalls func() []observe.WaitingCall            // returns the requests that have no answer yet
	tlsFlags     listenFlags                             // only its TLS files are used; zero: there are none
	env          environment                             // what the run may touch of its process: stderr and eventLog are used
	log          hclog.Logger                            // gets a line for what is done over the API, and warnings
}

// start lets the user of this process look at the run, and with --inspect a browser, until stop
// is called.
func (f *inspectFlags) start(run inspectedRun) (stop func(), err error) {
	i := inspect.New(inspect.Options{
		Name: run.name, Addresses: run.addresses, Observer: run.observer, Recorder: run.recorder, Ring: trace.NewRing(trace.RingOptions{}),
		Servers: run.servers, Restart: run.restart, CancelCall: run.cancelCall, WaitingCalls: run.waitingCalls, Level: run.env.eventLog.Level, SetLevel: run.env.eventLog.SetLevel, Logger: run.log,
	})
	stopPage := func() {}
	if f.addr != "" {
		if stopPage, err = f.servePage(i, run); err != nil {
			i.Close()
			return nil, err
		}
	}
	stopControl, err := inspect.ListenControl(i.Control())
	if err != nil {
		run.log.Debug("nobody can look at this run: there is no control socket", "error", err)
		stopControl = func() {}
	}
	return func() {
		i.Close()
		stopControl()
		stopPage()
	}, nil
}

// cancelCall cancels the call of a session that has this id. false: there is none.
func (run *inspectedRun) cancelCall(session string, id jsonrpc.ID) bool {
	return run.cancelCalls(func(c bridge.PendingCall) bool {
		return observe.IsCallOfSession(c, session) && id.Equivalent(c.ID)
	}) > 0
}

// servePage serves browsers at the address of --inspect until stop is called, and writes the URL to stderr.
func (f *inspectFlags) servePage(i *inspect.Inspector, run inspectedRun) (stop func(), err error) {
	tokens, tokenText := inspect.NewToken()
	if f.tokenFile != "" {
		if tokens, err = inspect.LoadTokens(f.tokenFile); err != nil {
			return nil, usagef("--inspect-token-file: %v", err)
		}
		tokenText = ""
	}
	if access.IsLoopbackAddr(f.addr) || strings.HasPrefix(f.addr, "unix:") {
		run.tlsFlags = listenFlags{} // they are for other names
	}
	listeners, err := listen.Open(listen.Options{
		Addrs: []string{f.addr}, CertFile: run.tlsFlags.cert, KeyFile: run.tlsFlags.key, ClientCAFile: run.tlsFlags.caFile,
		Insecure: true, Logger: run.log, // checked below, and more strictly
	})
	if err != nil {
		return nil, fmt.Errorf("--inspect: %w", err)
	}
	l := listeners[0]
	addr := l.Addr().String()
	isLocal := l.IsUnix() || access.IsLoopbackAddr(addr)
	if !isLocal && (run.tlsFlags.cert == "" || f.tokenFile == "") {
		_ = listeners.Close()
		return nil, usagef("--inspect %s: other machines can reach this address, so it needs TLS (--tls-cert, --tls-key) and --inspect-token-file", f.addr)
	}
	url := l.URL() + "/"
	if tokenText != "" {
		url += "#token=" + tokenText
	}
	// Not with the log, which others keep: who has the URL may do everything.
	fmt.Fprintf(run.env.stderr, "mcp-bridge: inspect at %s\n", url)
	return inspect.Serve(l, i.Page(tokens, isLocal && !l.IsUnix()), 0), nil
}

// startInspect serves the inspection API. sockets are those at which clients come in.
func (d *daemon) startInspect(sockets listen.Listeners) (err error) {
	var addresses []string
	for _, l := range sockets {
		addresses = append(addresses, d.url(l))
	}
	d.stopInspect, err = d.flags.inspect.start(inspectedRun{
		name: "serve", addresses: addresses, observer: d.observer, recorder: d.tracing.recorder, tlsFlags: d.flags.listen, env: d.env, log: d.log,
		servers: d.inspectServers, restart: d.hub.Restart, cancelCalls: d.hub.CancelCalls, waitingCalls: d.hub.WaitingCalls,
	})
	return err
}

// inspectServers returns the state of all servers, as the inspection API shows it.
func (d *daemon) inspectServers() []inspect.Server {
	all := []inspect.Server{}
	for _, s := range d.hub.Info() {
		server := inspectServerOf(s.Name, s.State)
		server.Description, server.Remote, server.Sessions = s.Description, s.Remote, s.Sessions
		all = append(all, server)
	}
	return all
}

// inspectServerOf returns the state of a server as the inspection API shows it, without Description, Remote and Sessions.
func inspectServerOf(name string, s upstream.State) inspect.Server {
	return inspect.Server{Name: name, Ready: s.Ready, Running: s.Running, LastError: s.LastError, Calls: s.Calls, OldestCallAge: float64(s.OldestCallSeconds)}
}

// connectedServer returns a function that returns the state of the server of connect, as the only element, for the inspection API.
func connectedServer(server *upstream.Server, name string, calls *bridge.PendingCalls) func() []inspect.Server {
	return func() []inspect.Server {
		s := inspectServerOf(name, server.State())
		s.Remote, s.Sessions = !server.IsCommand(), 1
		var oldest time.Time
		if s.Calls, oldest = calls.CountAndOldest(); !oldest.IsZero() {
			s.OldestCallAge = time.Since(oldest).Seconds()
		}
		return []inspect.Server{s}
	}
}
