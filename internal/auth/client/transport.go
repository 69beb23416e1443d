package client

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// A Transport adds the credential of one server to the requests for it, and answers 401 and 403 challenges. Only a request that was answered with one of these
// is sent again, if its body can be replayed (GetBody). A request that has an Authorization header, or is for another origin, is passed on as it is. It may be
// used concurrently, if Base may.
type Transport struct {
	Base       http.RoundTripper // sends the requests; nil: http.DefaultTransport
	Credential *Credential       // the credential that requests are sent with; required
}

// Attempts of one request.
const (
	maxTokenRefusals   = 2 // how many tokens one request may have refused with 401; after more it fails
	maxSendsPerRequest = 8 // how often one request is sent at most
)

// drainTimeout is how long the rest of a refusal is read before its connection is given up.
const drainTimeout = time.Second

// RoundTrip implements http.RoundTripper: it sends a request to the credential's server with the token, and after a 401 or 403 again with what a renewal or a
// sign-in brings. Other requests, and those with an Authorization of their own, go as they are. Errors that a person can do something about are *SignInRequired
// and *PermanentError; those of the authorization server *auth.Error; those of the store *tokenstore.Error.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if _, own := r.Header["Authorization"]; own || originOfURL(r.URL) != t.Credential.origin {
		return base.RoundTrip(r)
	}
	h, err := t.Credential.renewer.usableSnapshot(r.Context())
	if err != nil {
		closeBody(r)
		return nil, err
	}
	x := roundTrip{request: r, credential: t.Credential}
	for sent := 1; ; sent++ {
		out, err := x.newRequest(h, sent > 1)
		if err != nil {
			return nil, err
		}
		resp, err := base.RoundTrip(out)
		if err != nil {
			return nil, err
		}
		if h != nil && h.prover != nil {
			h.prover.LearnNonce(r.URL.String(), resp.Header)
		}
		if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
			if h != nil && resp.StatusCode/100 == 2 && !h.isAcceptanceNoted.Load() { // a redirect may lead to a page to sign in at
				t.Credential.responder.noteTokenAccepted(r.Context(), h)
			}
			return resp, nil
		}
		next, try, err := x.handleRefusal(resp, h)
		if err == nil && (!try || sent == maxSendsPerRequest || !x.canReplayBody()) {
			return resp, nil
		}
		drainBody(resp)
		if err != nil {
			return nil, err
		}
		h = next
	}
}

// A roundTrip is one request of a Transport, which may be sent several times.
type roundTrip struct {
	request             *http.Request // the request, as the Transport got it
	credential          *Credential   // what the request is sent with
	tokenRefusals       int           // how many 401 the request got with a token
	hasRetriedWithNonce bool          // it was sent again with the nonce that the server asked for
}

// newRequest returns the request for one attempt, with the token of h (nil: without) and a proof of its own. isRetry: the body must be made anew.
func (x *roundTrip) newRequest(h *credentialSnapshot, isRetry bool) (*http.Request, error) {
	out := x.request
	if h != nil || isRetry {
		out = x.request.WithContext(x.request.Context())
		out.Header = maps.Clone(x.request.Header)
		if out.Header == nil {
			out.Header = http.Header{}
		}
	}
	if isRetry && x.request.GetBody != nil {
		body, err := x.request.GetBody()
		if err != nil {
			return nil, err
		}
		out.Body = body
	}
	if h == nil {
		return out, nil
	}
	out.Header["Authorization"] = h.authorizationHeader
	if h.prover == nil {
		return out, nil
	}
	proof, err := h.prover.Proof(x.request.Method, x.request.URL.String(), h.credential.AccessToken.Reveal())
	if err != nil {
		if out.Body != nil {
			_ = out.Body.Close()
		}
		return nil, err
	}
	out.Header["Dpop"] = []string{proof}
	return out, nil
}

// handleRefusal decides what to do after a 401 or 403 to a request with h. try: send the request again, with next; else resp is the answer.
func (x *roundTrip) handleRefusal(resp *http.Response, h *credentialSnapshot) (next *credentialSnapshot, try bool, err error) {
	challenges, bad := auth.ParseChallenges(resp.Header.Values("WWW-Authenticate"))
	if bad != nil {
		x.credential.reportError(bad)
	}
	d := auth.DemandOf(challenges)
	if resp.StatusCode == http.StatusForbidden {
		if d.ErrorCode != "insufficient_scope" {
			return nil, false, nil
		}
		next, err = x.credential.responder.handle403(x.request.Context(), d, h)
		return next, err == nil, err
	}
	if d.ErrorCode == "use_dpop_nonce" && h != nil && h.prover != nil && !x.hasRetriedWithNonce && resp.Header.Get("DPoP-Nonce") != "" {
		x.hasRetriedWithNonce = true
		return h, true, nil
	}
	if h != nil {
		x.tokenRefusals++
	}
	if x.tokenRefusals > maxTokenRefusals {
		x.credential.record.noteTokenRefusal(x.request.Context(), h, refusesEveryToken)
		return nil, false, &PermanentError{Problem: refusesEveryToken, Err: errStatus401}
	}
	next, err = x.credential.responder.handle401(x.request.Context(), d, h, x.tokenRefusals > 1)
	return next, err == nil && next != nil, err
}

// errStatus401 is the error below a PermanentError that comes of a 401.
var errStatus401 = errors.New("status 401")

// canReplayBody reports whether the request can be sent again: it has no body, or GetBody.
func (x *roundTrip) canReplayBody() bool {
	return x.request.Body == nil || x.request.Body == http.NoBody || x.request.GetBody != nil
}

// closeBody closes the body of a request that is not sent, as a RoundTripper must.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// drainBody reads the rest of a refusal (16 KiB, a second) and closes it, so that its connection can be used again.
func drainBody(resp *http.Response) {
	defer time.AfterFunc(drainTimeout, func() { _ = resp.Body.Close() }).Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, 16<<10)
	_ = resp.Body.Close()
}
