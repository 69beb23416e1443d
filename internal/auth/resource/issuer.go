package resource

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// discoverRetryDelay is how long after the beginning of an attempt to find the keys of an issuer, which failed, there is no other
// one.
const discoverRetryDelay = 5 * time.Second

// An issuer is an Issuer with its keys, as far as they were fetched.
type issuer struct {
	Issuer
	caller *auth.EndpointCaller // sends the requests to it

	mu              sync.Mutex         // guards the fields below
	keys            *auth.KeySet       // the keys of the issuer; nil: their address is not known yet
	discoveryDone   chan struct{}      // closed when the attempt in progress ends; nil: there is none
	cancelDiscovery context.CancelFunc // ends the attempt in progress; nil: there was none yet
	lastDiscovery   time.Time          // when the last attempt to find the address of the keys began
	discoveryErr    error              // why the last attempt to find the address of the keys failed; nil: it did not, or there was none
	closed          bool               // close was called: no attempt begins any more
}

// newIssuer returns the issuer for i, whose requests caller sends.
func newIssuer(i Issuer, caller *auth.EndpointCaller) *issuer {
	made := &issuer{Issuer: i, caller: caller}
	if i.JWKSURL != "" {
		made.keys = &auth.KeySet{URL: i.JWKSURL, Caller: caller}
	}
	return made
}

// errClosed is the error for an issuer whose keys are not known when the Protector is closed.
var errClosed = errors.New("the bridge is shutting down")

// keySet returns the keys of the issuer. If their address is not known, it waits for one attempt to fetch the issuer's metadata:
// that in progress, or one that it begins. After an attempt that has failed it returns that error until discoverRetryDelay is
// over.
func (i *issuer) keySet(ctx context.Context) (*auth.KeySet, error) {
	if running := i.joinOrBeginDiscovery(ctx); running != nil {
		select {
		case <-running:
		case <-ctx.Done():
			return nil, &auth.Error{Kind: auth.Unavailable, Operation: "authorization server metadata", Problem: "it did not come in time", Err: ctx.Err()}
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.keys != nil:
		return i.keys, nil
	case i.discoveryErr != nil:
		return nil, i.discoveryErr
	}
	return nil, &auth.Error{Kind: auth.Unavailable, Operation: "keys of an issuer", Problem: "they are not known", Err: errClosed}
}

// joinOrBeginDiscovery returns what is closed when the attempt in progress ends, or begins one if that is due. nil: there is
// nothing to wait for. An attempt goes on, for others and for later requests, when ctx has ended.
func (i *issuer) joinOrBeginDiscovery(ctx context.Context) (done <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.keys != nil {
		return nil
	}
	if i.discoveryDone != nil {
		return i.discoveryDone
	}
	now := i.caller.Now()
	d := now.Sub(i.lastDiscovery)
	if isTooSoon := i.discoveryErr != nil && d >= 0 && d < discoverRetryDelay; isTooSoon || i.closed {
		return nil
	}
	ctx, i.cancelDiscovery = context.WithCancel(context.WithoutCancel(ctx))
	i.lastDiscovery, i.discoveryDone = now, make(chan struct{})
	go i.discover(ctx)
	return i.discoveryDone
}

// close ends the requests in progress for metadata and keys that keySet or the keys have begun, and waits for them. No other
// one begins any more.
func (i *issuer) close() {
	i.mu.Lock()
	i.closed = true
	running := i.discoveryDone
	if running != nil {
		i.cancelDiscovery()
	}
	i.mu.Unlock()
	if running != nil {
		<-running
	}
	i.mu.Lock()
	keys := i.keys
	i.mu.Unlock()
	if keys != nil {
		keys.Close()
	}
}

// newNoKeysError returns the error for an issuer whose metadata has no jwks_uri.
func newNoKeysError() error {
	return &auth.Error{Kind: auth.Unavailable, Operation: "keys of an issuer", Problem: "its metadata does not say where they are", Advice: "name their address"}
}

// withOperatorAdvice returns err, an error about the metadata of an issuer, with advice for the operator of this
// bridge. The advice of package auth is for clients: it names a flag that does not exist here, or says to tell the
// operator.
func withOperatorAdvice(err error) error {
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

// discover makes one attempt to fetch the issuer's metadata, for all who wait for discoveryDone, and sets keys or
// discoveryErr. It calls cancelDiscovery at its end.
func (i *issuer) discover(ctx context.Context) {
	m, err := i.caller.FetchServerMetadata(ctx, "", i.URL)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cancelDiscovery()
	switch {
	case err != nil:
		// Whatever is wrong with the issuer's metadata, it is not the token.
		i.discoveryErr = &auth.Error{Kind: auth.Unavailable, Operation: "keys of an issuer", Problem: "its metadata cannot be had", Err: withOperatorAdvice(err)}
	case m.JWKSURI == "":
		i.discoveryErr = newNoKeysError()
	default:
		i.keys, i.discoveryErr = &auth.KeySet{URL: m.JWKSURI, Caller: i.caller}, nil
	}
	close(i.discoveryDone)
	i.discoveryDone = nil
}
