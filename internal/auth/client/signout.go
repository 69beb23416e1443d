package client

import (
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// revokeTimeout bounds the revocation of tokens at a sign-out.
const revokeTimeout = 5 * time.Second

// SignOut deletes the credential, and then tells the authorization server, for 5 seconds at most, that its tokens
// are not used any more (RFC 7009). revoked says how the server took that: nil, auth.Unsupported where it has no
// such endpoint, or why it failed. err: the credential could not be deleted, and the server was not told.
func (c *Credential) SignOut(ctx context.Context) (revoked, err error) {
	var last tokenstore.Credential
	err = c.options.Store.WithLock(ctx, c.key, func(l *tokenstore.LockedCredential) error {
		last = l.Entry().Credential
		return l.Delete()
	})
	if err != nil {
		return nil, err
	}
	c.renewer.dropUnsaved()
	c.tokens.current.Store(nil)
	ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
	defer cancel()
	return c.revokeTokens(ctx, last), nil
}

// revokeTokens revokes the refresh token, and then the access token, which may live on without it. Signed ones that no
// server is asked about cannot be revoked (RFC 7009, 2.2.1): without the refresh token they end soon.
func (c *Credential) revokeTokens(ctx context.Context, s tokenstore.Credential) error {
	who, err := c.registrar.clientWithID(ctx, s.Issuer, s.ClientID)
	if err != nil {
		return err
	}
	server := auth.ServerMetadata{Issuer: s.Issuer, TokenEndpoint: s.TokenEndpoint, RevocationEndpoint: s.RevocationEndpoint}
	for _, x := range []struct {
		token tokenstore.Secret
		hint  string
	}{{s.RefreshToken, "refresh_token"}, {s.AccessToken, "access_token"}} {
		if x.token.IsZero() {
			continue
		}
		no := c.caller.Revoke(ctx, server, who, x.token.Reveal(), x.hint)
		if e, ok := errors.AsType[*auth.Error](no); ok && e.Code == "unsupported_token_type" && x.token.Equal(s.AccessToken) && !s.RefreshToken.IsZero() {
			no = nil
		}
		if err = errors.Join(err, no); auth.Is(no, auth.Unavailable) {
			return err // the second request would only say the same
		}
	}
	return err
}
