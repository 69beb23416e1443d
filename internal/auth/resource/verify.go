package resource

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

const (
	maxClockSkew     = 30 * time.Second // by how much the clock of an issuer may differ from ours, as in auth.JWTVerifier
	keyCheckInterval = 30 * time.Second // how long it counts that the key of a remembered token was in the issuer's key set; the next use of the token looks again
)

// A tokenHash is the SHA-256 sum of a token, under which it is remembered: the token itself is not kept.
type tokenHash = [sha256.Size]byte

// A verifiedToken is what is remembered of a valid token.
type verifiedToken struct {
	grant             *Grant       // what its sender may do
	tokenAudience     []string     // whom the token is for ("aud")
	acceptedAudiences []string     // the token must be for one of these; nil: for an address of the endpoint's resource
	jkt               string       // the DPoP key that it is bound to (auth.Claims.JKT); "": none
	x5t               string       // the certificate that it is bound to (auth.Claims.X5T); "": none
	cachedUntil       time.Time    // from then on it must be verified again
	issuer            *issuer      // the issuer whose key has signed it; nil: it was introspected
	keyThumbprint     string       // the thumbprint of the key that has signed it; "": it was introspected
	keyCheckedAt      atomic.Int64 // when the key that has signed it was last seen in the key set, in Unix seconds
}

// isFor reports whether the token is for an endpoint, by its audience.
func (v *verifiedToken) isFor(e *endpoint) bool {
	wanted := v.acceptedAudiences
	if wanted == nil {
		wanted = e.audiences
	}
	return auth.Claims{Audience: v.tokenAudience}.IsFor(wanted)
}

// cachedToken returns what is remembered of a token; nil: nothing that still counts. The error: whether the key that
// has signed it is still valid cannot be told now.
func (p *Protector) cachedToken(ctx context.Context, sum tokenHash) (*verifiedToken, error) {
	v := p.verifiedTokens.get(sum)
	if v == nil {
		return nil, nil
	}
	now := p.options.Now()
	if !now.Before(v.cachedUntil) || v.issuer == nil && v.cachedUntil.Sub(now) > activeCacheTime { // the latter: the clock was set back
		p.verifiedTokens.remove(sum)
		return nil, nil
	}
	looked := v.keyCheckedAt.Load()
	if v.issuer == nil || now.Unix() >= looked && now.Unix()-looked < int64(keyCheckInterval/time.Second) {
		return v, nil
	}
	keys, err := v.issuer.keySet(ctx)
	if err != nil {
		return nil, err
	}
	here, err := keys.Has(ctx, v.keyThumbprint)
	if err != nil {
		return nil, err
	}
	if !here {
		p.verifiedTokens.remove(sum)
		return nil, nil
	}
	v.keyCheckedAt.Store(now.Unix())
	return v, nil
}

// verifyUncached verifies a token of which nothing is remembered: by the keys of its issuer, or else by introspection.
// InvalidToken: it is not valid. Other errors say nothing of the token.
func (p *Protector) verifyUncached(ctx context.Context, sum tokenHash, token string) (*verifiedToken, error) {
	read, err := auth.ReadJWT(token)
	name := ""
	if err == nil {
		name, err = read.Issuer()
	}
	if err == nil {
		if i := p.issuers[name]; i != nil {
			return p.verifySigned(ctx, i, sum, read)
		}
		err = &auth.Error{Kind: auth.InvalidToken, Cause: auth.CauseIssuer, Operation: "access token", Problem: "it is of an issuer that is not known here"}
	}
	if p.introspector == nil {
		return nil, err
	}
	return p.introspect(ctx, sum, token)
}

// verifySigned verifies a token by the keys of its issuer i, and remembers it. The errors are those of verifyUncached.
func (p *Protector) verifySigned(ctx context.Context, i *issuer, sum tokenHash, token auth.UnverifiedJWT) (*verifiedToken, error) {
	keys, err := i.keySet(ctx)
	if err != nil {
		return nil, err
	}
	wanted := i.Audiences
	if len(wanted) == 0 {
		wanted = p.routes.Load().audiences
	}
	c, err := (&auth.JWTVerifier{Issuer: i.URL, Audiences: wanted, Keys: keys, Now: p.options.Now}).Verify(ctx, token)
	if err != nil {
		return nil, err
	}
	v := p.newVerifiedToken(i.URL, c)
	v.issuer, v.keyThumbprint, v.acceptedAudiences, v.cachedUntil = i, c.KeyThumbprint, i.Audiences, c.Expires.Add(maxClockSkew)
	v.keyCheckedAt.Store(p.options.Now().Unix())
	p.verifiedTokens.put(sum, v, p.options.Now())
	return v, nil
}

// newVerifiedToken returns what is remembered of a valid token of this issuer with these claims. The caller sets the
// fields about caching.
func (p *Protector) newVerifiedToken(issuer string, c auth.Claims) *verifiedToken {
	g := &Grant{
		Principal: principalOf(issuer, c.Subject, c.ClientID),
		Subject:   c.Subject, ClientID: c.ClientID, Scopes: c.Scopes, Expires: c.Expires,
	}
	g.fillContextValues(access.Sender{Name: g.Principal, TokenContext: p.tokenExpiries.contextUntil(c.Expires)})
	return &verifiedToken{grant: g, tokenAudience: c.Audience, jkt: c.JKT, x5t: c.X5T}
}

// principalOf returns the Principal of a token by its issuer, subject and client: a hash in which each part stands
// behind its length, so that no two lists of parts give the same text.
func principalOf(parts ...string) string {
	var text []byte
	for _, s := range parts {
		text = binary.BigEndian.AppendUint32(text, uint32(len(s)))
		text = append(text, s...)
	}
	sum := sha256.Sum256(text)
	return "oauth:" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// A tokenCache remembers valid tokens, by their hash. It may be used concurrently.
type tokenCache struct {
	maxTokens int                          // how many it remembers
	mu        sync.RWMutex                 // guards byHash
	byHash    map[tokenHash]*verifiedToken // the tokens by their hash
}

// newTokenCache returns a tokenCache that remembers at most so many tokens.
func newTokenCache(most int) *tokenCache {
	return &tokenCache{maxTokens: most, byHash: map[tokenHash]*verifiedToken{}}
}

// get returns what is remembered of the token with this hash, even after its cachedUntil; nil: nothing is.
func (c *tokenCache) get(sum tokenHash) *verifiedToken {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byHash[sum]
}

// remove forgets the token with this hash.
func (c *tokenCache) remove(sum tokenHash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byHash, sum)
}

// put remembers v for the token with this hash. If the cache is full, it forgets others to make room, preferably some whose
// cachedUntil has come by now (evictIfFull).
func (c *tokenCache) put(sum tokenHash, v *verifiedToken, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	evictIfFull(c.byHash, c.maxTokens, func(v *verifiedToken) bool { return !now.Before(v.cachedUntil) })
	c.byHash[sum] = v
}

// evictIfFull makes room in a map that has maxEntries: it looks at a few entries (32), and removes those of them for which
// isOver is true, or else any one.
func evictIfFull[K comparable, V any](m map[K]V, maxEntries int, isOver func(V) bool) {
	if len(m) < maxEntries {
		return
	}
	var gone []K
	var last K
	seen := 0
	for k, v := range m {
		last = k
		if isOver(v) {
			gone = append(gone, k)
		}
		if seen++; seen == 32 {
			break
		}
	}
	if len(gone) == 0 {
		gone = append(gone, last)
	}
	for _, k := range gone {
		delete(m, k)
	}
}

// isScope reports whether s is one scope by its characters (RFC 6749, 3.3).
func isScope(s string) bool {
	return s != "" && !slices.ContainsFunc([]byte(s), func(c byte) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' })
}
