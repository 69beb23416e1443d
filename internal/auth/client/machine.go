package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// ClientCredentials is a Machine that is itself the client, with the secret or the key of Options.Proof (RFC 6749, 4.4).
type ClientCredentials struct{}

func (ClientCredentials) identity() string { return "client-credentials" }

func (ClientCredentials) token(ctx context.Context, m machineRequest) (auth.Token, error) {
	return m.caller.Token(ctx, m.server, m.client, auth.ClientCredentials(m.resource, m.scopes), m.prover)
}

// JWTBearer is a Machine that has an assertion of somebody else in a file, such as the identity of a
// workload (RFC 7523, 2.1). The file is read at each use. An assertion that is refused is not tried
// again, nor is another grant.
type JWTBearer struct{ File string }

func (j JWTBearer) identity() string { return "jwt-bearer " + j.File }

func (j JWTBearer) token(ctx context.Context, m machineRequest) (auth.Token, error) {
	assertion, err := readSecret(j.File)
	if err != nil {
		return auth.Token{}, err
	}
	return m.caller.Token(ctx, m.server, m.client, auth.JWTBearer(assertion, m.resource, m.scopes), m.prover)
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
	// IDToken returns the id token of the person. It is called at each use.
	IDToken func(ctx context.Context) (string, error)
	// Secret returns that of Client, as it is now, and beside an error what it was before. It is called at each use.
	// nil: Client has it.
	Secret func() (tokenstore.Secret, error)
}

// IDTokenFile returns an Enterprise.IDToken that reads a file.
func IDTokenFile(path string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return readSecret(path) }
}

func (e Enterprise) identity() string { return "enterprise " + e.IDP.Issuer + " " + e.Client.ID }

func (e Enterprise) token(ctx context.Context, m machineRequest) (auth.Token, error) {
	id, err := e.IDToken(ctx)
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
	if idp.Token == "" {
		if idp, err = caller.ServerMetadata(ctx, "", e.IDP.Issuer); err != nil {
			return auth.Token{}, err
		}
	}
	t, err := caller.Token(ctx, idp, who, auth.TokenExchange(auth.Exchange{
		Subject: id, SubjectType: auth.TypeIDToken, Requested: auth.TypeIDJAG,
		Audience: m.server.Issuer, Resource: m.resource, Scopes: m.scopes,
	}), nil)
	if err != nil {
		return auth.Token{}, err
	}
	if t.Issued != auth.TypeIDJAG {
		return auth.Token{}, &Permanent{What: "the identity provider gave no identity assertion", Err: fmt.Errorf("it issued a token of the type %.100q", t.Issued)}
	}
	return m.caller.Token(ctx, m.server, m.client, auth.JWTBearer(t.Access, m.resource, m.scopes), m.prover)
}

// maxSecret bounds a file with a secret.
const maxSecret = 64 << 10

// readSecret reads a file with one secret.
func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	text := strings.TrimSpace(string(data))
	switch {
	case err != nil:
		return "", err
	case text == "" || len(data) > maxSecret:
		return "", errors.New(path + " is empty, or larger than 64 KiB")
	}
	return text, nil
}
