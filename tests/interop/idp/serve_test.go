package idp

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// serve starts `mcp-bridge serve` with the demo server behind the provider's tokens, and returns its endpoint.
// What it writes is searched for secrets. Without tokens, the provider's signed ones are taken.
func (p *Provider) serve(t *testing.T, tokens ...string) string {
	t.Helper()
	h := newHome(t, p, nil, nil)
	addr := peers.FreeAddr(t)
	log := h.record("stderr of serve")
	if tokens == nil {
		tokens = []string{"--oidc-issuer", p.URL}
	}
	argv := append([]string{peers.Bridge(t), "serve", "--log-level", "trace", "--trace", filepath.Join(h.traces, "serve.jsonl"),
		"--listen", addr, "--public-url", "http://" + addr, "--require-scope", "mcp:read", "--demo"}, tokens...)
	peers.Start(t, func(line string) { _, _ = log.Write([]byte(line + "\n")) }, h.env, argv...)
	log.waitFor(t, func(text string) string {
		if strings.Contains(text, "listening") {
			return text
		}
		return ""
	})
	return "http://" + addr + "/mcp"
}

// answered checks the provider's counts after one client has signed in.
func (p *Provider) answered(text string) {
	p.t.Helper()
	if !strings.Contains(text, "hello") {
		p.t.Errorf("the tool answered %s", text)
	}
	p.Want(map[string]int{"authorized": 1, "grant authorization_code": 1, "registration 201": 1, "error invalid_grant": 0})
}

// TestServeGo: the Go SDK's client signs in at the provider for what serve protects, with a signed token, and with
// one that serve asks the provider about.
func TestServeGo(t *testing.T) {
	t.Parallel()
	t.Run("signed", func(t *testing.T) {
		t.Parallel()
		p := Start(t, Options{Listed: true})
		p.usedByGo(t, p.serve(t))
	})
	t.Run("introspected", func(t *testing.T) {
		t.Parallel()
		const id, secret = "serve", "the secret of serve"
		p := Start(t, Options{Listed: true, Opaque: true, Clients: []Client{MachineClient(id, secret)}})
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p.usedByGo(t, p.serve(t, "--oidc-issuer", p.URL, "--introspect", p.URL+"/token/introspection", "--introspect-client-id", id, "--introspect-secret-file", file))
	})
}

// goHandler returns the Go SDK's authorization, whose person is elsewhere.
func goHandler(t *testing.T) auth.OAuthHandler {
	t.Helper()
	const redirect = "http://127.0.0.1:9/callback"
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: "Go", RedirectURIs: []string{redirect}, ApplicationType: "native", TokenEndpointAuthMethod: "none",
			GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"}}},
		RedirectURL: redirect,
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			away := NewBrowser("alice")
			away.Stays = true
			end, err := away.Visit(ctx, args.URL, "")
			if err != nil {
				return nil, err
			}
			u, err := url.Parse(end)
			if err != nil {
				return nil, err
			}
			q := u.Query()
			return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// usedByGo lets the Go SDK's client use a server.
func (p *Provider) usedByGo(t *testing.T, addr string) {
	t.Helper()
	if resp, err := http.Get(addr); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: addr, OAuthHandler: goHandler(t)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "hello"}})
	if err != nil {
		t.Fatal(err)
	}
	p.answered(result.Content[0].(*mcp.TextContent).Text)
}

// TestServeTypeScript: the same with the client of the TypeScript SDK 2.x.
func TestServeTypeScript(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{Listed: true})
	addr := p.serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, peers.Node(t), "oauthclient.mjs", addr, "echo", `{"message":"hello"}`)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	last := ""
	for lines.Scan() {
		if last = lines.Text(); !strings.HasPrefix(last, p.URL) {
			continue
		}
		away := NewBrowser("alice")
		away.Stays = true
		end, err := away.Visit(ctx, last, "")
		if err != nil {
			t.Error(err)
		}
		if _, err := stdin.Write([]byte(end + "\n")); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(lines.Err(), cmd.Wait()); err != nil {
		t.Error(err)
	}
	p.answered(last)
}

// TestServeMCPRemote: the same with mcp-remote, which is between a stdio client and serve. It takes the opener of
// addresses that it brings along, so the person reads where to go.
func TestServeMCPRemote(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{Listed: true})
	addr := p.serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	log := &record{what: "stderr of mcp-remote", more: make(chan struct{}, 1)}
	cmd := exec.Command(peers.Node(t), filepath.Join(peers.Modules(), "mcp-remote", "dist", "proxy.js"), addr, "--transport", "http-only")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "MCP_REMOTE_CONFIG_DIR="+t.TempDir(), "BROWSER=true", "DISPLAY=", "WAYLAND_DISPLAY=")
	cmd.Stderr = log
	var person sync.WaitGroup
	defer person.Wait()
	person.Go(func() {
		if _, err := NewBrowser("alice").Visit(ctx, log.waitFor(t, func(text string) string { return shownURL(p, text, "/auth?") }), ""); err != nil {
			t.Error(err)
		}
	})
	session, err := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	defer session.Close()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "hello"}})
	if err != nil {
		t.Fatal(err)
	}
	p.answered(result.Content[0].(*mcp.TextContent).Text)
}
