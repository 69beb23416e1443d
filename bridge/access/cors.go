package access

import (
	"net/http"
	"strings"
)

const (
	allowedMethods = "GET, POST, DELETE, OPTIONS" // value of Access-Control-Allow-Methods: the methods that a page may use
	// value of Access-Control-Expose-Headers: the headers of a reply that a page may read
	exposedHeaders = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, DPoP-Nonce"
	// value of Access-Control-Max-Age: for how many seconds a browser may remember a preflight; Chrome takes 7200 at
	// most
	preflightMaxAge = "3600"
)

// handleCORS lets pages of an allowed origin read the reply to r (rule LI31): it sets the
// Access-Control headers on w, to which the caller then writes the reply. If r
// is a preflight, handleCORS answers it and returns true: the caller is done. Call
// it after Check and before authentication, because a preflight has no token.
//
// The origin is echoed, never "*", and credentials (cookies, TLS certificates)
// are never allowed. A preflight of an origin that is not allowed gets 403.
func (p *Policy) handleCORS(w http.ResponseWriter, r *http.Request) (preflight bool) {
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return false
	}
	preflight = r.Method == http.MethodOptions && len(r.Header["Access-Control-Request-Method"]) > 0
	h := w.Header()
	h.Add("Vary", "Origin")
	if len(origins) > 1 || !p.allowsOrigin(r, origins[0]) {
		if preflight {
			w.WriteHeader(http.StatusForbidden)
		}
		return preflight
	}
	h.Set("Access-Control-Allow-Origin", origins[0])
	if !preflight {
		h.Set("Access-Control-Expose-Headers", exposedHeaders)
		return false
	}
	answerPreflight(h, r)
	w.WriteHeader(http.StatusNoContent)
	return true
}

// answerPreflight sets on h the headers of the reply to r, a preflight of an allowed origin.
func answerPreflight(h http.Header, r *http.Request) {
	h.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
	h.Set("Access-Control-Allow-Methods", allowedMethods)
	h.Set("Access-Control-Max-Age", preflightMaxAge)
	if allowed := allowedHeaders(r.Header["Access-Control-Request-Headers"]); allowed != "" {
		h.Set("Access-Control-Allow-Headers", allowed)
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
}

// allowedHeaders returns those of the requested header names that a page may send (isAllowedHeader), as the value of
// Access-Control-Allow-Headers; requested is the lines of Access-Control-Request-Headers. The browser does not send
// the request if one of the names that it needs is missing.
func allowedHeaders(requested []string) string {
	var allowed []string
	for _, list := range requested {
		for name := range strings.SplitSeq(list, ",") {
			name = strings.Trim(name, " \t")
			if isAllowedHeader(name) {
				allowed = append(allowed, name)
			}
		}
	}
	return strings.Join(allowed, ", ")
}

// isAllowedHeader reports whether a page may send a header of this name: MCP uses it.
func isAllowedHeader(name string) bool {
	for _, known := range []string{"Authorization", "Content-Type", "Accept", "Last-Event-ID", "X-API-Key", "DPoP"} {
		if equalFold(name, known) {
			return true
		}
	}
	const prefix = "Mcp-" // Mcp-Session-Id, Mcp-Param-*, and headers of future revisions
	return len(name) > len(prefix) && equalFold(name[:len(prefix)], prefix) && isToken(name)
}

// isToken reports whether s is what HTTP calls a token, such as the name of a header: RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return s != ""
}
