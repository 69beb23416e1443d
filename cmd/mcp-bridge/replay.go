package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/replay"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// replayInputFlags are those flags of replay, in the client's place and in the server's, that say what it reads of its input, a recording.
type replayInputFlags struct {
	session       string // --session: which session of the recording; "": the first one
	hop           string // --hop: which messages of the recording are played: "down", those between clients and the bridge, or "up", those between the bridge and servers
	allowRedacted bool   // --allow-redacted: use a recording although secrets were taken out of it
}

// register adds the flags of replayInputFlags to fs, and gives the fields their defaults.
func (f *replayInputFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.session, "session", "", "")
	fs.StringVar(&f.hop, "hop", "down", "")
	fs.BoolVar(&f.allowRedacted, "allow-redacted", false, "")
}

// load reads the recording in a file, and logs the faults with which it can still be used.
func (f *replayInputFlags) load(file string, log hclog.Logger) (*replay.Recording, error) {
	if f.hop != "down" && f.hop != "up" {
		return nil, usagef("--hop %q: use down or up", f.hop)
	}
	in, err := os.Open(file)
	if err != nil {
		return nil, usagef("%v", err)
	}
	defer in.Close()
	rec, err := replay.Load(in, replay.LoadOptions{Session: f.session, Hop: f.hop, AllowRedacted: f.allowRedacted})
	switch {
	case errors.Is(err, replay.ErrRedacted):
		return nil, &notRunError{fmt.Errorf("%s: %w; with --allow-redacted it is used all the same", file, err)}
	case err != nil:
		return nil, &notRunError{fmt.Errorf("%s: %w", file, err)}
	}
	for _, fault := range rec.Faults {
		log.Warn("recording", "fault", fault)
	}
	return rec, nil
}

// replayCommand is the command replay: it plays the client of a recording or, with --serve or --stdio, the server.
func replayCommand(ctx context.Context, args []string, env environment) error {
	own := args
	if i := slices.Index(args, "--"); i >= 0 {
		own = args[:i]
	}
	if slices.Contains(own, "--serve") || slices.Contains(own, "--stdio") {
		return replayServer(ctx, args, env)
	}
	return replayClient(ctx, args, env)
}

// replayFlags are the flags of replay in the client's place: without --serve and --stdio.
type replayFlags struct {
	log       logFlags         // the flags that say what is logged, and how
	target    targetFlags      // the flags that say which server it is, and how it is reached
	limits    limitFlags       // the flags that bound messages and waits
	recording replayInputFlags // the flags that say what is read of the recording

	ignore []string      // --ignore: what may differ from the recorded answers
	wait   time.Duration // --wait: how much longer than in the recording to wait for the server; more than 0
	timing bool          // --timing: keep the pauses of the recording

	set *pflag.FlagSet // the set of all these flags; made by parse
}

// flagSet returns the set of all flags of replay without --serve and --stdio; parsing it sets the fields of f, which have their defaults until
// then.
func (f *replayFlags) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("replay", pflag.ContinueOnError)
	f.log.register(fs)
	f.target.register(fs)
	f.limits.register(fs)
	f.recording.register(fs)
	fs.StringArrayVar(&f.ignore, "ignore", nil, "")
	fs.DurationVar(&f.wait, "wait", replay.DefaultWait, "")
	fs.BoolVar(&f.timing, "timing", false, "")
	return fs
}

// parse parses and checks the arguments, and returns the name of the recording's file, and the server.
func (f *replayFlags) parse(args []string) (file string, to target, err error) {
	f.set = f.flagSet()
	positional, argv, err := parseFlags(f.set, args)
	if err == nil {
		err = f.limits.check()
	}
	switch {
	case err != nil:
		return "", to, err
	case f.wait <= 0:
		return "", to, usagef("--wait must be more than 0")
	case len(positional) == 0:
		return "", to, usagef("replay needs the file of a recording, and a URL or a command after \"--\", or --serve")
	case len(positional) == 1 && len(argv) == 0:
		return "", to, usagef("replay needs a URL or a command after \"--\" to say the recording to, or --serve")
	case len(positional) > 1 && len(argv) > 0:
		return "", to, usagef("replay takes a URL or a command after \"--\", not both")
	case len(positional) > 2:
		return "", to, usagef("replay takes a file and a URL; %q is one argument too many", positional[2])
	case len(positional) == 2:
		to.url, err = serverURL(positional[1])
	default:
		to.argv = argv
	}
	return positional[0], to, err
}

// errDiffers is the error of replay, in the client's place, if answers differ from the recorded ones. It makes the exit status 1, and nothing
// more is printed: the report has the differences.
var errDiffers = &loggedError{errors.New("there are differences")}

// replayClient is the command replay without --serve and --stdio: it sends a server what the recorded client has sent, and compares the answers.
func replayClient(ctx context.Context, args []string, env environment) error {
	f := replayFlags{}
	file, to, err := f.parse(args)
	if err != nil {
		return err
	}
	ignore, err := replay.Ignore(f.ignore)
	if err != nil {
		return usagef("--ignore %v", err)
	}
	log, err := f.log.logger(env.stderr)
	if err != nil {
		return err
	}
	rec, err := f.recording.load(file, log)
	if err != nil {
		return err
	}
	report, err := f.play(ctx, rec, to, replay.PlayOptions{Wait: f.wait, KeepPauses: f.timing, Ignore: ignore}, env, log)
	if _, usage := errors.AsType[*usageError](err); err != nil && !usage {
		err = &notRunError{err}
	}
	if err != nil {
		return err
	}
	if err := report.Write(env.stdout); err != nil {
		return &notRunError{err}
	}
	switch {
	case len(report.Unanswered) > 0:
		return &notRunError{errors.New("the server has asked what the recording has no answer to")}
	case len(report.Differences) > 0:
		return errDiffers
	}
	return nil
}

// play sends a server, which it reaches as connect does, what the recorded client has sent, and returns the comparison of the answers.
func (f *replayFlags) play(ctx context.Context, rec *replay.Recording, to target, o replay.PlayOptions, env environment, log hclog.Logger) (_ *replay.Report, err error) {
	warnUnusedFlags(f.set, to, log)
	for _, name := range []string{"drain-timeout", "grace"} {
		if f.set.Changed(name) {
			log.Warn("--" + name + " has no effect in the client's place: nothing is waited for at the end")
		}
	}
	settings := f.target.settings()
	f.limits.applyTo(&settings)
	var observer observe.Observer // of nobody: it is there for the secrets that its recorder takes out
	traced, stopTracing, err := new(tracingFlags).start(&observer, log)
	if err != nil {
		return nil, err
	}
	defer stopTracing()
	env.lookup = traced.hidingLookup(env.lookup)
	spec, err := f.target.spec(to, &f.limits, env, log)
	if err != nil {
		return nil, err
	}
	traced.hideServer(spec)
	traced.hideEnviron(spec.Name, f.target.child.addedEnv, true)
	if spec.ClientEras, _, err = parseEras(settings); err != nil {
		return nil, err
	}
	spec.ParkTimeout, spec.Dropped = settings.ParkTimeout, func(m jsonrpc.Message, reason string) {
		log.Info("message dropped", "reason", reason, "method", m.Method(), "id", m.ID().String())
	}
	var auth credentials
	defer auth.close()
	server, err := f.target.newServer(ctx, spec, nil, &auth, env, log)
	if err != nil {
		return nil, err
	}
	if server.IsCommand() {
		defer startSupervision(log)()
	}
	opts := pumpOptions(settings)
	opts.Dropped = spec.Dropped
	opts.DrainTimeout, opts.ShutdownGrace = -1, -1 // what has not come by then is not waited for
	client, bridgeSide := bridge.Pipe()
	serveCtx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var serveErr error
	wg.Go(func() {
		serveErr = server.Handler(true, opts).ServeConn(serveCtx, bridgeSide)
		_ = bridgeSide.Close(serveErr)
	})
	report, err := replay.Play(ctx, client, rec, o)
	_ = client.Close(nil)
	stop()
	wg.Wait()
	if closing := server.Close(); closing != nil {
		log.Warn("closing", "error", closing)
	}
	if errors.Is(err, replay.ErrNoServer) && serveErr != nil && !errors.Is(serveErr, context.Canceled) {
		err = fmt.Errorf("%w (%w)", err, serveErr)
	}
	return report, traced.redactError(err)
}

// replayServeFlags are the flags of replay in the server's place: with --serve or --stdio.
type replayServeFlags struct {
	serveFlags                    // the flags of serve; --config and --demo cannot be given
	recording    replayInputFlags // the flags that say what is read of the recording
	mustMatchAll bool             // --strict: the run fails unless all that is recorded was asked, and nothing else
	stdio        bool             // --stdio: the client is at our stdin and stdout, as with connect
}

// flagSet returns the set of all flags of replay with --serve or --stdio; parsing it sets the fields of f, which have their defaults until
// then.
func (f *replayServeFlags) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("replay", pflag.ContinueOnError)
	f.serveFlags.flagSet().VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "config" && flag.Name != "demo" {
			fs.AddFlag(flag)
		}
	})
	f.recording.register(fs)
	fs.Bool("serve", false, "") // replayCommand looks for it among the arguments
	fs.BoolVar(&f.stdio, "stdio", false, "")
	fs.BoolVar(&f.mustMatchAll, "strict", false, "")
	return fs
}

// replayServer is the command replay with --serve or --stdio: it answers clients as the recorded server has answered.
func replayServer(ctx context.Context, args []string, env environment) error {
	var f replayServeFlags
	f.set = f.flagSet()
	positional, argv, err := parseFlags(f.set, args)
	switch {
	case err != nil:
		return err
	case len(argv) > 0:
		return usagef("replay --serve takes a file and no command: the recording is the server")
	case len(positional) != 1:
		return usagef("replay --serve takes one file")
	}
	where, err := f.check()
	if err != nil {
		return err
	}
	log, err := f.log.logger(env.stderr)
	if err != nil {
		return err
	}
	rec, err := f.recording.load(positional[0], log)
	if err != nil {
		return err
	}
	fake := replay.NewFake(rec)
	if f.target.child.name == "" {
		f.target.child.name = rec.Server
	}
	err = f.serveOverSocket(fake, func(to target) error {
		if !f.stdio {
			return f.run(ctx, where, to, env, log)
		}
		f.warnUnusedAtStdio(log)
		c := connectFlags{log: f.log, target: f.target, limits: f.limits, tracing: f.tracing, inspect: f.inspect, set: f.set}
		ctx, cancel := cancelOnHangup(ctx, env.hangup)
		defer cancel()
		return c.run(ctx, to, "", env, log)
	})
	return f.log.reportError(log, errors.Join(err, f.reportUsage(fake.Usage(), log)))
}

// warnUnusedAtStdio logs a warning for each flag that the user has given and that has an effect with --serve alone, not with --stdio.
func (f *replayServeFlags) warnUnusedAtStdio(log hclog.Logger) {
	ofConnect, own := new(connectFlags).flagSet(), pflag.NewFlagSet("replay", pflag.ContinueOnError)
	new(replayInputFlags).register(own)
	f.set.Visit(func(flag *pflag.Flag) {
		isOwn := own.Lookup(flag.Name) != nil || slices.Contains([]string{"serve", "stdio", "strict"}, flag.Name)
		if !isOwn && ofConnect.Lookup(flag.Name) == nil {
			log.Warn("--" + flag.Name + " has no effect with --stdio")
		}
	})
}

// serveOverSocket puts the fake server behind a Unix socket that only this user can reach, and calls serve with the address of the socket, as
// that of a remote server. When serve has returned, it closes the socket, and returns the error of serve. So every transport, era and limit
// is that of any other server, and one process knows what was asked.
func (f *replayServeFlags) serveOverSocket(fake *replay.Fake, serve func(to target) error) error {
	dir, err := os.MkdirTemp("", "mcp-replay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	sockets := stdio.NewSocketServer(fake, stdio.ServerOptions{
		MaxMessageSize: int(f.limits.maxMessage), MaxDepth: f.limits.maxDepth, MaxSessions: 1 << 20, ChunkTimeout: -1,
	})
	var wg sync.WaitGroup
	wg.Go(func() { _ = sockets.Serve(l) }) // ends with Close
	err = serve(target{url: "unix:" + path})
	_ = l.Close()
	_ = sockets.Close()
	wg.Wait()
	return err
}

// reportUsage logs which recorded requests clients did not send, and which others they sent, the first few of each, and how many there are.
// With --strict it is an error if there are any.
func (f *replayServeFlags) reportUsage(u replay.Usage, log hclog.Logger) error {
	for _, text := range u.Misses {
		log.Warn("was asked and is not in the recording", "request", text)
	}
	for _, text := range u.Unasked {
		log.Warn("is in the recording and was not asked", "request", text)
	}
	log.Info("recording", "requests", u.Requests, "asked", u.Asked, "missed", u.MissCount)
	if f.mustMatchAll && (u.Asked < u.Requests || u.MissCount > 0) {
		return fmt.Errorf("%d of %d recorded requests were not asked, %d that were asked are not in the recording", u.Requests-u.Asked, u.Requests, u.MissCount)
	}
	return nil
}
