package auth

import (
	"net/http"
	"net/url"
	"strings"
)

// ReadAccessToken returns the access token in the Authorization header of a request, and the scheme it came
// with: SchemeBearer or SchemeDPoP (RFC 6750, 2.1; RFC 9449, 7.1). Without such a header, or with another
// scheme, both are "" and err is nil. InvalidToken: there are several Authorization headers, the token is
// malformed or longer than 16 KiB, or there is one in the query (RFC 6750, 2.3), where logs would keep it.
func ReadAccessToken(r *http.Request) (scheme, token string, err error) {
	invalid := func(what string) (string, string, error) {
		return "", "", &Error{Kind: InvalidToken, Cause: CauseMalformed, Operation: "authorization of a request", Problem: what}
	}
	if strings.Contains(r.URL.RawQuery, "access") || strings.Contains(r.URL.RawQuery, "%") {
		if q, _ := url.ParseQuery(r.URL.RawQuery); q.Has("access_token") {
			return invalid("an access token must not be in the query")
		}
	}
	values := r.Header.Values("Authorization")
	switch len(values) {
	case 0:
		return "", "", nil
	case 1:
	default:
		return invalid("there are several Authorization headers")
	}
	name, token, _ := strings.Cut(values[0], " ")
	switch {
	case strings.EqualFold(name, SchemeBearer):
		scheme = SchemeBearer
	case strings.EqualFold(name, SchemeDPoP):
		scheme = SchemeDPoP
	default:
		return "", "", nil
	}
	token = strings.Trim(token, " ")
	if len(token) > maxJWTBytes {
		return invalid("the access token is longer than 16 KiB")
	}
	end := strings.TrimRight(token, "=")
	bad := end == ""
	for i := range len(end) {
		bad = bad || !isToken68Char(end[i])
	}
	if bad {
		return invalid("the access token is missing, or has characters that no token has")
	}
	return scheme, token, nil
}
