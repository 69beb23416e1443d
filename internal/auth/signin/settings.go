package signin

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// The values of Settings.Mode.
const (
	ModeAuto              = "auto"               // a person signs in if the server asks for that
	ModeNone              = "none"               // no credential is used
	ModeClientCredentials = "client-credentials" // the client gets tokens for itself, with its secret or key (RFC 6749, 4.4)
	ModeJWTBearer         = "jwt-bearer"         // the client exchanges an assertion, which somebody else puts into a file, for tokens (RFC 7523, 2.1)
	ModeEnterprise        = "enterprise"         // the company's identity provider gives assertions for the person's id token (ID-JAG)
)

// The values of Settings.Prompt.
const (
	PromptBrowser = "browser" // a browser is opened, or the address is logged if there is none
	PromptError   = "error"   // nothing is opened: the request fails, and says where to sign in
)

// Off is the value of Settings.Resource with which no "resource" parameter is sent, and of Settings.DPoP with which tokens are
// bound to no key.
const Off = "off"

// DefaultSignInWait is how long a request waits for a person to sign in: less than the 60 seconds after which most
// MCP clients give up.
const DefaultSignInWait = 45 * time.Second

// Settings say whose credential is used at one remote server, and how it is got. The zero value with a Server works: a
// person signs in if the server asks for it. Their JSON has no secret. They are a value.
type Settings struct {
	Server   string `json:"server"`             // URL of the MCP server, http, https, ws or wss; required
	Mode     string `json:"mode,omitempty"`     // how tokens are got (ModeNone ...); "": ModeAuto
	Profile  string `json:"profile,omitempty"`  // tells several accounts at one server apart; "": the usual one
	Revision string `json:"revision,omitempty"` // the revision of the protocol, as far as discovery differs; "": the newest

	Client   Client   `json:"client,omitzero"`   // who we are to the authorization server; zero: the client registers itself
	Redirect Redirect `json:"redirect,omitzero"` // where the browser comes back to
	IDP      IDP      `json:"idp,omitzero"`      // the identity provider, for ModeEnterprise
	TLS      TLS      `json:"tls,omitzero"`      // how to connect for metadata, registration and tokens

	Scopes          []string          `json:"scopes,omitempty"`          // the scopes to ask for, with those that the server's challenges name; nil: only the latter, or else those that its metadata lists
	Resource        string            `json:"resource,omitempty"`        // the "resource" parameter; "": what the server publishes; Off: none is sent
	AuthorizeParams []Param           `json:"authorizeParams,omitempty"` // parameters added to the authorization request, in order
	IssuerAliases   map[string]string `json:"issuerAliases,omitempty"`   // by an issuer as it is announced: the issuer that its metadata may name instead
	DPoP            string            `json:"dpop,omitempty"`            // whether tokens are bound to a key: "" or "auto", where the server asks for it; "require"; Off
	AssertionFile   string            `json:"assertionFile,omitempty"`   // for ModeJWTBearer: has the assertion; read for each token request

	StoreDir              string `json:"dir,omitempty"`          // the folder of the credentials; "": tokenstore.DefaultDir
	StoreKind             string `json:"store,omitempty"`        // "" or "file": credentials are not encrypted; "keyring": they are, with a key in the system's keyring
	AllowPrivateAddresses bool   `json:"allowPrivate,omitempty"` // the authorization servers to which Server leads may be in a private network or on this machine, also if Server is not, and may have http:// addresses there

	NoBrowser  bool          `json:"noBrowser,omitempty"` // no browser is opened
	SignInWait time.Duration `json:"wait,omitempty"`      // how long a request waits for a person to sign in, in nanoseconds as JSON; 0: DefaultSignInWait
	Prompt     string        `json:"prompt,omitempty"`    // how a person is asked to sign in: PromptError, or PromptBrowser (also "")
}

// A Client is who we are to the authorization server, if somebody has registered us there.
type Client struct {
	ID          string            `json:"id,omitempty"`          // the client id; "": the client registers itself, or has a MetadataURL
	Issuer      string            `json:"issuer,omitempty"`      // the issuer at which ID was registered; "": nobody said
	Secret      tokenstore.Secret `json:"-"`                     // the client's secret; zero: none, or in SecretFile
	SecretFile  string            `json:"secretFile,omitempty"`  // a file with the client's secret, instead of Secret; "": none
	KeyFile     string            `json:"keyFile,omitempty"`     // a file with the client's private key in PEM, for private_key_jwt; "": none
	KeyID       string            `json:"keyID,omitempty"`       // the name of the key in the client's key set; "": it has none
	KeyAlg      string            `json:"keyAlg,omitempty"`      // the algorithm to sign with; "": one that fits the key
	MetadataURL string            `json:"metadataURL,omitempty"` // address of the client's metadata document, which is its id; "": none
}

// A Redirect is where the browser comes back to.
type Redirect struct {
	Host string `json:"host,omitempty"` // the host that browsers come back to: "127.0.0.1" (also ""), or "localhost"
	Port int    `json:"port,omitempty"` // the port that browsers come back to; 0: made of the key of the credential, or one of the next if that is taken
}

// An IDP is the company's identity provider, for ModeEnterprise.
type IDP struct {
	Issuer       string            `json:"issuer,omitempty"`      // the identity provider's issuer identifier
	TokenURL     string            `json:"tokenURL,omitempty"`    // its token endpoint; "": its metadata says that
	ClientID     string            `json:"clientID,omitempty"`    // our client id at the identity provider
	ClientSecret tokenstore.Secret `json:"-"`                     // the secret of ClientID; zero: none, or in SecretFile
	SecretFile   string            `json:"secretFile,omitempty"`  // a file with the secret of ClientID, instead of ClientSecret; "": none
	IDTokenFile  string            `json:"idTokenFile,omitempty"` // a file with the person's id token; read for each token request
}

// TLS says which servers are trusted, and who we are to them. All are PEM files.
type TLS struct {
	CAFile   string `json:"caFile,omitempty"` // certificates of authorities that are trusted besides the system's; "": none
	CertFile string `json:"cert,omitempty"`   // our client certificate; "": none
	KeyFile  string `json:"key,omitempty"`    // the private key of CertFile
}

// A Param is an additional parameter of the authorization request.
type Param struct {
	Name  string `json:"name"`  // the parameter's name
	Value string `json:"value"` // the parameter's value as it is, not escaped for a URL
}

// IsUsed reports whether a credential is used at all: Mode is not ModeNone.
func (s Settings) IsUsed() bool { return s.Mode != ModeNone }

// IsPersonal reports whether a person signs in: Mode is ModeAuto, or "", which means the same.
func (s Settings) IsPersonal() bool { return cmp.Or(s.Mode, ModeAuto) == ModeAuto }

// Check returns what is wrong with the settings, in the words of the flags; nil: nothing. It reads no file.
func (s Settings) Check() error {
	for _, check := range []func() error{s.checkValues, s.checkClient, s.checkMode, s.checkAddresses} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkOneOf returns an error, about this flag, if value is not one of words. "" never is an error.
func checkOneOf(flag, value string, words ...string) error {
	if value == "" || slices.Contains(words, value) {
		return nil
	}
	return fmt.Errorf("--%s %q: use %s or %s", flag, value, strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
}

// checkValues returns an error if a setting has a value that it cannot have, whatever the others are.
func (s Settings) checkValues() error {
	for _, err := range []error{
		checkOneOf("auth", s.Mode, ModeAuto, ModeNone, ModeClientCredentials, ModeJWTBearer, ModeEnterprise),
		checkOneOf("auth-prompt", s.Prompt, PromptBrowser, PromptError),
		checkOneOf("dpop", s.DPoP, "auto", "require", Off),
		checkOneOf("token-store", s.StoreKind, "file", "keyring"),
		checkOneOf("redirect-host", s.Redirect.Host, "127.0.0.1", "localhost"),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case s.SignInWait < 0:
		return fmt.Errorf("--auth-wait must not be negative")
	case s.Redirect.Port < 0 || s.Redirect.Port > 65535:
		return fmt.Errorf("--redirect-port %d: ports are numbers up to 65535", s.Redirect.Port)
	}
	for _, p := range s.AuthorizeParams {
		if p.Name == "" {
			return fmt.Errorf("--authorize-param: write NAME=VALUE")
		}
	}
	return nil
}

// checkClient returns an error if the settings of the client, or of TLS, do not go together.
func (s Settings) checkClient() error {
	c := s.Client
	switch {
	case !c.Secret.IsZero() && c.SecretFile != "":
		return fmt.Errorf("there are two client secrets: in --client-secret-file and in the environment or the configuration")
	case (!c.Secret.IsZero() || c.SecretFile != "") && c.ID == "":
		return fmt.Errorf("a client secret belongs to --client-id, which is missing")
	case c.KeyFile != "" && c.ID == "" && c.MetadataURL == "":
		return fmt.Errorf("--auth-key belongs to --client-id or --client-metadata-url, which is missing")
	case c.KeyFile != "" && (!c.Secret.IsZero() || c.SecretFile != ""):
		return fmt.Errorf("a client has a secret or a key, not both: leave --client-secret-file or --auth-key out")
	case c.KeyFile == "" && (c.KeyID != "" || c.KeyAlg != ""):
		return fmt.Errorf("--auth-key-id and --auth-key-alg belong to --auth-key, which is missing")
	case c.Issuer != "" && c.ID == "":
		return fmt.Errorf("--client-issuer says where --client-id was registered, which is missing")
	case (s.TLS.CertFile == "") != (s.TLS.KeyFile == ""):
		return fmt.Errorf("--client-cert and --client-key belong together; the key of an OAuth client is --auth-key")
	}
	return nil
}

// checkMode returns an error if the settings lack what Mode needs, or have what is for another Mode.
func (s Settings) checkMode() error {
	c := s.Client
	proof := !c.Secret.IsZero() || c.SecretFile != "" || c.KeyFile != ""
	idp := s.IDP
	switch {
	case s.Mode == ModeClientCredentials && (c.ID == "" && c.MetadataURL == "" || !proof):
		return fmt.Errorf("--auth client-credentials needs --client-id, and --client-secret-file or --auth-key")
	case s.Mode == ModeJWTBearer && s.AssertionFile == "":
		return fmt.Errorf("--auth jwt-bearer needs --assertion-file")
	case s.Mode == ModeJWTBearer && c.ID == "" && c.MetadataURL == "":
		return fmt.Errorf("--auth jwt-bearer needs --client-id")
	case s.Mode != ModeJWTBearer && s.AssertionFile != "":
		return fmt.Errorf("--assertion-file is for --auth jwt-bearer")
	case s.Mode == ModeEnterprise && (idp.Issuer == "" || idp.ClientID == "" || c.ID == "" && c.MetadataURL == ""):
		return fmt.Errorf("--auth enterprise needs --idp-issuer, --idp-client-id and --client-id")
	case s.Mode == ModeEnterprise && idp.IDTokenFile == "":
		return fmt.Errorf("--auth enterprise needs --id-token-file, the id token that the identity provider has issued for the person")
	case s.Mode != ModeEnterprise && (idp.Issuer != "" || idp.ClientID != "" || idp.SecretFile != "" || !idp.ClientSecret.IsZero() || idp.TokenURL != "" || idp.IDTokenFile != ""):
		return fmt.Errorf("--idp-issuer, --idp-client-id, --idp-client-secret-file, --idp-token-url and --id-token-file are for --auth enterprise")
	case !idp.ClientSecret.IsZero() && idp.SecretFile != "":
		return fmt.Errorf("there are two secrets for the identity provider: leave --idp-client-secret-file out")
	}
	return nil
}

// checkAddresses returns an error if a setting that is an address is none.
func (s Settings) checkAddresses() error {
	if _, err := tokenstore.CanonicalURL(s.Server); err != nil {
		return fmt.Errorf("the server's URL cannot have a credential: %w", err)
	}
	for _, a := range []struct{ flag, addr string }{
		{"client-issuer", s.Client.Issuer}, {"client-metadata-url", s.Client.MetadataURL}, {"idp-issuer", s.IDP.Issuer}, {"idp-token-url", s.IDP.TokenURL},
	} {
		if a.addr == "" {
			continue
		}
		if u, err := url.Parse(a.addr); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			return fmt.Errorf("--%s: write a URL that begins with https://", a.flag)
		}
	}
	if s.Resource != "" && s.Resource != Off {
		if u, err := url.Parse(s.Resource); err != nil || u.Scheme == "" {
			return fmt.Errorf("--resource: write the URI that the authorization server knows the server by, or off")
		}
	}
	for announced, actual := range s.IssuerAliases {
		if announced == "" || actual == "" {
			return fmt.Errorf("--issuer-alias: write ANNOUNCED=ACTUAL, two issuers")
		}
	}
	return nil
}

// extraParams returns AuthorizeParams as package client takes them.
func (s Settings) extraParams() []auth.Param {
	var all []auth.Param
	for _, p := range s.AuthorizeParams {
		all = append(all, auth.Param{Name: p.Name, Value: p.Value})
	}
	return all
}
