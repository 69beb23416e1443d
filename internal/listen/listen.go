// Package listen opens the sockets that the bridge listens on: TCP addresses,
// with TLS whose certificates are loaded anew when their files change, Unix
// sockets with a mode, and what systemd has opened for us. It also tells
// systemd how the bridge is (Notifier).
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

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/access"
)

// Options say what Open opens. The zero value opens what systemd passes, if
// anything.
type Options struct {
	// Addrs are TCP addresses ("127.0.0.1:8080", "[::1]:0", ":8080" for all
	// interfaces) and Unix sockets ("unix:PATH").
	Addrs []string

	// Default is the address that is opened when Addrs is empty and systemd
	// passes nothing. "" is none.
	Default string

	// UnixMode is the mode of the Unix sockets that are opened: who may write
	// to the file may connect. 0 means 0600. Windows has no modes: there, the
	// directory says who may.
	UnixMode fs.FileMode

	// CertFile and KeyFile are PEM files, which may be one: the certificate
	// with its chain, and the key. With them every TCP listener speaks TLS, 1.2
	// or newer, and HTTP/2 as well as HTTP/1.1. Unix sockets never do.
	CertFile, KeyFile string

	// ClientCAFile, a PEM file, makes a client certificate necessary that one
	// of its authorities has signed.
	ClientCAFile string

	// Authenticated says that whoever connects must say who they are: that
	// tokens are asked for. ClientCAFile counts as well.
	Authenticated bool

	// Insecure allows addresses that other machines can reach although nobody
	// is authenticated (rule A9).
	Insecure bool

	// Logger is told about certificates that are loaded anew, or cannot be, and
	// about what deserves a warning. nil logs nothing.
	Logger hclog.Logger
}

// OptionError says that Options cannot work as they are: whoever started the
// bridge has to change them.
type OptionError struct{ text string }

func (e *OptionError) Error() string { return e.text }

func optionf(format string, args ...any) error {
	return &OptionError{fmt.Sprintf(format, args...)}
}

// Listener is one open socket. It may be used like any net.Listener; where
// TLS is on, its connections are of the type *tls.Conn, as http.Server needs
// it for HTTP/2. Close removes a Unix socket that Open has made.
type Listener struct {
	net.Listener
	name  string // given by systemd
	given string // what was asked for: there may be more than one name for an address
	path  *socketFile
	certs *certificates // nil: no TLS

	once     sync.Once
	closeErr error
}

// Name is the name that systemd knows the socket by, "" for one of ours.
func (l *Listener) Name() string { return l.name }

// IsUnix reports whether this is a Unix socket. Such a one carries HTTP and
// newline-delimited messages: see Split.
func (l *Listener) IsUnix() bool { return l.Addr().Network() == "unix" }

// URL is the address for logs and messages, without a path: http://HOST:PORT,
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

// Close stops listening and may be called more than once. Connections that
// were accepted stay open. The last listener with TLS ends the watch over the
// certificates.
func (l *Listener) Close() error {
	l.once.Do(func() {
		l.path.remove() // first, so that nobody finds a socket that nobody serves
		l.closeErr = l.Listener.Close()
		l.certs.release()
	})
	return l.closeErr
}

// Listeners are what one Open has opened.
type Listeners []*Listener

// Close closes all of them.
func (ls Listeners) Close() error {
	var errs []error
	for _, l := range ls {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Reload loads the certificates anew, as happens by itself when their files
// change. With an error the old ones stay. It does nothing without TLS.
func (ls Listeners) Reload() error {
	for _, l := range ls {
		if l.certs != nil { // all have the same
			return l.certs.reload()
		}
	}
	return nil
}

// Open opens what o says and what systemd has passed to this process, or
// nothing at all. An error that is an *OptionError is about o; others are
// about this machine. The environment variables of systemd's socket activation
// are gone afterwards, so that no child takes them for its own.
//
// An address that other machines can reach is refused if nobody is
// authenticated, unless o.Insecure (rule A9). What counts is the address that
// was bound, whatever name it was given by, and whoever has bound it.
func Open(o Options) (Listeners, error) {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	ls, err := open(o)
	if err != nil {
		_ = ls.Close()
		return nil, err
	}
	return ls, nil
}

// open returns what it has opened with an error too.
func open(o Options) (ls Listeners, err error) {
	if ls, err = inherited(); err != nil {
		return ls, err
	}
	if len(o.Addrs) == 0 && len(ls) == 0 && o.Default != "" {
		o.Addrs = []string{o.Default}
	}
	for _, addr := range o.Addrs {
		l, err := openOne(addr, o)
		if err != nil {
			return ls, err
		}
		ls = append(ls, l)
	}
	if err := ls.checkPublic(o); err != nil {
		return ls, err
	}
	return ls, ls.secure(o)
}

func openOne(addr string, o Options) (*Listener, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return openUnix(path, o)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, optionf("%q is no address to listen on: write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080, or unix:PATH", addr)
	}
	l, err := listenTCP(addr)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, advise(err))
	}
	return &Listener{Listener: l, given: addr}, nil
}

// wsaeaddrinuse is what Windows calls EADDRINUSE.
const wsaeaddrinuse = syscall.Errno(10048)

// advise puts what to do in place of what the system calls were.
func advise(err error) error {
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

// checkPublic refuses what would let anybody in (rule A9).
func (ls Listeners) checkPublic(o Options) error {
	authenticated := o.Authenticated || o.ClientCAFile != ""
	for _, l := range ls {
		switch addr := l.Addr().String(); {
		case l.IsUnix() || access.IsLoopbackAddr(addr):
		case !authenticated && !o.Insecure:
			if l.given != "" {
				addr = l.given
			}
			return optionf("%s can be reached by other machines and nobody is authenticated; bind 127.0.0.1, ask for tokens with --token-file, or say --insecure if something in front takes care of that", addr)
		case o.CertFile == "" && !o.Insecure:
			o.Logger.Warn("tokens and messages cross the network unencrypted, unless something in front takes care of that; --tls-cert and --tls-key encrypt them", "address", addr)
		}
	}
	return nil
}

// secure puts TLS before the TCP listeners.
func (ls Listeners) secure(o Options) error {
	if o.CertFile == "" && o.KeyFile == "" && o.ClientCAFile == "" {
		return nil
	}
	certs, err := loadCertificates(o)
	if err != nil {
		return err
	}
	for _, l := range ls {
		if !l.IsUnix() {
			certs.use(l)
		}
	}
	certs.watch()
	return nil
}

// ParseMode reads the mode of a Unix socket, in octal: 0600, 660.
func ParseMode(s string) (fs.FileMode, error) {
	mode, err := strconv.ParseUint(s, 8, 32)
	if err != nil || mode > 0o777 || mode&0o222 == 0 {
		return 0, optionf("%q is no mode of a socket: write it in octal, such as 0600 (only this user may connect) or 0660 (the group too)", s)
	}
	return fs.FileMode(mode), nil
}
