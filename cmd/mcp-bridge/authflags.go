package main

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/signin"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

const (
	authDirVariable      = "MCP_BRIDGE_AUTH_DIR"      // the environment variable that names the folder of credentials, where --auth-dir does not
	clientSecretVariable = "MCP_BRIDGE_CLIENT_SECRET" // the environment variable with the secret of --client-id, where neither --client-secret-file nor --auth-key is given; not for servers of a configuration file
)

// authFlags say whose credential is used at a remote server.
type authFlags struct {
	fromConfigFile bool            // the values are for a server of a configuration file: the client secret in the environment is not for it
	mode           string          // --auth: how to get a credential (one of signin's modes)
	profile        string          // --profile: which of several accounts at the server
	client         signin.Client   // --client-id, --client-secret-file, --auth-key and others: the OAuth client that the user has registered
	idp            signin.IDP      // --idp-issuer, --id-token-file and others: the company's identity provider, for --auth enterprise
	redirect       signin.Redirect // --redirect-host, --redirect-port: where the browser comes back to
	scopes         []string        // --scope: scopes to ask for, each value one or several
	params         []string        // --authorize-param: what is added to the authorization request, as NAME=VALUE
	aliases        []string        // --issuer-alias: ANNOUNCED=ACTUAL, for an authorization server that the server announces as ANNOUNCED and that calls itself ACTUAL in its metadata
	resource       string          // --resource: the parameter "resource" to send; "off": none; "": what the server publishes
	assertionFile  string          // --assertion-file: the file of the assertion for --auth jwt-bearer
	dpop           string          // --dpop: whether tokens are bound to a key: auto, require or off
	dir            string          // --auth-dir: the folder of credentials; "": that of the environment, or the default
	store          string          // --token-store: file, or keyring for files that are encrypted with a key in the system's keyring
	prompt         string          // --auth-prompt: browser, or error to let a request fail that needs a sign-in
	allowPrivate   bool            // --allow-private-auth: authorization servers may have private addresses
	noBrowser      bool            // --no-browser: show the address of a sign-in and open no browser
	signInWait     time.Duration   // --auth-wait: how long a request waits until the person has signed in; 0: not at all
}

// authFlagNames are the names of all flags of authFlags, which are about signing in to remote servers.
var authFlagNames = []string{"auth", "profile", "client-id", "client-issuer", "client-secret-file", "auth-key", "auth-key-id", "auth-key-alg",
	"client-metadata-url", "scope", "resource", "authorize-param", "issuer-alias", "redirect-host", "redirect-port", "dpop",
	"assertion-file", "idp-issuer", "idp-token-url", "idp-client-id", "idp-client-secret-file", "id-token-file",
	"auth-dir", "token-store", "allow-private-auth", "no-browser", "auth-wait", "auth-prompt"}

// register adds all flags of authFlags to fs, with their defaults.
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

// cutAlias cuts the value of --issuer-alias, ANNOUNCED=ACTUAL, into its two issuers: at the last "=" that https:// follows, or
// if there is none, http://, as the first issuer may have others. ok is false if there is neither.
func cutAlias(text string) (announced, actual string, ok bool) {
	for _, scheme := range []string{"=https://", "=http://"} {
		if i := strings.LastIndex(text, scheme); i > 0 {
			return text[:i], text[i+1:], true
		}
	}
	return "", "", false
}
