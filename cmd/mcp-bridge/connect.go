package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/config"
	"github.com/mcp-bridge/mcp-bridge/internal/demo"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// connectFlags are the flags of connect, and of record. replay --stdio runs with them, too.
type connectFlags struct {
	log    logFlags    // the flags that say what is logged, and how
	target targetFlags // the flags that say which server it is, and how it is reached
	limits limitFlags  // the flags that bound messages and waits
	config string      // --config: the configuration file that has the server; "": the arguments name the server

	tracing tracingFlags // the flags that say what is written down of the traffic
	inspect inspectFlags // the flags that say whether a browser can look at the run, and who may

	logFile  string // --log-file: the file of the log; "": the log goes to stderr
	isRecord bool   // the command is record, whose first argument is the file to write; false: it is connect

	set *pflag.FlagSet // the set of all these flags; made by parse
}

// flagSet returns the set of all flags of connect or record; parsing it sets the fields of f, which have their defaults until then.
func (f *connectFlags) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet(f.command(), pflag.ContinueOnError)
	f.log.register(fs)
	f.target.register(fs)
	f.limits.register(fs)
	f.tracing.register(fs)
	f.inspect.register(fs)
	fs.StringVar(&f.config, "config", "", "")
	fs.StringVar(&f.logFile, "log-file", "", "")
	return fs
}

// command returns the name of the command that the flags belong to: connect or record.
func (f *connectFlags) command() string {
	if f.isRecord {
		return "record"
	}
	return "connect"
}

// parse parses and checks the arguments, and returns the server: to, or with --config its name in the file, and to is empty.
func (f *connectFlags) parse(args []string) (to target, name string, err error) {
	f.set = f.flagSet()
	positional, argv, err := parseFlags(f.set, args)
	if err == nil {
		err = f.limits.check()
	}
	if err == nil && f.isRecord {
		positional, err = f.takeRecordFile(positional)
	}
	if err == nil {
		err = f.tracing.check()
	}
	if err == nil {
		err = f.inspect.check()
	}
	if err == nil && len(positional) > 1 {
		err = f.target.splitValueError(f.command(), positional, args)
	}
	switch {
	case err != nil:
		return to, "", err
	case f.config == "" && len(positional) == 2 && isConfigFile(positional[0]):
		f.config = positional[0]
		return to, positional[1], nil
	case f.config != "" && len(argv) > 0:
		return to, "", usagef("%s --config takes the name of a server in the file, no command", f.command())
	case f.config != "" && len(positional) != 1:
		return to, "", usagef("%s --config FILE takes the name of one server in the file", f.command())
	case f.config != "":
		return to, positional[0], nil
	case len(positional) == 0 && len(argv) == 0:
		return to, "", usagef("%s needs a URL, a command after \"--\", or --config FILE and a name", f.command())
	case len(positional) > 0 && len(argv) > 0:
		return to, "", usagef("%s takes a URL or a command after \"--\", not both", f.command())
	case len(positional) == 2 && isURL(positional[0]) && isPort(positional[1]):
		return to, "", usagef("%s takes one URL; if %s is the port that a browser comes back to, write --redirect-port %[2]s", f.command(), positional[1])
	case len(positional) > 1 && !isURL(positional[0]) && !looksLikeHost(positional[0]):
		return to, "", missingDashesError(f.command(), positional[0], args)
	case len(positional) > 1:
		return to, "", usagef("%s takes one URL; %q is one argument too many", f.command(), positional[1])
	case len(positional) == 1:
		to.url, err = serverURL(positional[0])
	default:
		to.argv, err = argv, refuseOtherBridge(argv)
	}
	return to, "", err
}

// connect is the command connect: it presents a server to the client at our stdin and stdout.
func connect(ctx context.Context, args []string, env environment) error {
	return new(connectFlags).connect(ctx, args, env)
}

// connect parses args and runs the command connect, or record, to its end.
func (f *connectFlags) connect(ctx context.Context, args []string, env environment) error {
	to, name, err := f.parse(args)
	if err != nil {
		return err
	}
	out, closeLog, err := f.openLog(env.stderr)
	if err != nil {
		return err
	}
	defer closeLog()
	log, err := f.log.logger(out)
	if err != nil {
		return err
	}
	warnOtherBridge(to.argv, "connect", log)
	ctx, cancel := cancelOnHangup(ctx, env.hangup)
	defer cancel()
	err = f.run(ctx, to, name, env, log)
	if err != nil && f.logFile != "" {
		log.Error("failed", "error", err) // and it is the last line of stderr, which the client may show
		return err
	}
	return f.log.reportError(log, err)
}

// maxLogFile is how large a file of --log-file is used further, in bytes: a larger one, of earlier runs, becomes FILE.1.
const maxLogFile = 10 << 20

// openLog returns where the log goes, until closeLog is called: to stderr, or to the file of --log-file. One that has become too
// large is kept as FILE.1.
func (f *connectFlags) openLog(stderr io.Writer) (w io.Writer, closeLog func(), err error) {
	if f.logFile == "" {
		return stderr, func() {}, nil
	}
	if info, err := os.Stat(f.logFile); err == nil && info.Mode().IsRegular() && info.Size() > maxLogFile {
		_ = os.Rename(f.logFile, f.logFile+".1") // if that fails the file goes on
	}
	file, err := os.OpenFile(f.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, usagef("--log-file: %v", err)
	}
	lines := newLogWriter(file, "the file of --log-file was not written fast enough")
	return lines, func() {
		lines.close()
		_ = file.Close()
	}, nil
}

// run serves the client until it has gone, its server has ended or ctx is done. to and name are those of parse: the server, or its
// name in the file of --config. The error says why the server could not be started, or how the session has failed.
func (f *connectFlags) run(ctx context.Context, to target, name string, env environment, log hclog.Logger) error {
	warnUnusedFlags(f.set, to, log)
	settings := f.target.settings()
	f.limits.applyTo(&settings)
	if _, _, err := parseEras(settings); err != nil {
		return err
	}
	var observer observe.Observer
	traced, stopTracing, err := f.tracing.start(&observer, log)
	if err != nil {
		return err
	}
	defer stopTracing()
	env.lookup = traced.hidingLookup(env.lookup)
	spec, fileAuth, err := f.spec(to, name, &settings, env, log)
	if err != nil {
		return err
	}
	traced.hideServer(spec)
	traced.addSecrets("sign-in to "+spec.Name, secretsIn(fileAuth))
	traced.hideEnviron(spec.Name, f.target.child.addedEnv, true)
	if spec.ClientEras, _, err = parseEras(settings); err != nil {
		return err
	}
	defer sendSpans(ctx, &observer, traced.redact, env, log)()
	log, stop := env.logEvents(log, &observer)
	defer stop()
	env.eventLog.SetRedact(traced.redact)
	env.eventLog.SetLineRedact(traced.redactLine)
	spec.ParkTimeout, spec.Dropped, spec.Observer, spec.Logger = settings.ParkTimeout, observer.DroppedFunc(spec.Name), &observer, log
	auth := credentials{mayAskClient: true}
	defer auth.close()
	server, err := f.target.newServer(ctx, spec, fileAuth, &auth, env, log)
	if err != nil {
		return err
	}
	if server.IsCommand() {
		defer startSupervision(log)()
	}
	client := clientAtStdin(settings, env, log)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go cancelAfterClientGone(ctx, watchClientGone(env.stdin), settings.DrainTimeout, cancel)
	defer closeServer(server, log)
	opts := pumpOptions(settings)
	opts.OnClientEOF = logOwedAnswers(log)
	calls := observeCalls(&opts, spec.Name, &observer)
	defer calls.Close()
	stopInspect, err := f.inspect.start(inspectedRun{
		name: "connect " + spec.Name, observer: &observer, recorder: traced.recorder, env: env, log: log,
		servers: connectedServer(server, spec.Name, calls), cancelCalls: calls.Cancel,
		waitingCalls: func() []observe.WaitingCall { return observer.WaitingCalls(spec.Name, calls) },
	})
	if err != nil {
		return err
	}
	defer stopInspect()
	handler := observer.Serve(spec.Name, "stdio", auth.clientElicitor().WrapHandler(server.Handler(true, opts)))
	return traced.redactError(handler.ServeConn(observe.WithOrigin(ctx, &observe.SessionOrigin{DescribeEnd: describeConnectEnd}), client))
}

// closeServer closes the server, and logs an error of that.
func closeServer(server *upstream.Server, log hclog.Logger) {
	if err := server.Close(); err != nil {
		log.Warn("closing", "error", err)
	}
}

// clientAtStdin returns the Conn of the client at our stdin and stdout.
func clientAtStdin(settings config.Settings, env environment, log hclog.Logger) bridge.Conn {
	warnTerminal(env.stdin, log)
	return stdio.Std(env.stdin, env.stdout, stdio.Options{
		MaxMessageSize: settings.MaxMessageSize, MaxDepth: settings.MaxDepth,
		OnNoise: func(n int, reason string) {
			log.Warn("input refused", "bytes", n, "reason", reason)
		},
	})
}

// logOwedAnswers returns a function for PumpOptions.OnClientEOF: it logs that the client sends nothing more, and how many answers are still
// waited for: owed by the server, and untaken by the client.
func logOwedAnswers(log hclog.Logger) func(owed, untaken int) {
	return func(owed, untaken int) {
		log.Info("the client sends nothing more, but answers are still waited for", "owed", owed, "untaken", untaken)
	}
}

// observeCalls sets opts so that the Observer is told of calls that wait too long for their answers, time out, or whose answers are dropped.
// server is the name of the server. The caller closes the PendingCalls, which opts have now, in the end.
func observeCalls(opts *bridge.PumpOptions, server string, observer *observe.Observer) *bridge.PendingCalls {
	opts.PendingCalls = new(bridge.PendingCalls)
	observer.FollowCalls(server, opts.PendingCalls)
	opts.Dropped = observer.DroppedFunc(server)
	opts.TimedOut = observer.TimedOutFunc(server, opts.RequestTimeout)
	return opts.PendingCalls
}

// describeConnectEnd says, for the log, how connect's only session has ended. failed is always false, so that the log does not
// warn of an error: the error ends the run, and is said in the last line of stderr.
func describeConnectEnd(err error) (how string, failed bool) {
	if err != nil {
		return "with an error", false
	}
	return "the client has gone", false
}

// spec describes the server that to names. With --config it describes the one with this name in the file, sets *settings to its
// settings and the flags' addedEnv to its variables, and returns as fileAuth what the file says of signing in to it (not nil); else fileAuth
// is nil.
func (f *connectFlags) spec(to target, name string, settings *config.Settings, env environment, log hclog.Logger) (_ upstream.Spec, fileAuth map[string][]string, _ error) {
	if f.config == "" {
		spec, err := f.target.spec(to, &f.limits, env, log)
		return spec, nil, err
	}
	c, err := loadConfig(f.config, config.Options{Lookup: env.lookup, Defaults: settings, OnlyServer: name}, log)
	if err != nil {
		return upstream.Spec{}, nil, err
	}
	s, err := c.Server(name)
	if err != nil {
		return upstream.Spec{}, nil, usagef("%v", err)
	}
	if s.Disabled {
		log.Warn("the file says that this server is disabled; it is connected to all the same, because it was named")
	}
	*settings = s.Settings
	f.target.child.addedEnv = s.Environ()
	trust, err := f.target.tls()
	if err != nil {
		return upstream.Spec{}, nil, err
	}
	spec, err := upstreamSpec(s, trust, log)
	return spec, fileAuthOf(s), err
}

// warnTerminal says what connect waits for, to somebody who has started it by hand.
func warnTerminal(stdin *os.File, log hclog.Logger) {
	if isTerminal(stdin) {
		log.Warn("waiting for an MCP client at stdin, which is a terminal: clients start this command themselves; to see whether the server works, use \"mcp-bridge doctor\"")
	}
}

// isTerminal reports whether a file is a terminal, as far as can be told everywhere: a device
// of characters that is not the null device.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// cancelAfterClientGone waits until gone is closed and then for the time after, and calls cancel, which ends the run. Otherwise a
// server that takes nothing would keep us from reading on to the end of the input, for ever. If ctx ends before, it returns.
func cancelAfterClientGone(ctx context.Context, gone <-chan struct{}, after time.Duration, cancel func()) {
	select {
	case <-gone:
	case <-ctx.Done():
		return
	}
	t := time.NewTimer(after)
	defer t.Stop()
	select {
	case <-t.C:
		cancel()
	case <-ctx.Done():
	}
}

// runDemo is the command demo: it runs the demo server on our stdin and stdout.
func runDemo(ctx context.Context, args []string, env environment) error {
	fs := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	positional, argv, err := parseFlags(fs, args)
	switch {
	case err != nil:
		return err
	case len(positional) > 0 || len(argv) > 0:
		return usagef("demo takes no arguments")
	}
	err = demo.Serve(ctx, env.stdin, env.stdout, env.stderr)
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil // we were asked to end
	}
	return err
}
