package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/config"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
	"github.com/mcp-bridge/mcp-bridge/internal/listen"
	"github.com/mcp-bridge/mcp-bridge/internal/metrics"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/startpages"
	"github.com/mcp-bridge/mcp-bridge/internal/watch"
)

// daemon is one run of serve.
type daemon struct {
	flags        *serveFlags             // the flags of the command line
	env          environment             // what the run may touch of its process
	log          hclog.Logger            // where the lines of the run go
	observer     *observe.Observer       // is told what passes through all servers, and tells its Watchers
	tracing      *tracing                // takes secrets out of what observer tells, and writes it down if there is a --trace or --record
	fail         context.CancelCauseFunc // ends the run with an error; with nil, without one
	guard        access.Policy           // who may come in, at every path
	auth         credentials             // the credentials for remote servers
	staticTokens *access.Tokens          // bearer tokens of the token file or the environment; nil: there are none
	hub          *hub.Hub                // serves all servers
	notify       *listen.Notifier        // tells the service manager, such as systemd, about the run; it does nothing where there is none
	sockets      listen.Listeners        // the listeners at which clients come in; set by setUp
	stopInspect  func()                  // ends what serves the inspection API; nil: it has not begun, or could not

	protection *protection // verifies access tokens; nil: none are accepted
	scopeLines []string    // the scope policy of the configuration file; guarded by reloadMu

	reloadMu     sync.Mutex               // held during a reload, and while setUp runs
	isServing    bool                     // a reload may change something: setUp is done, and the end has not begun; guarded by reloadMu
	maxProcesses int                      // how many processes all servers together may have, 0: no limit; guarded by reloadMu
	configFiles  atomic.Pointer[[]string] // the configuration file and those that it names, as last read; nil: not read yet, or there is no --config
}

// run is the whole run: it sets up, serves until ctx is done, and ends everything. nil: somebody has asked for the end.
func (d *daemon) run(ctx context.Context, where listenAddresses, to target) (err error) {
	d.notify, err = listen.NewNotifier() // before there is a child
	if err != nil {
		d.log.Warn("no watchdog", "error", err)
	}
	defer startSupervision(d.log)()
	defer d.auth.close()
	defer d.hub.Close()
	var wg sync.WaitGroup
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer wg.Wait()
	defer stop()
	if d.hasReloadableFiles() {
		// Before they are read, so that no change goes by unseen.
		wg.Go(func() { watch.Files(background, d.filesToWatch, func() { d.reload(background) }) })
	}
	defer sendSpans(ctx, d.observer, d.tracing.redact, d.env, d.log)()
	unwatch, err := d.flags.metrics.serve(d.observer, d.metricsServers, d.hub.NamesInUse, d.log) // before a process starts
	if err != nil {
		return err
	}
	defer unwatch()
	defer func() {
		if d.stopInspect != nil {
			d.stopInspect()
		}
	}()
	if err := d.setUp(ctx, where, to); err != nil {
		if _, mistake := errors.AsType[*configError](err); ctx.Err() != nil && !mistake {
			return endCause(ctx)
		}
		return err
	}
	defer d.sockets.Close()
	wg.Go(func() { d.handleHangups(background) })
	defer d.notify.StartWatchdog(d.isAlive, d.logNotifyError)()
	d.serve(ctx)
	return endCause(ctx)
}

// endCause returns why a run has ended whose ctx is done; nil: somebody has asked for that.
func endCause(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// metricsServers returns the state of each server now, for the metrics.
func (d *daemon) metricsServers() (all []metrics.Server) {
	for name, state := range d.hub.States() {
		all = append(all, metrics.Server{Name: name, Ready: state.Ready, CallsInFlight: state.Calls, OldestCallAge: time.Duration(state.OldestCallSeconds) * time.Second})
	}
	return all
}

// setUp opens the sockets, starts the inspection API and sets up the servers. It holds reloadMu, so that no reload comes in between. ctx
// ends a wait for the system's keyring.
func (d *daemon) setUp(ctx context.Context, where listenAddresses, to target) error {
	d.reloadMu.Lock()
	defer d.reloadMu.Unlock()
	// The sockets come first: those of systemd stand in environment variables,
	// which are gone then and which no server is to see.
	sockets, err := d.flags.listen.open(where, d.guard.Authenticates(), d.log)
	if err != nil {
		return err
	}
	d.auth.publicAddr = d.flags.listen.publicAddr(sockets, d.guard.Authenticates())
	err = d.startInspect(sockets)
	var first []hub.Spec
	if err == nil {
		first, err = d.initialSpecs(ctx, to)
	}
	if err == nil {
		err = d.apply(first)
	}
	if err != nil {
		_ = sockets.Close()
		return err
	}
	d.sockets = sockets
	d.isServing = true
	return nil
}

// logNotifyError logs that the service manager could not be told something; nil: it was told.
func (d *daemon) logNotifyError(err error) {
	if err != nil {
		d.log.Warn("the service manager does not hear", "error", err)
	}
}

// initialSpecs describes the servers to begin with: those of the configuration file (load), or without one the server that to names. It sets
// maxProcesses. reloadMu is held.
func (d *daemon) initialSpecs(ctx context.Context, to target) ([]hub.Spec, error) {
	if d.flags.config != "" {
		return d.load(ctx)
	}
	d.maxProcesses = d.flags.scale.maxChildrenTotal
	spec, err := d.flags.spec(to, d.env, d.log)
	if err != nil {
		return nil, err
	}
	if spec.Upstream.URL == "" {
		if err := spec.Upstream.Command.Check(); err != nil {
			return nil, err
		}
	}
	if err := d.flags.target.attachCredential(ctx, &spec.Upstream, nil, &d.auth, d.env, d.log); err != nil {
		return nil, err
	}
	d.tracing.hideServer(spec.Upstream)
	d.tracing.hideEnviron(spec.Name, d.flags.target.child.addedEnv, true)
	spec.Eager, spec.OnStartFailure = true, d.fail
	return []hub.Spec{spec}, nil
}

// load reads the configuration file, describes its servers, and sets configFiles, maxProcesses and scopeLines; if there is an error,
// configFiles alone. reloadMu is held.
func (d *daemon) load(ctx context.Context) ([]hub.Spec, error) {
	defaults := d.flags.settings()
	c, err := loadConfig(d.flags.config, config.Options{Lookup: d.env.lookup, Defaults: &defaults, CheckScopes: checkScopes}, d.log)
	d.configFiles.Store(&c.Files) // of a broken one too: it may be mended
	if err != nil {
		return nil, err
	}
	trust, err := d.flags.target.tls()
	if err != nil {
		return nil, err
	}
	all, err := hubSpecs(c, trust, d.log)
	if err != nil {
		return nil, err
	}
	for _, s := range c.Servers {
		d.tracing.hideEnviron(s.Name, s.Environ(), true)
		d.tracing.addSecrets("sign-in to "+s.Name, secretsIn(s.Auth))
		for i := range all {
			if all[i].Name != s.Name {
				continue
			}
			if err := d.flags.target.attachCredential(ctx, &all[i].Upstream, fileAuthOf(s), &d.auth, d.env, d.log); err != nil {
				return nil, fmt.Errorf("server %q: %w", s.Name, err)
			}
		}
	}
	for _, s := range all {
		d.tracing.hideServer(s.Upstream)
	}
	if len(all) == 0 {
		d.log.Warn("no server is enabled", "file", d.flags.config)
	}
	d.maxProcesses = d.flags.scale.maxChildrenTotal
	if c.MaxChildrenTotal >= 0 {
		d.maxProcesses = c.MaxChildrenTotal
	}
	d.scopeLines = c.Scopes
	return all, nil
}

// apply makes these the servers, and takes over maxProcesses and scopeLines. After an error nothing has changed.
// reloadMu is held.
func (d *daemon) apply(all []hub.Spec) error {
	finish, err := d.protection.beginChange(all, d.flags.config == "", d.scopeLines)
	if err != nil {
		return err
	}
	err = d.hub.Apply(all)
	finish(err == nil)
	if err == nil {
		d.hub.SetMaxChildren(d.maxProcesses)
	}
	return err
}

// isAlive reports whether the hub answers a question within 5 seconds, and does not hang. The service manager restarts a bridge
// that hangs.
func (d *daemon) isAlive() bool {
	answered := make(chan struct{})
	go func() { // ends at once, or never: then the process is about to be ended
		d.hub.Sessions()
		close(answered)
	}()
	t := time.NewTimer(5 * time.Second)
	defer t.Stop()
	select {
	case <-answered:
		return true
	case <-t.C:
		return false
	}
}

// hasReloadableFiles reports whether there is a file for reload: of --config, --token-file or --scope-map.
func (d *daemon) hasReloadableFiles() bool {
	return d.flags.config != "" || d.flags.access.tokenFile != "" || d.flags.protect.scopeMapFile != ""
}

// filesToWatch returns the files whose change is worth a reload. TLS files have a
// watcher of their own.
func (d *daemon) filesToWatch() []string {
	var files []string
	if p := d.configFiles.Load(); p != nil && len(*p) > 0 {
		files = append(files, *p...)
	} else if d.flags.config != "" {
		files = append(files, d.flags.config)
	}
	for _, file := range []string{d.flags.access.tokenFile, d.flags.protect.scopeMapFile} {
		if file != "" {
			files = append(files, file)
		}
	}
	return files
}

// handleHangups loads the TLS files and those of reload again at each SIGHUP, until ctx is done. Where there is no such file,
// the first SIGHUP ends the run.
func (d *daemon) handleHangups(ctx context.Context) {
	for {
		select {
		case <-d.env.hangup:
		case <-ctx.Done():
			return
		}
		if !d.hasReloadableFiles() && d.flags.listen.cert == "" {
			exitOnNextHangup()
			d.log.Info("hangup: stopping")
			d.fail(nil)
			return
		}
		if err := d.sockets.Reload(); err != nil {
			d.log.Error("the TLS files cannot be used; what was there goes on", "error", err)
		}
		d.reload(ctx)
	}
}

// accessFileSettleTime is how long a file that says who may do what must be gone or empty before a reload counts it as
// gone or empty: some programs remove or truncate a file before they write it.
const accessFileSettleTime = 2 * time.Second

// awaitAccessFiles waits for accessFileSettleTime, or until ctx is done, if the token file or that of --scope-map is gone or empty
// now; otherwise it returns at once.
func (d *daemon) awaitAccessFiles(ctx context.Context) {
	if !(d.staticTokens != nil && d.staticTokens.IsFileGoneOrEmpty()) && !d.protection.isUnsettled() {
		return
	}
	t := time.NewTimer(accessFileSettleTime)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// reloadTokens takes over what the token file says now. If it cannot be used, the tokens from before stay; if it is gone or has no token,
// nobody is let in. Without --token-file, nothing happens.
func (d *daemon) reloadTokens() {
	file, tokens := d.flags.access.tokenFile, d.staticTokens
	if tokens == nil || file == "" {
		return
	}
	err := tokens.Reload()
	switch {
	case err != nil:
		d.log.Error("the token file cannot be used; the tokens from before go on", "error", err)
	case len(tokens.Names()) == 0:
		d.log.Error("the token file is gone or has no token in it any more: nobody is let in until it has one", "file", file)
	default:
		d.tracing.hideTokens(file, d.env)
		d.log.Info("tokens loaded", "names", len(tokens.Names()))
	}
}

// reloadScopes takes over what the file of --scope-map says now; if it cannot be used, what was there stays. Without --scope-map it does
// nothing. It is for runs without a configuration file: with one, apply takes over the scopes of both files together.
func (d *daemon) reloadScopes() {
	if d.flags.protect.scopeMapFile == "" {
		return
	}
	if err := d.protection.reload(); err != nil {
		d.log.Error("the scope map cannot be used; what was there goes on", "error", err)
		return
	}
	d.log.Info("scope map loaded")
}

// reload takes over what the files of --token-file, --scope-map and --config say now. A file with a mistake is logged, and what it
// said before stays in force; but with a token file that is gone or empty nobody is let in (reloadTokens). Before the run serves, and once
// it ends, reload does nothing. ctx ends its waits.
func (d *daemon) reload(ctx context.Context) {
	d.awaitAccessFiles(ctx)
	d.reloadMu.Lock()
	defer d.reloadMu.Unlock()
	if !d.isServing {
		return
	}
	d.logNotifyError(d.notify.Reloading())
	defer func() { d.logNotifyError(d.notify.Ready("")) }()
	d.reloadTokens()
	if d.flags.config == "" {
		d.reloadScopes()
		return
	}
	all, err := d.load(ctx)
	if err == nil {
		err = d.apply(all)
	}
	if err != nil {
		if problems, ok := errors.AsType[config.Problems](err); ok {
			for _, p := range problems {
				d.log.Error("a mistake in the configuration", "problem", p.String())
			}
			err = errors.New("see the mistakes above")
		}
		d.log.Error("the configuration cannot be used; what was there goes on", "error", err)
		return
	}
	d.log.Info("configuration loaded", "servers", len(all))
}

// serve serves until ctx is done, and then ends everything in order: no new
// connections, the sessions drain and end, what is left is cut off.
func (d *daemon) serve(ctx context.Context) {
	srv := &http.Server{
		Handler:           d.hub,
		BaseContext:       func(l net.Listener) context.Context { return observe.NewContext(access.BaseContext(l), d.observer) },
		ConnContext:       connContext,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          d.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	var wg sync.WaitGroup
	for _, l := range d.sockets {
		d.log.Info("listening", "url", d.url(l))
		var requests net.Listener = l
		if l.IsUnix() {
			var lines net.Listener
			requests, lines = listen.Split(l, d.log)
			wg.Go(func() { _ = d.hub.ServeLines(lines) }) // ends with the listener
		}
		wg.Go(func() {
			if err := srv.Serve(requests); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				d.fail(fmt.Errorf("serving on %s: %w", l.Addr(), err))
			}
		})
	}
	if d.hub.AwaitStarts(ctx); ctx.Err() == nil { // a bridge whose command cannot be started is never ready
		d.logNotifyError(d.notify.Ready(""))
	}
	var ballast []byte
	select { // whoever waits for the line above, and for the first answer, does not wait for what takes milliseconds and is for later
	case <-time.After(startpages.StartTime):
		ballast = newBallast() // it makes the collector run once
		startpages.Release()
		collectOftenUntilBusy(ctx)
		<-ctx.Done()
	case <-ctx.Done():
	}
	runtime.KeepAlive(ballast)
	d.reloadMu.Lock()
	d.isServing = false
	d.reloadMu.Unlock()
	d.logNotifyError(d.notify.Stopping(""))
	drainingServers, drainingSessions := d.hub.CountLeaving()
	d.log.Info("shutting down: calls in progress may finish, within --grace",
		"sessions", d.hub.Sessions(), "draining_servers", drainingServers, "draining_sessions", drainingSessions)
	closing, cancel := context.WithCancel(context.Background())
	wg.Go(func() { _ = srv.Shutdown(closing) }) // its error is that closing is done
	_ = d.sockets.Close()
	_ = d.hub.Close()
	// Every exchange of a session has ended by itself or does so at once now.
	time.AfterFunc(time.Second, cancel)
	wg.Wait()
	cancel()
	_ = srv.Close()
}

// connContext returns the ctx for all requests of a connection: in it are the connection's InlineReply and, at a Unix socket, the
// user at the other end.
func connContext(ctx context.Context, c net.Conn) context.Context {
	ctx = httpserve.WithInlineReply(ctx, c)
	if user := listen.PeerUser(c); user != "" {
		ctx = access.WithPeer(ctx, user)
	}
	return ctx
}

// url returns the address to show people for a listener: that of /mcp, or with --config that of /servers, both behind the path
// prefix; of a Unix socket, unix:PATH.
func (d *daemon) url(l *listen.Listener) string {
	at := l.URL()
	switch {
	case l.IsUnix():
		return at
	case d.flags.config != "":
		return at + d.flags.pathPrefix() + "/servers"
	}
	return at + d.flags.pathPrefix() + "/mcp"
}
