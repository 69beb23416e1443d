// Package listen opens the sockets that the bridge listens on: TCP addresses with or
// without TLS, Unix sockets with a mode, and sockets that systemd passes. It loads
// certificates again when their files change. A Notifier tells systemd the state of the
// bridge.
package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
)

// Options say what Open opens. With the zero value Open opens only the sockets that
// systemd passes.
type Options struct {
	// Addrs are TCP addresses ("127.0.0.1:8080", "[::1]:0", ":8080" for all
	// interfaces) and Unix sockets ("unix:PATH").
	Addrs []string

	// DefaultAddr is the address that is opened if Addrs is empty and systemd passes no
	// socket. "" means none.
	DefaultAddr string

	// UnixMode is the mode of the Unix sockets in Addrs. Whoever may write to the file of
	// a socket may connect. 0 means 0600. Windows has no modes: there, the permissions of
	// the directory count.
	UnixMode fs.FileMode

	// CertFile is the file of the certificate with its chain, and KeyFile that of its private key. Both are PEM, and
	// may be the same file. With them every TCP listener speaks TLS 1.2 or newer, and
	// HTTP/2 as well as HTTP/1.1. Unix sockets never speak TLS.
	CertFile, KeyFile string

	// ClientCAFile is a PEM file of authorities. With it, clients need a certificate that
	// one of these authorities has signed.
	ClientCAFile string

	// Authenticated says that clients need a token: then, as with a ClientCAFile, addresses that other machines can reach are allowed.
	Authenticated bool

	// Insecure allows addresses that other machines can reach even if clients need
	// neither a token nor a certificate (rule A9).
	Insecure bool

	// Logger gets a line when certificates were loaded again, or could not be loaded, and
	// warnings: about the Options, and when no connection can be accepted. nil logs nothing.
	Logger hclog.Logger
}

// OptionError says that Options, or the sockets that systemd has passed, are wrong and must be changed: trying again does not help.
type OptionError struct {
	text string // what is wrong, and what to write
}

// Error returns what is wrong, and what to write instead.
func (e *OptionError) Error() string { return e.text }

// optionf returns an OptionError with this text.
func optionf(format string, args ...any) error {
	return &OptionError{fmt.Sprintf(format, args...)}
}

// Listener is one open socket, and may be used like any net.Listener. With TLS its
// connections are of the type *tls.Conn, which http.Server needs for HTTP/2. Close removes
// the file of a Unix socket that Open has made.
type Listener struct {
	net.Listener                 // the socket; with TLS, what makes TLS connections of those of the socket
	systemdName    string        // the name that systemd gives the socket; "": Open has made it
	configuredAddr string        // the TCP address as Options have it, for errors; "": it is a Unix socket, or of systemd
	socketFile     *socketFile   // the file of the Unix socket; nil: it is no Unix socket that Open has made
	certs          *certificates // the certificates for TLS; nil: no TLS
	log            hclog.Logger  // Options.Logger; never nil once Open has returned the Listener

	acceptErrMu     sync.Mutex // guards acceptErrLogged
	acceptErrLogged time.Time  // when the log was last told that no connection could be accepted; zero: never

	closeOnce sync.Once // Close closes once
	closeErr  error     // what Close returns, once it was called
}

// acceptErrLogInterval is how long after a line that no connection can be accepted the log gets no such line again.
const acceptErrLogInterval = time.Minute

// Accept waits for the next connection, like that of a net.Listener. It also logs what keeps connections from being
// accepted, such as too few file descriptors: clients see nothing but silence.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) && l.shouldLogAcceptErr(time.Now()) {
		l.log.Warn("no connection can be accepted; it is tried again", "url", l.URL(), "error", err)
	}
	return conn, err
}

// shouldLogAcceptErr reports whether an error of Accept is to be logged now: it is, once in acceptErrLogInterval. Then it notes the time.
func (l *Listener) shouldLogAcceptErr(now time.Time) bool {
	l.acceptErrMu.Lock()
	defer l.acceptErrMu.Unlock()
	if !l.acceptErrLogged.IsZero() && now.Sub(l.acceptErrLogged) < acceptErrLogInterval {
		return false
	}
	l.acceptErrLogged = now
	return true
}

// IsUnix reports whether this is a Unix socket. A Unix socket carries HTTP as well as
// newline-delimited messages: see Split.
func (l *Listener) IsUnix() bool { return l.Addr().Network() == "unix" }

// URL returns the address for logs and messages, without a path: http://HOST:PORT,
// https://HOST:PORT or unix:PATH.
func (l *Listener) URL() string {
	switch {
	case l.IsUnix():
		return "unix:" + l.Addr().String()
	case l.certs != nil:
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}

// Close stops listening and may be called more than once. Accepted connections stay open.
// The file of a Unix socket that Open has made is removed. Close of the last listener with
// TLS stops watching the certificate files.
func (l *Listener) Close() error {
	l.closeOnce.Do(func() {
		l.socketFile.remove() // before the socket is closed, so that no client connects to a dead one
		l.closeErr = l.Listener.Close()
		l.certs.releaseListener()
	})
	return l.closeErr
}

// Listeners are all listeners of one Open.
type Listeners []*Listener

// Close closes all listeners.
func (ls Listeners) Close() error {
	var errs []error
	for _, l := range ls {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Reload loads the certificates again, at once. (When their files change, this happens
// without Reload.) After an error the old certificates stay in use. Without TLS Reload does
// nothing.
func (ls Listeners) Reload() error {
	for _, l := range ls {
		if l.certs != nil { // all listeners share one
			return l.certs.reload()
		}
	}
	return nil
}

// Open opens the sockets that o names and those that systemd has passed to this process.
// After an error nothing is open. An *OptionError is about o; other errors are about this
// machine. Open removes the environment variables of systemd's socket activation, so that
// no child uses them.
//
// Open refuses an address that other machines can reach if clients are not authenticated,
// unless o.Insecure (rule A9). It looks at the address that the socket is bound to,
// whatever name was given for it, and also at sockets that systemd has bound.
func Open(o Options) (Listeners, error) {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	ls, err := open(o)
	if err != nil {
		_ = ls.Close()
		return nil, err
	}
	for _, l := range ls {
		l.log = o.Logger
	}
	return ls, nil
}

// open opens the sockets that o names and those that systemd has passed, refuses addresses as Open does, and adds TLS. After an error it also
// returns the listeners that are open, for the caller to close. o.Logger is not nil; the listeners do not have it yet.
func open(o Options) (ls Listeners, err error) {
	if ls, err = systemdListeners(); err != nil {
		return ls, err
	}
	if len(o.Addrs) == 0 && len(ls) == 0 && o.DefaultAddr != "" {
		o.Addrs = []string{o.DefaultAddr}
	}
	for _, addr := range o.Addrs {
		l, err := openAddr(addr, o)
		if err != nil {
			return ls, err
		}
		ls = append(ls, l)
	}
	if err := ls.checkPublic(o); err != nil {
		return ls, err
	}
	return ls, ls.addTLS(o)
}

// openAddr opens one address of Options.Addrs: unix:PATH, or HOST:PORT. TLS is not added yet.
func openAddr(addr string, o Options) (*Listener, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return openUnix(path, o)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, optionf("%q is no address to listen on: write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080, or unix:PATH", addr)
	}
	l, err := listenTCP(addr)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, explainListenErr(err))
	}
	return &Listener{Listener: l, configuredAddr: addr}, nil
}

// wsaeaddrinuse is what Windows calls EADDRINUSE.
const wsaeaddrinuse = syscall.Errno(10048)

// explainListenErr returns the error of listening on a TCP address. It says what to do, without the names of system calls, where the port is in
// use or needs a privilege, or the address is not of this machine; another error is returned as it is.
func explainListenErr(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE), runtime.GOOS == "windows" && errors.Is(err, wsaeaddrinuse):
		return fmt.Errorf("%w: stop the other program, or choose another with --port or --listen", syscall.EADDRINUSE)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w: ports below 1024 need a privilege; choose another with --port or --listen, or let systemd open the socket", syscall.EACCES)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w: this machine has no such address", syscall.EADDRNOTAVAIL)
	}
	return err
}

// checkPublic returns an *OptionError if other machines can reach an address and clients are not authenticated, unless o.Insecure
// (rule A9). Where they are, but without TLS, it logs a warning, unless o.Insecure.
func (ls Listeners) checkPublic(o Options) error {
	authenticated := o.Authenticated || o.ClientCAFile != ""
	for _, l := range ls {
		switch addr := l.Addr().String(); {
		case l.IsUnix() || access.IsLoopbackAddr(addr):
		case !authenticated && !o.Insecure:
			if l.configuredAddr != "" {
				addr = l.configuredAddr
			}
			return optionf("%s can be reached by other machines and nobody is authenticated; bind 127.0.0.1, ask for tokens with --token-file or --oidc-issuer, or say --insecure if something in front takes care of that", addr)
		case o.CertFile == "" && !o.Insecure:
			o.Logger.Warn("tokens and messages cross the network unencrypted, unless something in front takes care of that; --tls-cert and --tls-key encrypt them", "address", addr)
		}
	}
	return nil
}

// addTLS makes the TCP listeners speak TLS, if o names a certificate, and starts to watch its files.
func (ls Listeners) addTLS(o Options) error {
	if o.CertFile == "" && o.KeyFile == "" && o.ClientCAFile == "" {
		return nil
	}
	certs, err := loadCertificates(o)
	if err != nil {
		return err
	}
	for _, l := range ls {
		if !l.IsUnix() {
			certs.addListener(l)
		}
	}
	certs.watch()
	return nil
}

// ParseSocketMode reads the mode of a Unix socket, in octal: 0600, 660. The error is an *OptionError, also for a mode with which nobody may
// write, and so nobody could connect.
func ParseSocketMode(s string) (fs.FileMode, error) {
	mode, err := strconv.ParseUint(s, 8, 32)
	if err != nil || mode > 0o777 || mode&0o222 == 0 {
		return 0, optionf("%q is no mode of a socket: write it in octal, such as 0600 (only this user may connect) or 0660 (the group too)", s)
	}
	return fs.FileMode(mode), nil
}
