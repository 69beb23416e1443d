package client

import (
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// revokeTimeout is how long SignOut may take for the revocation of tokens.
const revokeTimeout = 5 * time.Second

// SignOut deletes the credential, and then asks the authorization server, for 5 seconds at most, to revoke its tokens (RFC 7009). revoked: why it did not; nil:
// it did; auth.Unsupported: it has no such endpoint. err: the credential could not be deleted, and the server was not asked.
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

// revokeTokens asks the authorization server to revoke the refresh token of s, and then the access token. That it cannot revoke an access token beside a
// refresh token (unsupported_token_type) is no error: without the latter it ends soon.
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
