package signin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

const testServer = "https://mcp.test/mcp"

// The zero value with a server is good; what is wrong is told with the flag that mends it.
func TestCheck(t *testing.T) {
	bridgetest.Must(t, Settings{Server: testServer}.Check())
	secret := tokenstore.NewSecret("secret-canary")
	for name, c := range map[string]struct {
		s    Settings
		want string
	}{
		"mode":              {Settings{Mode: "oauth"}, "--auth"},
		"prompt":            {Settings{Prompt: "ask"}, "--auth-prompt"},
		"dpop":              {Settings{DPoP: "on"}, "--dpop"},
		"store":             {Settings{StoreKind: "vault"}, "--token-store"},
		"redirect host":     {Settings{Redirect: Redirect{Host: "example.com"}}, "--redirect-host"},
		"redirect port":     {Settings{Redirect: Redirect{Port: 70000}}, "--redirect-port"},
		"wait":              {Settings{SignInWait: -1}, "--auth-wait"},
		"secret alone":      {Settings{Client: Client{Secret: secret}}, "--client-id"},
		"two secrets":       {Settings{Client: Client{ID: "c", Secret: secret, SecretFile: "f"}}, "--client-secret-file"},
		"secret and key":    {Settings{Client: Client{ID: "c", Secret: secret, KeyFile: "f"}}, "--auth-key"},
		"key alone":         {Settings{Client: Client{KeyFile: "f"}}, "--client-id"},
		"id of no key":      {Settings{Client: Client{ID: "c", KeyID: "k"}}, "--auth-key"},
		"client without":    {Settings{Mode: ModeClientCredentials}, "--client-secret-file"},
		"no assertion":      {Settings{Mode: ModeJWTBearer, Client: Client{ID: "c"}}, "--assertion-file"},
		"assertion alone":   {Settings{AssertionFile: "f"}, "--auth jwt-bearer"},
		"enterprise":        {Settings{Mode: ModeEnterprise}, "--idp-issuer"},
		"no id token":       {Settings{Mode: ModeEnterprise, Client: Client{ID: "c"}, IDP: IDP{Issuer: "https://idp.test", ClientID: "i"}}, "--id-token-file"},
		"idp alone":         {Settings{IDP: IDP{Issuer: "https://idp.test"}}, "--auth enterprise"},
		"document":          {Settings{Client: Client{MetadataURL: "client.json"}}, "--client-metadata-url"},
		"resource":          {Settings{Resource: "mcp"}, "--resource"},
		"half a cert":       {Settings{TLS: TLS{KeyFile: "f"}}, "--client-cert"},
		"not over HTTP":     {Settings{Server: "unix:/run/x"}, "URL"},
		"a fragment":        {Settings{Server: testServer + "#x"}, "URL"},
		"a param's name":    {Settings{AuthorizeParams: []Param{{Value: "x"}}}, "--authorize-param"},
		"half an alias":     {Settings{IssuerAliases: map[string]string{"https://a": ""}}, "--issuer-alias"},
		"an issuer, no id":  {Settings{Client: Client{Issuer: "https://a"}}, "--client-id"},
		"a port beneath it": {Settings{Redirect: Redirect{Port: -1}}, "--redirect-port"},
	} {
		if c.s.Server == "" {
			c.s.Server = testServer
		}
		err := c.s.Check()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want something about %s", name, err, c.want)
		}
	}
}

// Options reads the files, opens the store, and takes over all that is said.
func TestOptions(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		bridgetest.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	bridgetest.Must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	bridgetest.Must(t, err)
	s := Settings{Server: testServer, StoreDir: filepath.Join(dir, "auth"), Resource: Off, DPoP: "require", Scopes: []string{"a"}, AuthorizeParams: []Param{{"x", "y"}}}
	s.Client = Client{ID: "c", SecretFile: write("secret", "secret-canary\n")}
	o, err := s.Options(t.Context())
	bridgetest.Must(t, err)
	defer o.HTTPClient.CloseIdleConnections()
	for _, text := range []string{"secret-canary", "rotated-canary"} {
		write("secret", text+"\n")
		if secret, _, err := o.ClientAuth(); err != nil || secret.Reveal() != text {
			t.Errorf("the secret is not that of the file: %v", err)
		}
	}
	if !o.NoResource || o.Resource != "" || o.DPoP != client.DPoPRequire || o.ExtraParams[0].Value != "y" || o.Store.Dir() != s.StoreDir {
		t.Errorf("options are %+v", o)
	}
	s.Client = Client{ID: "c", KeyFile: write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))), KeyID: "k1"}
	s.Mode = ModeClientCredentials
	o, err = s.Options(t.Context())
	bridgetest.Must(t, err)
	if _, signer, err := o.ClientAuth(); signer == nil || err != nil || o.Machine == nil {
		t.Errorf("options are %+v: %v", o, err)
	}
	bridgetest.Must(t, os.Remove(s.Client.KeyFile))
	if _, _, err := o.ClientAuth(); err == nil || !strings.Contains(err.Error(), "--auth-key") {
		t.Errorf("a key that is gone: %v", err)
	}
	for name, path := range map[string]string{"missing": filepath.Join(dir, "none"), "empty": write("empty", "\n"), "lines": write("lines", "a\nb"), "large": write("large", strings.Repeat("x", maxSecretFileBytes+1))} {
		s.Mode, s.Client = ModeAuto, Client{ID: "c", SecretFile: path}
		if _, err := s.Options(t.Context()); err == nil || !strings.Contains(err.Error(), "--client-secret-file") {
			t.Errorf("a secret file that is %s: %v", name, err)
		}
	}
	s.Client = Client{ID: "c", KeyFile: write("bad.pem", "secret-canary")}
	if _, err := s.Options(t.Context()); err == nil || !strings.Contains(err.Error(), "--auth-key") || strings.Contains(err.Error(), "canary") {
		t.Errorf("a bad key: %v", err)
	}
}

// As JSON, and printed, settings have no secret.
func TestSettingsShowNoSecret(t *testing.T) {
	s := Settings{Server: testServer, Client: Client{ID: "c", Secret: tokenstore.NewSecret("secret-canary")}, IDP: IDP{ClientSecret: tokenstore.NewSecret("idp-canary")}}
	text, err := json.Marshal(s)
	bridgetest.Must(t, err)
	if strings.Contains(string(text), "canary") || strings.Contains(fmt.Sprintf("%v %+v %#v", s, s, s), "canary") {
		t.Errorf("a secret is in %s", text)
	}
}
