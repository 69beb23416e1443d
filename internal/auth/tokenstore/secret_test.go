package tokenstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// TestNoSecretIsShown: whatever of this package is printed, logged or encoded.
func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	secret := NewSecret(canary)
	c := Credential{AccessToken: secret, RefreshToken: secret, IDToken: secret, DPoPKey: secret}
	registration := Registration{ClientSecret: secret, ManagementToken: secret}
	g := save(t, s, c)
	seal, err := newSealer([]byte(strings.Repeat(canary, 3)[:sealKeySize]))
	bridgetest.Must(t, err)
	e, err := s.Load(within(t), testKey)
	bridgetest.Must(t, err)
	all, err := s.List()
	bridgetest.Must(t, err)
	b, err := pack(c, c.secretsByName())
	bridgetest.Must(t, err)
	bridgetest.Must(t, s.UpdateRegistrations(within(t), "i", func([]Registration) ([]Registration, error) { return []Registration{registration}, nil }))
	login, err := s.TryLockLogin(testKey)
	bridgetest.Must(t, err)
	defer func() { bridgetest.Must(t, login.Release()) }()
	sealed := *s
	sealed.sealer = seal
	values := []any{
		secret, &secret, []Secret{secret}, map[string]Secret{"a": secret}, struct{ inner Secret }{secret},
		struct{ inner *Secret }{&secret}, any(secret), c, &c, registration, &registration, e, &e, all, s, &sealed, sealed, seal, *seal,
		storedCredential{Credential: &b}, &b, b, struct{ inner Credential }{c}, login, *login, g, Options{Dir: s.Dir()},
		newKeyringError("x", errors.New(canary), canary),
	}
	locked(t, s, func(l *LockedCredential) error {
		if !l.Entry().Credential.AccessToken.Equal(secret) {
			t.Error("the test has no secret to show")
		}
		values = append(values, l, *l, l.content)
		check(t, values)
		return nil
	})
	_, err = s.Save(within(t), testKey, c, 0)
	wantKind(t, err, ErrStale)
	// Of each value in a file the JSON decoder could tell in its error.
	good := contents(t, credPath(s))
	for _, bad := range []string{
		strings.Replace(good, `"`+canary+`"`, `7`+canary, 1), strings.ReplaceAll(good, `"`+canary+`"`, `["`+canary+`"]`),
		strings.Replace(good, `"version"`, `"`+canary+`"`, 1), canary, good + canary,
	} {
		bridgetest.Must(t, os.WriteFile(credPath(s), []byte(bad), 0o600))
		_, err := s.Load(within(t), testKey)
		wantKind(t, err, ErrBroken)
		check(t, []any{err})
	}
}

func check(t *testing.T, values []any) {
	t.Helper()
	for _, v := range values {
		var text bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t"} {
			fmt.Fprintf(&text, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&text, nil)).Info("text", "value", v)
		switch v.(type) {
		case packedStruct, *packedStruct, storedCredential: // JSON encodes them for the file
		default:
			slog.New(slog.NewJSONHandler(&text, nil)).Info("json", "value", v)
			encoded, _ := json.Marshal(v)
			text.Write(encoded)
		}
		if strings.Contains(text.String(), canary) || strings.Contains(text.String(), fmt.Sprintf("%x", canary)) {
			t.Errorf("%T shows a secret:\n%s", v, text.String())
		}
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	var zero Secret
	if !zero.IsZero() || zero.Reveal() != "" || zero.String() != "" || !zero.Equal(NewSecret("")) {
		t.Errorf("the zero Secret is %q", zero.Reveal())
	}
	s := NewSecret("x")
	if s.IsZero() || s.Reveal() != "x" || !s.Equal(NewSecret("x")) || s.Equal(NewSecret("y")) || s.Equal(zero) {
		t.Errorf("the Secret is %q", s.Reveal())
	}
	if !strings.Contains(fmt.Sprintf("%+v", Credential{AccessToken: s, ExpiresAt: time.Unix(0, 0)}), "AccessToken:(secret)") {
		t.Errorf("%+v", Credential{AccessToken: s})
	}
}
