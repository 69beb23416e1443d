package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// ClientCredentials is a Machine that is itself the client, with the secret or the key of Options.ClientAuth (RFC 6749, 4.4).
type ClientCredentials struct{}

func (ClientCredentials) identity() string { return "client-credentials" }

func (ClientCredentials) token(ctx context.Context, m machineRequest) (auth.Token, error) {
	return m.caller.RequestToken(ctx, m.server, m.client, auth.ClientCredentialsGrant(m.resource, m.scopes), m.prover)
}

// JWTBearer is a Machine that has an assertion of somebody else, such as the identity of a workload (RFC 7523, 2.1). An
// assertion that is refused is not tried again, nor is another grant.
type JWTBearer struct {
	Name string // what the assertion is known by, such as its file
	// Assertion returns it. It is called at each use, with the credential locked: it must not wait.
	Assertion func() (tokenstore.Secret, error)
}

func (j JWTBearer) identity() string { return "jwt-bearer " + j.Name }

func (j JWTBearer) token(ctx context.Context, m machineRequest) (auth.Token, error) {
	assertion, err := j.Assertion()
	if err != nil {
		return auth.Token{}, err
	}
	return m.caller.RequestToken(ctx, m.server, m.client, auth.JWTBearerGrant(assertion.Reveal(), m.resource, m.scopes), m.prover)
}

// Enterprise is a Machine for a server whose company decides who may use it: an id token of the company's identity
// provider is exchanged there for an assertion, and that for a token (identity assertion
// authorization grant, ID-JAG). No browser goes to the server.
type Enterprise struct {
	IDP    auth.ServerMetadata // of the identity provider: Issuer is required; without Token its metadata is asked each time
	Client auth.Client         // there
	// HTTP makes the requests to it: the user has named it, so it may be where the MCP server may not lead to.
	// nil: as for that.
	HTTP *http.Client
	// IDToken returns the id token of the person. It is called at each use, with the credential locked: it must not wait.
	IDToken func() (tokenstore.Secret, error)
	// Secret returns that of Client, as it is now, and beside an error what it was before. It is called at each use.
	// nil: Client has it.
	Secret func() (tokenstore.Secret, error)
}

func (e Enterprise) identity() string { return "enterprise " + e.IDP.Issuer + " " + e.Client.ID }

func (e Enterprise) token(ctx context.Context, m machineRequest) (auth.Token, error) {
	id, err := e.IDToken()
	if err != nil {
		return auth.Token{}, err
	}
	who := e.Client
	if e.Secret != nil {
		secret, _ := e.Secret() // if it is out of date, the provider says so
		who.Secret = secret.Reveal()
	}
	caller := *m.caller
	if e.HTTP != nil {
		caller.HTTP = e.HTTP
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

// signInMachine gets the first token, or one with more scopes, without a person.
func (r *renewer) signInMachine(ctx context.Context, s *discovery, old *snapshot) (got *snapshot, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	of := tokenstore.Generation(0)
	if old != nil {
		of = old.generation
	}
	if err, paused := r.pausedFor(of, r.now()); paused {
		return nil, err
	}
	if _, err := r.clients.chooseIDSource(s, ""); err != nil {
		return nil, err
	}
	done, err := r.begin()
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
	err = r.o.Store.WithLock(lockCtx, r.key, func(l *tokenstore.Locked) error {
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
		next.ClientID = cmp.Or(r.o.ClientID, r.o.ClientMetadataURL) // somebody has registered it
		e.Credential = next
		token, err := r.requestToken(l, e)
		if err != nil {
			_, err = r.renewalFailed(l, e, err)
			return err
		}
		got, err = r.saveToken(l, e, token)
		return err
	})
	r.noteResult(of, err)
	if err == nil {
		err = r.record.noteSignIn(ctx)
	}
	return got, err
}
