package auth

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// An ErrorKind tells a caller what can be done about an Error.
type ErrorKind int

// The kinds of an Error. Those with an RFC section are each one code of a server; the others are what this
// package found out itself, or stand for several codes (kindOfCode).
const (
	Invalid              ErrorKind = iota // what came breaks a rule: it is not used, and to ask again does not help
	NotFound                              // there is no metadata document or key set at the addresses
	Mismatch                              // what came is of another issuer, resource, redirect URI or state than what was asked for
	UnrelatedResponse                     // an authorization response came that does not answer our request, which stays open
	Unavailable                           // no answer came, or one that says "not now", or we cannot tell now: the request may be tried again, see Error.RetryAfter
	Unsupported                           // the server does not offer what is needed, or we do not offer what it needs
	InvalidToken                          // a token or a proof that was presented to us is not valid
	Refused                               // the server said no, without a code, or with one that no other Kind stands for
	InvalidGrant                          // RFC 6749 5.2: the code, the refresh token or the assertion is spent or wrong
	InvalidClient                         // RFC 6749 5.2: the client is not known, or its authentication failed
	InvalidScope                          // RFC 6749 5.2: a scope is unknown, malformed, or more than may be asked for
	InvalidTarget                         // RFC 8707 2: the authorization server does not know the resource
	AccessDenied                          // RFC 6749 4.1.2.1, RFC 8628 3.5: the person said no
	AuthorizationPending                  // RFC 8628 3.5: the person has not answered yet
	SlowDown                              // RFC 8628 3.5: from now on wait 5 seconds longer between two token requests
	ExpiredToken                          // RFC 8628 3.5: the device code has expired
	UseDPoPNonce                          // RFC 9449 8: the proof needs the nonce that came with the answer, see Prover
)

// kindOfCode is the Kind of an Error by the OAuth error code of the server; a code that is not in it is
// Refused.
var kindOfCode = map[string]ErrorKind{
	"invalid_grant":             InvalidGrant,
	"invalid_client":            InvalidClient,
	"invalid_scope":             InvalidScope,
	"invalid_target":            InvalidTarget,
	"access_denied":             AccessDenied,
	"authorization_pending":     AuthorizationPending,
	"slow_down":                 SlowDown,
	"expired_token":             ExpiredToken,
	"use_dpop_nonce":            UseDPoPNonce,
	"temporarily_unavailable":   Unavailable,
	"server_error":              Unavailable,
	"invalid_redirect_uri":      Mismatch,
	"unsupported_grant_type":    Unsupported,
	"unsupported_response_type": Unsupported,
}

// Why a token is not valid, in one word or two: Error.Cause has one of these, so that a log can tell refusals apart
// without a part of any token.
const (
	CauseAudience       = "audience"            // the token is for another audience
	CauseBinding        = "binding"             // the token is bound to a key or certificate that the request does not show, or that is not supported
	CauseExpired        = "expired"             // "exp" has passed
	CauseInactive       = "inactive"            // introspection says that the token is not active, and not why
	CauseIssuer         = "issuer"              // the token is of another issuer, or names none
	CauseUnknownKey     = "unknown key"         // the issuer has no key with which the token could be verified
	CauseMalformed      = "malformed"           // the token cannot be read, lacks something, or was sent in a way that is not allowed
	CauseNotYetValid    = "not valid yet"       // "nbf" is ahead
	CauseSignature      = "signature"           // the token's signature does not fit the issuer's key
	CauseNotAccessToken = "not an access token" // it is no access token, but an id token or another JWT
)

// adviceTellOperator is the Advice of errors that only the operator of the server can mend.
const adviceTellOperator = "tell the operator of the server"

// AdviceOtherSignIn is the advice where the answer to one sign-in was given to another one, which still
// waits.
const AdviceOtherSignIn = "it is perhaps the answer to an earlier sign-in: open the address of the one that waits (mcp-bridge status shows it), and give the address at which the browser ends then"

// adviceByGrantType is the Advice of an Error of a token request, by its grant_type and by the Error's Kind.
// For a failed authorization request, the type is authorization_code.
var adviceByGrantType = map[string]map[ErrorKind]string{
	"authorization_code": adviceForPerson,
	"refresh_token":      adviceForPerson,
	"urn:ietf:params:oauth:grant-type:device_code": adviceForPerson,
	"client_credentials":                           adviceForMachine,
	"urn:ietf:params:oauth:grant-type:jwt-bearer":  adviceForMachine,
}

// adviceForPerson is the Advice by Kind where a person signs in. It has none for other Kinds.
var adviceForPerson = map[ErrorKind]string{
	InvalidGrant:      "sign in again",
	UnrelatedResponse: AdviceOtherSignIn,
	ExpiredToken:      "sign in again",
	InvalidClient:     "sign in again; a client that you have registered yourself needs the right --client-id and --client-secret-file",
	AccessDenied:      "sign in again and agree, or ask the operator of the server for access; some providers say the same if they were asked for no scope: give --scope then",
	InvalidScope:      "ask for other scopes with --scope",
	InvalidTarget:     "a server that does not know the parameter resource needs --resource off",
	Unavailable:       "try again later",
}

// adviceForMachine is the Advice by Kind where the client gets tokens without a person. It has none for other Kinds.
var adviceForMachine = map[ErrorKind]string{
	InvalidClient: "give the right --client-id, with its secret or its key",
	AccessDenied:  "ask the operator of the server for access",
	InvalidScope:  adviceForPerson[InvalidScope],
	InvalidTarget: adviceForPerson[InvalidTarget],
	Unavailable:   adviceForPerson[Unavailable],
}

// An Error says what failed, where, and what helps. All errors of this package that a caller may
// want to tell apart are of this type; those of a context are below it (errors.Is).
type Error struct {
	Kind            ErrorKind     // what a caller can do about it
	Operation       string        // what was attempted: "token request"
	URL             string        // the address that was asked, without query; "": there is none
	Problem         string        // what is wrong
	Advice          string        // what helps, for people; "": this package does not know
	Status          int           // the HTTP status of the answer; 0: there was no answer, or one of status 200 in which something is wrong
	Cause           string        // for the Kind InvalidToken of an access token: CauseAudience or another Cause constant; "" otherwise
	AnnouncedIssuer string        // for the Kind Mismatch of server metadata: the issuer that the document names, which is foreign text; "" otherwise
	Code            string        // the OAuth error code in the server's answer; "": it has none
	Description     string        // the server's own words, which are foreign text; withheld where they repeat a secret
	RetryAfter      time.Duration // how long to wait before the server is asked again; 0: it did not say
	RequestSent     bool          // a POST was written, so the server may have done what it asks; false of a redirected one
	Err             error         // the error that led to this one; nil: none
}

// Error returns operation, address, problem, server's words, error below and advice in one printable line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Operation)
	if e.URL != "" {
		b.WriteString(" at " + printable.Text(e.URL))
	}
	b.WriteString(": " + printable.Text(e.Problem))
	if e.Code != "" {
		b.WriteString(" (" + printable.Text(e.Code))
		if e.Description != "" {
			b.WriteString(": " + printable.Text(e.Description))
		}
		b.WriteString(")")
	}
	if e.Err != nil {
		b.WriteString(": " + printable.Text(e.Err.Error()))
	}
	if e.Advice != "" {
		b.WriteString("; " + printable.Text(e.Advice))
	}
	return b.String()
}

// Unwrap returns the error below.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether err is or wraps an Error, and this is of one of these kinds. If Errors wrap each other, the kind of the outermost
// counts.
func Is(err error, kinds ...ErrorKind) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	for _, k := range kinds {
		if e.Kind == k {
			return true
		}
	}
	return false
}

// redactURL returns a URL without what may hold a secret: userinfo, query and fragment. "": it is not valid.
func redactURL(addr string) string {
	u, err := url.Parse(addr)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath, Opaque: u.Opaque}).String()
}
