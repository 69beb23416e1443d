package main

import (
	"strings"
	"testing"
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
