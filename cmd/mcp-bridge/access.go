package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/listen"
)

// listenFlags say where to listen, and with which certificates (TLS).
type listenFlags struct {
	addrs    []string // --listen: addresses, HOST:PORT or unix:PATH
	host     string   // --host: the host of the address that --host and --port name together
	port     int      // --port: the port of the address that --host and --port name together; 0: any free port
	insecure bool     // --insecure: other machines may reach an address although no client is authenticated
	unixMode fileMode // --unix-mode: the file mode of Unix sockets
	cert     string   // --tls-cert: the file of the certificate chain; "": no TLS
	key      string   // --tls-key: the file of the certificate's private key; "": no TLS
	caFile   string   // --tls-client-ca: the file of the authorities that clients must have a certificate of; "": clients need none
}

// register adds the flags of listenFlags to fs, and gives the fields their defaults.
func (f *listenFlags) register(fs *pflag.FlagSet) {
	f.unixMode = 0o600
	fs.StringArrayVar(&f.addrs, "listen", nil, "")
	fs.StringVar(&f.host, "host", "127.0.0.1", "")
	fs.IntVar(&f.port, "port", 8080, "")
	fs.BoolVar(&f.insecure, "insecure", false, "")
	fs.Var(&f.unixMode, "unix-mode", "")
	fs.StringVar(&f.cert, "tls-cert", "", "")
	fs.StringVar(&f.key, "tls-key", "", "")
	fs.StringVar(&f.caFile, "tls-client-ca", "", "")
}

// addresses returns where to listen, as --listen, --host and --port say it, checked. fs is the set of the flags, once parsed.
func (f *listenFlags) addresses(fs *pflag.FlagSet) (where listenAddresses, err error) {
	if f.port < 0 || f.port > 65535 {
		return where, usagef("--port %d: ports are numbers up to 65535", f.port)
	}
	hasHostOrPort := fs.Changed("host") || fs.Changed("port")
	hostPort := net.JoinHostPort(f.host, strconv.Itoa(f.port))
	switch {
	case len(f.addrs) == 0 && !hasHostOrPort:
		return listenAddresses{fallback: hostPort}, nil
	case len(f.addrs) == 0:
		return listenAddresses{given: []string{hostPort}}, nil
	}
	list := f.addrs
	if hasHostOrPort { // and sockets
		list = append(slices.Clone(f.addrs), hostPort)
	}
	for _, a := range f.addrs {
		if path, unix := strings.CutPrefix(a, "unix:"); unix {
			if path == "" {
				return where, usagef("--listen %q: write unix:PATH", a)
			}
			continue
		}
		if hasHostOrPort {
			return where, usagef("--listen %s names host and port already; leave --host and --port out", a)
		}
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
			return where, usagef("--listen %q: write HOST:PORT, for example 127.0.0.1:8080, or unix:PATH", a)
		}
	}
	return listenAddresses{given: list}, nil
}

// listenAddresses are the addresses to listen at.
type listenAddresses struct {
	given    []string // the addresses that the user has named
	fallback string   // HOST:PORT, used if the user has named no address and systemd has opened no socket; "": the user has named some
}

// check returns the first mistake in these flags that can be found without a look at files or the network; nil: there is none.
func (f *listenFlags) check() error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return usagef("--tls-cert and --tls-key belong together")
	case f.caFile != "" && f.cert == "":
		return usagef("--tls-client-ca needs --tls-cert and --tls-key")
	}
	return nil
}

// open opens the listening sockets. authenticated says that clients need a token: without tokens or client certificates, an
// address that other machines reach is an error, unless --insecure is given.
func (f *listenFlags) open(where listenAddresses, authenticated bool, log hclog.Logger) (listen.Listeners, error) {
	ls, err := listen.Open(listen.Options{
		Addrs: where.given, DefaultAddr: where.fallback, UnixMode: fs.FileMode(f.unixMode),
		CertFile: f.cert, KeyFile: f.key, ClientCAFile: f.caFile,
		Insecure: f.insecure, Authenticated: authenticated,
		Logger: log,
	})
	if wrong, ok := errors.AsType[*listen.OptionError](err); ok {
		return nil, usagef("%v", wrong)
	}
	return ls, err
}

// publicAddr returns an address of ls that other machines reach and where nobody is authenticated: open lets that be with --insecure
// only. "": there is none. authenticated says that clients need a token.
func (f *listenFlags) publicAddr(ls listen.Listeners, authenticated bool) string {
	if authenticated || f.caFile != "" {
		return ""
	}
	for _, l := range ls {
		if addr := l.Addr().String(); !l.IsUnix() && !access.IsLoopbackAddr(addr) {
			return addr
		}
	}
	return ""
}

// fileMode is a flag value: an octal file mode such as 0660.
type fileMode fs.FileMode

// String returns the mode in octal, with a 0 in front.
func (m *fileMode) String() string { return "0" + strconv.FormatUint(uint64(*m), 8) }

// Type returns what pflag calls the kind of value: "mode".
func (m *fileMode) Type() string { return "mode" }

// Set parses an octal mode that a socket may have.
func (m *fileMode) Set(text string) error {
	mode, err := listen.ParseSocketMode(text)
	*m = fileMode(mode)
	return err
}

// accessFlags say who may come in.
type accessFlags struct {
	origins    []string // --allow-origin: origins of web pages that may come in, beside those of this machine
	hosts      []string // --allow-host: names that the Host header may have, beside loopback names and the address that was connected to
	proxies    []string // --trusted-proxy: addresses and networks whose X-Forwarded headers are believed
	tokenFile  string   // --token-file: the file of the tokens that clients need; "": none, or those of tokensVariable
	pathPrefix string   // --path-prefix: the path at which a reverse proxy serves the bridge; "": not given
}

// register adds the flags of accessFlags to fs, and gives the fields their defaults.
func (f *accessFlags) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.origins, "allow-origin", nil, "")
	fs.StringArrayVar(&f.hosts, "allow-host", nil, "")
	fs.StringArrayVar(&f.proxies, "trusted-proxy", nil, "")
	fs.StringVar(&f.tokenFile, "token-file", "", "")
	fs.StringVar(&f.pathPrefix, "path-prefix", "", "")
}

// tokensVariable is the environment variable with the tokens of clients, in the form of --token-file. Like all variables that
// begin with MCP_BRIDGE_, servers do not inherit it.
const tokensVariable = "MCP_BRIDGE_TOKENS"

// policy returns who may come in, for all listeners, with the tokens loaded.
func (f *accessFlags) policy(env environment, log hclog.Logger) (access.Policy, error) {
	guard := access.Policy{AllowOrigins: f.origins, AllowHosts: f.hosts}
	var err error
	if guard.TrustedProxies, guard.TrustUnix, err = access.ParseProxies(f.proxies); err != nil {
		return guard, usagef("--trusted-proxy: %v", err)
	}
	if err := guard.Validate(); err != nil {
		return guard, usagef("%v", err)
	}
	text, given := env.lookup(tokensVariable)
	if _, almost := env.lookup("MCP_BRIDGE_TOKEN"); almost && !given {
		log.Warn("the environment variable MCP_BRIDGE_TOKEN is not read: tokens are in " + tokensVariable)
	}
	switch {
	case f.tokenFile != "" && given:
		return guard, usagef("--token-file and %s both name the tokens; use one of them", tokensVariable)
	case f.tokenFile != "":
		guard.Tokens, err = access.LoadTokens(f.tokenFile)
	case given:
		if guard.Tokens, err = access.ParseTokens(text); err != nil {
			err = fmt.Errorf("%s: %w", tokensVariable, err)
		}
	}
	if err != nil {
		return guard, usagef("%v", err)
	}
	return guard, nil
}

// publicPrefix returns --path-prefix, checked and without a slash at the end.
func (f *accessFlags) publicPrefix() (string, error) {
	prefix := strings.TrimRight(f.pathPrefix, "/")
	if prefix != "" && !access.IsCleanPath(prefix) {
		return "", usagef("--path-prefix %q: write a path such as /tools", f.pathPrefix)
	}
	return prefix, nil
}
