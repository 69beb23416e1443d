package client

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// A serverRecord is what is stored of a server beside its credential, for all processes: its metadata, what its challenges have asked for, how the last sign-in
// has ended, and whether it refuses the token. It may be used concurrently.
type serverRecord struct{ *credentialBase }

// serverDemands is what the challenges of a server have asked for, and how often somebody has signed in. It is stored, for all processes.
type serverDemands struct {
	MetadataURL     string         `json:"announced,omitempty"` // the address of its metadata that a challenge has named last; "": none
	Scopes          []string       `json:"scopes,omitempty"`    // all that its challenges have named, at most maxScopes
	OnlyAcceptsDPoP bool           `json:"dpop,omitempty"`      // its last challenge took only tokens that are bound to a key
	IsStepUpDue     bool           `json:"stepUp,omitempty"`    // the last challenge was a 403, so the next sign-in is for more scopes
	StepUpsByScopes map[string]int `json:"attempts,omitempty"`  // how often somebody signed in after a 403, by the scopes that were asked for (scopeKey of Scopes); begun anew by a sign-in for another reason, or after stepUpWindow without one
	SignInTimes     []time.Time    `json:"signed,omitempty"`    // when a person or Options.Machine signed in: the last maxRecentSignIns times
	IsTokenAccepted bool           `json:"proven,omitempty"`    // the server has accepted the token of the last sign-in, for something
}

// countRecentSignIns returns how many of SignInTimes are not longer ago than within.
func (w serverDemands) countRecentSignIns(now time.Time, within time.Duration) (n int) {
	for _, at := range w.SignInTimes {
		if age := now.Sub(at); age >= 0 && age < within {
			n++
		}
	}
	return n
}

// The names of the stored documents.
const (
	discoveryDocumentName = "site"  // the name of the stored document with the metadata, a discovery
	demandsDocumentName   = "wants" // the name of the stored document with the serverDemands
)

// storedDiscovery returns the discovery as it is stored, however old; nil: there is none that can be read.
func (r *serverRecord) storedDiscovery(ctx context.Context) (*discovery, error) {
	m, err := r.options.Store.Metadata(ctx, r.key)
	if err != nil {
		return nil, err
	}
	return parseDiscovery(m), nil
}

// parseDiscovery returns the stored discovery; nil: there is none, or it cannot be read.
func parseDiscovery(m tokenstore.Metadata) *discovery {
	s := &discovery{}
	if m.Documents[discoveryDocumentName] == nil || json.Unmarshal(m.Documents[discoveryDocumentName], s) != nil {
		return nil
	}
	s.AuthServer.HasDefaultEndpoints = s.DefaultEndpoints
	return s
}

// storeDiscovery stores a discovery, which is fresh for discoveryCacheTime.
func (r *serverRecord) storeDiscovery(ctx context.Context, s *discovery) error {
	return r.options.Store.UpdateMetadata(ctx, r.key, func(m *tokenstore.Metadata) (bool, error) {
		m.Expires = r.now().Add(discoveryCacheTime)
		return true, setDocument(m, discoveryDocumentName, s)
	})
}

// setDocument puts a document into m under this name, as JSON.
func setDocument(m *tokenstore.Metadata, name string, document any) error {
	text, err := json.Marshal(document)
	if m.Documents == nil {
		m.Documents = map[string]json.RawMessage{}
	}
	m.Documents[name] = text
	return err
}

// parseDocument returns the document of this name in m; the zero T: there is none, or it cannot be read.
func parseDocument[T any](m tokenstore.Metadata, name string) (document T) {
	if text := m.Documents[name]; text != nil && json.Unmarshal(text, &document) != nil {
		var none T
		return none
	}
	return document
}

// updateDocument changes a stored document under a lock, so that nothing is lost of what another process stores at the same moment. change reports whether it
// has changed the document. It is called first on what is read without a lock, and, only if it changes that, again under the lock.
func updateDocument[T any](ctx context.Context, r *serverRecord, name string, change func(*T) (changed bool, err error)) error {
	m, err := r.options.Store.Metadata(ctx, r.key)
	if err != nil {
		return err
	}
	document := parseDocument[T](m, name)
	if changed, err := change(&document); err != nil || !changed {
		return err
	}
	return r.options.Store.UpdateMetadata(ctx, r.key, func(m *tokenstore.Metadata) (bool, error) {
		document := parseDocument[T](*m, name)
		if changed, err := change(&document); err != nil || !changed {
			return false, err
		}
		return true, setDocument(m, name, document)
	})
}

// storedDemands returns what challenges have asked for; zero: nothing yet, or what is stored cannot be read.
func (r *serverRecord) storedDemands(ctx context.Context) (serverDemands, error) {
	m, err := r.options.Store.Metadata(ctx, r.key)
	return parseDocument[serverDemands](m, demandsDocumentName), err
}

// noteDemand adds what a challenge asks for to the stored serverDemands. stepUp: it came with a 403, so the scopes of old (may be nil) are needed too.
func (r *serverRecord) noteDemand(ctx context.Context, d auth.Demand, old *credentialSnapshot, stepUp bool) error {
	return updateDocument(ctx, r, demandsDocumentName, func(w *serverDemands) (bool, error) {
		before := fmt.Sprint(*w)
		if d.ResourceMetadata != "" {
			w.MetadataURL = d.ResourceMetadata
		}
		if d.AcceptsBearer || d.AcceptsDPoP {
			w.OnlyAcceptsDPoP = d.AcceptsDPoP && !d.AcceptsBearer
		}
		if stepUp && old != nil {
			w.Scopes = auth.UnionScope(auth.UnionScope(w.Scopes, old.credential.RequestedScopes), old.credential.GrantedScopes)
		}
		w.Scopes = auth.UnionScope(w.Scopes, d.Scopes)
		if len(w.Scopes) > maxScopes {
			return false, &PermanentError{Problem: "the server asks for too many rights", Err: fmt.Errorf("its challenges have named %d scopes", len(w.Scopes))}
		}
		w.IsStepUpDue = stepUp
		return fmt.Sprint(*w) != before, nil
	})
}

// noteSignIn adds a sign-in that has just brought a token to the stored serverDemands, and counts it for its scopes if a 403 was the reason.
func (r *serverRecord) noteSignIn(ctx context.Context) error {
	return updateDocument(ctx, r, demandsDocumentName, func(w *serverDemands) (bool, error) {
		now := r.now()
		if w.countRecentSignIns(now, stepUpWindow) == 0 || !w.IsStepUpDue {
			w.StepUpsByScopes = nil
		}
		w.SignInTimes, w.IsTokenAccepted = append(w.SignInTimes, now), false
		w.SignInTimes = w.SignInTimes[max(0, len(w.SignInTimes)-maxRecentSignIns):]
		if w.IsStepUpDue {
			if w.StepUpsByScopes == nil || len(w.StepUpsByScopes) >= 32 {
				w.StepUpsByScopes = map[string]int{}
			}
			w.StepUpsByScopes[scopeKey(w.Scopes)]++
		}
		return true, nil
	})
}

// scopeKey returns the same text for the same scopes, whatever their order.
func scopeKey(scopes []string) string { return auth.JoinScope(slices.Sorted(slices.Values(scopes))) }

// failedSignInDocumentName is the name of the stored document that says how the last sign-in ended: a FailedSignIn, which is
// zero if the sign-in succeeded.
const failedSignInDocumentName = "ended"

// A FailedSignIn says when and why the last sign-in failed.
type FailedSignIn struct {
	EndedAt time.Time `json:"at,omitzero"`       // when it failed; zero: the last sign-in succeeded, or there was none
	Problem string    `json:"problem,omitempty"` // why it failed, in one line
}

// noteSignInEnd stores how a sign-in has ended, for other processes: failed because of err, or well if err is nil.
func (r *serverRecord) noteSignInEnd(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	end := FailedSignIn{}
	if err != nil {
		end = FailedSignIn{r.now(), err.Error()}
	}
	r.reportError(updateDocument(ctx, r, failedSignInDocumentName, func(last *FailedSignIn) (bool, error) {
		changed := *last != end
		*last = end
		return changed, nil
	}))
}

// lastFailedSignIn returns how the last sign-in of any process failed; zero: it did not, or nobody has signed in, or the store cannot be read.
func (r *serverRecord) lastFailedSignIn(ctx context.Context) FailedSignIn {
	m, err := r.options.Store.Metadata(ctx, r.key)
	if err != nil {
		return FailedSignIn{}
	}
	return parseDocument[FailedSignIn](m, failedSignInDocumentName)
}
