package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// A serverRecord is what is stored of a server beside its credential, for all processes: its metadata, what its challenges
// have asked for, how the last sign-in has ended, and whether it refuses the token. It may be used concurrently.
type serverRecord struct{ *common }

// serverDemands is what the server's challenges have asked for. It is remembered over processes.
type serverDemands struct {
	MetadataURL string         `json:"announced,omitempty"` // address of the resource's metadata
	Scopes      []string       `json:"scopes,omitempty"`    // all that challenges have named
	DPoP        bool           `json:"dpop,omitempty"`      // it takes bound tokens only
	StepUp      bool           `json:"stepUp,omitempty"`    // the next sign-in is for more scopes
	StepUps     map[string]int `json:"attempts,omitempty"`  // how often somebody signed in for these scopes after a 403
	SignIns     []time.Time    `json:"signed,omitempty"`    // when somebody signed in, the last times
	Proven      bool           `json:"proven,omitempty"`    // the server has taken a token of the last sign-in
}

// recentSignIns returns how many sign-ins there were in the time before now.
func (w serverDemands) recentSignIns(now time.Time, within time.Duration) (n int) {
	for _, at := range w.SignIns {
		if age := now.Sub(at); age >= 0 && age < within {
			n++
		}
	}
	return n
}

// The names of the stored documents.
const (
	discoveryDocument = "site"
	demandsDocument   = "wants"
)

// storedDiscovery returns the discovery as it is stored, however old; nil: there is none.
func (r *serverRecord) storedDiscovery(ctx context.Context) (*discovery, error) {
	m, err := r.o.Store.Metadata(ctx, r.key)
	if err != nil {
		return nil, err
	}
	return parseDiscovery(m), nil
}

// parseDiscovery reads a stored discovery. One of another version is as good as none.
func parseDiscovery(m tokenstore.Metadata) *discovery {
	s := &discovery{}
	if m.Documents[discoveryDocument] == nil || json.Unmarshal(m.Documents[discoveryDocument], s) != nil {
		return nil
	}
	s.Server.DefaultEndpoints = s.DefaultEndpoints
	return s
}

// storeDocument changes one stored document. What another process stores of the same server at the same
// moment may be lost: it would be asked for again.
func (r *serverRecord) storeDocument(ctx context.Context, name string, document any, expires time.Time) error {
	m, err := r.o.Store.Metadata(ctx, r.key)
	if err != nil {
		return err
	}
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	m.Documents = cloneMap(m.Documents)
	m.Documents[name] = text
	if !expires.IsZero() {
		m.Expires = expires
	}
	return r.o.Store.SaveMetadata(ctx, r.key, m)
}

// storedDemands returns what challenges have asked for.
func (r *serverRecord) storedDemands(ctx context.Context) (serverDemands, error) {
	m, err := r.o.Store.Metadata(ctx, r.key)
	w := serverDemands{}
	if err == nil && m.Documents[demandsDocument] != nil && json.Unmarshal(m.Documents[demandsDocument], &w) != nil {
		w = serverDemands{}
	}
	return w, err
}

// noteDemand remembers what a challenge asks for.
func (r *serverRecord) noteDemand(ctx context.Context, d auth.Demand, old *snapshot, stepUp bool) error {
	w, err := r.storedDemands(ctx)
	if err != nil {
		return err
	}
	before := fmt.Sprint(w)
	if d.ResourceMetadata != "" {
		w.MetadataURL = d.ResourceMetadata
	}
	if d.Bearer || d.DPoP {
		w.DPoP = d.DPoP && !d.Bearer
	}
	if stepUp && old != nil {
		w.Scopes = auth.UnionScope(auth.UnionScope(w.Scopes, old.stored.RequestedScopes), old.stored.GrantedScopes)
	}
	w.Scopes = auth.UnionScope(w.Scopes, d.Scopes)
	if len(w.Scopes) > maxScopes {
		return &PermanentError{Problem: "the server asks for too many rights", Err: fmt.Errorf("its challenges have named %d scopes", len(w.Scopes))}
	}
	w.StepUp = stepUp
	if fmt.Sprint(w) == before {
		return nil
	}
	return r.storeDocument(ctx, demandsDocument, w, time.Time{})
}

// countStepUp counts a sign-in that a 403 was the reason of.
func (r *serverRecord) noteSignIn(ctx context.Context) error {
	w, err := r.storedDemands(ctx)
	if err != nil {
		return err
	}
	now := r.now()
	if w.recentSignIns(now, stepUpWindow) == 0 {
		w.StepUps = nil
	}
	w.SignIns, w.Proven = append(w.SignIns, now), false
	w.SignIns = w.SignIns[max(0, len(w.SignIns)-maxSignIns):]
	if w.StepUp {
		w.StepUps = cloneMap(w.StepUps)
		if len(w.StepUps) >= 32 {
			clear(w.StepUps)
		}
		w.StepUps[scopeKey(w.Scopes)]++
	} else {
		w.StepUps = nil
	}
	return r.storeDocument(ctx, demandsDocument, w, time.Time{})
}

// scopeKey names a set of scopes.
func scopeKey(scopes []string) string { return auth.JoinScope(sortedCopy(scopes)) }

// failedSignInDocument is the name of the stored document about the last sign-in, a FailedSignIn.
const failedSignInDocument = "ended"

// A FailedSignIn is how a sign-in ended that brought nothing.
type FailedSignIn struct {
	At      time.Time `json:"at,omitzero"` // zero: the last one was good, or there was none
	Problem string    `json:"problem,omitempty"`
}

// noteSignInEnd remembers how a sign-in has ended, for other processes.
func (r *serverRecord) noteSignInEnd(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	end := FailedSignIn{}
	if err != nil {
		end = FailedSignIn{r.now(), err.Error()}
	}
	if now := r.lastFailedSignIn(ctx); now != end {
		if err := r.storeDocument(ctx, failedSignInDocument, end, time.Time{}); err != nil {
			r.reportError(err)
		}
	}
}

// lastFailedSignIn is Credential.LastFailedSignIn.
func (r *serverRecord) lastFailedSignIn(ctx context.Context) FailedSignIn {
	var end FailedSignIn
	m, err := r.o.Store.Metadata(ctx, r.key)
	if err != nil || m.Documents[failedSignInDocument] == nil || json.Unmarshal(m.Documents[failedSignInDocument], &end) != nil {
		return FailedSignIn{}
	}
	return end
}
