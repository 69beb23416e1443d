package httpdial

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/reach"
)

// maxReplyHeader bounds the header of a reply that a client of NewClient gets.
const maxReplyHeader = 256 << 10

// ClientOptions are what NewClient needs.
type ClientOptions struct {
	// Named is the address that the user has given: of an MCP server, or of an issuer. The requests are for
	// it and for what it names, which may not be nearer to us than it is (reach.Reach.MayLeadTo).
	// Required: http, https, ws or wss.
	Named string

	// AllowPrivate lets it name what is nearer, too, and what is not on the internet also by http://. The
	// metadata services of clouds are refused all the same.
	AllowPrivate bool

	TLS            *tls.Config   // as TransportOptions have it
	ConnectTimeout time.Duration // likewise
}

// NewClient returns the client for requests to addresses that servers name: those of authorization. It
// has the proxies of the environment, and no cookies. Who uses it bounds times, bodies and redirects, as
// auth.EndpointCaller does. It may be used concurrently. Who has it calls CloseIdleConnections in the end.
//
// The rule for addresses holds for the address that is dialled, after its name was resolved: so also
// after a redirect, and where a name stands for another address than before. A proxy resolves names
// itself: of what goes through one, only addresses that stand in the URL can be checked. How near Named is
// is what its text says, or where a connection ends that proves its name by TLS. Where that cannot be
// known, it counts as one on the internet. A request that is refused fails with a *reach.Error.
func NewClient(o ClientOptions) (*http.Client, error) {
	named, err := URL(o.Named, "http", "https", "ws", "wss")
	if err != nil {
		return nil, err
	}
	g := &guard{named: named, all: o.AllowPrivate, reachOf: reach.OfAddr, proxy: http.ProxyFromEnvironment, tls: o.TLS.Clone()}
	g.direct = NewTransport(TransportOptions{ConnectTimeout: o.ConnectTimeout, TLS: o.TLS})
	g.direct.MaxResponseHeaderBytes = maxReplyHeader
	g.proxied = g.direct.Clone()
	g.proxied.Proxy = func(r *http.Request) (*url.URL, error) { return g.proxy(r) }
	g.dialer = newDialer(o.ConnectTimeout)
	g.plain = g.direct.Clone()
	g.direct.Proxy, g.direct.DialContext = nil, g.dial
	g.plain.Proxy, g.plain.DialContext = nil, g.dialPlain
	return &http.Client{Transport: g}, nil
}

// A guard is the RoundTripper of a client of NewClient.
type guard struct {
	named   *url.URL
	all     bool // addresses of any reach but NeverAllowed
	dialer  *net.Dialer
	tls     *tls.Config // nil: as in ClientOptions; not to be changed
	reachOf func(netip.Addr) reach.Reach
	proxy   func(*http.Request) (*url.URL, error)
	direct  *http.Transport           // for https
	plain   *http.Transport           // for http
	proxied *http.Transport           // for both
	base    atomic.Pointer[hostReach] // of named; nil: nobody knows yet
}

// A hostReach is how far an address reaches.
type hostReach struct {
	reach  reach.Reach
	reason error // why it cannot be known, and counts as Public; nil: it is known
}

// PlainHTTP reports whether URLs may begin with http:// where they do not lead to the internet (auth.EndpointCaller asks).
func (g *guard) PlainHTTP() bool { return g.all }

func (g *guard) CloseIdleConnections() {
	g.direct.CloseIdleConnections()
	g.plain.CloseIdleConnections()
	g.proxied.CloseIdleConnections()
}

func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	proxy, err := g.proxy(r)
	plain := r.URL.Scheme == "http"
	switch {
	case err == nil && proxy == nil && plain:
		return g.plain.RoundTrip(r)
	case err == nil && proxy == nil:
		return g.direct.RoundTrip(r)
	case err == nil:
		to, known := reach.OfHost(r.URL.Hostname())
		if !known {
			to = reach.Public // for all that we know
		}
		err = g.allowed(r.Context(), &reach.Error{Host: r.URL.Hostname(), Reach: to, PlainHTTP: plain})
	}
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	return g.proxied.RoundTrip(r)
}

// allowed returns nil, or its argument with what is missing in it.
func (g *guard) allowed(ctx context.Context, to *reach.Error) error {
	base := g.base.Load()
	if base == nil && to.Reach != reach.Public && to.Reach != reach.NeverAllowed && !g.all {
		base = g.learn(ctx)
	}
	if refused := g.check(to, base); refused != nil {
		return refused
	}
	return nil
}

// check returns nil, or its argument with what is missing in it. A base of nil counts as Public. Plain says at first that
// the URL begins with http://.
func (g *guard) check(to *reach.Error, base *hostReach) *reach.Error {
	if to.PlainHTTP && to.Reach == reach.Public {
		return to
	}
	to.PlainHTTP = false
	if base == nil {
		base = &hostReach{reach: reach.Public}
	}
	if to.Reach == reach.Public || to.Reach != reach.NeverAllowed && g.all || base.reach.MayLeadTo(to.Reach) {
		return nil
	}
	to.ConfiguredHost, to.ConfiguredReach, to.UnknownReason = g.named.Hostname(), base.reach, base.reason
	return to
}

// dial connects to an address if it is allowed.
func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return g.dialFor(ctx, network, address, false)
}

// dialPlain does so for a URL that begins with http://.
func (g *guard) dialPlain(ctx context.Context, network, address string) (net.Conn, error) {
	return g.dialFor(ctx, network, address, true)
}

func (g *guard) dialFor(ctx context.Context, network, address string, plain bool) (net.Conn, error) {
	conn, err := g.dialAllowed(ctx, network, address, plain, g.base.Load())
	refused, ok := reach.AsError(err)
	if !ok || refused.Reach == reach.NeverAllowed || refused.PlainHTTP || g.base.Load() != nil {
		return conn, err
	}
	return g.dialAllowed(ctx, network, address, plain, g.learn(ctx))
}

// dialAllowed connects to an address if it is allowed. Of several addresses that a name has, those that
// are not are left out.
func (g *guard) dialAllowed(ctx context.Context, network, address string, plain bool, base *hostReach) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var left atomic.Pointer[reach.Error]
	d := *g.dialer
	d.ControlContext = func(_ context.Context, _, to string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(to)
		if err != nil {
			return err
		}
		if refused := g.check(&reach.Error{Host: host, Addr: at.Addr().Unmap(), Reach: g.reachOf(at.Addr()), PlainHTTP: plain}, base); refused != nil {
			left.Store(refused)
			return refused
		}
		return nil
	}
	conn, err := d.DialContext(ctx, network, address)
	if refused := left.Load(); err != nil && refused != nil {
		return nil, refused
	}
	return conn, err
}

// learn finds out how far the named address reaches, and keeps it if that does not change.
func (g *guard) learn(ctx context.Context) *hostReach {
	s, final := g.resolve(ctx)
	if final {
		g.base.Store(s)
	}
	return s
}

// resolve finds it out. final: it would be the same another time.
func (g *guard) resolve(ctx context.Context) (s *hostReach, final bool) {
	unknown := func(text string) *hostReach { return &hostReach{reach.Public, errors.New(text)} }
	if r, known := reach.OfHost(g.named.Hostname()); known {
		return &hostReach{reach: r}, true
	}
	if g.named.Scheme == "http" || g.named.Scheme == "ws" {
		return unknown("its address does not begin with https://, so it cannot prove its name"), true
	}
	if proxy, err := g.proxy(&http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: g.named.Host}}); err != nil || proxy != nil {
		return unknown("it is reached through a proxy"), true
	}
	ctx, cancel := context.WithTimeout(ctx, g.dialer.Timeout)
	defer cancel()
	config := g.tls.Clone()
	if config == nil {
		config = &tls.Config{}
	}
	config.ServerName, config.NextProtos = g.named.Hostname(), nil
	conn, err := (&tls.Dialer{NetDialer: g.dialer, Config: config}).DialContext(ctx, "tcp", net.JoinHostPort(g.named.Hostname(), cmp.Or(g.named.Port(), "443")))
	if err != nil {
		return &hostReach{reach.Public, fmt.Errorf("there is no connection to it: %w", err)}, false
	}
	defer conn.Close()
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return &hostReach{reach.Public, err}, false
	}
	return &hostReach{reach: g.reachOf(at.Addr())}, true
}
