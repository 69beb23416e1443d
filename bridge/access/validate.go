package access

import (
	"fmt"
	"strings"
)

// Validate returns an error for the first invalid entry of the Policy, which says what to
// write instead. nil means that all entries are valid.
func (p *Policy) Validate() error {
	for i, s := range p.AllowOrigins {
		if problem := originProblem(s); problem != "" {
			return fmt.Errorf("allowed origin %d, %s: %s", i+1, quoteUnlessSecret(s), problem)
		}
	}
	for i, s := range p.AllowHosts {
		if problem := hostProblem(s); problem != "" {
			return fmt.Errorf("allowed host %d, %s: %s", i+1, quoteUnlessSecret(s), problem)
		}
	}
	return p.validateProxies()
}

// quoteUnlessSecret returns s in quotes, for an error; if s may contain a password, a text that says so in its place.
func quoteUnlessSecret(s string) string {
	if strings.Contains(s, "@") {
		return "(not shown: it holds a user name)"
	}
	return fmt.Sprintf("%q", s)
}

// originProblem returns what is wrong with an entry of AllowOrigins, and what to write instead; "": it is valid.
func originProblem(s string) string {
	if s == "*" {
		return ""
	}
	if o, ok := parsePattern(s); ok {
		if isDefaultPort(o) {
			return fmt.Sprintf("browsers leave the default port out; write %q", strings.TrimSuffix(s, ":"+o.port))
		}
		return ""
	}
	scheme, rest, hasScheme := strings.Cut(s, "://")
	authority, _, hasPath := strings.Cut(rest, "/")
	switch {
	case s == "null":
		return `the origin "null" is never allowed, because every page can have it; give the page an address of its own`
	case strings.Contains(s, "@"):
		return "an origin has no user name; write scheme://host"
	case strings.ContainsAny(s, ", \t"):
		return "this is more than one origin; make each an entry of its own, without spaces"
	case !hasScheme:
		return "the scheme is missing; write an origin such as https://app.example"
	case hasPath:
		return fmt.Sprintf("an origin ends after the host and port; write %q", scheme+"://"+authority)
	case rest == "*":
		return `write "*" to allow every origin, or a wildcard such as https://*.app.example`
	case strings.HasSuffix(s, ":*"):
		return "a port cannot be a wildcard; write the origin once for each port (loopback origins are allowed with any port)"
	case strings.Contains(s, "*"):
		return `"*" may stand only for the first labels of a name; write an origin such as https://*.app.example`
	}
	return "this is no origin; write scheme://host or scheme://host:port, with the host as browsers send it (xn--... for other than ASCII letters)"
}

// isDefaultPort reports whether o has a port that is its scheme's own, which browsers leave out.
func isDefaultPort(o origin) bool {
	return o.port == "80" && equalFold(o.scheme, "http") || o.port == "443" && equalFold(o.scheme, "https")
}

// hostProblem returns what is wrong with an entry of AllowHosts, and what to write instead; "": it is valid.
func hostProblem(s string) string {
	host, port, ok := splitHostPort(s)
	switch {
	case s == "*" || isWildcard(s) || ok && port == "" && trimDot(s) == s:
		return ""
	case strings.Contains(s, "/"):
		return "a host has no scheme and no path; write the name only, such as mcp.example.com"
	case ok && port != "":
		return fmt.Sprintf("every port of a host is allowed; write %q", host)
	case ok:
		return fmt.Sprintf("write %q, which matches it with and without the dot", trimDot(s))
	case strings.Contains(s, "*"):
		return `"*" may stand only for the first labels of a name; write a host such as *.example.com`
	}
	return "this is no host; write a name such as mcp.example.com, an IPv4 address, or an IPv6 address in brackets"
}
