package client

import (
	"context"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// refusedDocument is the name of the stored document about a token that the server refuses, a Refusal.
const refusedDocument = "refused"

// A Refusal is how a server has refused a stored token for good: no renewal and no sign-in has brought one that it takes.
type Refusal struct {
	At     time.Time `json:"at"`
	Issued time.Time `json:"issued"`         // when the token came
	Reason string    `json:"reason"`         // in the words of the bridge; no secret
	Over   bool      `json:"over,omitempty"` // the server has taken the token since, for something
}

// isOf reports whether it is about the token that came at that time.
func (r Refusal) isOf(issued time.Time) bool { return !r.At.IsZero() && r.Issued.Equal(issued) }

// LastRefusal returns how the server has refused what is stored under the key of e, if it has and no newer token is stored.
// It reads the store only.
func LastRefusal(ctx context.Context, store *tokenstore.Store, e tokenstore.Entry) (Refusal, bool) {
	m, err := store.Metadata(ctx, e.Key)
	if err != nil {
		return Refusal{}, false
	}
	r := parseDocument[Refusal](m, refusedDocument)
	return r, r.isOf(e.Credential.Issued) && !r.Over
}

// noteRefusal remembers that the server refuses a token, for status.
func (r *serverRecord) noteRefusal(ctx context.Context, h *snapshot, reason string) {
	r.reportError(updateDocument(ctx, r, refusedDocument, func(last *Refusal) (bool, error) {
		if last.isOf(h.stored.Issued) && last.Reason == reason && !last.Over {
			return false, nil
		}
		*last = Refusal{At: r.now(), Issued: h.stored.Issued, Reason: reason}
		return true, nil
	}))
}

// taken notes that the server has taken the token of h: the last sign-in was good for something, unless the server has refused this
// very token before. It may take any for initialize, and none for calls. It looks once for each token.
func (r *responder) taken(ctx context.Context, h *snapshot) {
	if h.taken.Swap(true) || r.tokens.isRefused(h) {
		return
	}
	refused := false
	err := updateDocument(ctx, r.record, refusedDocument, func(last *Refusal) (bool, error) {
		refused = last.isOf(h.stored.Issued)
		changed := refused && !last.Over
		last.Over = true
		return changed, nil
	})
	if err == nil && !refused {
		err = updateDocument(ctx, r.record, demandsDocument, func(w *serverDemands) (bool, error) {
			changed := !w.Proven
			w.Proven = true
			return changed, nil
		})
	}
	r.reportError(err)
}

// What a server is said to do.
const (
	refusesEvery = "the server refuses every token that is issued for it; " + askOperator
	refusesNew   = "the server refuses the token that signing in has just brought, so nobody is asked to sign in again; " + askOperator
	askOperator  = "it may expect another audience, or trust another provider: ask its operator, whose log says why (--resource sets what the token is for)"
)

// isUseless reports whether another sign-in would bring what the last one has brought: a token that the server has never taken, and
// refuses as it is stored, in old. wanted are the scopes that its challenge asks for.
func (r *responder) isUseless(w serverDemands, old *snapshot, wanted []string) bool {
	if r.o.Machine != nil || old.stored.Access.IsZero() || w.Proven || w.recentSignIns(r.now(), stepUpWindow) == 0 || old.isExpired(r.now()) {
		return false
	}
	last := w.SignIns[len(w.SignIns)-1]
	return !old.stored.Issued.Before(last.Add(-lockTimeout)) &&
		!slices.ContainsFunc(wanted, func(scope string) bool { return !slices.Contains(old.stored.RequestedScopes, scope) })
}
