package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// TestProtectFlags: flags that cannot work together are refused before anything is opened, with what to
// write instead.
func TestProtectFlags(t *testing.T) {
	t.Parallel()
	const issuer = "--oidc-issuer=https://id.example"
	for _, c := range []struct{ args, want string }{
		{issuer + " --public-url=https://mcp.example", ""},
		{issuer + " --public-url=https://mcp.example/", ""},
		{issuer + " --public-url=https://mcp.example/tools --path-prefix=/tools", ""},
		{issuer + " --audience=mcp", ""},
		{issuer, "--audience"},
		{"--public-url=https://mcp.example", "needs --oidc-issuer"},
		{"--scope-map=x", "needs --oidc-issuer"},
		{issuer + " --public-url=https://mcp.example/tools --path-prefix=/other", "ends with the prefix"},
		{issuer + " --public-url=https://mcp.example --path-prefix=/tools", "ends with the prefix"},
		{issuer + " --public-url=https://mcp.example/mcp", "leave /mcp out"},
		{"--oidc-issuer=http://id.example --audience=mcp", "not https"},
		{"--oidc-issuer=file:///etc/passwd --audience=mcp", "not https"},
		{"--oidc-issuer=id.example --audience=mcp", "with https:// in front"},
		{"--oidc-issuer=127.0.0.1:9000 --audience=mcp", "with https:// in front"},
		{issuer + "?tenant=a --audience=mcp", "neither a query"},
		{issuer + "/realms/a/.well-known/openid-configuration --audience=mcp", "perhaps --oidc-issuer https://id.example/realms/a"},
		{issuer + " --oidc-issuer=https://other.example --jwks-url=https://id.example/keys --audience=mcp", "there are 2"},
		{"--introspect=https://id.example/introspect --audience=mcp", "--introspect-client-id"},
		{issuer + " --introspect-client-id=x --audience=mcp", "need --introspect"},
		{issuer + " --audience=mcp --client-dpop=maybe", "auto, require or off"},
	} {
		var f serveFlags
		_, _, err := f.parse(append(strings.Fields(c.args), "--demo"))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

// TestProtectionChanges: while a reload removes a server, its resource stays, so that nothing else is good for its
// path; and one that is the last of a configuration file is never that of the root.
func TestProtectionChanges(t *testing.T) {
	t.Parallel()
	var f serveFlags
	_, _, err := f.parse([]string{"--oidc-issuer=https://id.example", "--public-url=https://mcp.example", "--demo"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.protect.newProtection(nil, "", nil, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	protects := func(when string, want ...string) {
		t.Helper()
		for _, place := range []string{"", "/servers", "/servers/a/mcp", "/servers/b/mcp", "/mcp"} {
			w := httptest.NewRecorder()
			p.MetadataHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/.well-known/oauth-protected-resource"+place, nil))
			if got := w.Code == http.StatusOK; got != slices.Contains(want, place) {
				t.Errorf("%s: metadata at %q: %d", when, place, w.Code)
			}
		}
	}
	begin := func(alone bool, names ...string) func(bool) {
		t.Helper()
		var all []hub.Spec
		for _, name := range names {
			all = append(all, hub.Spec{Name: name})
		}
		finish, err := p.beginChange(all, alone, nil)
		if err != nil {
			t.Fatal(err)
		}
		return finish
	}
	begin(false, "a", "b")(true)
	protects("both", "/servers/a/mcp", "/servers/b/mcp")
	finish := begin(false, "a")
	protects("while b is removed", "/servers/a/mcp", "/servers/b/mcp")
	finish(true)
	protects("without b", "/servers/a/mcp")
	begin(false)(false)
	protects("after a failure", "/servers/a/mcp")
	begin(false)(true)
	protects("without servers", "/servers")
	begin(true, "demo")(true)
	protects("alone", "/mcp", "")
}

// TestReloadAwaitsScopeMap: a reload that comes while the scope map is being written waits for it, whether it is gone or
// empty at that moment, and not for ever.
func TestReloadAwaitsScopeMap(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "scopes")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	write("tools/call -> old\n")
	var f serveFlags
	_, _, err := f.parse([]string{"--oidc-issuer=https://id.example", "--public-url=https://mcp.example.com", "--scope-map", file, "--demo"})
	if err != nil {
		t.Fatal(err)
	}
	for name, unsettle := range map[string]func(){
		"gone": func() { _ = os.Remove(file) }, "empty": func() { write("") }, "blank": func() { write("\n \n") },
	} {
		synctest.Test(t, func(t *testing.T) {
			p, err := f.protect.newProtection(nil, "", nil, hclog.NewNullLogger())
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			d := &daemon{flags: &f, log: hclog.NewNullLogger(), protection: p, isServing: true}
			reloaded := func(after time.Duration, want string) {
				t.Helper()
				begin := time.Now()
				d.reload(context.Background())
				if took := time.Since(begin); took != after {
					t.Errorf("%s: a reload takes %v, want %v", name, took, after)
				}
				if got := strings.Join(p.policy.ScopesForMessages(jsonrpc.NewRequest(jsonrpc.IntID(1), "tools/call", nil)), " "); got != want {
					t.Errorf("%s: a call needs %q, want %q", name, got, want)
				}
			}
			write("tools/call -> old\n")
			reloaded(0, "old")
			unsettle()
			reloaded(accessFileSettleTime, "old") // what was there goes on
			written := time.AfterFunc(accessFileSettleTime/2, func() { write("tools/call -> new\n") })
			defer written.Stop()
			reloaded(accessFileSettleTime, "new")
		})
	}
}

// TestProtectionPublicURL: tokens for an address that is reached unencrypted are worth a warning, but not on this machine.
func TestProtectionPublicURL(t *testing.T) {
	t.Parallel()
	for address, warns := range map[string]bool{
		"http://mcp.example": true, "http://mcp.example:8080/tools": true, "http://127.0.0.1:8080": false, "http://localhost:8080": false, "https://mcp.example": false,
	} {
		var f serveFlags
		_, _, err := f.parse([]string{"--oidc-issuer=https://idp.example", "--public-url=" + address, "--demo"})
		bridgetest.Must(t, err)
		var text bytes.Buffer
		p, err := f.protect.newProtection(nil, "", nil, hclog.New(&hclog.LoggerOptions{Output: &text}))
		bridgetest.Must(t, err)
		p.Close()
		if strings.Contains(text.String(), "unencrypted") != warns {
			t.Errorf("%s: %q", address, text.String())
		}
	}
}

// TestServeAsksIssuer: an issuer that calls itself by another name ends serve at its start; one that cannot be reached, and may
// just be starting, is a warning.
func TestServeAsksIssuer(t *testing.T) {
	t.Parallel()
	as := authtest.NewIssuer(t)
	away := "http://" + bridgetest.FreeAddr(t)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for _, x := range []struct{ issuer, fails, warns string }{
		{as.URL, "", ""},
		{as.URL + "/", "the slash at the end counts; write --oidc-issuer " + as.URL, ""},
		{away, "", "the identity provider cannot be asked now"},
		{other.URL, "", "/openid-configuration; is the issuer that is configured here a provider's?"},
	} {
		var f serveFlags
		_, _, err := f.parse([]string{"--oidc-issuer=" + x.issuer, "--public-url=https://mcp.example", "--demo"})
		bridgetest.Must(t, err)
		var text bytes.Buffer
		log := hclog.New(&hclog.LoggerOptions{Output: &text})
		p, err := f.protect.newProtection(nil, "", nil, log)
		bridgetest.Must(t, err)
		err = p.checkIssuers(t.Context(), log)
		p.Close()
		if (err == nil) != (x.fails == "") || err != nil && (!strings.HasSuffix(err.Error(), x.fails) || strings.Contains(err.Error(), "issuer-alias")) || (text.Len() == 0) != (x.warns == "") || !strings.Contains(text.String(), x.warns) {
			t.Errorf("%s: %v, %s", x.issuer, err, text.String())
		}
	}
	status := run(t.Context(), []string{"serve", "--listen", "127.0.0.1:0", "--oidc-issuer", as.URL + "/", "--public-url", "https://mcp.example", "--demo"},
		environment{stdin: os.Stdin, stdout: os.Stdout, stderr: io.Discard, lookup: func(string) (string, bool) { return "", false }})
	if status != exitUsage {
		t.Errorf("serve: exit status %d", status)
	}
}
