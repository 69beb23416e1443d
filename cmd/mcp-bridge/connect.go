package main

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/config"
	"github.com/mcp-bridge/mcp-bridge/internal/demo"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// connectFlags are the flags of connect.
type connectFlags struct {
	log    logFlags
	target targetFlags
	limits limitFlags
	config string

	set *pflag.FlagSet // all of them, once parsed
}

func (f *connectFlags) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("connect", pflag.ContinueOnError)
	f.log.register(fs)
	f.target.register(fs)
	f.limits.register(fs)
	fs.StringVar(&f.config, "config", "", "")
	return fs
}

// parse returns the server; with --config, its name.
func (f *connectFlags) parse(args []string) (to target, name string, err error) {
	f.set = f.flagSet()
	before, argv, err := parseFlags(f.set, args)
	if err == nil {
		err = f.limits.check()
	}
	switch {
	case err != nil:
		return to, "", err
	case f.config != "" && len(argv) > 0:
		return to, "", usagef("connect --config takes the name of a server in the file, no command")
	case f.config != "" && len(before) != 1:
		return to, "", usagef("connect --config FILE takes the name of one server in the file")
	case f.config != "":
		return to, before[0], nil
	case len(before) == 0 && len(argv) == 0:
		return to, "", usagef("connect needs a URL, a command after \"--\", or --config FILE and a name")
	case len(before) > 0 && len(argv) > 0:
		return to, "", usagef("connect takes a URL or a command after \"--\", not both")
	case len(before) > 1:
		return to, "", usagef("connect takes one URL; %q is one argument too many", before[1])
	case len(before) == 1:
		to.url, err = serverURL(before[0])
	default:
		to.argv = argv
	}
	return to, "", err
}

// connect presents a server to the client at our stdin and stdout.
func connect(ctx context.Context, args []string, env environment) error {
	var f connectFlags
	to, name, err := f.parse(args)
	if err != nil {
		return err
	}
	log, err := f.log.logger(env.stderr)
	if err != nil {
		return err
	}
	ctx, cancel := untilHangup(ctx, env.hangup)
	defer cancel()
	return f.log.report(log, f.run(ctx, to, name, env, log))
}

func (f *connectFlags) run(ctx context.Context, to target, name string, env environment, log hclog.Logger) error {
	warnIdle(f.set, to, log)
	settings := f.target.settings()
	f.limits.into(&settings)
	if _, _, err := erasOf(settings); err != nil {
		return err
	}
	spec, err := f.spec(to, name, &settings, env, log)
	if err != nil {
		return err
	}
	if spec.Clients, _, err = erasOf(settings); err != nil {
		return err
	}
	spec.ParkTimeout, spec.Dropped = settings.ParkTimeout, dropped(log)
	server, err := upstream.New(spec)
	if err != nil {
		return err
	}
	if server.IsCommand() {
		defer supervise(log)()
		if err := server.Check(); err != nil {
			return err
		}
	}
	client := stdio.Std(env.stdin, env.stdout, stdio.Options{
		MaxMessageSize: settings.MaxMessageSize, MaxDepth: settings.MaxDepth,
		OnNoise: func(n int, reason string) {
			log.Warn("input refused", "bytes", n, "reason", reason)
		},
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go f.giveUp(ctx, hungUp(env.stdin), cancel)
	defer func() {
		if err := server.Close(); err != nil {
			log.Warn("closing", "error", err)
		}
	}()
	opts := pumpOptions(settings, log)
	opts.Owing = func(owed, untaken int) {
		log.Info("the client sends nothing more, but answers are still waited for", "owed", owed, "untaken", untaken)
	}
	return server.Handler(true, opts).ServeConn(ctx, client)
}

// spec describes the server. With --config, settings become those of the file.
func (f *connectFlags) spec(to target, name string, settings *config.Settings, env environment, log hclog.Logger) (upstream.Spec, error) {
	if f.config == "" {
		return f.target.spec(to, &f.limits, env, log)
	}
	c, err := loadConfig(f.config, config.Options{Lookup: env.lookup, Defaults: settings, Only: name}, log)
	if err != nil {
		return upstream.Spec{}, err
	}
	s, err := c.Server(name)
	if err != nil {
		return upstream.Spec{}, usagef("%v", err)
	}
	if s.Disabled {
		log.Warn("the file says that this server is disabled; it is connected to all the same, because it was named")
	}
	*settings = s.Settings
	trust, err := f.target.tls()
	if err != nil {
		return upstream.Spec{}, err
	}
	return configured(s, trust, log)
}

// giveUp ends the run some time after the client has gone. Otherwise a server
// that takes nothing would keep us from reading on to the end of the input,
// for ever. It ends with ctx.
func (f *connectFlags) giveUp(ctx context.Context, gone <-chan struct{}, cancel func()) {
	select {
	case <-gone:
	case <-ctx.Done():
		return
	}
	t := time.NewTimer(f.limits.drain)
	defer t.Stop()
	select {
	case <-t.C:
		cancel()
	case <-ctx.Done():
	}
}

// runDemo is the demo server on our stdin and stdout.
func runDemo(ctx context.Context, args []string, env environment) error {
	fs := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	before, argv, err := parseFlags(fs, args)
	switch {
	case err != nil:
		return err
	case len(before) > 0 || len(argv) > 0:
		return usagef("demo takes no arguments")
	}
	err = demo.Serve(ctx, env.stdin, env.stdout, env.stderr)
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil // we were asked to end
	}
	return err
}
