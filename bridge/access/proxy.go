package access

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// ParseProxies reads entries for Policy.TrustedProxies: networks such as 10.0.0.0/8, addresses, and "loopback" for the
// loopback addresses; unix: the entry "unix", for Policy.TrustUnix, was among them. The error names the entry that is
// wrong.
func ParseProxies(entries []string) (prefixes []netip.Prefix, unix bool, err error) {
	for i, s := range entries {
		switch s {
		case "unix":
			unix = true
			continue
		case "loopback":
			prefixes = append(prefixes, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
			continue
		}
		prefix, err := netip.ParsePrefix(s)
		if addr, notAddr := netip.ParseAddr(s); notAddr == nil && addr.Zone() == "" {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, false, fmt.Errorf("trusted proxy %d, %s: write an address, a network such as 10.0.0.0/8, \"loopback\" or \"unix\"", i+1, quoteUnlessSecret(s))
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, unix, (&Policy{TrustedProxies: prefixes}).validateProxies()
}

// validateProxies returns an error for the first invalid entry of TrustedProxies; nil: all are valid.
func (p *Policy) validateProxies() error {
	for i, prefix := range p.TrustedProxies {
		addr := prefix.Addr()
		switch {
		case !prefix.IsValid():
			return fmt.Errorf("trusted proxy %d: this is no network", i+1)
		case addr.Is4In6():
			return fmt.Errorf("trusted proxy %d, %s: write it as an IPv4 network", i+1, prefix)
		}
	}
	return nil
}

// Prefix returns the path that a trusted proxy has removed from the beginning of the
// request's path (X-Forwarded-Prefix). A path that is sent to the client must begin with
// it. Prefix is "", or begins with one "/" and does not end with one. Call it after
// Enter, which refuses a malformed prefix.
func (p *Policy) Prefix(r *http.Request) string {
	prefix, _ := p.parsePrefix(r)
	return prefix
}

// Scheme returns "https" if the client of r has come by TLS, as far as is known: to us, or to a trusted proxy that says so
// (X-Forwarded-Proto). Else it is "http".
func (p *Policy) Scheme(r *http.Request) string {
	said := r.Header["X-Forwarded-Proto"]
	if r.TLS != nil || p.fromProxy(r) && len(said) == 1 && equalFold(said[0], "https") {
		return "https"
	}
	return "http"
}

// RemoteAddr returns where r comes from, for logs. This is the address of the peer with its
// port, or "unix" for the peer of a Unix socket. If the peer is a trusted proxy, it is the
// last address in X-Forwarded-For that is not a trusted proxy, without a port: any client may
// have written the addresses before that one. If all are trusted proxies it is the first of
// them, or the one behind an entry that is no address; without any address, that of the peer.
func (p *Policy) RemoteAddr(r *http.Request) string {
	from := r.RemoteAddr
	if isUnix(r) {
		from = "unix"
	}
	if !p.fromProxy(r) {
		return from
	}
	lines := r.Header["X-Forwarded-For"]
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			entry := rest
			comma := strings.LastIndexByte(rest, ',')
			if more = comma >= 0; more {
				rest, entry = rest[:comma], rest[comma+1:]
			}
			addr, ok := forwardedAddr(strings.Trim(entry, " \t"))
			if !ok {
				return from
			}
			from = addr.String()
			if !p.trustsProxy(addr) {
				return from
			}
		}
	}
	return from
}

// checkForwarded refuses a request with a malformed X-Forwarded-Prefix of a trusted proxy: without the prefix the
// client would be sent to a path that does not exist.
func (p *Policy) checkForwarded(r *http.Request) *Refusal {
	if _, ok := p.parsePrefix(r); !ok {
		return &Refusal{Status: http.StatusBadRequest, Reason: "X-Forwarded-Prefix is malformed: one absolute path is expected"}
	}
	return nil
}

// parsePrefix returns what Prefix returns; ok is false if a trusted proxy has sent a malformed X-Forwarded-Prefix.
func (p *Policy) parsePrefix(r *http.Request) (prefix string, ok bool) {
	if !p.fromProxy(r) {
		return "", true
	}
	lines := r.Header["X-Forwarded-Prefix"]
	switch {
	case len(lines) == 0 || len(lines) == 1 && lines[0] == "":
		return "", true
	case len(lines) > 1:
		return "", false
	}
	prefix = strings.TrimSuffix(lines[0], "/")
	if prefix != "" && !IsCleanPath(prefix) {
		return "", false
	}
	return prefix, true
}

// IsCleanPath reports whether s is an absolute path that no program changes when it joins
// or resolves the path. Such a path begins with a "/" and does not end with one, has no
// segment that is empty, "." or "..", and has at most 256 characters, all of them ASCII
// letters, digits, -._~+,:=@ or "/".
func IsCleanPath(s string) bool {
	if len(s) < 2 || len(s) > 256 || s[0] != '/' {
		return false
	}
	for segment := range strings.SplitSeq(s[1:], "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
		for i := range len(segment) {
			if !isAlnum(segment[i]) && strings.IndexByte("-._~+,:=@", segment[i]) < 0 {
				return false
			}
		}
	}
	return true
}

// fromProxy reports whether r has come directly from a trusted proxy.
func (p *Policy) fromProxy(r *http.Request) bool {
	if len(p.TrustedProxies) == 0 && !p.TrustUnix {
		return false
	}
	if isUnix(r) {
		return p.TrustUnix
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && p.trustsProxy(peer.Addr())
}

// trustsProxy reports whether addr is in one of TrustedProxies.
func (p *Policy) trustsProxy(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, prefix := range p.TrustedProxies {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// isUnix reports whether r has come over a Unix socket.
func isUnix(r *http.Request) bool {
	_, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return ok
}

// forwardedAddr returns the address in one entry of X-Forwarded-For, to which some proxies add a port; false: there is
// none.
func forwardedAddr(s string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap(), true
	}
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		s = s[1 : len(s)-1]
	}
	addr, err := netip.ParseAddr(s)
	return addr.Unmap(), err == nil
}

// LogFields returns keys and values for a log line about a refused request: its
// RemoteAddr, and its Host and Origin. The client chooses the latter two, so at most 100
// bytes of each are logged.
func (p *Policy) LogFields(r *http.Request) []any {
	fields := []any{"remote", p.RemoteAddr(r), "host", clip(r.Host)}
	if origin := r.Header.Get("Origin"); origin != "" {
		fields = append(fields, "origin", clip(origin))
	}
	return fields
}

// clip returns the first 100 bytes of s at most.
func clip(s string) string { return s[:min(len(s), 100)] }
