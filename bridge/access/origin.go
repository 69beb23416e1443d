package access

import "strings"

// origin is a parsed Origin header, or a pattern for one. port is "" if none is written.
type origin struct{ scheme, host, port string }

// parseOrigin accepts scheme://host and scheme://host:port and nothing else:
// no path, not even "/", no user, no "null".
func parseOrigin(s string) (origin, bool) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || !isScheme(scheme) {
		return origin{}, false
	}
	host, port, ok := splitHostPort(rest)
	return origin{scheme, host, port}, ok
}

// parsePattern accepts an origin whose host may begin with "*.".
func parsePattern(s string) (origin, bool) {
	scheme, base, wild := strings.Cut(s, "://*.")
	if !wild {
		return parseOrigin(s)
	}
	o, ok := parseOrigin(scheme + "://" + base)
	o.host = "*." + o.host
	return o, ok && isWildcard(o.host)
}

func isScheme(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !isAlnum(c) && (i == 0 || c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

// isWeb reports whether the scheme is http or https.
func (o origin) isWeb() bool {
	return equalFold(o.scheme, "http") || equalFold(o.scheme, "https")
}

// matches reports whether o, from an Origin header, matches the pattern.
func (pattern origin) matches(o origin) bool {
	return equalFold(pattern.scheme, o.scheme) && pattern.port == o.port && matchHost(pattern.host, o.host)
}
