package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// A registrar gets client ids, and keeps them in the store. It may be used concurrently.
type registrar struct{ *credentialBase }

// chooseIDSource returns how the client gets its id at the authorization server of s, or an error that says what to register, and where.
func (g *registrar) chooseIDSource(s *discovery, redirect string) (auth.ClientIDSource, error) {
	return auth.ClientIDOptions{
		ClientID: g.options.ClientID, Issuer: g.options.ClientIssuer, MetadataURL: g.options.ClientMetadataURL,
		NoDynamicRegistration: g.options.NoDynamicRegistration || g.options.Machine != nil, RedirectURI: redirect,
	}.ChooseSource(s.AuthServer)
}

// clientForSignIn returns the client for a sign-in with this redirect URI. It registers one if no usable one is stored (isUsable), or with anew in any case: an
// authorization server that has forgotten a client tells only the person. scopes are those that a client which it registers asks for.
func (g *registrar) clientForSignIn(ctx context.Context, s *discovery, redirect string, scopes []string, anew bool) (auth.Client, error) {
	way, err := g.chooseIDSource(s, redirect)
	switch {
	case err != nil:
		return auth.Client{}, err
	case way == auth.PreRegistered:
		return g.clientWithID(ctx, s.AuthServer.Issuer, g.options.ClientID)
	case way == auth.MetadataDocument:
		return g.clientWithID(ctx, s.AuthServer.Issuer, g.options.ClientMetadataURL)
	}
	var found auth.Client
	err = g.options.Store.UpdateRegistrations(ctx, s.AuthServer.Issuer, func(all []tokenstore.Registration) ([]tokenstore.Registration, error) {
		all = slices.DeleteFunc(slices.Clone(all), func(r tokenstore.Registration) bool {
			return slices.Contains(r.RedirectURIs, redirect) && (anew || !g.isUsable(r))
		})
		for _, r := range all {
			if slices.Contains(r.RedirectURIs, redirect) {
				found = auth.Client{ID: r.ClientID, Secret: r.ClientSecret.Reveal(), AuthMethod: r.AuthMethod}
				return all, nil
			}
		}
		reg, err := g.register(ctx, s, clientMetadataFor(s, redirect, scopes))
		if err != nil {
			return nil, err
		}
		found = reg.Client
		return append(all, tokenstore.Registration{
			ClientID: reg.Client.ID, ClientSecret: tokenstore.NewSecret(reg.Client.Secret), AuthMethod: reg.Client.AuthMethod,
			RedirectURIs: reg.RedirectURIs, RegisteredAt: g.now(), SecretExpiresAt: reg.SecretExpiresAt,
			ManagementURL: reg.ManagementURL, ManagementToken: tokenstore.NewSecret(reg.ManagementToken),
		}), nil
	})
	return found, err
}

// register registers a client as m says; once more without scopes if the authorization server refuses m with scopes, as some take only their own (RFC 7591, 2).
func (g *registrar) register(ctx context.Context, s *discovery, m auth.ClientMetadata) (auth.Registration, error) {
	reg, err := g.caller.Register(ctx, s.AuthServer, m, "")
	if e, ok := errors.AsType[*auth.Error](err); ok && e.Code == "invalid_client_metadata" && m.Scope != "" {
		m.Scope = ""
		return g.caller.Register(ctx, s.AuthServer, m, "")
	}
	return reg, err
}

// newRegistrationGrace is how long a new registration is used though no sign-in with it has succeeded yet.
const newRegistrationGrace = time.Minute

// isUsable reports whether a stored registration may be used: a sign-in with it has succeeded, or it is new, and its secret has not expired.
func (g *registrar) isUsable(r tokenstore.Registration) bool {
	age := g.now().Sub(r.RegisteredAt)
	known := !r.LastUsed.IsZero() || 0 <= age && age < newRegistrationGrace
	return known && (r.SecretExpiresAt.IsZero() || g.now().Before(r.SecretExpiresAt))
}

// clientMetadataFor returns what the client says of itself when it registers itself at the authorization server of s.
func clientMetadataFor(s *discovery, redirect string, scopes []string) auth.ClientMetadata {
	m := auth.ClientMetadata{
		Name: "mcp-bridge", RedirectURIs: []string{redirect}, GrantTypes: []string{"authorization_code", "refresh_token"},
		ResponseTypes: []string{"code"}, ApplicationType: "native", AuthMethod: auth.ClientAuthNone,
		Scope: auth.JoinScope(auth.UnionScope(s.Resource.ScopesSupported, scopes)),
	}
	if s.AuthServer.DeviceAuthorizationEndpoint != "" {
		m.GrantTypes = append(m.GrantTypes, "urn:ietf:params:oauth:grant-type:device_code")
	}
	for _, method := range []string{auth.ClientSecretPost, auth.ClientSecretBasic, auth.ClientAuthNone} { // the last one is preferred
		if slices.Contains(s.AuthServer.AuthMethods, method) {
			m.AuthMethod = method
		}
	}
	return m
}

// noteRegistrationUse stores whether a sign-in with a registration has succeeded. One with which it did not is replaced at the next sign-in.
func (g *registrar) noteRegistrationUse(ctx context.Context, issuer, id string, wasUseful bool) {
	err := g.options.Store.UpdateRegistrations(ctx, issuer, func(all []tokenstore.Registration) ([]tokenstore.Registration, error) {
		for i := range all {
			if all[i].ClientID == id && wasUseful {
				all[i].LastUsed = g.now()
			} else if all[i].ClientID == id {
				all[i].LastUsed, all[i].RegisteredAt = time.Time{}, time.Time{}
			}
		}
		return all, nil
	})
	g.reportError(err)
}

// clientWithID returns the client with this id at an issuer, with its secret or key from the Options or a stored registration. If neither has the id it is a
// public client.
func (g *registrar) clientWithID(ctx context.Context, issuer, id string) (auth.Client, error) {
	switch id {
	case "":
	case g.options.ClientID:
		secret, key := g.clientAuth()
		return auth.Client{ID: id, Secret: secret.Reveal(), Key: key}, nil
	case g.options.ClientMetadataURL:
		_, key := g.clientAuth()
		method := auth.ClientAuthNone
		if key != nil {
			method = auth.PrivateKeyJWT
		}
		return auth.Client{ID: id, Key: key, AuthMethod: method}, nil
	}
	all, err := g.options.Store.Registrations(ctx, issuer)
	if err != nil {
		return auth.Client{}, err
	}
	for _, r := range all {
		if r.ClientID == id {
			return auth.Client{ID: id, Secret: r.ClientSecret.Reveal(), AuthMethod: r.AuthMethod}, nil
		}
	}
	return auth.Client{ID: id, AuthMethod: auth.ClientAuthNone}, nil
}

// clientAuth returns the secret or the key of Options.ClientAuth; both are zero if it is nil. It reports an error, and goes on with what it got.
func (g *registrar) clientAuth() (tokenstore.Secret, *auth.AssertionSigner) {
	if g.options.ClientAuth == nil {
		return tokenstore.Secret{}, nil
	}
	secret, key, err := g.options.ClientAuth()
	g.reportError(err)
	return secret, key
}

// forgetRegistration deletes a stored registration that the issuer does not know any more. false: the Options name the client, and nothing is deleted.
func (g *registrar) forgetRegistration(ctx context.Context, issuer, id string) bool {
	if id == g.options.ClientID || id == g.options.ClientMetadataURL {
		return false
	}
	err := g.options.Store.UpdateRegistrations(ctx, issuer, func(all []tokenstore.Registration) ([]tokenstore.Registration, error) {
		return slices.DeleteFunc(all, func(r tokenstore.Registration) bool { return r.ClientID == id }), nil
	})
	g.reportError(err)
	return true
}
