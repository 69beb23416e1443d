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

// maxReplyHeaderBytes is how many bytes the headers of a reply may have that a client of
// NewGuardedClient gets.
const maxReplyHeaderBytes = 256 << 10

// GuardedClientOptions are what NewGuardedClient needs.
type GuardedClientOptions struct {
	// ConfiguredURL is the address that the user has given: of an MCP server, or of an issuer. Requests go to it
	// and to addresses that its server names. Those may not be nearer to us than ConfiguredURL
	// (reach.Reach.MayLeadTo). Required: http, https, ws or wss.
	ConfiguredURL string

	// AllowPrivate: the server at ConfiguredURL may also name addresses that are nearer to us than it is, and addresses
	// that are not on the internet may be named by http://. The metadata services of clouds are refused all the same.
	AllowPrivate bool

	TLS            *tls.Config   // which servers are trusted, and who we are; nil: the system's authorities, and nobody
	ConnectTimeout time.Duration // bounds dialling and the TLS handshake, each. 0: DefaultConnectTimeout
}

// NewGuardedClient returns the client for requests to addresses that servers name: those of authorization. It
// has the proxies of the environment, and no cookies. Who uses it bounds times, bodies and redirects, as
// auth.EndpointCaller does. It may be used concurrently. Who has it calls CloseIdleConnections in the end.
//
// The rule for addresses holds for the address that is dialled, after its name was resolved: so also
// after a redirect, and where a name stands for another address than before. A proxy resolves names
// itself: of what goes through one, only addresses that stand in the URL can be checked. How near
// ConfiguredURL is, its text says, or the address of a connection that proves its name by TLS. Where that cannot be
// known, it counts as one on the internet. A request that is refused fails with a *reach.Error.
func NewGuardedClient(o GuardedClientOptions) (*http.Client, error) {
	named, err := ParseURL(o.ConfiguredURL, "http", "https", "ws", "wss")
	if err != nil {
		return nil, err
	}
	g := &reachGuard{configuredURL: named, allowPrivate: o.AllowPrivate, reachOf: reach.OfAddr, proxyOf: http.ProxyFromEnvironment, tls: o.TLS.Clone()}
	g.httpsTransport = NewTransport(TransportOptions{ConnectTimeout: o.ConnectTimeout, TLS: o.TLS})
	g.httpsTransport.MaxResponseHeaderBytes = maxReplyHeaderBytes
	g.proxyTransport = g.httpsTransport.Clone()
	g.proxyTransport.Proxy = func(r *http.Request) (*url.URL, error) { return g.proxyOf(r) }
	g.dialer = newDialer(o.ConnectTimeout)
	g.httpTransport = g.httpsTransport.Clone()
	g.httpsTransport.Proxy, g.httpsTransport.DialContext = nil, limitWrites(g.dialHTTPS)
	g.httpTransport.Proxy, g.httpTransport.DialContext = nil, limitWrites(g.dialHTTP)
	return &http.Client{Transport: g}, nil
}

// A reachGuard is the RoundTripper of a client of NewGuardedClient. It refuses addresses that are nearer to us than
// ConfiguredURL, unless AllowPrivate is set. It always refuses http:// on the internet, and what is reach.NeverAllowed
// (checkAgainst).
type reachGuard struct {
	configuredURL   *url.URL                              // GuardedClientOptions.ConfiguredURL
	allowPrivate    bool                                  // addresses of any reach but NeverAllowed may be reached
	dialer          *net.Dialer                           // connects, without a check of the address
	tls             *tls.Config                           // GuardedClientOptions.TLS, to be cloned and not changed; nil: the system's authorities
	reachOf         func(netip.Addr) reach.Reach          // reach.OfAddr, but in tests
	proxyOf         func(*http.Request) (*url.URL, error) // http.ProxyFromEnvironment, but in tests
	httpsTransport  *http.Transport                       // for https URLs without a proxy
	httpTransport   *http.Transport                       // for http URLs without a proxy
	proxyTransport  *http.Transport                       // for http and https URLs through a proxy
	configuredReach atomic.Pointer[hostReach]             // how far configuredURL reaches; nil: that was not found out yet
}

// A hostReach is how far away the host of ConfiguredURL is (on this machine, in a private network, on the internet), as
// far as a reachGuard could find that out.
type hostReach struct {
	reach         reach.Reach // how far away the host is
	unknownReason error       // why reach cannot be known, and counts as Public; nil: it is known
}

// PlainHTTP reports whether URLs may begin with http:// where they do not lead to the internet (auth.EndpointCaller asks).
func (g *reachGuard) PlainHTTP() bool { return g.allowPrivate }

// CloseIdleConnections closes the connections of all its transports that no request uses.
func (g *reachGuard) CloseIdleConnections() {
	g.httpsTransport.CloseIdleConnections()
	g.httpTransport.CloseIdleConnections()
	g.proxyTransport.CloseIdleConnections()
}

// RoundTrip implements http.RoundTripper. It fails with a *reach.Error if the address may not be reached.
func (g *reachGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	r = withWritesCounted(r)
	proxy, err := g.proxyOf(r)
	plain := r.URL.Scheme == "http"
	switch {
	case err == nil && proxy == nil && plain:
		return g.httpTransport.RoundTrip(r)
	case err == nil && proxy == nil:
		return g.httpsTransport.RoundTrip(r)
	case err == nil:
		to, known := reach.OfHost(r.URL.Hostname())
		if !known {
			to = reach.Public // for all that we know
		}
		err = g.checkReach(r.Context(), &reach.Error{Host: r.URL.Hostname(), Reach: to, PlainHTTP: plain})
	}
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	return g.proxyTransport.RoundTrip(r)
}

// checkReach returns nil if a request through a proxy may go to the address that to names, or else to, with the reason
// filled in. It connects to ConfiguredURL if it has to know how near that is.
func (g *reachGuard) checkReach(ctx context.Context, to *reach.Error) error {
	base := g.configuredReach.Load()
	if base == nil && to.Reach != reach.Public && to.Reach != reach.NeverAllowed && !g.allowPrivate {
		base = g.learnConfiguredReach(ctx)
	}
	if refused := g.checkAgainst(to, base); refused != nil {
		return refused
	}
	return nil
}

// checkAgainst returns nil if the address that to names may be reached, or else to, with the reason filled in. base is how far
// ConfiguredURL reaches; nil counts as Public. On entry to.PlainHTTP says that the URL begins with http://; on return, that this is
// why the address is refused.
func (g *reachGuard) checkAgainst(to *reach.Error, base *hostReach) *reach.Error {
	if to.PlainHTTP && to.Reach == reach.Public {
		return to
	}
	to.PlainHTTP = false
	if base == nil {
		base = &hostReach{reach: reach.Public}
	}
	if to.Reach == reach.Public || to.Reach != reach.NeverAllowed && g.allowPrivate || base.reach.MayLeadTo(to.Reach) {
		return nil
	}
	to.ConfiguredHost, to.ConfiguredReach, to.UnknownReason = g.configuredURL.Hostname(), base.reach, base.unknownReason
	return to
}

// dialHTTPS connects to the address of an https URL if it may be reached.
func (g *reachGuard) dialHTTPS(ctx context.Context, network, address string) (net.Conn, error) {
	return g.dialChecked(ctx, network, address, false)
}

// dialHTTP connects to the address of an http URL if it may be reached (checkAgainst): never to one on the internet.
func (g *reachGuard) dialHTTP(ctx context.Context, network, address string) (net.Conn, error) {
	return g.dialChecked(ctx, network, address, true)
}

// dialChecked connects to an address if it may be reached; plain says that it is that of an http URL. It
// finds out how far ConfiguredURL reaches if the answer depends on that.
func (g *reachGuard) dialChecked(ctx context.Context, network, address string, plain bool) (net.Conn, error) {
	conn, err := g.dialAllowedAddrs(ctx, network, address, plain, g.configuredReach.Load())
	refused, ok := reach.AsError(err)
	if !ok || refused.Reach == reach.NeverAllowed || refused.PlainHTTP || g.configuredReach.Load() != nil {
		return conn, err
	}
	return g.dialAllowedAddrs(ctx, network, address, plain, g.learnConfiguredReach(ctx))
}

// dialAllowedAddrs connects to an address (host and port) if it may be reached. Of several IP addresses that
// the host has, those that may not be reached are left out: if there is no connection because of that, the error is a
// *reach.Error. plain says that it is the address of an http URL; base is how far ConfiguredURL reaches, nil: Public.
func (g *reachGuard) dialAllowedAddrs(ctx context.Context, network, address string, plain bool, base *hostReach) (net.Conn, error) {
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
		if refused := g.checkAgainst(&reach.Error{Host: host, Addr: at.Addr().Unmap(), Reach: g.reachOf(at.Addr()), PlainHTTP: plain}, base); refused != nil {
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

// learnConfiguredReach finds out how far ConfiguredURL reaches, and keeps the result in configuredReach unless it may be another the
// next time.
func (g *reachGuard) learnConfiguredReach(ctx context.Context) *hostReach {
	s, final := g.resolveConfiguredReach(ctx)
	if final {
		g.configuredReach.Store(s)
	}
	return s
}

// resolveConfiguredReach finds out how far ConfiguredURL reaches. final: the result would be the same another time.
func (g *reachGuard) resolveConfiguredReach(ctx context.Context) (s *hostReach, final bool) {
	unknown := func(text string) *hostReach { return &hostReach{reach.Public, errors.New(text)} }
	if r, known := reach.OfHost(g.configuredURL.Hostname()); known {
		return &hostReach{reach: r}, true
	}
	if g.configuredURL.Scheme == "http" || g.configuredURL.Scheme == "ws" {
		return unknown("its address does not begin with https://, so it cannot prove its name"), true
	}
	if proxy, err := g.proxyOf(&http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: g.configuredURL.Host}}); err != nil || proxy != nil {
		return unknown("it is reached through a proxy"), true
	}
	ctx, cancel := context.WithTimeout(ctx, g.dialer.Timeout)
	defer cancel()
	config := g.tls.Clone()
	if config == nil {
		config = &tls.Config{}
	}
	config.ServerName, config.NextProtos = g.configuredURL.Hostname(), nil
	conn, err := (&tls.Dialer{NetDialer: g.dialer, Config: config}).DialContext(ctx, "tcp", net.JoinHostPort(g.configuredURL.Hostname(), cmp.Or(g.configuredURL.Port(), "443")))
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
