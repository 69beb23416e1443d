package tokenstore

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// roleVar makes the test binary play the part of another process.
const roleVar = "TOKENSTORE_TEST_ROLE"

var roles = map[string]func(args []string) error{}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(roleVar)]; role != nil {
		if err := role(os.Args[1:]); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	bridgetest.CheckLeaks(m)
}

// A process is this binary in a role.
type process struct {
	*exec.Cmd
	lines *bufio.Scanner // its stdout
}

func start(t *testing.T, role string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	bridgetest.Must(t, err)
	cmd := exec.Command(exe, args...)
	// The race detector sleeps for a second at exit, if it is not told otherwise.
	cmd.Env = append(os.Environ(), roleVar+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	bridgetest.Must(t, err)
	bridgetest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &process{cmd, bufio.NewScanner(out)}
}

// line returns the next line of a process.
func (p *process) line(t *testing.T) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("the process said nothing: %v", p.lines.Err())
	}
	return p.lines.Text()
}

const (
	testKey  Key = "00112233445566778899aabbccddeeff"
	otherKey Key = "ffeeddccbbaa99887766554433221100"
	canary       = "canary-5b1e"
)

// patience is for what takes no time where nothing is wrong.
const patience = time.Minute

// saveMetadata stores documents in the place of all that are there.
func saveMetadata(t *testing.T, s *Store, key Key, m Metadata) error {
	return s.UpdateMetadata(within(t), key, func(old *Metadata) (bool, error) {
		*old = m
		return true, nil
	})
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(within(t), Options{Dir: dir})
	bridgetest.Must(t, err)
	return s
}

// newStore returns an empty store.
func newStore(t *testing.T) *Store {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "auth"))
}

func named(account string) Credential {
	return Credential{Account: account, AccessToken: NewSecret(canary + "-a-" + account), RefreshToken: NewSecret(canary + "-r-" + account)}
}

// save stores a credential in the place of what is there.
func save(t *testing.T, s *Store, c Credential) Generation {
	t.Helper()
	var g Generation
	locked(t, s, func(l *LockedCredential) (err error) {
		g, err = l.Save(c, l.Entry().Generation)
		return err
	})
	return g
}

func locked(t *testing.T, s *Store, work func(*LockedCredential) error) {
	t.Helper()
	bridgetest.Must(t, s.WithLock(within(t), testKey, work))
}

// wantAccount checks whose credential is stored.
func wantAccount(t *testing.T, s *Store, want string) Entry {
	t.Helper()
	e, err := s.Load(within(t), testKey)
	bridgetest.Must(t, err)
	if e.Credential.Account != want {
		t.Errorf("stored is the credential of %q, not of %q", e.Credential.Account, want)
	}
	return e
}

// wantKind checks that an operation failed, in the right way, and that the text of the error has no secret.
func wantKind(t *testing.T, err error, want ErrorKind) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, want) {
		t.Fatalf("the error is %v, not of the kind %q", err, want)
	}
	if strings.Contains(err.Error(), canary) {
		t.Errorf("a secret is in the error: %v", err)
	}
	return e
}

// credPath returns the path of the credential's file.
func credPath(s *Store) string { return s.filePath(credentialFolder, string(testKey)+".json") }

func contents(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	bridgetest.Must(t, err)
	return string(data)
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	bridgetest.Must(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
