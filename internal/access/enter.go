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

// Enter is the one call that every endpoint, of every transport, begins with,
// before it looks at anything else of the request. In this order:
//
//   - Check: Host and Origin (LI1, LI2).
//   - CORS (LI31). Was r a preflight, it has been answered, and Enter returns
//     nil and nil: the caller is done. A preflight carries no token.
//   - Authentication (A2, A5, A7), by Policy.Tokens, or if there are none by
//     the certificate of the TLS client, which the listener has verified.
//
// The request returned is r with its Principal; the caller goes on with that
// one. With a Refusal it is r as it was. Enter writes no reply for a Refusal,
// but has set what belongs to it on w: the CORS headers, so that a page can
// read it, and WWW-Authenticate with status 401.
//
// Where nobody is authenticated, Enter allocates nothing for a request without
// Origin.
func (p *Policy) Enter(w http.ResponseWriter, r *http.Request) (*http.Request, *Refusal) {
	if no := p.Check(r); no != nil {
		return r, no
	}
	if p.CORS(w, r) {
		return nil, nil
	}
	var who principal
	if p.Tokens != nil {
		var no *challenge
		if who, no = p.Tokens.authenticate(r); no != nil {
			w.Header()["Www-Authenticate"] = no.header
			return r, &Refusal{http.StatusUnauthorized, no.reason}
		}
	} else if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		who.name = certificateName(r.TLS.VerifiedChains[0][0])
	}
	if no := p.checkForwarded(r); no != nil {
		return r, no
	}
	if who.name == "" {
		return r, nil
	}
	return with(r, who), nil
}

// challenge is why a request is not authenticated, and the WWW-Authenticate
// header that goes with it: RFC 6750, section 3.
type challenge struct {
	reason string
	header []string
}

const realm = `Bearer realm="mcp-bridge"`

var (
	missing = &challenge{
		"authentication is needed: send Authorization: Bearer TOKEN, or X-API-Key: TOKEN",
		[]string{realm},
	}
	unknown = &challenge{
		"the token is not valid",
		[]string{realm + `, error="invalid_token"`},
	}
	ambiguous = &challenge{
		"more than one credential was sent: send one, as Authorization: Bearer TOKEN or as X-API-Key: TOKEN",
		[]string{realm + `, error="invalid_request"`},
	}
	inQuery = &challenge{
		"a token in the URL is not accepted, because URLs end up in logs: send it as Authorization: Bearer TOKEN, and replace it by a new one",
		[]string{realm + `, error="invalid_request"`},
	}
)

// authenticate returns who has sent r, by the token that it carries.
func (t *Tokens) authenticate(r *http.Request) (principal, *challenge) {
	if tokenInQuery(r.URL.RawQuery) {
		return principal{}, inQuery
	}
	auth, keys := r.Header["Authorization"], r.Header["X-Api-Key"]
	if len(auth) > 1 || len(keys) > 1 {
		return principal{}, ambiguous
	}
	token, key := "", ""
	if len(auth) == 1 {
		var ok bool
		if token, ok = bearer(auth[0]); !ok {
			return principal{}, missing
		}
	}
	if len(keys) == 1 {
		key = strings.Trim(keys[0], " \t")
	}
	switch {
	case token == "" && key == "":
		return principal{}, missing
	case token == "":
		token = key
	case key != "" && token != key: // both are the sender's own: nothing is learned from the time this takes
		return principal{}, ambiguous
	}
	if name, sum := t.lookup(token); name != "" {
		return t.sender(name, sum), nil
	}
	return principal{}, unknown
}

// bearer returns the token of an Authorization header. The name of the scheme
// has no case: RFC 9110, section 11.1.
func bearer(header string) (token string, ok bool) {
	scheme, token, _ := strings.Cut(strings.Trim(header, " \t"), " ")
	return strings.Trim(token, " \t"), equalFold(scheme, "Bearer")
}

// tokenInQuery reports whether a parameter has a name that tokens go by (A5).
// What url.ParseQuery would not understand is read all the same.
func tokenInQuery(query string) bool {
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

// certificateName is the principal that a verified certificate stands for (A10): its subject, where
// that has a common name, or else the first of its other names. What kind of name that is, is part of
// it: nobody is somebody else because the same word stands in another place.
func certificateName(c *x509.Certificate) string {
	// The name of a token has no colon.
	switch {
	case c.Subject.CommonName != "" && len(c.Subject.Names) <= 1:
		return "cert:cn=" + c.Subject.CommonName
	case c.Subject.CommonName != "":
		return "cert:subject=" + subject(c)
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

// subject returns all of a certificate's subject, as RFC 2253 writes it. (Of several attributes of a
// kind, Subject.String would leave some out.)
func subject(c *x509.Certificate) string {
	all := make(pkix.RDNSequence, 0, len(c.Subject.Names))
	for _, attribute := range c.Subject.Names {
		all = append(all, pkix.RelativeDistinguishedNameSET{attribute})
	}
	return all.String()
}
