package resource

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// A CheckFault is a fault that [Protector.Check] has found.
type CheckFault struct {
	URL string // the URL of the issuer, or of the introspection endpoint, that it is about
	Err error  // what is wrong
	// IsFinal: the metadata of the issuer names another issuer. No token of it will be valid here, and clients refuse the
	// metadata too, until somebody changes a setting. Any other fault may go away by itself: the provider may just be
	// starting.
	IsFinal bool
}

// Check asks the issuers for their metadata and their keys, and the introspection endpoint about a token that nobody has, so that
// whoever starts the bridge learns what is wrong before a client does. All are asked at the same time; it returns when all have
// answered or ctx is done, the faults in order of their URL. What it has got is used for the first requests.
func (p *Protector) Check(ctx context.Context) []CheckFault {
	var all sync.WaitGroup
	var mu sync.Mutex
	var found []CheckFault
	note := func(f CheckFault) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, f)
	}
	for _, i := range p.issuers {
		all.Go(func() {
			if err := i.checkKeys(ctx, p.introspector != nil); err != nil {
				note(CheckFault{URL: i.URL, Err: err, IsFinal: auth.Is(err, auth.Mismatch)})
			}
		})
	}
	if p.introspector != nil {
		all.Go(func() {
			if _, err := p.askIntrospection(ctx, "mcp-bridge-asks-whether-it-may-ask-"+rand.Text()); err != nil && !auth.Is(err, auth.InvalidToken) {
				note(CheckFault{URL: p.introspector.Endpoint, Err: err})
			}
		})
	}
	all.Wait()
	slices.SortFunc(found, func(a, b CheckFault) int { return strings.Compare(a.URL, b.URL) })
	return found
}

// checkKeys fetches the issuer's metadata, then its keys, and keeps both for the first requests. If the address of the
// keys is known, from the configuration or from an earlier request, it fetches the keys alone. Metadata without that
// address is an error, unless tokens can be introspected.
func (i *issuer) checkKeys(ctx context.Context, introspected bool) error {
	i.mu.Lock()
	keys := i.keys
	i.mu.Unlock()
	if keys == nil {
		m, err := i.caller.FetchServerMetadata(ctx, "", i.URL)
		if err != nil {
			return withOperatorAdvice(err)
		}
		switch {
		case m.JWKSURI == "" && introspected:
			return nil
		case m.JWKSURI == "":
			return newNoKeysError()
		}
		keys = &auth.KeySet{URL: m.JWKSURI, Caller: i.caller}
		i.mu.Lock()
		if i.keys == nil {
			i.keys = keys
		}
		keys = i.keys
		i.mu.Unlock()
	}
	return keys.Prefetch(ctx)
}
