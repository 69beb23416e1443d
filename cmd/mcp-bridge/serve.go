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
	log     logFlags
	target  targetFlags
	limits  limitFlags
	listen  listenFlags
	access  accessFlags
	protect protectFlags
	scale   scaleFlags
	metrics metricsFlags
	tracing tracingFlags
	inspect inspectFlags

	demo   bool
	config string

	set *pflag.FlagSet // all of them, once parsed
}

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

// parse returns what is served (nothing with --config) and where.
func (f *serveFlags) parse(args []string) (where addresses, to target, err error) {
	fs := f.flagSet()
	f.set = fs
	before, argv, err := parseFlags(fs, args)
	if err != nil {
		return where, to, err
	}
	if to, err = f.chooseTarget(args, before, argv); err != nil {
		return where, to, err
	}
	where, err = f.check()
	return where, to, err
}

// check finds mistakes in the flags that were parsed, and returns where to listen.
func (f *serveFlags) check() (where addresses, err error) {
	if err := f.scale.check(); err != nil {
		return where, err
	}
	if err := f.limits.check(); err != nil {
		return where, err
	}
	if _, _, err := erasOf(f.target.settings()); err != nil {
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

// chooseTarget finds out which server is meant: args are all arguments, of which before and argv belong to no flag.
func (f *serveFlags) chooseTarget(args, before, argv []string) (to target, err error) {
	if len(before) == 1 && f.config == "" && isConfigFile(before[0]) {
		f.config, before = before[0], nil
	}
	if err := f.target.splitHeaderError("serve", before, args); err != nil {
		return to, err
	}
	named := 0
	for _, given := range []bool{len(before) > 0, len(argv) > 0, f.demo, f.config != ""} {
		if given {
			named++
		}
	}
	switch {
	case len(before) > 0 && slices.Contains(commandNames(), before[0]):
		return to, usagef("put %q first: mcp-bridge %s [flags] ...", before[0], before[0])
	case len(before) > 0 && f.config != "":
		return to, usagef("serve --config exposes every server of the file; leave %q out", before[0])
	case len(before) > 0 && !isURL(before[0]) && !looksLikeHost(before[0]):
		return to, lacksDashes("serve", before[0], args)
	case len(before) > 1:
		return to, usagef("serve takes one URL; %q is one argument too many", before[1])
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
	case len(before) == 1:
		to.url, err = serverURL(before[0])
	default:
		to.argv, err = argv, notForeign(argv)
	}
	return to, err
}

// lacksDashes says where the "--" belongs that a command of ours lacks in front of the program to run. What looks like a flag
// of ours behind the program is one of its own.
func lacksDashes(command, program string, args []string) error {
	argv := args[max(0, slices.Index(args, program)):]
	return usagef("unexpected %q: write the command to run after \"--\": mcp-bridge %s -- %s", program, command, shownCommand(argv))
}

// serve exposes servers until ctx is done.
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
	return f.log.report(log, f.run(ctx, where, to, env, log))
}

func (f *serveFlags) run(ctx context.Context, where addresses, to target, env environment, log hclog.Logger) error {
	warnUnusedFlags(f.set, to, log)
	warnForeign(to.argv, "serve", log)
	var seen observe.Observer
	traced, end, err := f.tracing.begin(&seen, log)
	if err != nil {
		return err
	}
	defer end()
	traced.hideTokens(f.access.tokenFile, env)
	env.lookup = traced.hidingLookup(env.lookup)
	guard, err := f.access.policy(env, log)
	if err != nil {
		return err
	}
	keys := guard.Tokens
	protection, err := f.protect.protection(keys, f.target.caFile, traced, log)
	if err != nil {
		return err
	}
	defer protection.Close()
	if err := protection.ask(ctx, log); err != nil {
		return err
	}
	guard = protection.guard(guard)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopWhenClosed(env.stdin, func() {
		log.Info("stdin was closed: stopping")
		cancel(nil)
	})
	log, stop := env.logEvents(log, &seen)
	defer stop()
	env.eventLog.Hide(traced.redact)
	env.eventLog.HideLines(traced.redactLine)
	d := &daemon{
		flags: f, env: env, log: log, observer: &seen, traced: traced, fail: cancel, guard: guard, keys: keys, protection: protection,
		hub: hub.New(f.hub(guard, protection, &seen, log)),
	}
	return d.run(ctx, where, to)
}

// hub returns the options of the hub. The prefix was checked.
func (f *serveFlags) hub(guard access.Policy, p *protection, seen *observe.Observer, log hclog.Logger) hub.Options {
	prefix, _ := f.access.publicPrefix()
	o := hub.Options{
		Guard: guard, PathPrefix: cmp.Or(prefix, f.protect.publicPath()), PublicURL: strings.TrimRight(f.protect.publicURL, "/"), SingleServer: f.config == "",
		PeerUser: listen.PeerUser, Observer: seen, Logger: log,
	}
	if p != nil {
		o.Metadata, o.TaskSecret = p.Metadata(), func() []byte { return p.taskSecret(f.listen.key) }
	}
	return o
}

// spec describes the one server of the command line.
func (f *serveFlags) spec(to target, env environment, log hclog.Logger) (hub.Spec, error) {
	up, err := f.target.spec(to, &f.limits, env, log)
	if err != nil {
		return hub.Spec{}, err
	}
	spec := serverSpec(up.Name, f.settings(), log)
	spec.Upstream = up
	return spec, nil
}

// settings returns what the flags say about any server.
func (f *serveFlags) settings() config.Settings {
	s := f.target.settings()
	f.limits.into(&s)
	s.Isolation = f.scale.isolation
	s.MaxSessions, s.MaxChildren = f.scale.maxSessions, f.scale.maxChildren
	s.Queue, s.QueueTimeout = f.scale.queue, f.scale.queueTimeout
	s.SessionTimeout = f.scale.sessionTimeout
	return s
}
