package main

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/signin"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// Environment variables of authorization.
const (
	authDirVariable      = "MCP_BRIDGE_AUTH_DIR"
	clientSecretVariable = "MCP_BRIDGE_CLIENT_SECRET"
)

// authFlags say whose credential is used at a remote server.
type authFlags struct {
	fromConfigFile          bool // of a server in a configuration file: the client secret in the environment is not for it
	mode, profile           string
	client                  signin.Client
	idp                     signin.IDP
	redirect                signin.Redirect
	scopes, params, aliases []string
	resource, assertionFile string
	dpop, dir, store        string
	prompt                  string
	allowPrivate, noBrowser bool
	signInWait              time.Duration
}

// authFlagNames are the names of authFlags' flags.
var authFlagNames = []string{"auth", "profile", "client-id", "client-issuer", "client-secret-file", "auth-key", "auth-key-id", "auth-key-alg",
	"client-metadata-url", "scope", "resource", "authorize-param", "issuer-alias", "redirect-host", "redirect-port", "dpop",
	"assertion-file", "idp-issuer", "idp-token-url", "idp-client-id", "idp-client-secret-file", "id-token-file",
	"auth-dir", "token-store", "allow-private-auth", "no-browser", "auth-wait", "auth-prompt"}

// register registers all flags, with their defaults.
func (f *authFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.mode, "auth", signin.ModeAuto, "")
	fs.StringVar(&f.profile, "profile", "", "")
	fs.StringVar(&f.client.ID, "client-id", "", "")
	fs.StringVar(&f.client.Issuer, "client-issuer", "", "")
	fs.StringVar(&f.client.SecretFile, "client-secret-file", "", "")
	fs.StringVar(&f.client.KeyFile, "auth-key", "", "")
	fs.StringVar(&f.client.KeyID, "auth-key-id", "", "")
	fs.StringVar(&f.client.KeyAlg, "auth-key-alg", "", "")
	fs.StringVar(&f.client.MetadataURL, "client-metadata-url", "", "")
	fs.StringArrayVar(&f.scopes, "scope", nil, "")
	fs.StringVar(&f.resource, "resource", "", "")
	fs.StringArrayVar(&f.params, "authorize-param", nil, "")
	fs.StringArrayVar(&f.aliases, "issuer-alias", nil, "")
	fs.StringVar(&f.redirect.Host, "redirect-host", "127.0.0.1", "")
	fs.IntVar(&f.redirect.Port, "redirect-port", 0, "")
	fs.StringVar(&f.dpop, "dpop", "auto", "")
	fs.StringVar(&f.assertionFile, "assertion-file", "", "")
	fs.StringVar(&f.idp.Issuer, "idp-issuer", "", "")
	fs.StringVar(&f.idp.TokenURL, "idp-token-url", "", "")
	fs.StringVar(&f.idp.ClientID, "idp-client-id", "", "")
	fs.StringVar(&f.idp.SecretFile, "idp-client-secret-file", "", "")
	fs.StringVar(&f.idp.IDTokenFile, "id-token-file", "", "")
	fs.StringVar(&f.dir, "auth-dir", "", "")
	fs.StringVar(&f.store, "token-store", "file", "")
	fs.BoolVar(&f.allowPrivate, "allow-private-auth", false, "")
	fs.BoolVar(&f.noBrowser, "no-browser", false, "")
	fs.DurationVar(&f.signInWait, "auth-wait", signin.DefaultSignInWait, "")
	fs.StringVar(&f.prompt, "auth-prompt", signin.PromptBrowser, "")
}

// settings returns what the flags and the environment say about the server at url, checked. trust is what
// --ca-file, --client-cert and --client-key say.
func (f *authFlags) settings(url string, trust signin.TLS, lookup func(string) (string, bool)) (signin.Settings, error) {
	url, _, _ = strings.Cut(url, "#") // which is not sent
	s := signin.Settings{
		Server: url, Mode: f.mode, Profile: f.profile, Client: f.client, Redirect: f.redirect, IDP: f.idp, TLS: trust,
		Resource: f.resource, DPoP: f.dpop, AssertionFile: f.assertionFile,
		StoreDir: f.dir, StoreKind: f.store, AllowPrivateAddresses: f.allowPrivate, NoBrowser: f.noBrowser, SignInWait: f.signInWait, Prompt: f.prompt,
	}
	for _, scope := range f.scopes {
		s.Scopes = append(s.Scopes, strings.Fields(scope)...)
	}
	for _, p := range f.params {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return s, usagef("--authorize-param %q: write NAME=VALUE", p)
		}
		s.AuthorizeParams = append(s.AuthorizeParams, signin.Param{Name: name, Value: value})
	}
	for _, a := range f.aliases {
		announced, actual, ok := cutAlias(a)
		if !ok {
			return s, usagef("--issuer-alias %q: write ANNOUNCED=ACTUAL, two issuers that begin with https://", a)
		}
		if s.IssuerAliases == nil {
			s.IssuerAliases = map[string]string{}
		}
		s.IssuerAliases[announced] = actual
	}
	if s.StoreDir == "" {
		s.StoreDir, _ = lookup(authDirVariable)
	}
	if secret, _ := lookup(clientSecretVariable); !f.fromConfigFile && secret != "" && s.Client.ID != "" && s.Client.SecretFile == "" && s.Client.KeyFile == "" {
		s.Client.Secret = tokenstore.NewSecret(secret)
	}
	if f.signInWait == 0 {
		s.SignInWait = time.Nanosecond // the zero of Settings is the default
	}
	if err := s.Check(); err != nil {
		return s, usagef("%v", err)
	}
	return s, nil
}

// cutAlias cuts two issuers apart at the "=" before the second one: the first may have some in its query.
func cutAlias(text string) (announced, actual string, ok bool) {
	for _, scheme := range []string{"=https://", "=http://"} {
		if i := strings.LastIndex(text, scheme); i > 0 {
			return text[:i], text[i+1:], true
		}
	}
	return "", "", false
}
