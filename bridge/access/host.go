package access

import (
	"net/netip"
	"strconv"
	"strings"
)

// IsLoopbackAddr reports whether hostport, a host with or without a port (an
// IPv6 address in brackets), names this machine's loopback interface. It is
// true for "localhost:80", although the name could lead elsewhere; to be sure, check the
// address of the open listener. It is false for a wildcard address (":8080",
// "0.0.0.0:8080"), which may be served only with authentication (rule A9).
func IsLoopbackAddr(hostport string) bool {
	host, _, ok := splitHostPort(hostport)
	return ok && isLoopbackHost(host)
}

// isLoopbackHost reports whether host, without a port, is localhost, a name
// below localhost (RFC 6761), an IPv4 address in 127.0.0.0/8, or ::1, in
// brackets or not. It is false for every other spelling of these addresses: 127.1,
// 2130706433, 0x7f000001, an address with a zone, and an IPv4 address in an IPv6 address.
func isLoopbackHost(host string) bool {
	if isLocalhost(trimDot(host)) {
		return true
	}
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
		if !strings.Contains(host, ":") {
			return false
		}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	return addr == netip.IPv6Loopback() || addr.Is4() && addr.IsLoopback()
}

// isLocalhost reports whether name is localhost, or a name below it.
func isLocalhost(name string) bool {
	const tld = "localhost"
	if !isName(name) || !hasSuffixFold(name, tld) {
		return false
	}
	return len(name) == len(tld) || name[len(name)-len(tld)-1] == '.'
}

// splitHostPort splits a host from its port; ok is false unless both are valid, which net.SplitHostPort does not check. port
// is "" when there is none. The host of "[::1]:80" keeps its brackets.
func splitHostPort(s string) (host, port string, ok bool) {
	end := strings.IndexByte(s, ':')
	if strings.HasPrefix(s, "[") {
		end = strings.IndexByte(s, ']') + 1
	}
	host = s
	if end >= 0 && end < len(s) {
		host, port = s[:end], s[end:]
		if !isPort(port) {
			return "", "", false
		}
		port = port[1:]
	}
	return host, port, isHost(host)
}

// isPort reports whether s is a colon and a number up to 65535.
func isPort(s string) bool {
	if len(s) < 2 || s[0] != ':' || s[1] < '0' || s[1] > '9' {
		return false
	}
	_, err := strconv.ParseUint(s[1:], 10, 16)
	return err == nil
}

// isHost reports whether s is the host of a URL: a name, an IPv4 address, or an IPv6 address in brackets and without a
// zone.
func isHost(s string) bool {
	if !strings.HasPrefix(s, "[") {
		return isName(trimDot(s))
	}
	if !strings.HasSuffix(s, "]") {
		return false
	}
	addr, err := netip.ParseAddr(s[1 : len(s)-1])
	return err == nil && addr.Is6() && addr.Zone() == ""
}

// isName reports whether s is made of labels of ASCII letters, digits, '-' and
// '_'. A name that a browser has resolved has no other characters: no
// "@", no "%", no control byte, and no letter that folds to an ASCII letter.
func isName(s string) bool {
	afterDot := true
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '.' && !afterDot:
			afterDot = true
		case isAlnum(c) || c == '-' || c == '_':
			afterDot = false
		default:
			return false
		}
	}
	return !afterDot
}

// isAlnum reports whether c is an ASCII letter or digit.
func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= lower(c) && lower(c) <= 'z'
}

// lower returns c, as a lower-case letter if it is an upper-case ASCII letter.
func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// trimDot removes the dot that ends an absolute domain name.
func trimDot(name string) string { return strings.TrimSuffix(name, ".") }

// equalFold reports whether a and b are equal but for the case of ASCII letters. For strings.EqualFold the long s
// would equal s, and the Kelvin sign k.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// hasSuffixFold reports whether s ends in suffix, but for the case of ASCII letters.
func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && equalFold(s[len(s)-len(suffix):], suffix)
}

// matchHost reports whether host, which must be valid, matches the pattern: another host, or "*." and a name, which
// stands for all names below that. The case of letters does not matter.
func matchHost(pattern, host string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok && isWildcard(pattern) {
		return hasSuffixFold(host, suffix) // host has no empty label
	}
	return equalFold(pattern, host)
}

// isWildcard reports whether pattern is "*." and a name that does not end in a number.
func isWildcard(pattern string) bool {
	base, ok := strings.CutPrefix(pattern, "*.")
	return ok && isName(base) && !isDigits(base[strings.LastIndexByte(base, '.')+1:])
}

// isDigits reports whether s has no characters but the digits 0 to 9; it is true for "". A wildcard whose last label
// has only digits would match IPv4 addresses.
func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }
