package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/demo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// connectFlags are the flags of connect.
type connectFlags struct {
	log    logFlags
	child  childFlags
	limits limitFlags

	header         []string
	headerFile     string
	connectTimeout time.Duration
}

func (f *connectFlags) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("connect", pflag.ContinueOnError)
	f.log.register(fs)
	f.child.register(fs)
	f.limits.register(fs)
	fs.StringArrayVar(&f.header, "header", nil, "")
	fs.StringVar(&f.headerFile, "header-file", "", "")
	fs.DurationVar(&f.connectTimeout, "connect-timeout", 10*time.Second, "")
	return fs
}

func (f *connectFlags) parse(args []string) (url string, argv []string, err error) {
	before, argv, err := parseFlags(f.flagSet(), args)
	switch {
	case err != nil:
		return "", nil, err
	case len(before) == 0 && len(argv) == 0:
		return "", nil, usagef("connect needs a URL, or a command after \"--\"")
	case len(before) > 0 && len(argv) > 0:
		return "", nil, usagef("connect takes a URL or a command after \"--\", not both")
	case len(before) > 1:
		return "", nil, usagef("connect takes one URL; %q is one argument too many", before[1])
	case len(before) == 1:
		url, err = serverURL(before[0])
	}
	return url, argv, err
}

// connect presents a server to the client at our stdin and stdout.
func connect(ctx context.Context, args []string, env environment) error {
	var f connectFlags
	url, argv, err := f.parse(args)
	if err != nil {
		return err
	}
	log, err := f.log.logger(env.stderr)
	if err != nil {
		return err
	}
	return f.log.report(log, f.run(ctx, url, argv, env, log))
}

func (f *connectFlags) run(ctx context.Context, url string, argv []string, env environment, log hclog.Logger) error {
	dialer, cleanUp, err := f.dialer(url, argv, env, log)
	if err != nil {
		return err
	}
	defer cleanUp()
	var batches atomic.Bool
	conn := stdio.Std(env.stdin, env.stdout, stdio.Options{
		MaxMessageSize: int(f.limits.maxMessage),
		AcceptBatch:    batches.Load,
		OnNoise: func(n int, reason string) {
			log.Warn("input refused", "bytes", n, "reason", reason)
		},
	})
	client := &negotiated{Conn: conn, batches: &batches}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go f.giveUp(ctx, hungUp(env.stdin), cancel)
	return bridge.Serve(dialer, f.limits.pump(log)).ServeConn(ctx, client)
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

// negotiated watches for the answer to initialize, which says whether the
// client may send batches (ST5): only revision 2025-03-26 has them.
type negotiated struct {
	bridge.Conn
	batches *atomic.Bool
	known   atomic.Bool
}

func (n *negotiated) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() == jsonrpc.Response && !n.known.Load() {
		if v := m.Lookup("result", "protocolVersion"); v != nil {
			n.batches.Store(string(v) == `"2025-03-26"`)
			n.known.Store(true)
		}
	}
	return n.Conn.Send(ctx, m)
}

// dialer returns how the server is reached.
func (f *connectFlags) dialer(url string, argv []string, env environment, log hclog.Logger) (bridge.Dialer, func(), error) {
	if url == "" {
		spec, err := f.child.spec(argv, env.lookup)
		if err != nil {
			return nil, nil, err
		}
		cleanUp := supervise(log)
		children := newChildren(spec, int(f.limits.maxMessage), log)
		if err := children.check(); err != nil {
			cleanUp()
			return nil, nil, err
		}
		return children, cleanUp, nil
	}
	header, err := headers(f.header, f.headerFile, env.lookup)
	if err != nil {
		return nil, nil, err
	}
	return &streamhttp.Client{URL: url, Options: streamhttp.ClientOptions{
		Header:         header,
		MaxMessageSize: int(f.limits.maxMessage),
		ConnectTimeout: f.connectTimeout,
		Logger:         log,
	}}, func() {}, nil
}

// runDemo is the demo server on our stdin and stdout.
func runDemo(ctx context.Context, args []string, env environment) error {
	if len(args) > 0 {
		return usagef("demo takes no arguments")
	}
	err := demo.Serve(ctx, env.stdin, env.stdout, env.stderr)
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil // we were asked to end
	}
	return err
}
