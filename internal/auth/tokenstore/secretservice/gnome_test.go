//go:build linux

package secretservice

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestGnomeKeyring: the keyring of GNOME over the usual bus; another program finds what is stored.
func TestGnomeKeyring(t *testing.T) { // not parallel: the address is in the environment
	for _, name := range []string{"dbus-daemon", "gnome-keyring-daemon"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("TEST_KEYRING") != "" {
				t.Fatal("TEST_KEYRING says that it is there:", err)
			}
			t.Skip("no " + name + " here")
		}
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_DATA_HOME", home+"/data")
	t.Setenv("XDG_RUNTIME_DIR", home)
	bus := start(t, "", "dbus-daemon", "--session", "--nofork", "--print-address")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus)
	start(t, "password of the login", "gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets")

	if secret, found, err := Get(t.Context(), "mcp-bridge test", "nobody"); err != nil || found {
		t.Fatalf("Get of nothing: %q, %v, %v", secret, found, err)
	}
	for _, want := range []string{"the first", "another"} { // the second in place of the first
		if err := Set(t.Context(), "mcp-bridge test", "user", want); err != nil {
			t.Fatal("Set:", err)
		}
		if secret, found, err := Get(t.Context(), "mcp-bridge test", "user"); secret != want || !found || err != nil {
			t.Fatalf("Get after Set(t.Context(), %q): %q, %v, %v", want, secret, found, err)
		}
	}
	if secret, found, err := Get(t.Context(), "mcp-bridge test", "somebody else"); err != nil || found {
		t.Fatalf("Get of another user: %q, %v, %v", secret, found, err)
	}
}

// start starts a program that ends with the test, and returns the first line of its stdout.
func start(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil && err != io.EOF { // GNOME's closes it when it is there
		t.Fatalf("%s: %v", name, err)
	}
	return strings.TrimSpace(line)
}
