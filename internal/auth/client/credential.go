package client

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// A Credential is one stored identity at one server. It is shared by every Transport of this process,
// and through the store by every process. It may be used concurrently. Close ends it.
//
// Its parts hold what they know behind locks of their own, and call each other in the order of the fields only.
type Credential struct {
	*common
	redirect   redirectTarget
	keys       *proofKeys
	record     *serverRecord
	clients    *registrar
	finder     *serverFinder
	tokens     *tokenCache
	renewer    *renewer
	challenges *responder
}

// newCredential puts the parts together.
func newCredential(base *common) *Credential {
	c := &Credential{common: base, redirect: newRedirectTarget(base.o, base.key)}
	c.keys = &proofKeys{common: base}
	c.record = &serverRecord{base}
	c.clients = &registrar{base}
	c.finder = &serverFinder{common: base, record: c.record, clients: c.clients, redirect: c.redirect}
	c.tokens = &tokenCache{common: base, keys: c.keys}
	c.renewer = newRenewer(base, c.tokens, c.keys, c.record, c.clients)
	c.challenges = &responder{
		common: base, redirect: c.redirect, record: c.record, clients: c.clients, finder: c.finder, tokens: c.tokens, renewer: c.renewer,
		turn: make(chan struct{}, 1),
	}
	if base.o.SignIn != nil {
		c.challenges.signIn = func(ctx context.Context, need SignInRequired) error { return base.o.SignIn(ctx, c, need) }
	}
	return c
}

// Key returns the name under which the credential is stored.
func (c *Credential) Key() tokenstore.Key { return c.key }

// Server returns the URL of the MCP server.
func (c *Credential) Server() string { return c.o.Server }

// LoginFlags returns the flags of "mcp-bridge login" that tell this credential from others of its server, as a shell takes
// them: for advice.
func (c *Credential) LoginFlags() []string { return c.o.loginFlags() }

// Close ends the waits for the lock, and waits for a token request that is under way: its answer
// may be a pair of tokens that replaces the stored one. When ctx is done it gives that up.
func (c *Credential) Close(ctx context.Context) { c.renewer.close(ctx) }

// Token returns the token to use now. An empty one: nothing is stored, and the server's challenge
// decides what comes next. A token that is due is renewed once for all who use it; as long as it is
// valid nobody waits for that, and while that fails the old one is returned until the server
// refuses it.
func (c *Credential) Token(ctx context.Context) (auth.Token, error) {
	h, err := c.renewer.usableSnapshot(ctx)
	if h == nil || err != nil {
		return auth.Token{}, err
	}
	return h.token(), nil
}

// Follow reads the store again each time another process changes it, until ctx is done: so a sign-in
// and a sign-out are noticed at once. changed may be nil; signedIn says whether there is a credential.
// It is called by the goroutine that called Follow.
func (c *Credential) Follow(ctx context.Context, changed func(signedIn bool)) error {
	return c.tokens.follow(ctx, changed)
}

// LastFailedSignIn returns how the last sign-in of any process ended, if it brought nothing.
func (c *Credential) LastFailedSignIn(ctx context.Context) FailedSignIn {
	return c.record.lastFailedSignIn(ctx)
}
