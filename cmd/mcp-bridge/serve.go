package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/httpguard"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	log    logFlags
	child  childFlags
	limits limitFlags
	listen listenFlags

	demo           bool
	origins, hosts []string
	maxSessions    int
	sessionTimeout time.Duration
}

func (f *serveFlags) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.log.register(fs)
	f.child.register(fs)
	f.limits.register(fs)
	f.listen.register(fs)
	fs.BoolVar(&f.demo, "demo", false, "")
	fs.StringArrayVar(&f.origins, "allow-origin", nil, "")
	fs.StringArrayVar(&f.hosts, "allow-host", nil, "")
	fs.IntVar(&f.maxSessions, "max-sessions", 1000, "")
	fs.DurationVar(&f.sessionTimeout, "session-timeout", 30*time.Minute, "")
	return fs
}

func (f *serveFlags) parse(args []string) (addrs, argv []string, err error) {
	fs := f.flagSet()
	before, argv, err := parseFlags(fs, args)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case len(before) > 0 && isURL(before[0]):
		return nil, nil, usagef("serve exposes a command, not a URL; \"mcp-bridge connect %s\" presents it as a stdio process", before[0])
	case len(before) > 0 && slices.Contains([]string{"serve", "connect", "demo", "version", "help"}, before[0]):
		return nil, nil, usagef("put %q first: mcp-bridge %s [flags] ...", before[0], before[0])
	case len(before) > 0:
		return nil, nil, usagef("unexpected %q: write the command to serve after \"--\", as in \"mcp-bridge serve -- %s\"", before[0], strings.Join(before, " "))
	case f.demo && len(argv) > 0:
		return nil, nil, usagef("--demo serves the built-in server; leave the command out")
	case !f.demo && len(argv) == 0:
		return nil, nil, usagef("serve needs a command after \"--\", or --demo")
	case f.maxSessions <= 0:
		return nil, nil, usagef("--max-sessions must be at least 1")
	}
	if f.demo {
		self, err := os.Executable()
		if err != nil {
			return nil, nil, fmt.Errorf("finding this program to run the demo: %w", err)
		}
		argv = []string{self, "demo"}
		if f.child.name == "" {
			f.child.name = "demo"
		}
	}
	addrs, err = f.listen.addresses(fs)
	return addrs, argv, err
}

// serve exposes a stdio server over HTTP until ctx is done.
func serve(ctx context.Context, args []string, env environment) error {
	var f serveFlags
	addrs, argv, err := f.parse(args)
	if err != nil {
		return err
	}
	log, err := f.log.logger(env.stderr)
	if err != nil {
		return err
	}
	return f.log.report(log, f.run(ctx, addrs, argv, env, log))
}

func (f *serveFlags) run(ctx context.Context, addrs, argv []string, env environment, log hclog.Logger) error {
	spec, err := f.child.spec(argv, env.lookup)
	if err != nil {
		return err
	}
	options, err := f.handlerOptions(log)
	if err != nil {
		return err
	}
	defer supervise(log)()
	children := newChildren(spec, int(f.limits.maxMessage), log)
	if err := children.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopWhenClosed(env.stdin, func() {
		log.Info("stdin was closed: stopping")
		cancel(nil)
	})
	listeners, err := f.bind(addrs)
	if err != nil {
		return err
	}
	ahead, err := newSpare(children, cancel, children.log)
	if err != nil {
		closeAll(listeners)
		return err
	}
	defer ahead.close()
	handler := streamhttp.NewHandler(bridge.Serve(ahead, f.limits.pump(log)), options)
	srv := newServer(routes(handler, children, &options.Guard), log)
	for _, l := range listeners {
		log.Info("listening", "url", "http://"+l.Addr().String()+"/mcp", "server", spec.Name)
	}
	serveUntil(ctx, srv, listeners, handler, cancel, log)
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// bind opens the listening sockets.
func (f *serveFlags) bind(addrs []string) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, a := range addrs {
		l, err := net.Listen("tcp", a)
		if err != nil {
			closeAll(listeners)
			if errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("%w: stop the other program, or choose another with --port or --listen", syscall.EADDRINUSE)
			}
			return nil, fmt.Errorf("listening on %s: %w", a, err)
		}
		listeners = append(listeners, l)
		// What counts is the address, whatever name it was given by.
		if !httpguard.IsLoopbackAddr(l.Addr().String()) && !f.listen.insecure {
			closeAll(listeners)
			return nil, usagef("%s can be reached by other machines and nobody is authenticated; bind 127.0.0.1, or say --insecure if something in front takes care of that", a)
		}
	}
	return listeners, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

func (f *serveFlags) handlerOptions(log hclog.Logger) (streamhttp.HandlerOptions, error) {
	guard := httpguard.Policy{AllowOrigins: f.origins, AllowHosts: f.hosts}
	if err := guard.Validate(); err != nil {
		return streamhttp.HandlerOptions{}, usagef("%v", err)
	}
	timeout := f.sessionTimeout
	if timeout == 0 {
		timeout = -1 // what the handler calls "never"
	}
	return streamhttp.HandlerOptions{
		Guard:          guard,
		MaxMessageSize: int(f.limits.maxMessage),
		MaxSessions:    f.maxSessions,
		SessionTimeout: timeout,
		Logger:         log,
	}, nil
}

func newServer(h http.Handler, log hclog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
}

// routes maps the paths of the one port. Those beside the endpoint are guarded
// as it is.
func routes(mcp http.Handler, children *children, guard *httpguard.Policy) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" {
			mcp.ServeHTTP(w, r)
			return
		}
		// net/http reads what is left of a body, and would wait for it without end.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		if no := guard.Check(r); no != nil {
			http.Error(w, no.Reason, no.Status)
			return
		}
		switch r.URL.Path {
		case "/healthz":
			healthz(w, r)
		case "/readyz":
			children.readyz(w, r)
		default:
			http.Error(w, "not found; the MCP endpoint is /mcp", http.StatusNotFound)
		}
	})
}

// bodyTimeout is how long a body may take that nobody wants.
const bodyTimeout = 10 * time.Second

// serveUntil serves until ctx is done, and then ends everything in order: no
// new connections, the sessions drain and end, what is left is cut off.
func serveUntil(ctx context.Context, srv *http.Server, listeners []net.Listener, handler *streamhttp.Handler, fail context.CancelCauseFunc, log hclog.Logger) {
	var wg sync.WaitGroup
	for _, l := range listeners {
		wg.Go(func() {
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				fail(fmt.Errorf("serving on %s: %w", l.Addr(), err))
			}
		})
	}
	<-ctx.Done()
	log.Info("shutting down: calls in progress may finish, within --grace", "sessions", handler.Sessions())
	closing, cancel := context.WithCancel(context.Background())
	wg.Go(func() { _ = srv.Shutdown(closing) }) // its error is that closing is done
	_ = handler.Close()
	// Every exchange of a session has ended by itself or does so at once now.
	time.AfterFunc(time.Second, cancel)
	wg.Wait()
	cancel()
	_ = srv.Close()
}
