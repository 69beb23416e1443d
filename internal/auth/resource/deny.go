package resource

import (
	"errors"
	"net/http"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// A denialReason is why a request is not let through.
type denialReason int

const (
	noCredential      denialReason = iota // denied, as the request has no credential
	invalidToken                          // denied, as the token is not valid here
	wrongBinding                          // denied, as the token is bound to a key or certificate that the request does not show
	invalidProof                          // denied, as the DPoP proof is not valid
	nonceNeeded                           // denied, as the DPoP proof has no nonce of ours
	malformed                             // denied, as several credentials were sent
	insufficientScope                     // denied, as the token lacks a scope
	unavailable                           // denied, as it cannot be told now whether the token is valid
	reasonCount                           // the number of denialReasons; no reason itself
)

// A denial says why a request is not let through.
type denial struct {
	reason      denialReason // why the request is denied, which decides the reply
	asksForDPoP bool         // the challenge in the reply is to be of the scheme DPoP, where that is allowed
	scopes      []string     // what insufficientScope demands
	err         error        // the reason in more words, for Options.OnDenied; nil: that is not called
}

// How a denial is answered and reported, by its reason.
var (
	denialStatuses  = [reasonCount]int{401, 401, 401, 401, 401, 400, 403, 503} // the HTTP status of the reply, by reason
	oauthErrorCodes = [reasonCount]string{
		"", "invalid_token", "invalid_token", "invalid_dpop_proof", "use_dpop_nonce", "invalid_request", "insufficient_scope", "",
	} // the OAuth error code in the challenge, by reason; "": none
	refusalRules = [reasonCount]string{"A2", "A2", "A2", "A2", "A2", "A2", "A3", ""} // the rule of docs/rules.md that the refusal follows, by reason; "": none
	clientTexts  = [reasonCount]string{
		noCredential:      "authentication is needed: send Authorization: Bearer TOKEN",
		invalidToken:      "the access token is not valid here: it may have expired, or be for another server; get a new one, and send it as Authorization: Bearer TOKEN",
		wrongBinding:      "the access token is bound to a key, and the request does not show that it has this key",
		invalidProof:      "the DPoP proof is missing or not valid",
		nonceNeeded:       "the DPoP proof needs the nonce of this reply",
		malformed:         "more than one credential was sent: send one, as Authorization: Bearer TOKEN",
		insufficientScope: "the access token does not have the scopes that this needs",
		unavailable:       "whether the access token is valid cannot be told now; try again",
	} // what clients are told, by reason: fixed texts, so that a reply says nothing of the token
	denialCauses = [reasonCount]string{"no credential", "not valid", auth.CauseBinding, "DPoP proof", "DPoP nonce", "several credentials", "scope", "provider"} // what Options.OnDenied is told as cause, by reason, where the error has none of its own
)

// cause returns the cause for Options.OnDenied and for the Refusal: that of the error, if the reason is invalidToken and the
// error has one, or else the one in denialCauses.
func (why *denial) cause() string {
	if e, ok := errors.AsType[*auth.Error](why.err); ok && why.reason == invalidToken && e.Cause != "" {
		return e.Cause
	}
	return denialCauses[why.reason]
}

// reportDenial calls Options.OnDenied, if that is set and the denial has an error.
func (p *Protector) reportDenial(r *http.Request, why *denial) {
	if p.options.OnDenied != nil && why.err != nil {
		p.options.OnDenied(r, why.cause(), why.err)
	}
}

// retryAfterHeader is the value of Retry-After, in seconds, in replies for the reason unavailable.
var retryAfterHeader = []string{"5"}

// deny reports a denial, sets the headers of the reply on h (challenge, nonce, Retry-After), and returns the rest of
// the reply. e is the endpoint of the request.
func (p *Protector) deny(h http.Header, r *http.Request, e *endpoint, why *denial) *access.Refusal {
	p.reportDenial(r, why)
	switch why.reason {
	case unavailable:
		h["Retry-After"] = retryAfterHeader
	case insufficientScope:
		h["Www-Authenticate"] = []string{p.formatChallenge(e.metadataURL, insufficientScope, why.scopes, why.asksForDPoP)}
	default:
		h["Www-Authenticate"] = e.challengeHeader(why.reason, why.asksForDPoP)
	}
	if why.reason == nonceNeeded {
		h["Dpop-Nonce"] = []string{p.nonceMaker.currentNonce(p.options.Now())}
	}
	return &access.Refusal{Status: denialStatuses[why.reason], Rule: refusalRules[why.reason], Reason: p.clientText(why.reason), Cause: why.cause()}
}

// clientText returns what clients are told for a reason. Where every token must be bound to a key, the text names the
// scheme DPoP.
func (p *Protector) clientText(kind denialReason) string {
	if p.options.DPoP == DPoPRequire {
		return strings.Replace(clientTexts[kind], "Authorization: Bearer TOKEN", "Authorization: DPoP TOKEN, with a proof in the header DPoP", 1)
	}
	return clientTexts[kind]
}

// formatChallenge returns one challenge (RFC 6750, 3; RFC 9449, 7.1; RFC 9728, 5.1) for a reason. metadata is the
// address of the metadata, or ""; scopes are demanded. It is of the scheme DPoP if dpop or the reason asks for that and
// DPoP is not off, or if every token must be bound; else it is of Bearer.
func (p *Protector) formatChallenge(metadata string, kind denialReason, scopes []string, dpop bool) string {
	dpop = p.options.DPoP == DPoPRequire || p.options.DPoP == DPoPAuto && (dpop || kind == invalidProof || kind == nonceNeeded)
	d := auth.Demand{AcceptsBearer: !dpop, AcceptsDPoP: dpop, ResourceMetadata: metadata, Scopes: scopes, ErrorCode: oauthErrorCodes[kind]}
	if d.ErrorCode != "" {
		d.ErrorDescription = p.clientText(kind)
	}
	if dpop {
		d.DPoPAlgs = auth.SignatureAlgorithms()
	}
	c := d.Challenges()[0]
	if len(c.Params) == 0 {
		c.Params = []auth.Param{{Name: "realm", Value: "mcp-bridge"}}
	}
	return c.String()
}
