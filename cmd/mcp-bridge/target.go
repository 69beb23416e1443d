package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/signin"
	"github.com/mcp-bridge/mcp-bridge/internal/config"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/remote"
	"github.com/mcp-bridge/mcp-bridge/internal/toolfilter"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// targetFlags describe the server that is served or connected to. With --config, the file describes it; some of the flags then count for what
// the file does not say (settings), or for all remote servers (TLS, credentials).
type targetFlags struct {
	child          childFlags    // how a server is run that is a command
	header         []string      // --header: headers of every request to a remote server, as "NAME: VALUE"
	headerFile     string        // --header-file: a file of headers of every request to a remote server, one "NAME: VALUE" a line; "": none
	headerEnv      []string      // --header-env: headers of every request to a remote server whose value is in an environment variable, as NAME=VARIABLE
	connectTimeout time.Duration // --connect-timeout: how long connecting to a remote server may take; 0: 10 s
	resumeTimeout  time.Duration // --resume-timeout: how long to reconnect to the broken stream of a call before the call fails; more than 0
	transport      string        // --transport: which of Streamable HTTP and HTTP+SSE a remote server is tried with

	protocol       string        // --protocol: what to speak with the server, auto, legacy or modern
	clientProtocol string        // --client-protocol: what clients may speak, auto, legacy or modern
	parkTimeout    time.Duration // --park-timeout: how long a call waits for the modern client's answers to input requests; more than 0

	caFile     string           // --ca-file: the file of authorities to trust beside the system's; "": none
	clientCert string           // --client-cert: the file of the certificate to show to a remote server; "": none
	clientKey  string           // --client-key: the file of the private key of clientCert; "": there is no clientCert
	auth       authFlags        // whose credential is used at a remote server
	toolRules  toolfilter.Rules // --allow-tool, --ignore-tool: which tools clients see
}

// register adds the flags of targetFlags to fs, and gives the fields their defaults.
func (f *targetFlags) register(fs *pflag.FlagSet) {
	defaults := config.DefaultSettings()
	f.child.register(fs)
	fs.StringArrayVarP(&f.header, "header", "H", nil, "")
	fs.Bool("allow-http", false, "")   // for lines that were written for mcp-remote:
	fs.Bool("enable-proxy", false, "") // both are what is done anyway
	fs.StringVar(&f.headerFile, "header-file", "", "")
	fs.StringArrayVar(&f.headerEnv, "header-env", nil, "")
	fs.DurationVar(&f.connectTimeout, "connect-timeout", defaults.ConnectTimeout, "")
	fs.DurationVar(&f.resumeTimeout, "resume-timeout", defaults.ResumeTimeout, "")
	fs.StringVar(&f.transport, "transport", defaults.Transport, "")
	fs.StringVar(&f.protocol, "protocol", defaults.Protocol, "")
	fs.StringVar(&f.clientProtocol, "client-protocol", defaults.ClientProtocol, "")
	fs.DurationVar(&f.parkTimeout, "park-timeout", defaults.ParkTimeout, "")
	fs.StringVar(&f.caFile, "ca-file", "", "")
	fs.StringVar(&f.clientCert, "client-cert", "", "")
	fs.StringVar(&f.clientKey, "client-key", "", "")
	f.auth.register(fs)
	fs.StringArrayVar(&f.toolRules.Allow, "allow-tool", nil, "")
	fs.StringArrayVar(&f.toolRules.Ignore, "ignore-tool", nil, "")
}

// settings returns the settings of a server that the flags give it; those that these flags do not have are the defaults.
func (f *targetFlags) settings() config.Settings {
	s := config.DefaultSettings()
	s.PTY = f.child.pty
	s.StdinWait, s.TermWait, s.KillWait = f.child.stdinWait, f.child.termWait, f.child.killWait
	if f.child.passEnv != "" { // otherwise a file's servers inherit what is safe
		s.PassEnv = f.child.passEnv
	}
	s.Protocol, s.ClientProtocol, s.ParkTimeout = f.protocol, f.clientProtocol, f.parkTimeout
	s.Transport, s.ConnectTimeout, s.ResumeTimeout = f.transport, f.connectTimeout, f.resumeTimeout
	s.AllowTools, s.IgnoreTools = f.toolRules.Allow, f.toolRules.Ignore
	return s
}

// target is the server that the arguments behind the flags name: a URL or a command. With --demo it is the command of the demo server. With
// --config the arguments leave it empty: the file has the server.
type target struct {
	url  string   // the address of a remote server or of a socket (unix:, tcp:); "": it is a command, or with --config the file says it
	argv []string // the command and its arguments; nil: it is a URL, or with --config the file says it
}

// spec describes the server that to names, as the flags say it, without the credential of a sign-in.
func (f *targetFlags) spec(to target, limits *limitFlags, env environment, log hclog.Logger) (upstream.Spec, error) {
	if err := f.toolRules.Validate(); err != nil {
		return upstream.Spec{}, usagef("%v", err)
	}
	_, protocol, err := parseEras(f.settings())
	if err != nil {
		return upstream.Spec{}, err
	}
	spec := upstream.Spec{
		Name: f.child.name, Tools: f.toolRules, MaxMessageSize: int(limits.maxMessage), MaxDepth: limits.maxDepth, Logger: log, Protocol: protocol,
	}
	mode, err := remote.ParseTransportMode(f.transport)
	if err != nil { // also where it has no effect: what is misspelled was meant to have one
		return spec, usagef("--transport: %v", err)
	}
	if to.url == "" {
		command, err := f.child.spec(to.argv, env.lookup)
		spec.Name, spec.Command = command.Name, command
		return spec, err
	}
	header, err := readHeaders(f.header, f.headerFile, f.headerEnv, env.lookup)
	if err != nil {
		return spec, err
	}
	if len(header) > 0 && !strings.Contains(to.url, "://") {
		return spec, usagef("a socket (unix:, tcp:) has no place for headers")
	}
	if spec.Name == "" {
		spec.Name = "remote"
	}
	spec.URL = to.url
	spec.Remote = remote.Options{TransportMode: mode, Header: header, ConnectTimeout: f.connectTimeout, ResumeTimeout: f.resumeTimeout}
	spec.Remote.TLS, err = f.tls()
	warnCleartext(spec, log)
	return spec, err
}

// attachCredential adds to spec, if it is that of a remote server, the server's credential, with which the requests are made then; all opens
// it. fileAuth is what the configuration file says of signing in to the server, and replaces those flags that are about one server
// (forServer); nil: there is no file.
func (f *targetFlags) attachCredential(ctx context.Context, spec *upstream.Spec, fileAuth map[string][]string, all *credentials, env environment, log hclog.Logger) error {
	s, err := f.signInSettings(*spec, fileAuth, env)
	if err != nil || !s.IsUsed() {
		return err
	}
	return all.attach(ctx, spec, s, log)
}

// newServer returns the server that spec describes, with its credential. It starts nothing; a server that cannot be started, as its
// program is not there, is an error. fileAuth is that of attachCredential; all opens the credential, and keeps it until it is closed.
func (f *targetFlags) newServer(ctx context.Context, spec upstream.Spec, fileAuth map[string][]string, all *credentials, env environment, log hclog.Logger) (*upstream.Server, error) {
	if err := f.attachCredential(ctx, &spec, fileAuth, all, env, log); err != nil {
		return nil, err
	}
	server, err := upstream.New(spec)
	if err != nil {
		return nil, err
	}
	return server, server.Check()
}

// signInSettings returns how a remote server is signed in to. The mode is ModeNone if the flags or the file say so, if the user has given the server
// a credential, for a socket, and for a command. fileAuth is what the configuration file says of signing in to it; nil: there is no file.
func (f *targetFlags) signInSettings(spec upstream.Spec, fileAuth map[string][]string, env environment) (signin.Settings, error) {
	none := signin.Settings{Mode: signin.ModeNone}
	if !mayHaveCredential(spec.URL) || hasAuthorization(spec) {
		return none, nil
	}
	flags := &f.auth
	if fileAuth != nil {
		var err error
		if flags, err = f.auth.forServer(fileAuth); err != nil {
			return none, err
		}
	}
	if flags.mode == signin.ModeNone {
		return none, nil
	}
	return flags.settings(spec.URL, signin.TLS{CAFile: f.caFile, CertFile: f.clientCert, KeyFile: f.clientKey}, env.lookup)
}

// parseEras returns what clients may speak, and what is spoken with the server. The error is a usageError, also if ParkTimeout or
// ResumeTimeout is not more than 0, or ConnectTimeout is negative.
func parseEras(s config.Settings) (clients, protocol era.Eras, err error) {
	protocol, ok := era.ParseEras(s.Protocol)
	if !ok {
		return 0, 0, usagef("--protocol %q: use auto, legacy or modern", s.Protocol)
	}
	if clients, ok = era.ParseEras(s.ClientProtocol); !ok {
		return 0, 0, usagef("--client-protocol %q: use auto, legacy or modern", s.ClientProtocol)
	}
	if s.ParkTimeout <= 0 {
		return 0, 0, usagef("--park-timeout must be more than 0")
	}
	if s.ResumeTimeout <= 0 {
		return 0, 0, usagef("--resume-timeout must be more than 0")
	}
	if s.ConnectTimeout < 0 {
		return 0, 0, usagef("--connect-timeout cannot be negative")
	}
	return clients, protocol, nil
}

// tls returns whom to trust, and who we are, for all remote servers, as --ca-file, --client-cert and --client-key say it; nil: none of them is
// given.
func (f *targetFlags) tls() (*tls.Config, error) {
	if (f.clientCert == "") != (f.clientKey == "") {
		return nil, usagef("--client-cert and --client-key belong together")
	}
	c, err := httpdial.LoadTLSConfig(f.caFile, f.clientCert, f.clientKey)
	if err != nil {
		return nil, usagef("%v", err)
	}
	return c, nil
}

var (
	// commandOnlyFlags are the flags that have no effect if the server is a URL.
	commandOnlyFlags = []string{"env", "env-file", "pass-env", "cwd", "pty", "stdin-wait", "term-wait", "kill-wait",
		"max-children", "max-children-total", "queue", "queue-timeout"}
	// singleServerFlags are the flags that have no effect on the servers of a configuration file: it says these things itself.
	singleServerFlags = []string{"header", "header-file", "header-env", "env", "env-file", "cwd", "name"}
	// remoteOnlyFlags are the flags that have no effect if the server is a command.
	remoteOnlyFlags = []string{"header", "header-file", "header-env", "connect-timeout", "resume-timeout", "transport", "ca-file", "client-cert", "client-key"}
	// httpOnlyFlags are those of remoteOnlyFlags that have no effect if the server is a WebSocket or a socket.
	httpOnlyFlags = []string{"transport", "resume-timeout"}
)

// authFlagsWithConfig are those of authFlags that have an effect on the servers of a configuration file, too.
var authFlagsWithConfig = []string{"auth-dir", "token-store", "allow-private-auth", "no-browser", "auth-wait", "auth-prompt"}

// warnUnusedFlags logs a warning for each flag that the user has given and that has no effect on this server: a command, a URL or,
// where to is empty, the servers of a configuration file.
func warnUnusedFlags(fs *pflag.FlagSet, to target, log hclog.Logger) {
	unused, kind := unusedFlags(fs.Name(), to)
	warnFlags(fs, unused, kind, log)
}

// warnUnusedWithServer logs a warning for each flag that the user has given and that has no effect on to, which is a server of a
// configuration file, but has one on others of the file: warnUnusedFlags has named those that have none on any.
func warnUnusedWithServer(fs *pflag.FlagSet, to target, log hclog.Logger) {
	named, _ := unusedFlags(fs.Name(), target{})
	unused, kind := unusedFlags(fs.Name(), to)
	unused = slices.DeleteFunc(unused, func(name string) bool { return slices.Contains(named, name) })
	warnFlags(fs, unused, kind, log)
}

// warnFlags logs a warning for each of these flags that the user has given: that it has no effect with a server of this kind.
func warnFlags(fs *pflag.FlagSet, unused []string, kind string, log hclog.Logger) {
	for _, name := range unused {
		if (name == "ca-file" || name == "allow-private-auth") && (fs.Changed("oidc-issuer") || fs.Changed("introspect")) {
			continue // it counts for those
		}
		if fs.Changed(name) {
			log.Warn("--" + name + " has no effect with " + kind)
		}
	}
}

// unusedFlags returns the names of the flags of a command that have no effect on this server, and what kind of server that is, in
// words. Where to is empty, it is about the servers of a configuration file.
func unusedFlags(command string, to target) (unused []string, kind string) {
	unused, kind = slices.Concat(remoteOnlyFlags, authFlagNames), "a command"
	switch {
	case to.url != "" && !mayHaveCredential(to.url):
		unused, kind = slices.Concat(commandOnlyFlags, httpOnlyFlags, []string{"ca-file", "client-cert", "client-key"}, authFlagNames), "a socket"
	case strings.HasPrefix(strings.ToLower(to.url), "ws"):
		unused, kind = slices.Concat(commandOnlyFlags, httpOnlyFlags), "a WebSocket"
	case to.url != "":
		unused, kind = slices.Clone(commandOnlyFlags), "a URL"
	case to.argv == nil:
		ofOne := slices.DeleteFunc(slices.Clone(authFlagNames), func(name string) bool { return slices.Contains(authFlagsWithConfig, name) })
		unused, kind = slices.Concat(singleServerFlags, ofOne), "--config: write it into the file"
	}
	if command == "doctor" && to.url != "" {
		unused = append(unused, "max-message-size")
	}
	return unused, kind
}

// isURL reports whether an argument is meant as the address of a remote server: it begins with a scheme and "://", or with
// unix: or tcp:.
func isURL(s string) bool {
	if strings.HasPrefix(s, "unix:") || strings.HasPrefix(s, "tcp:") {
		return true
	}
	scheme, _, ok := strings.Cut(s, "://")
	return ok && scheme != "" && !strings.HasPrefix(s, "-") && !strings.ContainsAny(scheme, " =:/")
}

// serverURL returns the address of a remote server, checked. Where an address of this machine lacks its "http://", it is added.
func serverURL(s string) (string, error) {
	if host, _, _ := strings.Cut(s, "/"); looksLikeHost(s) && access.IsLoopbackAddr(host) {
		s = "http://" + s
	}
	if !isURL(s) {
		return "", usagef("%q is no URL; write %s", s, urlHint(s))
	}
	if err := remote.CheckURL(s); err != nil {
		scheme, _, _ := strings.Cut(s, ":") // the rest may hold a key
		return "", usagef("%s: %v", scheme, err)
	}
	return s, nil
}

// urlHint returns what the error about s, which is no URL, says to write instead.
func urlHint(s string) string {
	if filepath.IsAbs(s) {
		return "unix:" + s + " for a socket"
	}
	return "http://" + s + " or https://" + s
}

// looksLikeHost reports whether an argument is rather an address without its "http://" than a command: HOST:PORT, localhost or an IP address,
// perhaps with a path behind it.
func looksLikeHost(s string) bool {
	host, _, _ := strings.Cut(s, "/")
	name, port, err := net.SplitHostPort(host)
	if err == nil {
		return name != "" && port != ""
	}
	return host == "localhost" || net.ParseIP(host) != nil
}

// isPort reports whether an argument is the number of a port.
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// isConfigFile reports whether an argument is meant as a configuration file: it ends with .json or .jsonc, and is no URL.
func isConfigFile(s string) bool {
	return !isURL(s) && (strings.HasSuffix(s, ".json") || strings.HasSuffix(s, ".jsonc"))
}

// splitValueError explains rest, the arguments that are left over, if --header or -e has got only the first half of its value: the
// user has given the halves as two arguments, as other programs take them. nil: neither flag has. args are all arguments of the command.
func (f *targetFlags) splitValueError(command string, rest, args []string) error {
	for _, h := range f.header {
		if len(rest) > 0 && !strings.Contains(h, ":") {
			return usagef("--header takes one argument: write -H \"%s: VALUE\"", h)
		}
	}
	for _, e := range f.child.env {
		switch {
		case len(rest) == 0 || strings.Contains(e, "="):
		case slices.Index(args, rest[0]) < slices.Index(args, e): // such as node -e CODE
			return missingDashesError(command, rest[0], args)
		default:
			pair := shownCommand([]string{e + "=" + rest[0]})
			return usagef("unexpected argument behind -e %s: if it is the value, write -e %s; if it is the command, write \"--\" in front of it", e, pair)
		}
	}
	return nil
}

// startSupervision sees to it that the processes that servers leave behind are ended: by the function that it returns, which is called at the
// end of the run, or by a watchdog if this process is killed.
func startSupervision(log hclog.Logger) func() {
	stop, err := supervisor.Subreap()
	if err != nil {
		log.Warn("descendants that leave their process group will not be found", "error", err)
		stop = func() {}
	}
	supervisor.StartWatchdog(func(err error) {
		log.Warn("if this process is killed, descendants of servers may stay", "error", err)
	})
	return stop
}

// demoCommand returns the command line that runs the built-in demo server: this program with "demo".
func demoCommand() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program to run the demo: %w", err)
	}
	return []string{self, "demo"}, nil
}
