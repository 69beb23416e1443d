package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// ClientCredentials is a MachineTokenSource that is itself the client, with the secret or the key of Options.ClientAuth (RFC 6749, 4.4).
type ClientCredentials struct{}

// identity implements MachineTokenSource. It is the same for all ClientCredentials.
func (ClientCredentials) identity() string { return "client-credentials" }

// requestToken implements MachineTokenSource, with the client_credentials grant.
func (ClientCredentials) requestToken(ctx context.Context, m machineTokenRequest) (auth.Token, error) {
	return m.caller.RequestToken(ctx, m.server, m.client, auth.ClientCredentialsGrant(m.resource, m.scopes), m.prover)
}

// JWTBearer is a MachineTokenSource that has an assertion of somebody else, such as the identity of a workload (RFC 7523, 2.1). If the assertion is refused, no
// other grant is tried.
type JWTBearer struct {
	AssertionName string                            // what tells the assertion from others, such as its file; part of the credential's key
	Assertion     func() (tokenstore.Secret, error) // returns the assertion; called for each token request, with the credential locked: it must not wait
}

// identity implements MachineTokenSource: sources with different AssertionNames are told apart.
func (j JWTBearer) identity() string { return "jwt-bearer " + j.AssertionName }

// requestToken implements MachineTokenSource: it exchanges Assertion for a token.
func (j JWTBearer) requestToken(ctx context.Context, m machineTokenRequest) (auth.Token, error) {
	assertion, err := j.Assertion()
	if err != nil {
		return auth.Token{}, err
	}
	return m.caller.RequestToken(ctx, m.server, m.client, auth.JWTBearerGrant(assertion.Reveal(), m.resource, m.scopes), m.prover)
}

// EnterpriseManaged is a MachineTokenSource for a server whose company decides who may use it: an id token of the company's identity provider is exchanged
// there for an assertion, and that for a token (identity assertion authorization grant, ID-JAG). No browser goes to the server; IDToken has the id token.
type EnterpriseManaged struct {
	IDP             auth.ServerMetadata               // the identity provider: Issuer is required; without TokenEndpoint its metadata is fetched for each token
	IDPClient       auth.Client                       // who we are to the identity provider
	IDPHTTPClient   *http.Client                      // makes the requests to IDP, which may be at an address to which the MCP server may not lead; nil: Options.HTTPClient
	IDToken         func() (tokenstore.Secret, error) // returns the id token of the person; called for each token request, with the credential locked: it must not wait
	IDPClientSecret func() (tokenstore.Secret, error) // returns the secret of IDPClient as it is now, or with an error as it was before; called like IDToken; nil: IDPClient has it, or needs none
}

// identity implements MachineTokenSource: it has the issuer of IDP and the id of IDPClient.
func (e EnterpriseManaged) identity() string {
	return "enterprise " + e.IDP.Issuer + " " + e.IDPClient.ID
}

// requestToken implements MachineTokenSource: it exchanges IDToken at IDP for an assertion, and that at m.server for a token.
func (e EnterpriseManaged) requestToken(ctx context.Context, m machineTokenRequest) (auth.Token, error) {
	id, err := e.IDToken()
	if err != nil {
		return auth.Token{}, err
	}
	who := e.IDPClient
	if e.IDPClientSecret != nil {
		secret, _ := e.IDPClientSecret() // if it is out of date, the provider says so
		who.Secret = secret.Reveal()
	}
	caller := *m.caller
	if e.IDPHTTPClient != nil {
		caller.HTTP = e.IDPHTTPClient
	}
	idp := e.IDP
	if idp.TokenEndpoint == "" {
		if idp, err = caller.FetchServerMetadata(ctx, "", e.IDP.Issuer); err != nil {
			return auth.Token{}, err
		}
	}
	t, err := caller.RequestToken(ctx, idp, who, auth.TokenExchangeGrant(auth.TokenExchangeRequest{
		SubjectToken: id.Reveal(), SubjectTokenType: auth.TypeIDToken, RequestedTokenType: auth.TypeIDJAG,
		Audience: m.server.Issuer, Resource: m.resource, Scopes: m.scopes,
	}), nil)
	if err != nil {
		return auth.Token{}, err
	}
	if t.IssuedType != auth.TypeIDJAG {
		return auth.Token{}, &PermanentError{Problem: "the identity provider gave no identity assertion", Err: fmt.Errorf("it issued a token of the type %.100q", t.IssuedType)}
	}
	return m.caller.RequestToken(ctx, m.server, m.client, auth.JWTBearerGrant(t.AccessToken, m.resource, m.scopes), m.prover)
}

// signInWithoutPerson gets a token from Options.Machine and stores it: the first one, or one in the place of old, which the server refused. If another process
// has stored one meanwhile, it returns that.
func (r *renewer) signInWithoutPerson(ctx context.Context, s *discovery, old *credentialSnapshot) (got *credentialSnapshot, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	of := tokenstore.Generation(0)
	if old != nil {
		of = old.generation
	}
	if err, paused := r.isPaused(of, r.now()); paused {
		return nil, err
	}
	if _, err := r.registrar.chooseIDSource(s, ""); err != nil {
		return nil, err
	}
	done, err := r.beginWork()
	if err != nil {
		return nil, err
	}
	defer done()
	lockCtx, cancel := context.WithTimeout(r.lockWaitCtx, lockTimeout)
	defer cancel()
	w, err := r.record.storedDemands(ctx)
	if err != nil {
		return nil, err
	}
	err = r.options.Store.WithLock(lockCtx, r.key, func(l *tokenstore.LockedCredential) error {
		e := l.Entry()
		if now, err := r.tokens.makeCurrent(e); err != nil {
			return err
		} else if r.tokens.mayReplace(now, old) {
			got = now
			return nil
		}
		next, err := r.newStoredCredential(s, w, e.Credential, r.scopesToRequest(s, w, false))
		if err != nil {
			return err
		}
		next.ClientID = cmp.Or(r.options.ClientID, r.options.ClientMetadataURL) // somebody has registered it
		e.Credential = next
		token, err := r.requestToken(l, e)
		if err != nil {
			_, err = r.handleRenewalError(l, e, err)
			return err
		}
		got, err = r.saveToken(l, e, token)
		return err
	})
	r.noteRenewalResult(of, err)
	if err == nil {
		err = r.record.noteSignIn(ctx)
	}
	return got, err
}
