package resource

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// discoverRetryDelay is between two attempts to find the keys of an issuer.
const discoverRetryDelay = 5 * time.Second

// An issuer is an Issuer with its keys.
type issuer struct {
	Issuer
	caller *auth.EndpointCaller

	mu      sync.Mutex
	keys    *auth.KeySet  // nil: its metadata has not been read yet
	running chan struct{} // closed when the attempt in progress ends; nil: there is none
	lastTry time.Time
	fault   error // of the last attempt
}

func newIssuer(i Issuer, caller *auth.EndpointCaller) *issuer {
	made := &issuer{Issuer: i, caller: caller}
	if i.JWKS != "" {
		made.keys = &auth.KeySet{URL: i.JWKS, Caller: caller}
	}
	return made
}

// keySet returns the keys of the issuer. It asks for its metadata when that is needed, for all who
// wait, and not more often than every few seconds.
func (i *issuer) keySet(ctx context.Context) (*auth.KeySet, error) {
	for {
		i.mu.Lock()
		if i.keys != nil {
			defer i.mu.Unlock()
			return i.keys, nil
		}
		if running := i.running; running != nil {
			i.mu.Unlock()
			select {
			case <-running:
				continue
			case <-ctx.Done():
				return nil, &auth.Error{Kind: auth.Unavailable, Operation: "authorization server metadata", Problem: "it did not come in time", Err: ctx.Err()}
			}
		}
		now := i.caller.Now()
		if d := now.Sub(i.lastTry); i.fault != nil && d >= 0 && d < discoverRetryDelay {
			defer i.mu.Unlock()
			return nil, i.fault
		}
		i.lastTry, i.running = now, make(chan struct{})
		i.mu.Unlock()
		i.discover(ctx)
	}
}

// noKeys is the error of metadata without jwks_uri.
func noKeys() error {
	return &auth.Error{Kind: auth.Unavailable, Operation: "keys of an issuer", Problem: "its metadata does not say where they are", Advice: "name their address"}
}

// forOperator returns what is wrong with the metadata of an issuer, with what helps where it is configured: the advice for a client
// names a flag that there is none of here, or sends the operator to the operator.
func forOperator(err error) error {
	e, ok := errors.AsType[*auth.Error](err)
	if !ok {
		return err
	}
	other := *e
	switch {
	case e.AnnouncedIssuer != "":
		other.Advice = "the issuer that is configured here should be that"
	case e.Kind == auth.NotFound:
		other.Advice = "is the issuer that is configured here a provider's?"
	default:
		return err
	}
	return &other
}

// discover asks once. It goes on when ctx ends, because others wait for it.
func (i *issuer) discover(ctx context.Context) {
	m, err := i.caller.FetchServerMetadata(context.WithoutCancel(ctx), "", i.URL)
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case err != nil:
		// Whatever is wrong with the issuer's metadata, it is not the token.
		i.fault = &auth.Error{Kind: auth.Unavailable, Operation: "keys of an issuer", Problem: "its metadata cannot be had", Err: forOperator(err)}
	case m.JWKSURI == "":
		i.fault = noKeys()
	default:
		i.keys, i.fault = &auth.KeySet{URL: m.JWKSURI, Caller: i.caller}, nil
	}
	close(i.running)
	i.running = nil
}
