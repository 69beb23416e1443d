package access

import "strings"

// origin is a parsed Origin header, or a pattern for one, whose host may begin with "*.".
type origin struct {
	scheme string // the scheme, without "://"
	host   string // the host, an IPv6 address in brackets
	port   string // the port, without the colon; "": none is written
}

// parseOrigin parses an origin; false: it is none. It accepts scheme://host and scheme://host:port and nothing else:
// no path, not even "/", no user, no "null".
func parseOrigin(s string) (origin, bool) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || !isScheme(scheme) {
		return origin{}, false
	}
	host, port, ok := splitHostPort(rest)
	return origin{scheme, host, port}, ok
}

// parsePattern parses an entry of AllowOrigins other than "*": an origin whose host may begin with "*."; false: it is
// none.
func parsePattern(s string) (origin, bool) {
	scheme, base, wild := strings.Cut(s, "://*.")
	if !wild {
		return parseOrigin(s)
	}
	o, ok := parseOrigin(scheme + "://" + base)
	o.host = "*." + o.host
	return o, ok && isWildcard(o.host)
}

// isScheme reports whether s can be the scheme of a URL.
func isScheme(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !isAlnum(c) && (i == 0 || c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

// isWeb reports whether the origin's scheme is http or https.
func (o origin) isWeb() bool {
	return equalFold(o.scheme, "http") || equalFold(o.scheme, "https")
}

// matches reports whether o, parsed from an Origin header, matches the pattern. A default port is not the same as no port:
// browsers never write it, and Validate refuses it in a pattern.
func (pattern origin) matches(o origin) bool {
	return equalFold(pattern.scheme, o.scheme) && pattern.port == o.port && matchHost(pattern.host, o.host)
}
