package tokenstore

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// TestKeyVector: the name of a credential is the same in every version, or what
// is stored is not found again.
func TestKeyVector(t *testing.T) {
	t.Parallel()
	full := Identity{
		Server: "https://example.com/mcp", Profile: "work", Resource: "https://example.com", ClientID: "given:abc",
		Params: map[string][]string{"prompt": {"consent"}, "access_type": {"offline", "again"}},
	}
	for _, tt := range []struct {
		identity Identity
		want     Key
	}{
		{Identity{Server: "https://example.com/mcp"}, "b9ede67f9638fe1bed558a59f419bbd0"},
		{full, "77ddbd047b9dec64adb2071e72d4c68b"},
	} {
		got, err := tt.identity.Key()
		bridgetest.Must(t, err)
		if got != tt.want {
			t.Errorf("the key of %+v is %s, not %s", tt.identity, got, tt.want)
		}
		if parsed, err := ParseKey(string(got)); err != nil || parsed != got {
			t.Errorf("%s is no key: %v", got, err)
		}
	}
	if got := issuerFileName("https://issuer.example.com"); got != "8f653aa57ba73657724cad5823908a05" {
		t.Errorf("the name of the issuer's file is %s", got)
	}
}

// TestKeysDiffer: what makes another identity makes another key, also where the texts
// of two fields together are the same.
func TestKeysDiffer(t *testing.T) {
	t.Parallel()
	const server = "https://example.com/mcp"
	identities := []Identity{
		{Server: server},
		{Server: server + "/"},
		{Server: "http://example.com/mcp"},
		{Server: server, Profile: "ab"},
		{Server: server, Profile: "a", Resource: "b"},
		{Server: server, Resource: "ab"},
		{Server: server, ClientID: "ab"},
		{Server: server, Params: map[string][]string{"ab": {""}}},
		{Server: server, Params: map[string][]string{"a": {"b"}}},
		{Server: server, Params: map[string][]string{"a": {"b", "c"}}},
		{Server: server, Params: map[string][]string{"a": {"c", "b"}}},
		{Server: server, Params: map[string][]string{"a": {"b"}, "c": {"d"}}},
	}
	seen := map[Key]Identity{}
	for _, i := range identities {
		k, err := i.Key()
		bridgetest.Must(t, err)
		if other, ok := seen[k]; ok {
			t.Errorf("%+v and %+v have the same key", i, other)
		}
		seen[k] = i
	}
}

func TestCanonicalURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://example.com":                     "https://example.com/",
		"HTTPS://Example.COM:443/MCP":             "https://example.com/MCP",
		"http://example.com:80/":                  "http://example.com/",
		"http://example.com:/x":                   "http://example.com/x",
		"https://example.com:8443/mcp/":           "https://example.com:8443/mcp/",
		"https://example.com/a%2Fb?q=A%20b&&c":    "https://example.com/a%2Fb?q=A%20b&&c",
		"wss://example.com:443/mcp":               "wss://example.com/mcp",
		"http://[::1]:80/mcp":                     "http://[::1]/mcp",
		"http://[FE80::1]:8080/mcp":               "http://[fe80::1]:8080/mcp",
		"https://example.com/mcp?":                "https://example.com/mcp",
		"ftp://example.com/" + canary:             "",
		"https:///" + canary:                      "",
		"https://user:" + canary + "@example.com": "",
		"https://example.com/#" + canary:          "",
		"https://exa mple.com/" + canary:          "",
		"https://example.com/%zz" + canary:        "",
		"":                                        "",
	} {
		got, err := CanonicalURL(raw)
		if got != want {
			t.Errorf("%s is %s, not %s", raw, got, want)
		}
		if want == "" {
			wantKind(t, err, ErrInput)
		}
	}
}

// TestNoOtherKeys: what is no key cannot lead out of the folder.
func TestNoOtherKeys(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, bad := range []Key{"", "..", "../../x", Key(strings.ToUpper(string(otherKey))), otherKey + "0", "zz" + otherKey[2:]} {
		_, err := s.Load(within(t), bad)
		wantKind(t, err, ErrInput)
		_, err = s.Save(within(t), bad, named("a"), 0)
		wantKind(t, err, ErrInput)
		wantKind(t, s.Delete(within(t), bad), ErrInput)
		_, err = s.TryLockLogin(bad)
		wantKind(t, err, ErrInput)
		_, _, err = s.PendingLogin(bad)
		wantKind(t, err, ErrInput)
		_, err = s.Metadata(within(t), bad)
		wantKind(t, err, ErrInput)
		wantKind(t, saveMetadata(t, s, bad, Metadata{}), ErrInput)
		wantKind(t, s.WatchGeneration(within(t), bad, 0, nil), ErrInput)
	}
}
