package signin

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
)

// A file that every user of the machine may read is refused, whatever secret it has, and the error says what to do; its group may.
func TestSecretFileForAll(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes of files say nothing there")
	}
	path := filepath.Join(t.TempDir(), "secret")
	bridgetest.Must(t, os.WriteFile(path, []byte("secret-canary\n"), 0o600))
	for name, s := range map[string]Settings{
		"client-secret-file":     {Mode: ModeClientCredentials, Client: Client{ID: "c", SecretFile: path}},
		"auth-key":               {Mode: ModeClientCredentials, Client: Client{ID: "c", KeyFile: path}},
		"idp-client-secret-file": {Mode: ModeEnterprise, Client: Client{ID: "c"}, IDP: IDP{Issuer: "https://idp.test", SecretFile: path}},
		"assertion-file":         {Mode: ModeJWTBearer, Client: Client{ID: "c"}, AssertionFile: path},
		"id-token-file":          {Mode: ModeEnterprise, Client: Client{ID: "c"}, IDP: IDP{Issuer: "https://idp.test", IDTokenFile: path}},
	} {
		for mode, refused := range map[os.FileMode]bool{0o644: true, 0o604: true, 0o440: false, 0o400: false} {
			bridgetest.Must(t, os.Chmod(path, mode))
			_, err := readFlagFile(name, path)
			if name == "client-secret-file" || name == "auth-key" {
				_, err = s.clientAuth()
			} else if m, bad := s.machineTokenSource(); bad != nil {
				err = bad
			} else if b, ok := m.(client.JWTBearer); ok {
				_, err = b.Assertion()
			} else if e, ok := m.(client.EnterpriseManaged); ok && name == "id-token-file" {
				_, err = e.IDToken()
			}
			said := err != nil && strings.Contains(err.Error(), "--"+name+": every user of this machine may read "+path+": chmod o-r it")
			if said != refused || err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("--%s of mode %o: %v", name, mode, err)
			}
		}
	}
}

// A secret that is rotated counts from then on; while its file is gone or empty, what it had before does, and that is told.
func TestSecretFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	write := func(text string) { bridgetest.Must(t, os.WriteFile(path, []byte(text), 0o600)) }
	var s Settings
	s.Client.SecretFile = path
	if _, err := s.clientAuth(); err == nil {
		t.Error("a file that is not there was read")
	}
	write("one\n")
	proof, err := s.clientAuth()
	bridgetest.Must(t, err)
	for _, step := range []struct {
		change func()
		want   string
		told   bool
	}{
		{func() {}, "one", false},
		{func() { write("two\n") }, "two", false},
		{func() { write("") }, "two", true},
		{func() { bridgetest.Must(t, os.Remove(path)) }, "two", true},
		{func() { write("three") }, "three", false},
	} {
		step.change()
		if secret, _, err := proof(); secret.Reveal() != step.want || err != nil != step.told {
			t.Errorf("the secret is %q, error %v; want %q, and an error: %t", secret.Reveal(), err, step.want, step.told)
		}
	}
}

// A secret that can be read once, as that of a shell's <(command), is read once.
func TestSecretPipe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no /dev/fd")
	}
	r, w, err := os.Pipe()
	bridgetest.Must(t, err)
	defer r.Close()
	_, err = w.WriteString("hush\n")
	bridgetest.Must(t, err)
	bridgetest.Must(t, w.Close())
	var s Settings
	s.Client.SecretFile = fmt.Sprintf("/dev/fd/%d", r.Fd())
	proof, err := s.clientAuth()
	bridgetest.Must(t, err)
	for range 2 {
		if secret, _, err := proof(); secret.Reveal() != "hush" || err != nil {
			t.Errorf("the secret is %q, error %v", secret.Reveal(), err)
		}
	}
}

// An assertion is read at each use, and what it was before does not count; a pipe is read at the beginning, not when the
// assertion is used, as somebody may wait for that.
func TestAssertion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "assertion")
	read, err := assertionReader("assertion-file", path)
	bridgetest.Must(t, err)
	if _, err := read(); err == nil {
		t.Error("a file that is not there was read")
	}
	for _, text := range []string{"one\n", "two"} {
		bridgetest.Must(t, os.WriteFile(path, []byte(text), 0o600))
		if got, err := read(); err != nil || got.Reveal() != strings.TrimSpace(text) {
			t.Errorf("it is %q, error %v; want %q", got.Reveal(), err, text)
		}
	}
	bridgetest.Must(t, os.Remove(path))
	if got, err := read(); err == nil || !got.IsZero() {
		t.Errorf("it is %q, though the file has gone", got.Reveal())
	}
	if runtime.GOOS == "windows" {
		return
	}
	r, w, err := os.Pipe()
	bridgetest.Must(t, err)
	defer r.Close()
	_, err = w.WriteString("piped")
	bridgetest.Must(t, err)
	bridgetest.Must(t, w.Close())
	read, err = assertionReader("assertion-file", fmt.Sprintf("/dev/fd/%d", r.Fd()))
	bridgetest.Must(t, err)
	for range 2 {
		if got, err := read(); err != nil || got.Reveal() != "piped" {
			t.Errorf("it is %q, error %v", got.Reveal(), err)
		}
	}
}
