package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// authorized is what the client does in each scenario about authorization, whose names begin with "auth/": it calls
// every tool. The bridge behind it signs in. That the suite's server refuses somebody is for the suite to judge.
func authorized(ctx context.Context, s *mcp.ClientSession) error {
	return callAll(map[string]any{})(ctx, s)
}

// isAuth reports whether a scenario is about authorization.
func isAuth(scenario string) bool { return strings.HasPrefix(scenario, "auth/") }

// authContext is what the suite tells the client in MCP_CONFORMANCE_CONTEXT.
type authContext struct {
	ClientID         string `json:"client_id"`          // the id of a client that is registered already
	ClientSecret     string `json:"client_secret"`      // the secret of that client
	PrivateKey       string `json:"private_key_pem"`    // the private key of that client, in PEM
	Algorithm        string `json:"signing_algorithm"`  // the algorithm to sign with PrivateKey
	Assertion        string `json:"valid_jwt"`          // an assertion for the grant jwt-bearer
	IDPClientID      string `json:"idp_client_id"`      // the id of the client at the identity provider
	IDPIDToken       string `json:"idp_id_token"`       // an id token of the identity provider
	IDPIssuer        string `json:"idp_issuer"`         // the issuer of the identity provider
	IDPTokenEndpoint string `json:"idp_token_endpoint"` // the token endpoint of the identity provider
}

// clientDocument is the address that the suite's authorization server takes for a client's metadata document.
const clientDocument = "https://conformance-test.local/client-metadata.json"

// authFlags returns the flags with which the bridge signs in in a scenario. It writes secrets into files in dir.
func authFlags(scenario, dir string) ([]string, error) {
	var c authContext
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return nil, fmt.Errorf("the suite's context: %w", err)
		}
	}
	var failed error
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		failed = errors.Join(failed, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	flags := []string{"--auth-dir", filepath.Join(dir, "credentials")}
	if c.ClientID != "" {
		flags = append(flags, "--client-id", c.ClientID)
	}
	if c.ClientSecret != "" {
		flags = append(flags, "--client-secret-file", file("secret", c.ClientSecret))
	}
	switch strings.TrimPrefix(scenario, "auth/") {
	case "basic-cimd":
		flags = append(flags, "--client-metadata-url", clientDocument)
	case "client-credentials-basic":
		flags = append(flags, "--auth", "client-credentials")
	case "client-credentials-jwt":
		flags = append(flags, "--auth", "client-credentials", "--auth-key", file("key.pem", c.PrivateKey), "--auth-key-alg", c.Algorithm)
	case "wif-jwt-bearer":
		flags = append(flags, "--auth", "jwt-bearer", "--assertion-file", file("assertion", c.Assertion))
	case "enterprise-managed-authorization":
		flags = append(flags, "--auth", "enterprise", "--idp-issuer", c.IDPIssuer, "--idp-token-url", c.IDPTokenEndpoint,
			"--idp-client-id", c.IDPClientID, "--id-token-file", file("id-token", c.IDPIDToken))
	}
	return flags, failed
}

// withAuth returns the command line args of a bridge with the flags with which it signs in in a scenario, behind its command. The
// function, which is not nil without an error, removes their files. args stay as they are if the scenario has nothing to do with
// authorization, or they name a URL only.
func withAuth(scenario string, args []string) ([]string, func(), error) {
	if !isAuth(scenario) || len(args) < 3 {
		return args, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "stdioclient")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	flags, err := authFlags(scenario, dir)
	if err != nil {
		remove()
		return nil, nil, err
	}
	return append(append(append([]string{}, args[:2]...), flags...), args[2:]...), remove, nil
}

// browse opens addr, where one signs in, and follows redirects. It is a person who says yes at once: the suite's authorization server
// asks nothing.
func browse(ctx context.Context, addr string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, addr, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
