package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/config"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
	"github.com/mcp-bridge/mcp-bridge/internal/listen"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	log     logFlags     // the flags that say what is logged, and how
	target  targetFlags  // the flags that say which server it is, and how it is reached
	limits  limitFlags   // the flags that bound messages and waits
	listen  listenFlags  // the flags that say where clients come in, and with which certificates
	access  accessFlags  // the flags that say who may come in
	protect protectFlags // the flags that say whose access tokens are accepted
	scale   scaleFlags   // the flags that bound sessions and processes
	metrics metricsFlags // the flags about metrics
	tracing tracingFlags // the flags that say what is written down of the traffic
	inspect inspectFlags // the flags that say whether a browser can look at the run, and who may

	demo   bool   // --demo: serve the built-in demo server
	config string // --config, or a FILE.json in the place of a URL: the configuration file whose servers are served; "": there is one server, of the command line

	set *pflag.FlagSet // the set of all these flags; made by parse (of replay --serve, by replayServer)
}

// flagSet returns the set of all flags of serve; parsing it sets the fields of f, which have their defaults until then.
func (f *serveFlags) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.log.register(fs)
	f.target.register(fs)
	f.limits.register(fs)
	f.listen.register(fs)
	f.access.register(fs)
	f.protect.register(fs)
	f.scale.register(fs)
	f.metrics.register(fs)
	f.tracing.register(fs)
	f.inspect.register(fs)
	fs.BoolVar(&f.demo, "demo", false, "")
	fs.StringVar(&f.config, "config", "", "")
	return fs
}

// parse parses and checks the arguments of serve, and returns where to listen, and to, the server (empty with --config).
func (f *serveFlags) parse(args []string) (where listenAddresses, to target, err error) {
	fs := f.flagSet()
	f.set = fs
	positional, argv, err := parseFlags(fs, args)
	if err != nil {
		return where, to, err
	}
	if to, err = f.chooseTarget(args, positional, argv); err != nil {
		return where, to, err
	}
	where, err = f.check()
	return where, to, err
}

// check returns the first mistake in the flags, once they are parsed, as err, or else where to listen.
func (f *serveFlags) check() (where listenAddresses, err error) {
	if err := f.scale.check(); err != nil {
		return where, err
	}
	if err := f.limits.check(); err != nil {
		return where, err
	}
	if _, _, err := parseEras(f.target.settings()); err != nil {
		return where, err
	}
	if err := f.listen.check(); err != nil {
		return where, err
	}
	prefix, err := f.access.publicPrefix()
	if err != nil {
		return where, err
	}
	if err := f.protect.check(prefix); err != nil {
		return where, err
	}
	if err := f.tracing.check(); err != nil {
		return where, err
	}
	if err := f.inspect.check(); err != nil {
		return where, err
	}
	if err := f.metrics.check(); err != nil {
		return where, err
	}
	return f.listen.addresses(f.set)
}

// chooseTarget finds out which server is meant. args are all arguments; of those that belong to no flag, positional stand before "--", and
// argv behind it. If the only one is a configuration file, it sets f.config, and to is empty.
func (f *serveFlags) chooseTarget(args, positional, argv []string) (to target, err error) {
	if len(positional) == 1 && f.config == "" && isConfigFile(positional[0]) {
		f.config, positional = positional[0], nil
	}
	if err := f.target.splitValueError("serve", positional, args); err != nil {
		return to, err
	}
	named := 0
	for _, given := range []bool{len(positional) > 0, len(argv) > 0, f.demo, f.config != ""} {
		if given {
			named++
		}
	}
	switch {
	case len(positional) > 0 && slices.Contains(commandNames(), positional[0]):
		return to, usagef("put %q first: mcp-bridge %s [flags] ...", positional[0], positional[0])
	case len(positional) > 0 && f.config != "":
		return to, usagef("serve --config exposes every server of the file; leave %q out", positional[0])
	case len(positional) > 0 && !isURL(positional[0]) && !looksLikeHost(positional[0]):
		return to, missingDashesError("serve", positional[0], args)
	case len(positional) > 1:
		return to, usagef("serve takes one URL; %q is one argument too many", positional[1])
	case f.demo && len(argv) > 0:
		return to, usagef("--demo serves the built-in server; leave the command out")
	case named > 1:
		return to, usagef("serve takes one of a command after \"--\", a URL, --config and --demo")
	case named == 0:
		return to, usagef("serve needs a command after \"--\", a URL, --config FILE, or --demo")
	case f.demo:
		to.argv, err = demoCommand()
		if f.target.child.name == "" {
			f.target.child.name = "demo"
		}
	case len(positional) == 1:
		to.url, err = serverURL(positional[0])
	default:
		to.argv, err = argv, refuseOtherBridge(argv)
	}
	return to, err
}

// missingDashesError returns the usageError for the arguments of a command of ours that lack the "--" in front of program, the program to run:
// it says where the "--" belongs. What looks like a flag of ours behind the program is one of the program's own.
func missingDashesError(command, program string, args []string) error {
	argv := args[max(0, slices.Index(args, program)):]
	return usagef("unexpected %q: write the command to run after \"--\": mcp-bridge %s -- %s", program, command, shownCommand(argv))
}

// serve is the command serve: it exposes servers over the network until ctx is done.
func serve(ctx context.Context, args []string, env environment) error {
	var f serveFlags
	where, to, err := f.parse(args)
	if err != nil {
		return err
	}
	log, err := f.log.logger(env.stderr)
	if err != nil {
		return err
	}
	return f.log.reportError(log, f.run(ctx, where, to, env, log))
}

// run serves the server that to names, or with --config those of the file, until ctx is done.
func (f *serveFlags) run(ctx context.Context, where listenAddresses, to target, env environment, log hclog.Logger) error {
	warnUnusedFlags(f.set, to, log)
	warnOtherBridge(to.argv, "serve", log)
	var observer observe.Observer
	traced, stopTracing, err := f.tracing.start(&observer, log)
	if err != nil {
		return err
	}
	defer stopTracing()
	traced.hideTokens(f.access.tokenFile, env)
	env.lookup = traced.hidingLookup(env.lookup)
	guard, err := f.access.policy(env, log)
	if err != nil {
		return err
	}
	staticTokens := guard.Tokens
	protection, err := f.protect.newProtection(staticTokens, f.target.caFile, traced, log)
	if err != nil {
		return err
	}
	defer protection.Close()
	if err := protection.checkIssuers(ctx, log); err != nil {
		return err
	}
	guard = protection.addTo(guard)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopWhenClosed(env.stdin, func() {
		log.Info("stdin was closed: stopping")
		cancel(nil)
	})
	log, stop := env.logEvents(log, &observer)
	defer stop()
	env.eventLog.SetRedact(traced.redact)
	env.eventLog.SetLineRedact(traced.redactLine)
	d := &daemon{
		flags: f, env: env, log: log, observer: &observer, tracing: traced, fail: cancel, guard: guard, staticTokens: staticTokens, protection: protection,
		hub: hub.New(f.hubOptions(guard, protection, &observer, log)),
	}
	return d.run(ctx, where, to)
}

// pathPrefix returns the path that clients see in front of the bridge's own paths: --path-prefix, or else that of --public-url.
func (f *serveFlags) pathPrefix() string {
	prefix, _ := f.access.publicPrefix()
	return cmp.Or(prefix, f.protect.publicPath())
}

// hubOptions returns the options of the hub. p is nil if no access tokens are accepted.
func (f *serveFlags) hubOptions(guard access.Policy, p *protection, observer *observe.Observer, log hclog.Logger) hub.Options {
	o := hub.Options{
		Guard: guard, PathPrefix: f.pathPrefix(), PublicURL: strings.TrimRight(f.protect.publicURL, "/"), SingleServer: f.config == "",
		PeerUser: listen.PeerUser, Observer: observer, Logger: log,
	}
	if p != nil {
		o.Metadata, o.TaskIDSecret = p.MetadataHandler(), func() []byte { return p.taskIDSecret(f.listen.key) }
	}
	return o
}

// spec describes the one server of the command line.
func (f *serveFlags) spec(to target, env environment, log hclog.Logger) (hub.Spec, error) {
	up, err := f.target.spec(to, &f.limits, env, log)
	if err != nil {
		return hub.Spec{}, err
	}
	spec := newHubSpec(up.Name, f.settings(), log)
	spec.Upstream = up
	return spec, nil
}

// settings returns the settings of a server that the flags give it. For a server of a configuration file, they are the defaults.
func (f *serveFlags) settings() config.Settings {
	s := f.target.settings()
	f.limits.applyTo(&s)
	s.Isolation = f.scale.isolation
	s.MaxSessions, s.MaxChildren = f.scale.maxSessions, f.scale.maxChildren
	s.Queue, s.QueueTimeout = f.scale.queue, f.scale.queueTimeout
	s.SessionTimeout = f.scale.sessionTimeout
	return s
}
