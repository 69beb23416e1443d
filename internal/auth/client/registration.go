package client

import (
	"context"
	"slices"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// clientOf returns the client with this id at an issuer.
func (c *Credential) clientOf(ctx context.Context, issuer, id string) (auth.Client, error) {
	if id == c.o.ClientID && id != "" {
		return auth.Client{ID: id, Secret: c.o.ClientSecret.Reveal(), Key: c.o.ClientKey, Method: c.o.ClientMethod}, nil
	}
	if id == c.o.Document {
		return auth.Client{ID: id, Key: c.o.ClientKey, Method: documentMethod(c.o)}, nil
	}
	all, err := c.o.Store.Registrations(ctx, issuer)
	if err != nil {
		return auth.Client{}, err
	}
	for _, r := range all {
		if r.ClientID == id {
			return auth.Client{ID: id, Secret: r.ClientSecret.Reveal(), Method: r.AuthMethod}, nil
		}
	}
	return auth.Client{ID: id, Method: auth.MethodNone}, nil
}

// documentMethod returns how a client authenticates whose id is the address of its document.
func documentMethod(o Options) string {
	if o.ClientKey != nil {
		return auth.MethodPrivateKey
	}
	return auth.MethodNone
}

// forget deletes a registration that the issuer does not know any more. It reports whether the client
// is one that registers itself.
func (c *Credential) forget(issuer, id string) bool {
	if id == c.o.ClientID || id == c.o.Document {
		return false
	}
	ctx, cancel := context.WithTimeout(c.waiting, lockTime)
	defer cancel()
	err := c.o.Store.UpdateRegistrations(ctx, issuer, func(all []tokenstore.Registration) ([]tokenstore.Registration, error) {
		return slices.DeleteFunc(all, func(r tokenstore.Registration) bool { return r.ClientID == id }), nil
	})
	c.notice(err)
	return true
}
