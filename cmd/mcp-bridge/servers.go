package main

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/config"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
	"github.com/mcp-bridge/mcp-bridge/internal/remote"
	"github.com/mcp-bridge/mcp-bridge/internal/toolfilter"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
	"github.com/mcp-bridge/mcp-bridge/internal/wrap"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// This file makes of settings, from flags or a file, what the packages take.
// The two speak differently of zero: to people 0 means never, or not at all.

// orNever returns -1 for 0. Options write "never" and "not at all" as a negative number, and take 0 for their default.
func orNever(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// newHubSpec describes how the server with this name and these settings is exposed to clients; how the server is reached is not in it.
func newHubSpec(name string, s config.Settings, log hclog.Logger) hub.Spec {
	queue := s.Queue
	if queue == 0 {
		queue = -1
	}
	isolation, _ := upstream.ParseIsolation(s.Isolation) // which was checked, and so was
	clients, _ := era.ParseEras(s.ClientProtocol)
	return hub.Spec{
		Name:           name,
		Pump:           pumpOptions(s),
		Clients:        clients,
		Isolation:      isolation,
		ParkTimeout:    s.ParkTimeout,
		MaxMessageSize: s.MaxMessageSize,
		MaxDepth:       s.MaxDepth,
		MaxSessions:    s.MaxSessions,
		SessionTimeout: orNever(s.SessionTimeout),
		MaxChildren:    s.MaxChildren,
		Queue:          queue,
		QueueTimeout:   orNever(s.QueueTimeout),
		Eager:          !s.Lazy,
	}
}

// pumpOptions returns the options of the conversations with a server: how long calls may take and go on.
func pumpOptions(s config.Settings) bridge.PumpOptions {
	return bridge.PumpOptions{DrainTimeout: orNever(s.DrainTimeout), ShutdownGrace: orNever(s.Grace), RequestTimeout: s.RequestTimeout}
}

// warnCleartext logs a warning for each header with a credential that goes to a server of another machine unencrypted.
func warnCleartext(spec upstream.Spec, log hclog.Logger) {
	u, err := url.Parse(spec.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "ws" || access.IsLoopbackAddr(u.Host) {
		return
	}
	names := slices.Sorted(maps.Keys(spec.Remote.Header))
	if u.User != nil && !slices.Contains(names, "Authorization") {
		names = append(names, "Authorization") // which it becomes
	}
	for _, name := range names {
		if redact.IsCredentialHeader(name) {
			log.Warn("a credential crosses the network in clear: use https:// or wss://", "server", spec.Name, "header", name, "host", u.Host)
		}
	}
}

// upstreamSpec returns how the server of a configuration file is reached; trust
// is for those that are remote.
func upstreamSpec(s config.Server, trust *tls.Config, log hclog.Logger) (upstream.Spec, error) {
	protocol, _ := era.ParseEras(s.Protocol)
	spec := upstream.Spec{
		Name: s.Name, URL: s.URL, MaxMessageSize: s.MaxMessageSize, MaxDepth: s.MaxDepth, Logger: log, Protocol: protocol,
		Tools: toolfilter.Rules{Allow: s.AllowTools, Ignore: s.IgnoreTools},
	}
	if s.URL != "" {
		mode, err := remote.ParseTransportMode(s.Transport)
		spec.Remote = remote.Options{TransportMode: mode, Header: s.Header, ConnectTimeout: s.ConnectTimeout, ResumeTimeout: s.ResumeTimeout, TLS: trust}
		return spec, err
	}
	env, err := supervisor.Environ(s.PassEnv, s.Environ())
	spec.Command = supervisor.Spec{
		Name: s.Name, Path: s.Command, Args: s.Args, Env: env, Dir: s.Dir, PTY: s.PTY,
		ShownPath: s.UnexpandedCommand, ShownDir: s.UnexpandedDir,
		Stop: supervisor.StopWaits{Stdin: orNever(s.StdinWait), Term: orNever(s.TermWait), Kill: orNever(s.KillWait)},
	}
	return spec, err
}

// loadConfig reads a configuration file, and logs its notices (config.Config.Notices), such as a key without effect. With an error, which is
// a *configError, the Config has no more than Files.
func loadConfig(file string, options config.Options, log hclog.Logger) (*config.Config, error) {
	c, err := config.Load(file, options)
	if err != nil {
		return c, &configError{usageError{text: err.Error()}, err}
	}
	for _, notice := range c.Notices {
		log.Warn("configuration", "notice", notice.String())
	}
	return c, nil
}

// fingerprint returns a hash of all that is configured about a server, except its description: another hash means that the server
// has changed. What is configured holds secrets.
func fingerprint(s config.Server) string {
	s.Description = ""                               // is not worth a new server
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v", s)) // maps are printed in order
	return string(sum[:])
}

// configError is a usageError about a configuration file that keeps the list of what is wrong.
type configError struct {
	usageError       // what the user is told
	cause      error // what config.Load has returned, mostly config.Problems
}

// Unwrap returns the usageError and the cause.
func (e *configError) Unwrap() []error { return []error{&e.usageError, e.cause} }

// hubSpecs describes the servers of a configuration file, without the disabled ones.
func hubSpecs(c *config.Config, trust *tls.Config, log hclog.Logger) ([]hub.Spec, error) {
	var all []hub.Spec
	for _, s := range c.Servers {
		if s.Disabled {
			continue
		}
		spec := newHubSpec(s.Name, s.Settings, log)
		spec.Description, spec.Fingerprint = s.Description, fingerprint(s)
		var err error
		if spec.Upstream, err = upstreamSpec(s, trust, log); err != nil {
			return nil, fmt.Errorf("server %q: %w", s.Name, err)
		}
		warnCleartext(spec.Upstream, log)
		all = append(all, spec)
	}
	return all, nil
}

// checkConfig is the command check-config: it returns what is wrong with a configuration file, also commands that cannot be found, and
// writes its notices to stderr, such as a key without effect. It starts nothing.
func checkConfig(args []string, env environment) error {
	if len(args) != 1 {
		return usagef("check-config takes one file")
	}
	var flags targetFlags // with their defaults
	flags.register(pflag.NewFlagSet("check-config", pflag.ContinueOnError))
	notFound := 0 // servers in which nothing else is wrong
	check := func(s config.Server) error {
		if err := checkOwnArguments(s, env); err != nil {
			return err
		}
		spec, err := upstreamSpec(s, nil, hclog.NewNullLogger())
		if err != nil {
			return err
		}
		if _, err := flags.signInSettings(spec, fileAuthOf(s), env); err != nil {
			return err
		}
		up, err := upstream.New(spec)
		if err == nil {
			err = up.Check()
		}
		if err != nil {
			notFound++
		}
		return err
	}
	c, err := config.Load(args[0], config.Options{Lookup: env.lookup, CheckServer: check, CheckScopes: checkScopes, CommandsOnlyClient: wrap.CommandsOnlyClient(args[0])})
	if problems, ok := errors.AsType[config.Problems](err); ok && len(problems) == notFound {
		return err // the file itself is right
	}
	if err != nil {
		return &usageError{text: err.Error()}
	}
	for _, notice := range c.Notices {
		fmt.Fprintln(env.stderr, notice)
	}
	disabled := 0
	for _, s := range c.Servers {
		if s.Disabled {
			disabled++
		}
	}
	_, err = fmt.Fprintf(env.stdout, "%s: no mistake found (servers: %d, disabled: %d)\n", args[0], len(c.Servers)-disabled, disabled)
	return err
}

// checkOwnArguments returns what is wrong with the arguments of a server that is mcp-bridge itself, as clients have one in their files for
// a remote server. nil: nothing, or the server is another program.
func checkOwnArguments(s config.Server, env environment) error {
	if strings.TrimSuffix(baseName(s.Command), ".exe") != "mcp-bridge" {
		return nil
	}
	command, args := splitCommand(s.Args)
	switch command {
	case "connect":
		var f connectFlags
		if _, _, err := f.parse(args); err != nil {
			return err
		}
		for _, name := range []string{"config", "header-file", "ca-file", "client-cert", "client-key", "client-secret-file"} {
			if flag := f.set.Lookup(name); flag != nil && flag.Changed && !filepath.IsAbs(flag.Value.String()) && s.Dir == "" {
				return fmt.Errorf("args: --%s is a relative path, and clients start their servers in a folder of their own: write the absolute path", name)
			}
		}
		_, err := readHeaders(f.target.header, f.target.headerFile, f.target.headerEnv, func(name string) (string, bool) {
			if value, ok := s.Env[name]; ok {
				return value, true
			}
			return env.lookup(name)
		})
		return err
	case "serve":
		return errors.New("args: mcp-bridge serve listens on the network; what a client starts speaks stdio: write connect")
	}
	return nil
}
