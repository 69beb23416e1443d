package client

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// A Credential is one stored identity at one server. It is shared by every Transport of this process,
// and through the store by every process. It may be used concurrently. Close ends it.
//
// Its parts hold what they know behind locks of their own. Each calls only those whose fields stand above its own.
type Credential struct {
	*credentialBase
	redirect       redirectTarget      // where browsers come back to
	provers        *proverCache        // has the Prover for tokens that are bound to a key (DPoP)
	record         *serverRecord       // has what is stored of the server beside its credential
	registrar      *registrar          // gets client ids
	metadataFinder *metadataFinder     // finds the authorization server
	tokens         *tokenCache         // has the current credential
	renewer        *renewer            // renews tokens
	responder      *challengeResponder // answers 401 and 403
}

// newCredential returns a Credential with all its parts.
func newCredential(base *credentialBase) *Credential {
	c := &Credential{credentialBase: base, redirect: newRedirectTarget(base.options, base.key)}
	c.provers = &proverCache{credentialBase: base}
	c.record = &serverRecord{base}
	c.registrar = &registrar{base}
	c.metadataFinder = &metadataFinder{credentialBase: base, record: c.record, registrar: c.registrar, redirect: c.redirect}
	c.tokens = &tokenCache{credentialBase: base, provers: c.provers}
	c.renewer = newRenewer(base, c.tokens, c.provers, c.record, c.registrar)
	c.responder = &challengeResponder{
		credentialBase: base, redirect: c.redirect, record: c.record, registrar: c.registrar, metadataFinder: c.metadataFinder, tokens: c.tokens, renewer: c.renewer,
		turn: make(chan struct{}, 1),
	}
	if base.options.SignIn != nil {
		c.responder.signIn = func(ctx context.Context, need SignInRequired) error { return base.options.SignIn(ctx, c, need) }
	}
	return c
}

// Key returns the name under which the credential is stored.
func (c *Credential) Key() tokenstore.Key { return c.key }

// Server returns the URL of the MCP server.
func (c *Credential) Server() string { return c.options.Server }

// RedirectURIs returns the redirect URIs that sign-ins of this credential may have, one for each port. Few others have the same, unless the user chose the port.
func (c *Credential) RedirectURIs() (all []string) {
	for _, port := range c.redirect.ports() {
		all = append(all, c.redirect.uriWithPort(port))
	}
	return all
}

// LoginFlags returns the flags of "mcp-bridge login" that tell this credential from others of its server, quoted for a shell: for advice.
func (c *Credential) LoginFlags() []string { return c.options.loginFlags() }

// Close ends waits for the lock of the credential, and waits for token requests that are under way: an answer may be a pair of tokens that replaces the stored
// one. When ctx is done it cancels these requests.
func (c *Credential) Close(ctx context.Context) { c.renewer.close(ctx) }

// Token returns the access token to use now; the zero Token: none is stored that can be used, and the server's challenge decides what comes next. A token that
// is due is renewed once for all who use it. As long as the old one is valid, nobody waits for the renewal. While renewals fail, the old one is returned until
// the server refuses it.
func (c *Credential) Token(ctx context.Context) (auth.Token, error) {
	h, err := c.renewer.usableSnapshot(ctx)
	if h == nil || err != nil {
		return auth.Token{}, err
	}
	return h.token(), nil
}

// FollowStore reads the store again each time another process changes it, until ctx is done: so a sign-in and a sign-out are noticed at once. onChange may be
// nil; signedIn says whether there is a credential. The goroutine that called FollowStore calls onChange. The error: the store cannot be watched.
func (c *Credential) FollowStore(ctx context.Context, onChange func(signedIn bool)) error {
	return c.tokens.followStore(ctx, onChange)
}

// LastFailedSignIn returns how the last sign-in of any process failed; zero: it did not, or nobody has signed in, or the store cannot be read.
func (c *Credential) LastFailedSignIn(ctx context.Context) FailedSignIn {
	return c.record.lastFailedSignIn(ctx)
}
