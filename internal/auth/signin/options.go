package signin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
)

// Options returns the settings as package client takes them. It opens the Store, and makes an HTTP client, whose
// CloseIdleConnections the caller calls in the end. SignIn and OnError are left to the caller. ctx bounds a question to the
// system's keyring. It makes no request.
//
// Files with a client secret, or with the key that signs client assertions, are read here and again at each use. Files
// with an assertion or an id token are read at each use only. A file that can be read only once, such as a pipe, is read
// here only, and so are the certificates and keys of TLS.
func (s Settings) Options(ctx context.Context) (client.Options, error) {
	if err := s.Check(); err != nil {
		return client.Options{}, err
	}
	o := client.Options{
		Server: s.Server, Profile: s.Profile, Revision: auth.Revision(s.Revision),
		Resource: s.Resource, Scopes: s.Scopes, ExtraParams: s.extraParams(), IssuerAliases: s.IssuerAliases,
		ClientID: s.Client.ID, ClientIssuer: s.Client.Issuer, ClientMetadataURL: s.Client.MetadataURL,
		RedirectHost: s.Redirect.Host, RedirectPort: s.Redirect.Port,
	}
	if s.Resource == Off {
		o.Resource, o.NoResource = "", true
	}
	switch s.DPoP {
	case "require":
		o.DPoP = client.DPoPRequire
	case Off:
		o.DPoP = client.DPoPOff
	}
	if s.IsPersonal() {
		o.SignInWait = cmp.Or(s.SignInWait, DefaultSignInWait)
	}
	var err error
	if o.ClientAuth, err = s.clientAuth(); err != nil {
		return client.Options{}, err
	}
	if o.Machine, err = s.machineTokenSource(); err != nil {
		return client.Options{}, err
	}
	if o.HTTPClient, err = s.httpClient(s.Server); err != nil {
		return client.Options{}, err
	}
	o.Store, err = s.OpenStore(ctx)
	return o, err
}

// OpenStore opens the store of the settings. ctx bounds a question to the system's keyring.
func (s Settings) OpenStore(ctx context.Context) (*tokenstore.Store, error) {
	o := tokenstore.Options{Dir: s.StoreDir}
	if s.StoreKind == "keyring" {
		o.Keyring = tokenstore.SystemKeyring()
	}
	return tokenstore.Open(ctx, o)
}

// httpClient returns the HTTP client for requests to the authorization servers to which the server at named, an address
// that the user has given, leads. It reaches no private network to which that server may not lead, unless
// AllowPrivateAddresses.
func (s Settings) httpClient(named string) (*http.Client, error) {
	trust, err := httpdial.LoadTLSConfig(s.TLS.CAFile, s.TLS.CertFile, s.TLS.KeyFile)
	if err != nil {
		return nil, err
	}
	return httpdial.NewGuardedClient(httpdial.GuardedClientOptions{ConfiguredURL: named, AllowPrivate: s.AllowPrivateAddresses, TLS: trust})
}

// clientAuth returns the function that returns the client's secret and key, and reads their files for the first time.
func (s Settings) clientAuth() (client.ClientAuthFunc, error) {
	var secrets *secretFile[tokenstore.Secret]
	var keys *secretFile[*auth.AssertionSigner]
	var err error
	if s.Client.SecretFile != "" {
		if secrets, err = openSecretLine("client-secret-file", s.Client.SecretFile); err != nil {
			return nil, err
		}
	}
	if s.Client.KeyFile != "" {
		if keys, err = openSecretFile("auth-key", s.Client.KeyFile, s.parseSigner); err != nil {
			return nil, err
		}
	}
	return func() (secret tokenstore.Secret, key *auth.AssertionSigner, err error) {
		var late error
		if secret = s.Client.Secret; secrets != nil {
			secret, err = secrets.current()
		}
		if keys != nil {
			key, late = keys.current()
		}
		return secret, key, errors.Join(err, late)
	}, nil
}

// parseSigner returns the signer of client assertions with the private key in text, which is PEM.
func (s Settings) parseSigner(text []byte) (*auth.AssertionSigner, error) {
	key, err := auth.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("--auth-key %s: %w", s.Client.KeyFile, err)
	}
	signer, err := auth.NewAssertionSigner(key, s.Client.KeyAlg, s.Client.KeyID)
	if err != nil {
		return nil, fmt.Errorf("--auth-key %s: %w", s.Client.KeyFile, err)
	}
	return signer, nil
}

// machineTokenSource returns what gets tokens without a person, by Mode; nil: a person signs in, or nobody does.
func (s Settings) machineTokenSource() (client.MachineTokenSource, error) {
	switch s.Mode {
	case ModeClientCredentials:
		return client.ClientCredentials{}, nil
	case ModeJWTBearer:
		assertion, err := assertionReader("assertion-file", s.AssertionFile)
		return client.JWTBearer{AssertionName: s.AssertionFile, Assertion: assertion}, err
	case ModeEnterprise:
		secret := func() (tokenstore.Secret, error) { return s.IDP.ClientSecret, nil }
		if s.IDP.SecretFile != "" {
			file, err := openSecretLine("idp-client-secret-file", s.IDP.SecretFile)
			if err != nil {
				return nil, err
			}
			secret = file.current
		}
		id, err := assertionReader("id-token-file", s.IDP.IDTokenFile)
		if err != nil {
			return nil, err
		}
		own, err := s.httpClient(cmp.Or(s.IDP.TokenURL, s.IDP.Issuer))
		if err != nil {
			return nil, err
		}
		return client.EnterpriseManaged{
			IDPHTTPClient:   own,
			IDP:             auth.ServerMetadata{Issuer: s.IDP.Issuer, TokenEndpoint: s.IDP.TokenURL},
			IDPClient:       auth.Client{ID: s.IDP.ClientID},
			IDPClientSecret: secret,
			IDToken:         id,
		}, nil
	}
	return nil, nil
}

// maxSecretFileBytes is how long a file with a secret or a key may be.
const maxSecretFileBytes = 64 << 10

// readFlagFile reads the file at path, which is the value of a flag. flag is its name, for the error.
func readFlagFile(flag, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFileBytes+1))
	if err == nil && len(text) > maxSecretFileBytes {
		err = errors.New("it is larger than 64 KiB")
	}
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", flag, path, err)
	}
	return text, nil
}

// openSecretLine returns a secretFile of the file at path, which has one line, a secret. It reads the file for the first time. flag is the
// flag that names the file, without dashes, for errors.
func openSecretLine(flag, path string) (*secretFile[tokenstore.Secret], error) {
	return openSecretFile(flag, path, secretLineParser(flag, path))
}

// assertionReader returns a function that reads a file with one line that is valid for a short time, at each call. If
// the file cannot be read then, that is an error, whatever it had before. A file that can be read only once, such as a
// pipe, is read now.
func assertionReader(flag, path string) (func() (tokenstore.Secret, error), error) {
	f := &secretFile[tokenstore.Secret]{flag: flag, path: path, parse: secretLineParser(flag, path)}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		if f, err = openSecretLine(flag, path); err != nil {
			return nil, err
		}
	}
	return func() (tokenstore.Secret, error) {
		line, err := f.current()
		if err != nil {
			return tokenstore.Secret{}, err
		}
		return line, nil
	}, nil
}

// secretLineParser returns a function that returns the one line in the text of a file. It is an error if there is none,
// or more.
func secretLineParser(flag, path string) func([]byte) (tokenstore.Secret, error) {
	return func(text []byte) (tokenstore.Secret, error) {
		line := strings.TrimSpace(string(text))
		if line == "" || strings.ContainsAny(line, "\r\n\x00") {
			return tokenstore.Secret{}, fmt.Errorf("--%s %s: it should have one line, the secret", flag, path)
		}
		return tokenstore.NewSecret(line), nil
	}
}
