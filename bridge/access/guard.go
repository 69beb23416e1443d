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
// A Policy may be used by many goroutines as long as nobody changes it. Call Validate
// before the first use: an invalid entry matches nothing.
type Policy struct {
	// AllowOrigins are accepted in addition to the loopback origins (http and
	// https, any port, of localhost, *.localhost, 127.0.0.0/8 and [::1]).
	// An entry is an origin as a browser sends it ("https://app.example"), an origin
	// with a wildcard for one or more labels ("https://*.app.example", which does
	// not match app.example itself), or "*" for every origin. The origin
	// "null" is always refused, because any page can have it.
	//
	// An origin is not accepted because it equals the request's own Host: after DNS
	// rebinding the two are equal. The one exception is the unspecified address, if the
	// listener is bound to it (BaseContext): it is not a name, and at this port of this
	// machine there can be no other server.
	AllowOrigins []string

	// AllowHosts are Host names, without a port, that are accepted in addition to the
	// loopback names: for instance behind a reverse proxy that passes on the public name.
	// "*.example.com" and "*" work as above. With AllowHosts, the Host is checked on
	// every address, and not only on loopback addresses. The address of the connection
	// itself is always accepted as Host, because DNS rebinding does not change the Host
	// to an address.
	AllowHosts []string

	// Loopback says that all connections are to a loopback address; if false, the address of each connection says
	// whether it is (http.LocalAddrContextKey, which http.Server sets). On a loopback address, a request whose Host is
	// neither a loopback name nor in AllowHosts can only be a mistake or DNS rebinding, and is refused. On other
	// addresses every Host is accepted unless there are AllowHosts. On Unix sockets, which browsers cannot reach,
	// every Host is accepted.
	Loopback bool

	// Tokens are the accepted tokens. Every request, on whatever address, needs one of them, as
	// "Authorization: Bearer TOKEN" or "X-API-Key: TOKEN". nil: no request needs a token.
	Tokens *Tokens

	// Authenticator finds out who has sent a request, in the place of Tokens and certificates, which are not looked at
	// then. nil: Tokens and certificates say it.
	Authenticator Authenticator

	// TrustedProxies are the networks of reverse proxies whose X-Forwarded-For (RemoteAddr),
	// X-Forwarded-Prefix (Prefix) and X-Forwarded-Proto (Scheme) are believed. The peer of the
	// connection must have an address in these networks. X-Forwarded-Host is ignored: a proxy on
	// this machine must pass on a Host that is allowed.
	TrustedProxies []netip.Prefix

	// TrustUnix says that the peers of Unix sockets are trusted proxies too, as those of TrustedProxies.
	TrustUnix bool
}

// Refusal is the reason not to serve a request.
type Refusal struct {
	Status int    // the HTTP status of the reply: 400, 401 or 403; of an Authenticator also 503
	Rule   string // the rule that the request breaks, by its number in docs/rules.md; "": a rule without a number
	// Reason is a text that may be sent to the client. It is fixed, but for the host or the origin that is refused,
	// which have the characters of a scheme, a name and a port alone.
	Reason string
	Cause  string // for the log: why a credential is refused, in a few words of a fixed set, which the client is not told; "": Reason says it
}

// Check returns nil if the Host and the Origin of r are accepted. It is the first step of
// Enter, for every request of every endpoint, also for preflights. It does not allocate for an accepted request without Origin.
//
// A request without Origin does not come from a page's script and is accepted. One
// exception: a page of another site can name our address as an image or a frame. Such a
// request has no Origin, but the browser adds Sec-Fetch-Site, and Check refuses it.
func (p *Policy) Check(r *http.Request) *Refusal {
	if refusal := p.checkHost(r); refusal != nil {
		return refusal
	}
	origins := r.Header["Origin"]
	switch {
	case len(origins) == 0:
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" && !p.allowsAnyOrigin() {
			return &Refusal{Status: http.StatusForbidden, Rule: "LI1", Reason: "request caused by a page of another site"}
		}
		return nil
	case len(origins) > 1:
		return &Refusal{Status: http.StatusForbidden, Rule: "LI1", Reason: "more than one Origin header"}
	case !p.allowsOrigin(r, origins[0]):
		return &Refusal{Status: http.StatusForbidden, Rule: "LI1", Reason: "origin " + shownOrigin(origins[0]) + "is not allowed (--allow-origin)"}
	}
	return nil
}

// checkHost is the part of Check that is about the Host (LI2); nil: it is accepted.
func (p *Policy) checkHost(r *http.Request) *Refusal {
	if len(r.Header["Host"]) > 0 {
		// net/http moves the Host header to r.Host, so this is a second one.
		return &Refusal{Status: http.StatusBadRequest, Rule: "LI2", Reason: "more than one Host header"}
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
		return &Refusal{Status: http.StatusBadRequest, Rule: "LI2", Reason: "Host header is missing or malformed"}
	}
	if isLoopbackHost(host) || p.isInAllowHosts(host) || isAddress(host, tcp) || isToUnspecified(r) {
		return nil
	}
	return &Refusal{Status: http.StatusForbidden, Rule: "LI2", Reason: "host " + clipHost(host) + " is not allowed (--allow-host)"}
}

// shownOrigin returns how a refusal shows the header Origin, whose value is s: s, cut if it is long, and a space; "" if s is
// no origin, since it may then have anything in it, such as a user and a password.
func shownOrigin(s string) string {
	if _, ok := parseOrigin(s); !ok && s != "null" {
		return ""
	}
	return clipHost(s) + " "
}

// clipHost returns a host or an origin, cut if it is long, for a refusal: whoever has sent it must not make our answer
// long.
func clipHost(host string) string {
	if len(host) > 100 {
		return host[:100] + "..."
	}
	return host
}

// isAddress reports whether host, in brackets or not, is the IP address of the TCP address "of", whatever its port; false if
// "of" is nil.
func isAddress(host string, of *net.TCPAddr) bool {
	if of == nil {
		return false
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	own, ok := netip.AddrFromSlice(of.IP)
	return err == nil && ok && addr == own.Unmap()
}

// unspecifiedPortKey is the key, in the context of a connection, of the port of a listener that
// is bound to the unspecified address.
type unspecifiedPortKey struct{}

// BaseContext returns the context of the connections that l accepts, for the field BaseContext of http.Server. It
// tells a Policy whether l is bound to the unspecified address, 0.0.0.0 or [::], which clients on the same machine can
// then use in their URL.
func BaseContext(l net.Listener) context.Context {
	if addr, ok := l.Addr().(*net.TCPAddr); ok && addr.IP.IsUnspecified() {
		return context.WithValue(context.Background(), unspecifiedPortKey{}, addr.Port)
	}
	return context.Background()
}

// isToUnspecified reports whether the Host of r is the unspecified address, 0.0.0.0 or [::], with the port of its
// listener, and that is bound to the unspecified address (BaseContext).
func isToUnspecified(r *http.Request) bool {
	host, port, ok := splitHostPort(r.Host)
	if !ok || host != "0.0.0.0" && host != "[::]" {
		return false
	}
	if port == "" {
		if port = "80"; r.TLS != nil {
			port = "443"
		}
	}
	bound, ok := r.Context().Value(unspecifiedPortKey{}).(int)
	return ok && port == strconv.Itoa(bound)
}

// isInAllowHosts reports whether host, which has no port, matches an entry of AllowHosts.
func (p *Policy) isInAllowHosts(host string) bool {
	host = trimDot(host)
	for _, pattern := range p.AllowHosts {
		if pattern == "*" || matchHost(pattern, host) {
			return true
		}
	}
	return false
}

// allowsOrigin reports whether pages of the origin s may send r: it is a loopback origin, one of
// AllowOrigins, or the unspecified address if r was sent to that (isOwnOrigin).
func (p *Policy) allowsOrigin(r *http.Request, s string) bool {
	o, ok := parseOrigin(s)
	if !ok { // "null" has no scheme, so it is refused here
		return false
	}
	if o.isWeb() && (isLoopbackHost(o.host) || isOwnOrigin(r, s)) {
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

// isOwnOrigin reports whether the origin s is the address that r was sent to, and this is the unspecified address.
// With another port the origin would be another program, and on another connection another machine.
func isOwnOrigin(r *http.Request, s string) bool {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return isToUnspecified(r) && equalFold(s, scheme+r.Host)
}

// allowsAnyOrigin reports whether AllowOrigins has "*".
func (p *Policy) allowsAnyOrigin() bool {
	for _, allowed := range p.AllowOrigins {
		if allowed == "*" {
			return true
		}
	}
	return false
}
