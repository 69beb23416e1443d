package client

import (
	"context"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// refusalDocumentName is the name of the stored document about a token that the server refuses, a TokenRefusal.
const refusalDocumentName = "refused"

// A TokenRefusal is how a server has refused a stored token for good: no renewal and no sign-in has brought one that it takes.
type TokenRefusal struct {
	RefusedAt     time.Time `json:"at"`
	TokenIssuedAt time.Time `json:"issued"`         // when the token came
	Reason        string    `json:"reason"`         // in the words of the bridge; no secret
	AcceptedSince bool      `json:"over,omitempty"` // the server has taken the token since, for something
}

// concernsTokenIssuedAt reports whether r is about the token that came at that time. The zero TokenRefusal is about none.
func (r TokenRefusal) concernsTokenIssuedAt(issued time.Time) bool {
	return !r.RefusedAt.IsZero() && r.TokenIssuedAt.Equal(issued)
}

// LastTokenRefusal returns how the server has refused what is stored under the key of e, if it has and no newer token is stored.
// It reads the store only.
func LastTokenRefusal(ctx context.Context, store *tokenstore.Store, e tokenstore.Entry) (TokenRefusal, bool) {
	m, err := store.Metadata(ctx, e.Key)
	if err != nil {
		return TokenRefusal{}, false
	}
	r := parseDocument[TokenRefusal](m, refusalDocumentName)
	return r, r.concernsTokenIssuedAt(e.Credential.IssuedAt) && !r.AcceptedSince
}

// noteTokenRefusal remembers that the server refuses a token, for status.
func (r *serverRecord) noteTokenRefusal(ctx context.Context, h *credentialSnapshot, reason string) {
	r.reportError(updateDocument(ctx, r, refusalDocumentName, func(last *TokenRefusal) (bool, error) {
		if last.concernsTokenIssuedAt(h.stored.IssuedAt) && last.Reason == reason && !last.AcceptedSince {
			return false, nil
		}
		*last = TokenRefusal{RefusedAt: r.now(), TokenIssuedAt: h.stored.IssuedAt, Reason: reason}
		return true, nil
	}))
}

// noteTokenAccepted notes, once for each snapshot, that the server has taken the token of h. That shows that the last sign-in was good for something,
// unless the server has refused this very token before: some servers take any token for initialize, and none for calls.
func (r *challengeResponder) noteTokenAccepted(ctx context.Context, h *credentialSnapshot) {
	if h.isAcceptanceNoted.Swap(true) || r.tokens.isRefused(h) {
		return
	}
	refused := false
	err := updateDocument(ctx, r.record, refusalDocumentName, func(last *TokenRefusal) (bool, error) {
		refused = last.concernsTokenIssuedAt(h.stored.IssuedAt)
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
	refusesEveryToken = "the server refuses every token that is issued for it; " + adviceAskOperator
	refusesNewToken   = "the server refuses the token that signing in has just brought, so nobody is asked to sign in again; " + adviceAskOperator
	adviceAskOperator = "it may expect another audience, or trust another provider: ask its operator, whose log says why (--resource sets what the token is for)"
)

// wouldSignInBeUseless reports whether another sign-in would bring what the last one has brought: a token that the server has never taken, and
// refuses as it is stored, in old. wanted are the scopes that its challenge asks for.
func (r *challengeResponder) wouldSignInBeUseless(w serverDemands, old *credentialSnapshot, wanted []string) bool {
	if r.options.Machine != nil || old.stored.AccessToken.IsZero() || w.IsTokenAccepted || w.countRecentSignIns(r.now(), stepUpWindow) == 0 || old.isExpired(r.now()) {
		return false
	}
	last := w.SignInTimes[len(w.SignInTimes)-1]
	return !old.stored.IssuedAt.Before(last.Add(-lockTimeout)) &&
		!slices.ContainsFunc(wanted, func(scope string) bool { return !slices.Contains(old.stored.RequestedScopes, scope) })
}
