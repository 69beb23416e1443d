package signin

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

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
