package client

import (
	"context"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// refusalDocumentName is the name of the stored document about a token that the server refuses, a TokenRefusal.
const refusalDocumentName = "refused"

// A TokenRefusal says that a server has refused a stored token, and no renewal or sign-in has brought one that it accepts.
type TokenRefusal struct {
	RefusedAt     time.Time `json:"at"`             // when the token was refused; zero: there was no refusal
	TokenIssuedAt time.Time `json:"issued"`         // when the refused token was issued, by which it is known
	Reason        string    `json:"reason"`         // why the token was refused, in the words of the bridge; no secret
	AcceptedSince bool      `json:"over,omitempty"` // the server has accepted the token later, for something
}

// concernsTokenIssuedAt reports whether r is about the token that was issued at that time. The zero TokenRefusal is about none.
func (r TokenRefusal) concernsTokenIssuedAt(issued time.Time) bool {
	return !r.RefusedAt.IsZero() && r.TokenIssuedAt.Equal(issued)
}

// LastTokenRefusal reads from the store how the server has refused the token in e. false: it has not, it has accepted it since, or that cannot be read.
func LastTokenRefusal(ctx context.Context, store *tokenstore.Store, e tokenstore.Entry) (TokenRefusal, bool) {
	m, err := store.Metadata(ctx, e.Key)
	if err != nil {
		return TokenRefusal{}, false
	}
	r := parseDocument[TokenRefusal](m, refusalDocumentName)
	return r, r.concernsTokenIssuedAt(e.Credential.IssuedAt) && !r.AcceptedSince
}

// noteTokenRefusal stores that the server refuses the token of h, for the command status.
func (r *serverRecord) noteTokenRefusal(ctx context.Context, h *credentialSnapshot, reason string) {
	r.reportError(updateDocument(ctx, r, refusalDocumentName, func(last *TokenRefusal) (bool, error) {
		if last.concernsTokenIssuedAt(h.credential.IssuedAt) && last.Reason == reason && !last.AcceptedSince {
			return false, nil
		}
		*last = TokenRefusal{RefusedAt: r.now(), TokenIssuedAt: h.credential.IssuedAt, Reason: reason}
		return true, nil
	}))
}

// noteTokenAccepted stores, once for each snapshot, that the server has accepted the token of h: the last sign-in was good for something. For a token that was
// refused before it stores only AcceptedSince: some servers take any token for initialize, and none for calls.
func (r *challengeResponder) noteTokenAccepted(ctx context.Context, h *credentialSnapshot) {
	if h.isAcceptanceNoted.Swap(true) || r.tokens.isRefused(h) {
		return
	}
	refused := false
	err := updateDocument(ctx, r.record, refusalDocumentName, func(last *TokenRefusal) (bool, error) {
		refused = last.concernsTokenIssuedAt(h.credential.IssuedAt)
		changed := refused && !last.AcceptedSince
		last.AcceptedSince = true
		return changed, nil
	})
	if err == nil && !refused {
		err = updateDocument(ctx, r.record, demandsDocumentName, func(w *serverDemands) (bool, error) {
			changed := !w.IsTokenAccepted
			w.IsTokenAccepted = true
			return changed, nil
		})
	}
	r.reportError(err)
}

// What a server is said to do.
const (
	refusesEveryToken = "the server refuses every token that is issued for it; " + adviceAskOperator                                                              // Problem of a PermanentError: a new token was refused like the old one
	refusesNewToken   = "the server refuses the token that signing in has just brought, so nobody is asked to sign in again; " + adviceAskOperator                // Problem of a PermanentError: a person has just signed in, and the token of that was refused
	adviceAskOperator = "it may expect another audience, or trust another provider: ask its operator, whose log says why (--resource sets what the token is for)" // what helps where a server refuses tokens: the end of refusesEveryToken and refusesNewToken
)

// wouldSignInBeUseless reports whether old, the stored credential, comes from a sign-in of the last hour, the server has accepted it for nothing, and it was
// asked for all wanted scopes: another sign-in would only bring the same.
func (r *challengeResponder) wouldSignInBeUseless(w serverDemands, old *credentialSnapshot, wanted []string) bool {
	if r.options.Machine != nil || old.credential.AccessToken.IsZero() || w.IsTokenAccepted || w.countRecentSignIns(r.now(), stepUpWindow) == 0 || old.isExpired(r.now()) {
		return false
	}
	last := w.SignInTimes[len(w.SignInTimes)-1]
	return !old.credential.IssuedAt.Before(last.Add(-lockTimeout)) &&
		!slices.ContainsFunc(wanted, func(scope string) bool { return !slices.Contains(old.credential.RequestedScopes, scope) })
}
