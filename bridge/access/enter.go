package access

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
)

// Enter makes all checks of a request. Every endpoint of every transport calls it before it
// looks at anything else of the request. Its steps, in this order:
//
//   - Check: Host and Origin (LI1, LI2).
//   - CORS (LI31). If r is a preflight, Enter has answered it and returns nil and nil: the
//     caller is done. A preflight has no token.
//   - Authentication (A2, A5, A7) by Policy.Authenticator, or, if there is none, by
//     Policy.Tokens. If there are none either, a certificate of the TLS client, which the
//     listener has verified, says who the client is.
//   - X-Forwarded-Prefix of a trusted proxy: a malformed one is refused (Prefix).
//
// The caller goes on with the returned request, which is r with its Principal, if it has
// one. With a Refusal the returned request is r. Enter writes no reply for a Refusal. It
// sets the headers that belong to the reply on w: the CORS headers, so that a page can
// read the reply, and WWW-Authenticate for status 401; an Authenticator may set others.
//
// Without Tokens, Authenticator and certificates, Enter does not allocate for a request without Origin.
func (p *Policy) Enter(w http.ResponseWriter, r *http.Request) (*http.Request, *Refusal) {
	if no := p.Check(r); no != nil {
		return r, no
	}
	if p.handleCORS(w, r) {
		return nil, nil
	}
	if p.Authenticator != nil {
		known, no := p.Authenticator.Authenticate(w.Header(), r)
		if no == nil {
			no = p.checkForwarded(r)
		}
		if no != nil {
			return r, no
		}
		return known, nil
	}
	var sender principal
	if p.Tokens != nil {
		var no *challenge
		if sender, no = p.Tokens.authenticate(r); no != nil {
			w.Header()["Www-Authenticate"] = no.header
			return r, &Refusal{Status: http.StatusUnauthorized, Rule: no.rule, Reason: no.reason}
		}
	} else if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		sender.name = CertificateName(r.TLS.VerifiedChains[0][0])
	}
	if no := p.checkForwarded(r); no != nil {
		return r, no
	}
	if sender.name == "" {
		return r, nil
	}
	return withPrincipal(r, sender), nil
}

// challenge is why a request is not authenticated, with what the client is told (status 401; RFC 6750, section 3).
type challenge struct {
	rule   string   // the rule that the request breaks, by its number in docs/rules.md
	reason string   // a text for the client: what is wrong, and what to send
	header []string // the WWW-Authenticate header of the reply
}

// realm is what every WWW-Authenticate header begins with.
const realm = `Bearer realm="mcp-bridge"`

var (
	// for a request without a token
	missingToken = &challenge{
		"A2",
		"authentication is needed: send Authorization: Bearer TOKEN, or X-API-Key: TOKEN",
		[]string{realm},
	}
	// for an Authorization header of another scheme
	notBearerToken = &challenge{
		"A2",
		"the Authorization header has no Bearer token: send Authorization: Bearer TOKEN, or X-API-Key: TOKEN",
		[]string{realm},
	}
	// for a token that is not valid
	unknownToken = &challenge{
		"A2",
		"the token is not valid: send one that this server knows, as Authorization: Bearer TOKEN or as X-API-Key: TOKEN",
		[]string{realm + `, error="invalid_token"`},
	}
	// for a request with more than one token
	ambiguousCredentials = &challenge{
		"A2",
		"more than one credential was sent: send one, as Authorization: Bearer TOKEN or as X-API-Key: TOKEN",
		[]string{realm + `, error="invalid_request"`},
	}
	// for a request whose URL seems to have a token (TokenInQuery)
	tokenInQuery = &challenge{
		"A5",
		"a token in the URL is not accepted, because URLs end up in logs: send it as Authorization: Bearer TOKEN, and replace it by a new one",
		[]string{realm + `, error="invalid_request"`},
	}
)

// authenticate returns the principal of the token that r carries, or the challenge that says why r is not authenticated;
// nil: it is.
func (t *Tokens) authenticate(r *http.Request) (principal, *challenge) {
	if TokenInQuery(r.URL.RawQuery) {
		return principal{}, tokenInQuery
	}
	auth, keys := r.Header["Authorization"], r.Header["X-Api-Key"]
	if len(auth) > 1 || len(keys) > 1 {
		return principal{}, ambiguousCredentials
	}
	token, key := "", ""
	if len(auth) == 1 {
		var ok bool
		if token, ok = bearerToken(auth[0]); !ok {
			return principal{}, notBearerToken
		}
	}
	if len(keys) == 1 {
		key = strings.Trim(keys[0], " \t")
	}
	switch {
	case token == "" && key == "":
		return principal{}, missingToken
	case token == "":
		token = key
	case key != "" && token != key: // need not take constant time: the sender knows both
		return principal{}, ambiguousCredentials
	}
	if name, sum := t.lookup(token); name != "" {
		return t.principalOf(name, sum), nil
	}
	return principal{}, unknownToken
}

// bearerToken returns the token of an Authorization header; ok is false if its scheme is not Bearer. The case of the
// scheme's name does not matter: RFC 9110, section 11.1.
func bearerToken(header string) (token string, ok bool) {
	scheme, token, _ := strings.Cut(strings.Trim(header, " \t"), " ")
	return strings.Trim(token, " \t"), equalFold(scheme, "Bearer")
}

// TokenInQuery reports whether a parameter of the query has a usual name for tokens (A5). It
// also finds parameters that url.ParseQuery leaves out as malformed.
func TokenInQuery(query string) bool {
	for query != "" {
		end := strings.IndexAny(query, "&;")
		param := query
		if end >= 0 {
			param, query = query[:end], query[end+1:]
		} else {
			query = ""
		}
		name, _, _ := strings.Cut(param, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		for _, known := range [...]string{"access_token", "token", "api_key"} {
			if equalFold(name, known) {
				return true
			}
		}
	}
	return false
}

// CertificateName returns the principal of a verified certificate (A10): its subject if that has a common name,
// otherwise the first of its other names, and without any name its SHA-256 sum. The kind of the name is part of the
// principal. So two certificates with the same word in different fields are different principals.
func CertificateName(c *x509.Certificate) string {
	// The name of a token has no colon.
	switch {
	case c.Subject.CommonName != "" && len(c.Subject.Names) <= 1:
		return "cert:cn=" + c.Subject.CommonName
	case c.Subject.CommonName != "":
		return "cert:subject=" + subjectName(c)
	case len(c.DNSNames) > 0:
		return "cert:dns=" + c.DNSNames[0]
	case len(c.EmailAddresses) > 0:
		return "cert:email=" + c.EmailAddresses[0]
	case len(c.URIs) > 0:
		return "cert:uri=" + c.URIs[0].String()
	case len(c.IPAddresses) > 0:
		return "cert:ip=" + c.IPAddresses[0].String()
	}
	sum := sha256.Sum256(c.Raw)
	return "cert:sha256=" + hex.EncodeToString(sum[:])
}

// subjectName returns the whole subject of a certificate in the form of RFC 2253. (Subject.String leaves out
// some attributes if there are several of one kind.)
func subjectName(c *x509.Certificate) string {
	all := make(pkix.RDNSequence, 0, len(c.Subject.Names))
	for _, attribute := range c.Subject.Names {
		all = append(all, pkix.RelativeDistinguishedNameSET{attribute})
	}
	return all.String()
}
