//go:build unix

package tokenstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func init() { roles["crash"] = roleCrash }

// TestCounter: processes increment a number, and some of them are killed at any moment. No
// increment is lost: no two processes make the same number, and each process that was killed
// makes at most one number that it did not live to tell.
func TestCounter(t *testing.T) {
	t.Parallel()
	const processes, each, kills = 5, 12, 8
	s := newStore(t)
	var mu sync.Mutex
	running := map[int]*process{}
	by := map[int]int{} // who made a number
	killed, lines := 0, 0
	var wg sync.WaitGroup
	var spawn func()
	told := func(p *process, n int) {
		mu.Lock()
		defer mu.Unlock()
		if other, ok := by[n]; ok {
			t.Errorf("processes %d and %d both made %d", other, p.Process.Pid, n)
		}
		by[n] = p.Process.Pid
		lines++
		if lines%3 == 0 && killed < kills {
			killed++
			for range rand.IntN(20) { // some time, but not always the same
				syscall.Getppid()
			}
			for _, victim := range running { // in no order
				_ = victim.Process.Signal(syscall.SIGKILL)
				break
			}
			spawn()
		}
	}
	spawn = func() { // with mu held
		p := start(t, "count", s.Dir(), strconv.Itoa(each))
		running[p.Process.Pid] = p
		wg.Go(func() {
			for p.lines.Scan() {
				n, err := strconv.Atoi(p.lines.Text())
				if err != nil {
					t.Error(err)
				}
				told(p, n)
			}
			mu.Lock()
			delete(running, p.Process.Pid)
			mu.Unlock()
			if err := p.Wait(); err != nil && p.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Errorf("a process ended with %v", err)
			}
		})
	}
	mu.Lock()
	for range processes {
		spawn()
	}
	mu.Unlock()
	wg.Wait()
	e, err := s.Load(within(t), testKey)
	bridgetest.Must(t, err)
	end, _ := strconv.Atoi(e.Credential.Account)
	if end < len(by) || end > len(by)+killed || len(by) < processes*each/2 {
		t.Errorf("the number is %d; %d were told, and %d processes killed", end, len(by), killed)
	}
	t.Logf("%d increments, %d told, %d processes killed", end, len(by), killed)
}

// TestStoppedHolder: while the holder of the lock is stopped, others give up at their deadline, and
// go on when it does.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	save(t, s, named("a"))
	holder := start(t, "hold", s.Dir(), "lock")
	holder.line(t)
	bridgetest.Must(t, holder.Process.Signal(syscall.SIGSTOP))
	wantBusy(t, s)
	wantAccount(t, s, "a")
	bridgetest.Must(t, holder.Process.Signal(syscall.SIGCONT))
	wantBusy(t, s)
	bridgetest.Must(t, holder.Process.Kill())
	save(t, s, named("b"))
}

// roleCrash saves a credential in the folder args[0], and is killed at the step args[1].
func roleCrash(args []string) error {
	s, err := Open(context.Background(), Options{Dir: args[0]})
	if err != nil {
		return err
	}
	s.injectFault = func(step string) error {
		if step == args[1] {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	return s.WithLock(context.Background(), testKey, func(l *LockedCredential) error {
		_, err := l.Save(named("new"), l.Entry().Generation)
		return fmt.Errorf("the process has survived: %v", err)
	})
}

// TestCrash: a process that dies while it writes leaves the old file or the new one, and
// what else it leaves is gone after the next write.
func TestCrash(t *testing.T) {
	t.Parallel()
	for step, want := range map[string]string{"half": "old", "written": "old", "synced": "old", "renamed": "new"} {
		s := newStore(t)
		save(t, s, named("old"))
		p := start(t, "crash", s.Dir(), step)
		if err := p.Wait(); err == nil || p.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%s: the process ended with %v", step, err)
		}
		wantAccount(t, s, want)
		save(t, s, named("next"))
		wantAccount(t, s, "next")
		if left := names(t, s.filePath(credentialFolder, "")); len(left) != 2 {
			t.Errorf("%s: left is %v", step, left)
		}
	}
}

// TestNotPrivate: what others may read or write is refused, and nothing is read of it; so
// is a link, wherever it leads.
func TestNotPrivate(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"", layoutFolder, layoutFolder + "/" + credentialFolder} {
		for _, mode := range []os.FileMode{0o750, 0o701, 0o720} {
			s := newStore(t)
			save(t, s, named("a"))
			bridgetest.Must(t, os.Chmod(s.Dir()+"/"+what, mode))
			wantUnsafe(t, s)
			_, err := Open(within(t), Options{Dir: s.Dir()})
			wantKind(t, err, ErrUnsafe)
		}
	}
	for _, name := range []string{"", layoutFolder, layoutFolder + "/" + credentialFolder} {
		s := newStore(t)
		save(t, s, named("a"))
		path := s.Dir()
		if name != "" {
			path += "/" + name
		}
		moved := t.TempDir() + "/moved"
		bridgetest.Must(t, os.Rename(path, moved))
		bridgetest.Must(t, os.Symlink(moved, path))
		wantUnsafe(t, s)
		_, err := Open(within(t), Options{Dir: s.Dir()})
		wantKind(t, err, ErrUnsafe)
	}
	s := newStore(t)
	save(t, s, named("a"))
	bridgetest.Must(t, os.Chmod(credPath(s), 0o640))
	wantUnsafe(t, s)
	bridgetest.Must(t, os.Chmod(credPath(s), 0o600))
	bridgetest.Must(t, os.Rename(credPath(s), credPath(s)+".x"))
	bridgetest.Must(t, os.Symlink(credPath(s)+".x", credPath(s)))
	wantUnsafe(t, s)
	bridgetest.Must(t, os.Remove(credPath(s)))
	bridgetest.Must(t, syscall.Mkfifo(credPath(s), 0o600))
	wantUnsafe(t, s)
	bridgetest.Must(t, os.Remove(credPath(s)))
	lock := s.filePath(credentialFolder, string(testKey)+lockSuffix)
	bridgetest.Must(t, os.Remove(lock))
	bridgetest.Must(t, os.Symlink(credPath(s)+".x", lock))
	wantKind(t, s.WithLock(within(t), testKey, func(*LockedCredential) error { return nil }), ErrUnsafe)
}

// wantUnsafe checks that a credential is neither read nor written.
func wantUnsafe(t *testing.T, s *Store) {
	t.Helper()
	e, err := s.Load(within(t), testKey)
	wantKind(t, err, ErrUnsafe)
	if e.Credential.Account != "" {
		t.Errorf("it was read: %+v", e)
	}
	_, err = s.Save(within(t), testKey, named("b"), 0)
	wantKind(t, err, ErrUnsafe)
}

// TestForeignOwner: what belongs to another user is refused, also by root.
func TestForeignOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const nobody = 65534
	for _, what := range []string{"", layoutFolder, layoutFolder + "/" + credentialFolder, layoutFolder + "/" + credentialFolder + "/" + string(testKey) + ".json"} {
		s := newStore(t)
		save(t, s, named("a"))
		bridgetest.Must(t, os.Chown(s.Dir()+"/"+what, nobody, nobody))
		wantUnsafe(t, s)
	}
}

// TestReadOnlyFolder: the error says so, and what is stored can be read.
func TestReadOnlyFolder(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere; TestDisk shows it with a disk")
	}
	s := newStore(t)
	g := save(t, s, named("a"))
	dir := s.filePath(credentialFolder, "")
	bridgetest.Must(t, os.Chmod(dir, 0o500))
	defer func() { _ = os.Chmod(dir, 0o700) }()
	_, err := s.Save(within(t), testKey, named("b"), g)
	wantKind(t, err, ErrReadOnly)
	_, err = s.Save(within(t), otherKey, named("b"), 0)
	wantKind(t, err, ErrReadOnly)
	wantKind(t, s.Delete(within(t), testKey), ErrReadOnly)
	wantAccount(t, s, "a")
}
