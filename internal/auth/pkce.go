package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// randomText returns n random bytes in base64url. Its characters may stand in a code verifier and in a state.
func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// NewCodeVerifier returns a PKCE code verifier of 256 bits (RFC 7636, 4.1): a secret.
func NewCodeVerifier() string { return randomText(32) }

// CodeChallenge returns the S256 challenge of a verifier (RFC 7636, 4.2).
func CodeChallenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// NewState returns a value of 128 bits for "state", which nobody can guess (RFC 6749, 10.12).
func NewState() string { return randomText(16) }

// An AuthorizationRequest is the request with which a person's browser is sent to the authorization
// server (RFC 6749, 4.1.1; RFC 7636, 4.3).
type AuthorizationRequest struct {
	Server            ServerMetadata // the server whose AuthorizationEndpoint is asked
	ClientID          string         // the id of the client that asks
	RedirectURI       string         // where the browser comes back to
	State             string         // what the response must repeat (NewState)
	CodeChallenge     string         // what CodeChallenge makes of the code verifier
	Resource          string         // the resource that the token is to be for (RFC 8707, 2.1); "": not sent
	Scopes            []string       // the scopes that are asked for; nil: not sent
	DPoPKeyThumbprint string         // thumbprint of the DPoP key (RFC 9449, 10); "": not sent
	AllowsPlainHTTP   bool           // what EndpointCaller.AllowsPlainHTTP returns
	ExtraParams       []Param        // parameters that this provider wants besides; one that the request has already is an error, but "prompt" replaces ours
}

// URL returns the address that the browser opens. It keeps the query that the endpoint has (RFC 6749, 3.1).
// Unsupported: the server has no authorization endpoint, or does not announce PKCE with S256, and must not be used (OAuth
// 2.1, 7.5.2; the specification's rule for clients). Invalid: a required field is "", or the address cannot be made.
func (r AuthorizationRequest) URL() (string, error) {
	const doing = "authorization request"
	fail := func(kind ErrorKind, what string, err error) (string, error) {
		return "", &Error{Kind: kind, Operation: doing, URL: redactURL(r.Server.AuthorizationEndpoint), Problem: what, Err: err}
	}
	if r.Server.AuthorizationEndpoint == "" {
		return "", &Error{Kind: Unsupported, Operation: doing, URL: redactURL(r.Server.Issuer), Problem: "the authorization server has no authorization endpoint"}
	}
	if err := checkURL(r.Server.AuthorizationEndpoint, r.AllowsPlainHTTP); err != nil {
		return fail(Invalid, "the authorization endpoint cannot be used", err)
	}
	if !slices.Contains(r.Server.CodeChallengeMethods, "S256") {
		return fail(Unsupported, "the authorization server does not announce PKCE with S256 (code_challenge_methods_supported), so nobody can sign in safely; "+adviceTellOperator, nil)
	}
	params := []Param{
		{"response_type", "code"}, {"client_id", r.ClientID}, {"redirect_uri", r.RedirectURI}, {"state", r.State},
		{"code_challenge", r.CodeChallenge}, {"code_challenge_method", "S256"},
	}
	for _, p := range params {
		if p.Value == "" {
			return fail(Invalid, p.Name+" is missing", nil)
		}
	}
	for _, p := range []Param{{"resource", r.Resource}, {"scope", JoinScope(r.Scopes)}, {"dpop_jkt", r.DPoPKeyThumbprint}} {
		if p.Value != "" {
			params = append(params, p)
		}
	}
	// The person must agree anew to what is used while it is away: else the scope is ignored (OpenID Connect Core, 11).
	if slices.Contains(r.Scopes, "offline_access") && !slices.ContainsFunc(r.ExtraParams, func(p Param) bool { return p.Name == "prompt" }) {
		params = append(params, Param{"prompt", "consent"})
	}
	for _, p := range r.ExtraParams {
		if slices.ContainsFunc(params, func(o Param) bool { return o.Name == p.Name }) {
			return fail(Invalid, fmt.Sprintf("the additional parameter %.40q would replace one of the request", p.Name), nil)
		}
	}
	params = append(params, r.ExtraParams...)
	base, query, _ := strings.Cut(r.Server.AuthorizationEndpoint, "?")
	have, err := url.ParseQuery(query)
	if err != nil {
		return fail(Invalid, "the query of the authorization endpoint is not valid", nil)
	}
	parts := []string{}
	if query != "" {
		parts = append(parts, query)
	}
	for _, p := range params {
		if have.Has(p.Name) {
			return fail(Invalid, fmt.Sprintf("the authorization endpoint has the parameter %.40q already", p.Name), nil)
		}
		parts = append(parts, url.QueryEscape(p.Name)+"="+url.QueryEscape(p.Value))
	}
	addr := base + "?" + strings.Join(parts, "&")
	if len(addr) > maxAuthorizationURLBytes {
		return "", &Error{Kind: Invalid, Operation: doing, URL: redactURL(r.Server.AuthorizationEndpoint), Advice: "ask for those scopes only that you need",
			Problem: fmt.Sprintf("the address would have %d bytes, more than a browser is given: the servers list too many scopes", len(addr))}
	}
	return addr, nil
}

// maxAuthorizationURLBytes is how long the address of an authorization request may be: systems bound the
// address that a program gets to open.
const maxAuthorizationURLBytes = 16 << 10

// maxCallbackQueryBytes is how long the query of an authorization response may be.
const maxCallbackQueryBytes = 16 << 10

// An ExpectedCallback is what an authorization response is compared with (RFC 9207, 2.4). It was recorded
// before the browser was sent to the authorization server.
type ExpectedCallback struct {
	State                string // the "state" that was sent with the request
	Issuer               string // what "iss" must be: ServerMetadata.Issuer of the server that was asked
	RequiresIssParameter bool   // "iss" must be there: ServerMetadata.SendsIssParameter
}

// ParseCode reads the query of an authorization response (RFC 6749, 4.1.2) and returns its code, a secret.
//
// An Error of Kind UnrelatedResponse leaves the request open: the right answer may still come. Every other
// one ends the request. state is compared in constant time. iss must be there if the server announces
// it, and equal Issuer byte for byte wherever it is (RFC 9207, 2.4). Only then an error that the
// response says is looked at: AccessDenied, or what its code stands for.
func (x ExpectedCallback) ParseCode(query string) (string, error) {
	const doing = "authorization response"
	fail := func(kind ErrorKind, what string) (string, error) {
		advice := adviceForPerson[InvalidGrant]
		if kind == UnrelatedResponse {
			advice = adviceForPerson[UnrelatedResponse]
		}
		return "", &Error{Kind: kind, Operation: doing, Problem: what, Advice: advice}
	}
	if len(query) > maxCallbackQueryBytes {
		return fail(UnrelatedResponse, "it is too long")
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return fail(UnrelatedResponse, "its query is not valid")
	}
	if states := q["state"]; len(states) != 1 || x.State == "" || subtle.ConstantTimeCompare([]byte(states[0]), []byte(x.State)) != 1 {
		return fail(UnrelatedResponse, "its state is not that of the sign-in that waits")
	}
	for _, name := range []string{"code", "iss", "error", "error_description"} {
		if len(q[name]) > 1 {
			return fail(Invalid, "it has the parameter "+name+" twice")
		}
	}
	switch {
	case q.Has("iss") && q.Get("iss") != x.Issuer:
		return fail(Mismatch, "it is from another issuer than the one that was asked")
	case !q.Has("iss") && x.RequiresIssParameter:
		return fail(Mismatch, "it does not say from which issuer it is, and the server announces that it does")
	case q.Has("error") && q.Has("code"):
		return fail(Invalid, "it has both a code and an error")
	case q.Has("error"):
		e := &Error{Kind: Refused, Operation: doing, Problem: "the authorization server said no", Code: withoutSecrets(q.Get("error"), nil), Description: withoutSecrets(q.Get("error_description"), nil)}
		if kind, ok := kindOfCode[e.Code]; ok {
			e.Kind = kind
		}
		e.Advice = adviceByGrantType["authorization_code"][e.Kind]
		return "", e
	case q.Get("code") == "":
		return fail(Invalid, "it has no code")
	}
	return q.Get("code"), nil
}
