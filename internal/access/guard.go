// Package access keeps web pages away from a server that only local
// programs are meant to reach. A browser sends requests to any address a page
// names, loopback included; what tells them apart is the Origin header (rules
// LI1 and LI31), and the Host header when a page's own name was pointed at
// the loopback address, which is called DNS rebinding (rule LI2). It also keeps
// out who has no token, where tokens are asked for (rules A2 to A9), and says
// which forwarded headers to believe. Policy.Enter does all of it.
package access

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// Policy says which web pages, Host names and tokens a listener accepts. The
// zero Policy accepts pages from loopback origins and every Host, authenticates
// nobody, and believes no forwarded header.
//
// A Policy may be used by many goroutines as long as nobody changes it. Call
// Validate once before; an entry that is not valid matches nothing.
type Policy struct {
	// AllowOrigins are origins accepted beside the loopback ones (http and
	// https, any port, of localhost, *.localhost, 127.0.0.0/8 and [::1]).
	// An entry is an origin as a browser sends it ("https://app.example"), one
	// with a wildcard for one or more labels ("https://*.app.example"; it does
	// not match app.example itself), or "*" for every origin. The origin
	// "null" is refused whatever stands here: any page can have it.
	//
	// The origin that equals the request's own Host gets no special trust:
	// after DNS rebinding the two are equal. Only that of the unspecified
	// address does, at a listener that is bound to it (BaseContext): it is no
	// name, and nobody else can be at the same port of this machine.
	AllowOrigins []string

	// AllowHosts are Host names accepted beside the loopback ones, without a
	// port: behind a reverse proxy that passes the public name on, for
	// instance. "*.example.com" and "*" work as above. If there are any, the
	// Host counts on every address, not only on loopback ones. The address
	// that a connection has arrived at is a good Host, too, since no name
	// leads a browser to it under another's.
	AllowHosts []string

	// Loopback says that every connection is one to a loopback address. Unset,
	// each tells by itself (http.LocalAddrContextKey, which http.Server sets):
	// there, a request with another Host can only be a mistake or DNS
	// rebinding. On other addresses any Host is accepted unless there are
	// AllowHosts, and on Unix sockets, which no browser reaches, in any case.
	Loopback bool

	// Tokens are the tokens that a request must carry one of, as
	// "Authorization: Bearer TOKEN" or "X-API-Key: TOKEN", on every connection,
	// whatever its address. nil: no request needs one.
	Tokens *Tokens

	// TrustedProxies are the networks of reverse proxies whose X-Forwarded-For
	// (RemoteAddr) and X-Forwarded-Prefix (Prefix) are believed; what counts is
	// the address of the connection's own peer. X-Forwarded-Host and -Proto are
	// never looked at: the Host header is checked as it comes, so a proxy on
	// this machine must pass on a Host that is allowed, and no URL of ours
	// names a scheme or a host.
	TrustedProxies []netip.Prefix

	// TrustUnix says that the peers of Unix sockets are trusted proxies too.
	TrustUnix bool
}

// Refusal is the reason not to serve a request. Reason is a fixed text, fit for
// the client; it holds nothing of the request.
type Refusal struct {
	Status int // 400, 401 or 403
	Reason string
}

// Check returns nil if r may be served. It must be called for every request of
// every endpoint, before anything else and also for preflights (CORS answers
// these). It does not allocate for a request that is served and has no Origin.
//
// A request without Origin does not come from a page's script and is accepted,
// unless the browser says (Sec-Fetch-Site) that another site caused it: an
// image or a frame whose address is ours has no Origin.
func (p *Policy) Check(r *http.Request) *Refusal {
	if refusal := p.checkHost(r); refusal != nil {
		return refusal
	}
	origins := r.Header["Origin"]
	switch {
	case len(origins) == 0:
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" && !p.anyOrigin() {
			return &Refusal{http.StatusForbidden, "request caused by a page of another site"}
		}
		return nil
	case len(origins) > 1:
		return &Refusal{http.StatusForbidden, "more than one Origin header"}
	case !p.allowsOrigin(r, origins[0]):
		return &Refusal{http.StatusForbidden, "origin is not allowed (--allow-origin)"}
	}
	return nil
}

func (p *Policy) checkHost(r *http.Request) *Refusal {
	if len(r.Header["Host"]) > 0 {
		// net/http moves the Host header to r.Host; what is left is a second one.
		return &Refusal{http.StatusBadRequest, "more than one Host header"}
	}
	local := r.Context().Value(http.LocalAddrContextKey)
	tcp, _ := local.(*net.TCPAddr)
	if loopback := p.Loopback || tcp != nil && tcp.IP.IsLoopback(); !loopback {
		if _, unix := local.(*net.UnixAddr); unix || len(p.AllowHosts) == 0 {
			return nil
		}
	}
	host, _, ok := splitHostPort(r.Host)
	if !ok {
		return &Refusal{http.StatusBadRequest, "Host header is missing or malformed"}
	}
	if IsLoopbackHost(host) || p.allowsHost(host) || isAddress(host, tcp) || toUnspecified(r) {
		return nil
	}
	return &Refusal{http.StatusForbidden, "host is not allowed (--allow-host)"}
}

// isAddress reports whether host is the address itself.
func isAddress(host string, of *net.TCPAddr) bool {
	if of == nil {
		return false
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	own, ok := netip.AddrFromSlice(of.IP)
	return err == nil && ok && addr == own.Unmap()
}

// unspecifiedPort is the key of a port in the context of a connection.
type unspecifiedPort struct{}

// BaseContext is for the field of this name of an http.Server. By it a Policy knows which connections have
// come to a listener that is bound to the unspecified address, 0.0.0.0 or [::]: on the machine itself that
// is what clients can call it by, too.
func BaseContext(l net.Listener) context.Context {
	if addr, ok := l.Addr().(*net.TCPAddr); ok && addr.IP.IsUnspecified() {
		return context.WithValue(context.Background(), unspecifiedPort{}, addr.Port)
	}
	return context.Background()
}

// toUnspecified reports whether the Host of r is the unspecified address, at the port of a listener of
// ours that is bound to that.
func toUnspecified(r *http.Request) bool {
	host, port, ok := splitHostPort(r.Host)
	if !ok || host != "0.0.0.0" && host != "[::]" {
		return false
	}
	if port == "" {
		if port = "80"; r.TLS != nil {
			port = "443"
		}
	}
	bound, ok := r.Context().Value(unspecifiedPort{}).(int)
	return ok && port == strconv.Itoa(bound)
}

func (p *Policy) allowsHost(host string) bool {
	host = trimDot(host)
	for _, pattern := range p.AllowHosts {
		if pattern == "*" || matchHost(pattern, host) {
			return true
		}
	}
	return false
}

func (p *Policy) allowsOrigin(r *http.Request, s string) bool {
	o, ok := parseOrigin(s)
	if !ok { // "null" has no scheme and ends here
		return false
	}
	if o.isWeb() && (IsLoopbackHost(o.host) || isOwnOrigin(r, s)) {
		return true
	}
	for _, allowed := range p.AllowOrigins {
		if allowed == "*" {
			return true
		}
		pattern, ok := parsePattern(allowed)
		if ok && pattern.matches(o) {
			return true
		}
	}
	return false
}

// isOwnOrigin reports whether an origin is the one of r itself, and that is the unspecified address. Such an
// origin is not worth more than that: elsewhere it is another machine's, and at another port another program's.
func isOwnOrigin(r *http.Request, s string) bool {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return toUnspecified(r) && equalFold(s, scheme+r.Host)
}

func (p *Policy) anyOrigin() bool {
	for _, allowed := range p.AllowOrigins {
		if allowed == "*" {
			return true
		}
	}
	return false
}
