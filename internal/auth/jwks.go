package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/mcp-bridge/mcp-bridge/internal/strictjson"
)

// When keys are fetched, and how long they are kept.
const (
	maxKeysPerSet         = 100              // a key set with more keys is an error
	keysMaxAge            = 15 * time.Minute // how old keys may be until they are fetched again, so that a key that was withdrawn goes
	keysMaxStaleAge       = 24 * time.Hour   // how old keys may be that are still used while they cannot be fetched again
	minFetchInterval      = 30 * time.Second // how long after the beginning of one fetch of a key set the next may begin
	minFirstFetchInterval = 5 * time.Second  // the same as long as there are no keys that can be used: how long after the beginning of one fetch the next may begin
	keysFetchTimeout      = 10 * time.Second // how long one fetch of a key set may take, unless Caller has a Timeout
	maxKeysTried          = 8                // how many keys a token is tried with: those that fit its "alg" and, if it names one, its key id
)

// A KeySet has the public keys of a provider (RFC 7517, 5), and fetches them when they are needed:
// at first, every 15 minutes, and for a key id that is not known, but never within 30 seconds of the
// last time (5 seconds as long as there are no keys). While the provider is away, keys stay for 24
// hours. The first caller who finds a fetch due begins it, and waits for it. Meanwhile callers whose key is not there
// wait too; the others go on with the keys that are there. Nobody waits for a second one. A fetch goes on in a
// goroutine of its own, for the others and for later callers, when those who wait have left. Close ends it. A KeySet may
// be used concurrently, and must not be copied.
type KeySet struct {
	URL    string          // the provider's jwks_uri
	Caller *EndpointCaller // makes the fetches, and has the clock; nil: the zero value

	mu           sync.Mutex        // guards the fields below
	keys         []verificationKey // the keys of the last fetch that succeeded
	fetchedAt    time.Time         // when keys were fetched; zero: no fetch has succeeded
	lastFetchTry time.Time         // when the last fetch began; zero: there was none, or it was cut short
	currentFetch *keysFetch        // the fetch in progress; nil: there is none
	fetchErr     error             // why the last fetch failed; nil: it succeeded, or there was none
	closed       bool              // Close was called: no fetch begins any more
}

// A keysFetch is one fetch of a key set, for all who wait for it.
type keysFetch struct {
	cancel   context.CancelFunc // ends the fetch
	done     chan struct{}      // closed when the fetch has ended
	cutShort bool               // it failed because its ctx ended, and says nothing of the provider; to be read after done
}

// A verificationKey is a public key with what it may verify.
type verificationKey struct {
	jwk        jose.JSONWebKey // the key
	kid        string          // the key's name, to which tokens refer; "": it has none
	thumbprint string          // SHA-256 thumbprint of the key (RFC 7638)
	algs       []string        // the signature algorithms that it may be used with
}

// callerWithTimeout returns a copy of the Caller that has a timeout.
func (s *KeySet) callerWithTimeout() *EndpointCaller {
	c := EndpointCaller{}
	if s.Caller != nil {
		c = *s.Caller
	}
	if c.Timeout <= 0 {
		c.Timeout = keysFetchTimeout
	}
	return &c
}

// timeSince returns how long ago then was. If the clock was set back, so that then is ahead, it returns
// keysMaxStaleAge, with which everything is due.
func timeSince(now, then time.Time) time.Duration {
	if d := now.Sub(then); d >= 0 {
		return d
	}
	return keysMaxStaleAge
}

// Has reports whether a key is still in the set; thumbprint is Claims.KeyThumbprint of a token that was verified before. It
// fetches the keys again when they are due. Unavailable: there are no keys, or they are older than 24 hours.
func (s *KeySet) Has(ctx context.Context, thumbprint string) (bool, error) {
	found, err := s.find(ctx, false, func(k verificationKey) bool { return k.thumbprint == thumbprint })
	if Is(err, InvalidToken) {
		return false, nil
	}
	return len(found) > 0, err
}

// keysFor returns the keys that may verify a token whose header has this "kid" and "alg"; with kid "", all
// keys for alg, at most maxKeysTried. InvalidToken: there is none. Unavailable: that cannot be told, because
// the provider is away.
func (s *KeySet) keysFor(ctx context.Context, kid, alg string) ([]verificationKey, error) {
	return s.find(ctx, true, func(k verificationKey) bool {
		return (kid == "" || k.kid == kid) && slices.Contains(k.algs, alg)
	})
}

// find returns the keys that match, at most maxKeysTried, after a fetch if one is due. It waits for one fetch at most, that
// in progress or one that it begins, and for another only if that was cut short. InvalidToken: none matches. With
// mayRefetch, keys are fetched again before that is said, unless they were a moment ago. Unavailable: nobody knows,
// because the provider is away, or ctx ended first.
func (s *KeySet) find(ctx context.Context, mayRefetch bool, matches func(verificationKey) bool) ([]verificationKey, error) {
	c := s.callerWithTimeout()
	for waited := false; ; {
		s.mu.Lock()
		now := c.now()
		have := !s.fetchedAt.IsZero() && timeSince(now, s.fetchedAt) < keysMaxStaleAge
		var found []verificationKey
		if have {
			for _, k := range s.keys {
				if matches(k) && len(found) < maxKeysTried {
					found = append(found, k)
				}
			}
		}
		gap := minFetchInterval
		if !have {
			gap = minFirstFetchInterval
		}
		// Once it has waited nothing is due: where a fetch takes longer than gap, the next one always would be.
		due := !waited && (!have || timeSince(now, s.fetchedAt) >= keysMaxAge || mayRefetch && len(found) == 0)
		running, wait := s.currentFetch, gap-timeSince(now, s.lastFetchTry)
		if due && running != nil && len(found) > 0 {
			running = nil // others wait for it
		} else if due && running == nil && !s.closed && (s.lastFetchTry.IsZero() || wait <= 0) {
			fetchCtx, f := s.beginFetchLocked(context.WithoutCancel(ctx), now)
			go func() { _ = s.fetch(fetchCtx, c, f) }()
			running = f
		}
		fault := s.fetchErr
		s.mu.Unlock()
		if !due || running == nil {
			if !mayRefetch && have {
				fault = nil // the question was about the keys that are there
			}
			return s.keysOrError(found, have, fault, wait)
		}
		select {
		case <-running.done:
			waited = !running.cutShort
		case <-ctx.Done():
			return nil, &Error{Kind: Unavailable, Operation: "key set", URL: redactURL(s.URL), Problem: "the keys did not come in time", Err: ctx.Err()}
		}
	}
}

// keysOrError returns found, the keys that match, or if there are none the error that says why. have: there
// are keys that are not too old. fault is why the last fetch failed; nil: it did not, or that does not matter, so that
// with have no key matches (InvalidToken). wait is how long it takes until the next fetch may begin.
func (s *KeySet) keysOrError(found []verificationKey, have bool, fault error, wait time.Duration) ([]verificationKey, error) {
	const doing = "key set"
	switch {
	case len(found) > 0:
		return found, nil
	case have && fault == nil:
		return nil, &Error{Kind: InvalidToken, Cause: CauseUnknownKey, Operation: doing, URL: redactURL(s.URL), Problem: "the provider has no such key"}
	}
	e := &Error{Kind: Unavailable, Operation: doing, URL: redactURL(s.URL), Problem: "the provider's keys are not at hand", RetryAfter: max(wait, time.Second), Err: fault}
	if have {
		e.Problem = "the key is not known, and the provider cannot be asked"
	}
	return nil, e
}

// Prefetch fetches the keys if no fetch has begun yet, or the only one was cut short; the fetch ends with ctx. Otherwise,
// and after Close, it returns the error of the last fetch that has ended (nil also if there is none), and does not wait for one that is running.
func (s *KeySet) Prefetch(ctx context.Context) error {
	c := s.callerWithTimeout()
	s.mu.Lock()
	if !s.lastFetchTry.IsZero() || s.closed {
		defer s.mu.Unlock()
		return s.fetchErr
	}
	fetchCtx, f := s.beginFetchLocked(ctx, c.now())
	s.mu.Unlock()
	return s.fetch(fetchCtx, c, f)
}

// Close ends the fetch in progress, and waits for it. No other one begins any more; keys that are there can still be used.
func (s *KeySet) Close() {
	s.mu.Lock()
	s.closed = true
	running := s.currentFetch
	s.mu.Unlock()
	if running != nil {
		running.cancel()
		<-running.done
	}
}

// beginFetchLocked notes that a fetch begins now, which the caller makes by fetch, with what this returns. s.mu is held, and no
// fetch is in progress.
func (s *KeySet) beginFetchLocked(ctx context.Context, now time.Time) (context.Context, *keysFetch) {
	ctx, cancel := context.WithCancel(ctx)
	s.lastFetchTry, s.currentFetch = now, &keysFetch{cancel: cancel, done: make(chan struct{})}
	return ctx, s.currentFetch
}

// fetch asks the provider once, and keeps the keys or the error. It ends f, which is from beginFetchLocked as ctx is.
func (s *KeySet) fetch(ctx context.Context, c *EndpointCaller, f *keysFetch) error {
	defer f.cancel()
	var keys []verificationKey
	data, err := c.getJSON(ctx, "key set", s.URL, "application/jwk-set+json")
	if err == nil {
		keys, err = parseKeys(data)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.cutShort = err != nil && ctx.Err() != nil; f.cutShort {
		s.lastFetchTry = time.Time{} // the next one need not wait
	}
	if s.fetchErr = err; err == nil {
		s.keys, s.fetchedAt = keys, c.now()
	}
	s.currentFetch = nil
	close(f.done)
	return err
}

// parseKeys reads a key set (RFC 7517, 5). It leaves out keys that cannot verify a signature here: secret and
// private ones, unknown kinds, those that are too weak, those for encryption. Invalid: no key is left, or the
// set cannot be read.
func parseKeys(data []byte) ([]verificationKey, error) {
	const doing = "key set"
	f, err := strictjson.ParseObject(data)
	if err != nil {
		return nil, &Error{Kind: Invalid, Operation: doing, Problem: "the key set cannot be used", Err: err}
	}
	r := strictjson.NewReader(f)
	raw := strictjson.Member[[]json.RawMessage](r, "keys", "an array")
	if r.Err == nil && len(raw) > maxKeysPerSet {
		r.Err = fmt.Errorf("it has %d keys, more than %d", len(raw), maxKeysPerSet)
	}
	if r.Err != nil {
		return nil, &Error{Kind: Invalid, Operation: doing, Problem: "the key set cannot be used", Err: r.Err}
	}
	var keys []verificationKey
	for _, text := range raw {
		if k, err := parseKey(text); err == nil {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, &Error{Kind: Invalid, Operation: doing, Problem: "the key set has no key that can verify a signature"}
	}
	return keys, nil
}

// parseKey reads a public key (RFC 7517, 4) that verifies signatures with an algorithm that is accepted
// (signatureAlgorithmsFor). Any other key is an error.
func parseKey(text []byte) (verificationKey, error) {
	f, err := strictjson.ParseObject(text)
	if err != nil {
		return verificationKey{}, err
	}
	r := strictjson.NewReader(f)
	k := verificationKey{kid: r.Text("kid")}
	use, alg, ops := r.Text("use"), r.Text("alg"), r.TextArray("key_ops")
	if r.Err != nil {
		return k, r.Err
	}
	for _, secret := range []string{"d", "k", "p", "q"} {
		if _, there := f[secret]; there {
			return k, errors.New("it is not a public key")
		}
	}
	if use != "" && use != "sig" || ops != nil && !slices.Contains(ops, "verify") {
		return k, errors.New("it is not for signatures")
	}
	public := strictjson.Fields{} // without certificates, which would only be parsed
	for _, name := range []string{"kty", "crv", "x", "y", "n", "e"} {
		if v, there := f[name]; there {
			public[name] = v
		}
	}
	bare, err := json.Marshal(public)
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(bare, &k.jwk); err != nil {
		return k, err
	}
	if k.algs = signatureAlgorithmsFor(k.jwk.Key); alg != "" {
		k.algs = slices.DeleteFunc(k.algs, func(a string) bool { return a != alg })
	}
	if len(k.algs) == 0 || !k.jwk.IsPublic() {
		return k, errors.New("it is of a kind or a size that cannot be used")
	}
	k.thumbprint, err = thumbprintOf(&k.jwk)
	return k, err
}
