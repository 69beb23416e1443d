package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/signin"
)

// parseAuth returns what the flags say about a server.
func parseAuth(t *testing.T, env map[string]string, args ...string) (signin.Settings, error) {
	t.Helper()
	var f authFlags
	fs := pflag.NewFlagSet("login", pflag.ContinueOnError)
	f.register(fs)
	if names := flagNames(fs); !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(authFlagNames))) {
		t.Errorf("authFlagNames are %q, and the flags %q", authFlagNames, names)
	}
	if _, _, err := parseFlags(fs, args); err != nil {
		t.Fatal(err)
	}
	return f.settings("https://mcp.test/mcp", signin.TLS{}, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
}

func TestAuthFlags(t *testing.T) {
	s, err := parseAuth(t, map[string]string{authDirVariable: "/d", clientSecretVariable: "s"},
		"--client-id", "c", "--scope", "a b", "--scope", "c", "--authorize-param", "access_type=offline=x",
		"--issuer-alias", "https://a.test/?x=1=https://b.test", "--auth-wait", "0s")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(s.Scopes, ",") != "a,b,c" || s.AuthorizeParams[0] != (signin.Param{Name: "access_type", Value: "offline=x"}) ||
		s.IssuerAliases["https://a.test/?x=1"] != "https://b.test" || s.StoreDir != "/d" || s.Client.Secret.Reveal() != "s" || s.SignInWait <= 0 || s.SignInWait > 1000 {
		t.Errorf("settings are %+v", s)
	}
	if s, err := parseAuth(t, map[string]string{clientSecretVariable: "s"}); err != nil || !s.Client.Secret.IsZero() {
		t.Errorf("a secret without a client: %+v, %v", s, err)
	}
	var f authFlags // of the command line, for which the variable is
	one, err := f.forServer(map[string][]string{"client-id": {"c"}})
	if err != nil {
		t.Fatal(err)
	}
	s, err = one.settings("https://mcp.test/mcp#x", signin.TLS{}, func(name string) (string, bool) { return "s", name == clientSecretVariable })
	if err != nil || !s.Client.Secret.IsZero() || s.Server != "https://mcp.test/mcp" {
		t.Errorf("settings of a file's server are %+v, %v", s, err)
	}
	for _, args := range [][]string{{"--authorize-param", "x"}, {"--issuer-alias", "x=y"}, {"--auth", "basic"}} {
		if _, err := parseAuth(t, nil, args...); err == nil || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
