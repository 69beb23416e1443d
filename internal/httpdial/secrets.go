package httpdial

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// withheldMark stands where a server has repeated a credential (LE18).
const withheldMark = "[withheld]"

// How long something must be, in bytes, to be looked for in what a server says:
// shorter ones stand in every other text.
const (
	minSecretValueLen = 7 // the shortest value of any header or query parameter that is taken out of texts
	minCredentialLen  = 4 // the shortest likely credential that is taken out of texts: what is behind Bearer, a password, the value of "key", a whole query
)

// newSecretReplacer returns a Replacer that puts withheldMark in the place of the credentials that a
// server is given in header and in the query of u; nil: there are none. Each value that is long enough counts as one, but for
// those of Host and User-Agent.
func newSecretReplacer(u *url.URL, header http.Header) *strings.Replacer {
	var all []string
	add := func(least int, texts ...string) {
		for _, text := range texts {
			if len(text) >= least {
				inJSON, _ := json.Marshal(text) // of a string: no errors
				all = append(all, text, string(inJSON[1:len(inJSON)-1]))
			}
		}
	}
	for name, values := range header {
		if name == "Host" || name == "User-Agent" {
			continue
		}
		for _, v := range values {
			add(minSecretValueLen, v)
			if scheme, rest, ok := strings.Cut(v, " "); ok && isToken(scheme) && (name == "Authorization" || name == "Proxy-Authorization") {
				rest = strings.TrimSpace(rest)
				add(minCredentialLen, rest, strings.TrimRight(rest, "="), url.QueryEscape(rest))
				if strings.EqualFold(scheme, "Basic") {
					add(minCredentialLen, basicCredentialForms(rest)...)
				}
			}
		}
	}
	add(minCredentialLen, u.RawQuery)
	for name, values := range u.Query() {
		least := minSecretValueLen
		if isCredentialName(name) {
			least = minCredentialLen
		}
		for _, v := range values {
			add(least, v, url.QueryEscape(v), url.PathEscape(v))
		}
	}
	if len(all) == 0 {
		return nil
	}
	// The longest first: another may be part of it.
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	var pairs []string
	for _, text := range slices.Compact(all) {
		pairs = append(pairs, text, withheldMark)
	}
	return strings.NewReplacer(pairs...)
}

// isCredentialName reports whether a query parameter is likely a credential.
func isCredentialName(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"key", "token", "secret", "pass", "auth", "sig"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// sentCredential reports whether a request has credentials, as far as the names of its headers and query parameters tell
// (isCredentialName). r may be nil.
func sentCredential(r *http.Request) bool {
	if r == nil {
		return false
	}
	for name, values := range r.Header {
		if name != "Idempotency-Key" && name != "Sec-Websocket-Key" && isCredentialName(name) && len(values) > 0 {
			return true
		}
	}
	return r.URL != nil && slices.ContainsFunc(slices.Collect(maps.Keys(r.URL.Query())), isCredentialName)
}

// sentTokenWithoutScheme reports whether the Authorization of a request was a single word: a token without a scheme such as
// Bearer in front of it, or a scheme alone, for which sentBearerWithoutToken is asked first.
func sentTokenWithoutScheme(r *http.Request) bool {
	return r != nil && r.Header.Get("Authorization") != "" && !strings.Contains(strings.TrimSpace(r.Header.Get("Authorization")), " ")
}

// sentBearerWithoutToken reports whether the Authorization of a request was the scheme Bearer without a token: a variable was empty,
// or the program that should print the token has failed.
func sentBearerWithoutToken(r *http.Request) bool {
	return r != nil && strings.EqualFold(strings.TrimSpace(r.Header.Get("Authorization")), "Bearer")
}

// basicCredentialForms returns the ways to write what Basic credentials, in base64, hold: user and
// password together, and the password alone, or the user if there is no password. nil: they are no base64.
func basicCredentialForms(credentials string) []string {
	raw, err := base64.StdEncoding.DecodeString(credentials)
	if err != nil {
		return nil
	}
	user, password, _ := strings.Cut(string(raw), ":")
	both := url.UserPassword(user, password).String()
	alone := cmp.Or(password, user)
	return []string{string(raw), both, alone, url.QueryEscape(alone), url.PathEscape(alone),
		base64.URLEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw)}
}
