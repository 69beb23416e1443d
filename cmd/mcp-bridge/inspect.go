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

// inspectFlags say whether a browser can look at the bridge. serve and connect have them.
type inspectFlags struct{ addr, tokens string }

const defaultInspect = "127.0.0.1:0"

func (f *inspectFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.addr, "inspect", "", "")
	fs.Lookup("inspect").NoOptDefVal = defaultInspect
	fs.StringVar(&f.tokens, "inspect-token-file", "", "")
}

func (f *inspectFlags) check() error {
	if f.addr == "" && f.tokens != "" {
		return usagef("--inspect-token-file needs --inspect")
	}
	return nil
}

// inspectedRun is a run that can be looked at.
type inspectedRun struct {
	name     string
	observer *observe.Observer
	recorder *trace.Recorder
	servers  func() []inspect.Server
	restart  func(server string) error // nil: that cannot be done
	cancel   func(func(bridge.LateCall) bool) int
	waiting  func() []observe.WaitingCall
	certs    listenFlags // of TLS
	env      environment
	log      hclog.Logger
}

// begin lets the user of this process look at the run, and with --inspect a browser, until end
// is called.
func (f *inspectFlags) begin(run inspectedRun) (end func(), err error) {
	i := inspect.New(inspect.Options{
		Name: run.name, Observer: run.observer, Recorder: run.recorder, Ring: trace.NewRing(trace.RingOptions{}),
		Servers: run.servers, Restart: run.restart, Cancel: run.cancelCall, Waiting: run.waiting, Level: run.env.eventLog.Level, SetLevel: run.env.eventLog.SetLevel, Logger: run.log,
	})
	page := func() {}
	if f.addr != "" {
		if page, err = f.page(i, run); err != nil {
			i.Close()
			return nil, err
		}
	}
	control, err := inspect.ListenControl(i.Control())
	if err != nil {
		run.log.Debug("nobody can look at this run: there is no control socket", "error", err)
		control = func() {}
	}
	return func() {
		i.Close()
		control()
		page()
	}, nil
}

// cancelCall cancels a call of a session.
func (run *inspectedRun) cancelCall(session string, id jsonrpc.ID) bool {
	return run.cancel(func(c bridge.LateCall) bool {
		return observe.IsCallOfSession(c, session) && id.Equivalent(c.ID)
	}) > 0
}

// page opens the listener for browsers.
func (f *inspectFlags) page(i *inspect.Inspector, run inspectedRun) (stop func(), err error) {
	tokens, text := inspect.NewToken()
	if f.tokens != "" {
		if tokens, err = inspect.LoadTokens(f.tokens); err != nil {
			return nil, usagef("--inspect-token-file: %v", err)
		}
		text = ""
	}
	if access.IsLoopbackAddr(f.addr) || strings.HasPrefix(f.addr, "unix:") {
		run.certs = listenFlags{} // they are for other names
	}
	all, err := listen.Open(listen.Options{
		Addrs: []string{f.addr}, CertFile: run.certs.cert, KeyFile: run.certs.key, ClientCAFile: run.certs.caFile,
		Insecure: true, Logger: run.log, // checked below, and more strictly
	})
	if err != nil {
		return nil, fmt.Errorf("--inspect: %w", err)
	}
	l := all[0]
	addr := l.Addr().String()
	local := l.IsUnix() || access.IsLoopbackAddr(addr)
	if !local && (run.certs.cert == "" || f.tokens == "") {
		_ = all.Close()
		return nil, usagef("--inspect %s: other machines can reach this address, so it needs TLS (--tls-cert, --tls-key) and --inspect-token-file", f.addr)
	}
	url := l.URL() + "/"
	if text != "" {
		url += "#token=" + text
	}
	// Not with the log, which others keep: who has the URL may do everything.
	fmt.Fprintf(run.env.stderr, "mcp-bridge: inspect at %s\n", url)
	return inspect.Serve(l, i.Page(tokens, local && !l.IsUnix())), nil
}

// startInspect serves the inspection API.
func (d *daemon) startInspect() (err error) {
	d.stopInspect, err = d.flags.inspect.begin(inspectedRun{
		name: "serve", observer: d.observer, recorder: d.traced.recorder, certs: d.flags.listen, env: d.env, log: d.log,
		servers: d.inspected, restart: d.hub.Restart, cancel: d.hub.CancelCalls, waiting: d.hub.WaitingCalls,
	})
	return err
}

// inspected returns what there is to tell about the servers.
func (d *daemon) inspected() []inspect.Server {
	all := []inspect.Server{}
	for _, s := range d.hub.Info() {
		server := stateOf(s.Name, s.State)
		server.Description, server.Remote, server.Sessions = s.Description, s.Remote, s.Sessions
		all = append(all, server)
	}
	return all
}

func stateOf(name string, s upstream.State) inspect.Server {
	return inspect.Server{Name: name, Ready: s.Ready, Running: s.Running, LastError: s.LastError, Calls: s.Calls, OldestCallAge: float64(s.OldestCall)}
}

// connected returns what tells about the server of connect.
func connected(server *upstream.Server, name string, calls *bridge.Calls) func() []inspect.Server {
	return func() []inspect.Server {
		s := stateOf(name, server.State())
		s.Remote, s.Sessions = !server.IsCommand(), 1
		var oldest time.Time
		if s.Calls, oldest = calls.InProgress(); !oldest.IsZero() {
			s.OldestCallAge = time.Since(oldest).Seconds()
		}
		return []inspect.Server{s}
	}
}
