package tokenstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// diskVar tells the test binary that it has a mount namespace of its own.
const diskVar = "TOKENSTORE_TEST_DISK"

// TestDisk: on a disk that is full, or that may not be written, the error says so and what
// was stored before is still there. Needs the right to mount a small disk, in a process with mounts of its own.
func TestDisk(t *testing.T) {
	if os.Getenv(diskVar) != "" {
		testDisk(t)
		return
	}
	t.Parallel()
	exe, err := os.Executable()
	bridgetest.Must(t, err)
	cmd := exec.Command(exe, "-test.run=^TestDisk$", "-test.v")
	cmd.Env = append(os.Environ(), diskVar+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &failed):
		skipNamespaces(t, "the right to make a mount namespace", err)
	case err != nil:
		t.Errorf("in a mount namespace: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	case !strings.Contains(string(out), "--- PASS: TestDisk"):
		t.Errorf("the test was not run:\n%s", out)
	}
}

// skipNamespaces skips a test that needs what this system does not give, or
// fails it if TEST_NAMESPACES, which CI sets, says that it should.
func skipNamespaces(t *testing.T, needs string, why any) {
	t.Helper()
	if os.Getenv("TEST_NAMESPACES") != "" {
		t.Fatalf("needs %s, which TEST_NAMESPACES says is there: %v", needs, why)
	}
	t.Skipf("needs %s: %v", needs, why)
}

func testDisk(t *testing.T) {
	disk := t.TempDir()
	err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, "")
	if err == nil {
		err = syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=128k,mode=0700")
	}
	if err != nil {
		skipNamespaces(t, "the right to mount a disk", err)
	}
	t.Cleanup(func() { bridgetest.Must(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	s := open(t, disk)
	old := save(t, s, named("old"))
	bridgetest.Must(t, saveMetadata(t, s, testKey, Metadata{}))
	if err := os.WriteFile(disk+"/filler", make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	fails := func(kind ErrorKind) {
		t.Helper()
		_, err := s.Save(within(t), testKey, named("new"), old)
		wantKind(t, err, kind)
		err = s.WithLock(within(t), testKey, func(l *LockedCredential) error { return l.CountTokenRequest(0) })
		wantKind(t, err, kind)
		wantKind(t, saveMetadata(t, s, testKey, Metadata{}), kind)
		if e := wantAccount(t, open(t, disk), "old"); e.Generation != old {
			t.Errorf("the generation is %d, and was %d", e.Generation, old)
		}
		if left := names(t, s.filePath(credentialFolder, "")); len(left) != 2 {
			t.Errorf("left: %v", left)
		}
	}
	fails(ErrFull)
	bridgetest.Must(t, os.Remove(disk+"/filler"))
	bridgetest.Must(t, os.WriteFile(s.filePath(credentialFolder, string(otherKey)+".json"), []byte("{"), 0o600))
	readOnly(t, disk, syscall.MS_RDONLY)
	if _, err := s.Load(within(t), otherKey); wantKind(t, err, ErrBroken).MovedTo != "" {
		t.Errorf("set aside on a disk that may not be written: %v", err)
	}
	readOnly(t, disk, 0)
	bridgetest.Must(t, os.Remove(s.filePath(credentialFolder, string(otherKey)+".json")))
	readOnly(t, disk, syscall.MS_RDONLY)
	fails(ErrReadOnly)
	wantKind(t, s.Delete(within(t), testKey), ErrReadOnly)
	_, err = Open(within(t), Options{Dir: disk + "/new"})
	wantKind(t, err, ErrReadOnly)
	readOnly(t, disk, 0)
	save(t, s, named("new"))
	wantAccount(t, s, "new")
}

func readOnly(t *testing.T, disk string, flag uintptr) {
	t.Helper()
	bridgetest.Must(t, syscall.Mount("", disk, "", syscall.MS_REMOUNT|flag, ""))
}

func init() { roles["keyring"] = roleKeyring }

// roleKeyring says what Open says where the address of the session bus leads nowhere. It is a process of its own, with
// an environment of its own.
func roleKeyring(args []string) error {
	if err := os.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+args[0]+"/nowhere"); err != nil {
		return err
	}
	_, err := Open(context.Background(), Options{Dir: args[0], Keyring: SystemKeyring()})
	fmt.Println(err)
	return nil
}

// TestNoSessionBus: without a session bus there is no keyring, and no bus is started for it.
func TestNoSessionBus(t *testing.T) {
	for address, wants := range map[string]string{"": "no session bus", "autolaunch:": "no session bus"} {
		t.Setenv("DBUS_SESSION_BUS_ADDRESS", address)
		for _, name := range []string{"bus", "dbus-session"} {
			if _, err := os.Stat(fmt.Sprintf("/run/user/%d/%s", os.Getuid(), name)); err == nil {
				t.Skip("this user has a session bus")
			}
		}
		_, err := Open(within(t), Options{Dir: t.TempDir() + "/auth", Keyring: SystemKeyring()})
		wantKind(t, err, ErrNoKeyring)
		if !strings.Contains(err.Error(), wants) {
			t.Error(err)
		}
	}
	p := start(t, "keyring", t.TempDir()+"/auth")
	if got := p.line(t); !strings.Contains(got, string(ErrNoKeyring)) {
		t.Errorf("a bus that is not there: %s", got)
	}
}
