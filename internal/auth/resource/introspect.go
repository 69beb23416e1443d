package resource

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// How long answers count, and how many questions there may be at a time.
const (
	activeCacheTime   = time.Minute      // how long the answer of introspection counts that a token is valid
	inactiveCacheTime = 5 * time.Second  // how long the answer of introspection counts that a token is not valid
	maxIntrospections = 32               // how many introspection requests there may be at a time
	introspectTimeout = 10 * time.Second // how long one introspection request may take, unless Options.Caller has a Timeout
)

// An introspector asks an introspection endpoint about tokens (RFC 7662).
type introspector struct {
	Introspection
	caller      *auth.EndpointCaller // sends the introspection requests
	slots       chan struct{}        // has one element for each question in progress, and room for maxIntrospections
	maxInactive int                  // how many tokens inactiveUntil has at most

	mu            sync.Mutex                  // guards the fields below
	inactiveUntil map[tokenHash]time.Time     // by token: until when the answer of introspection counts that it is not valid
	inProgress    map[tokenHash]chan struct{} // for each token that is being asked about: closed when the answer has come
}

// newIntrospector returns the introspector of the endpoint in; caller makes its requests. most is how many invalid tokens it remembers.
func newIntrospector(in *Introspection, caller *auth.EndpointCaller, most int) *introspector {
	c := *caller
	if c.Timeout <= 0 {
		c.Timeout = introspectTimeout
	}
	return &introspector{
		Introspection: *in, caller: &c, slots: make(chan struct{}, maxIntrospections), maxInactive: most,
		inactiveUntil: map[tokenHash]time.Time{}, inProgress: map[tokenHash]chan struct{}{},
	}
}

// introspect returns what the introspection endpoint says of a token, and remembers it. For several requests with one
// token at the same time, it asks once. InvalidToken: the token is not valid. Other errors say nothing of the token.
func (p *Protector) introspect(ctx context.Context, sum tokenHash, token string) (*verifiedToken, error) {
	in := p.introspector
	for {
		in.mu.Lock()
		now := p.options.Now()
		if until, ok := in.inactiveUntil[sum]; ok && now.Before(until) && until.Sub(now) <= inactiveCacheTime {
			in.mu.Unlock()
			return nil, newInactiveError()
		}
		running := in.inProgress[sum]
		if running == nil {
			break
		}
		in.mu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
			return nil, &auth.Error{Kind: auth.Unavailable, Operation: "introspection", Problem: "the answer did not come in time", Err: ctx.Err()}
		}
		if v := p.verifiedTokens.get(sum); v != nil && p.options.Now().Before(v.cachedUntil) {
			return v, nil
		}
	}
	done := make(chan struct{})
	in.inProgress[sum] = done
	in.mu.Unlock()
	v, err := p.askIntrospection(ctx, token)
	if v != nil {
		p.verifiedTokens.put(sum, v, p.options.Now())
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.inProgress, sum)
	close(done)
	if auth.Is(err, auth.InvalidToken) {
		now := p.options.Now()
		evictIfFull(in.inactiveUntil, in.maxInactive, func(until time.Time) bool { return !now.Before(until) })
		in.inactiveUntil[sum] = now.Add(inactiveCacheTime)
	}
	return v, err
}

// newInactiveError returns the error for a token that introspection calls not active.
func newInactiveError() error {
	return &auth.Error{Kind: auth.InvalidToken, Cause: auth.CauseInactive, Operation: "introspection", Problem: "the token is not active"}
}

// askIntrospection asks the introspection endpoint about a token, when one of maxIntrospections slots is free.
// InvalidToken: the token is not valid here. Other errors say nothing of the token.
func (p *Protector) askIntrospection(ctx context.Context, token string) (*verifiedToken, error) {
	in := p.introspector
	select {
	case in.slots <- struct{}{}:
		defer func() { <-in.slots }()
	case <-ctx.Done():
		return nil, &auth.Error{Kind: auth.Unavailable, Operation: "introspection", Problem: "there was no time for the question", Err: ctx.Err()}
	}
	secret, err := in.ClientSecret()
	if err != nil {
		return nil, &auth.Error{Kind: auth.Unavailable, Operation: "introspection", Problem: "our secret cannot be read", Err: err}
	}
	server := auth.ServerMetadata{Issuer: in.Issuer, IntrospectionEndpoint: in.Endpoint}
	c, active, err := in.caller.Introspect(ctx, server, auth.Client{ID: in.ClientID, Secret: secret}, token)
	if errors.Is(err, auth.ErrUnsupportedBinding) {
		return nil, &auth.Error{Kind: auth.InvalidToken, Cause: auth.CauseBinding, Operation: "introspection", Problem: "the token cannot be used here", Err: auth.ErrUnsupportedBinding}
	}
	if auth.Is(err, auth.InvalidToken) { // it is our request that was refused
		err = &auth.Error{Kind: auth.Unavailable, Operation: "introspection", Problem: "the endpoint refuses our request", Err: err}
	}
	if err != nil {
		return nil, err
	}
	if !active {
		return nil, newInactiveError()
	}
	return p.checkIntrospected(c)
}

// checkIntrospected checks issuer, audience and times of a token that introspection calls active, and returns what is
// remembered of it.
func (p *Protector) checkIntrospected(c auth.Claims) (*verifiedToken, error) {
	in, now := p.introspector, p.options.Now()
	wanted := in.Audiences
	if len(wanted) == 0 {
		wanted = p.routes.Load().audiences
	}
	cause, what := "", ""
	switch {
	case in.Issuer != "" && c.Issuer != "" && c.Issuer != in.Issuer:
		cause, what = auth.CauseIssuer, "the token is of another issuer"
	case !c.IsFor(wanted):
		cause, what = auth.CauseAudience, "the token is for "+auth.DescribeWrongAudience(c.Audience, wanted)
	case !c.Expires.IsZero() && !now.Before(c.Expires.Add(maxClockSkew)):
		cause, what = auth.CauseExpired, "the token has expired"
	case now.Add(maxClockSkew).Before(c.NotBefore):
		cause, what = auth.CauseNotYetValid, "the token is not valid yet"
	case c.Subject == "" && c.ClientID == "":
		cause, what = auth.CauseMalformed, "the token names neither a subject nor a client"
	}
	if what != "" {
		return nil, &auth.Error{Kind: auth.InvalidToken, Cause: cause, Operation: "introspection", Problem: what}
	}
	name := c.Issuer
	for _, other := range []string{in.Issuer, in.Endpoint} {
		if name == "" {
			name = other
		}
	}
	v := p.newVerifiedToken(name, c)
	v.acceptedAudiences, v.cachedUntil = in.Audiences, now.Add(activeCacheTime)
	if end := c.Expires.Add(maxClockSkew); !c.Expires.IsZero() && end.Before(v.cachedUntil) {
		v.cachedUntil = end
	}
	return v, nil
}
