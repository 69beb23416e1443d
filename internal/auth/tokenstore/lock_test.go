package tokenstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func init() {
	roles["count"] = roleCount
	roles["hold"] = roleHold
}

// increment adds one to the number that is stored as the account.
func increment(s *Store, ctx context.Context) error {
	return s.WithLock(ctx, testKey, func(l *LockedCredential) error {
		n, _ := strconv.Atoi(l.Entry().Credential.Account)
		_, err := l.Save(named(strconv.Itoa(n+1)), l.Entry().Generation)
		return err
	})
}

// roleCount increments the number args[1] times in the folder args[0], and says each time what it has made
// of it.
func roleCount(args []string) error {
	ctx := context.Background()
	s, err := Open(ctx, Options{Dir: args[0]})
	if err != nil {
		return err
	}
	times, err := strconv.Atoi(args[1])
	for range times {
		if err != nil {
			break
		}
		err = s.WithLock(ctx, testKey, func(l *LockedCredential) error {
			n, _ := strconv.Atoi(l.Entry().Credential.Account)
			if _, err := l.Save(named(strconv.Itoa(n+1)), l.Entry().Generation); err != nil {
				return err
			}
			_, err := fmt.Println(n + 1)
			return err
		})
	}
	return err
}

// roleHold takes the lock (args[1] is "lock") or the right to sign in, says so, and keeps it
// until its stdin ends.
func roleHold(args []string) error {
	s, err := Open(context.Background(), Options{Dir: args[0]})
	if err != nil {
		return err
	}
	hold := func() error {
		fmt.Println("held")
		select {}
	}
	if args[1] == "lock" {
		return s.WithLock(context.Background(), testKey, func(*LockedCredential) error { return hold() })
	}
	l, err := s.LockLogin(context.Background(), testKey)
	if err != nil {
		return err
	}
	if err := l.Announce(LoginAnnouncement{PID: os.Getpid(), SignInURL: "https://issuer/authorize"}); err != nil {
		return err
	}
	return hold()
}

// TestDeadHolder: the lock of a process that was killed is free, and what it has announced is
// no longer told.
func TestDeadHolder(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	holder := start(t, "hold", s.Dir(), "lock")
	holder.line(t)
	login := start(t, "hold", s.Dir(), "login")
	login.line(t)
	wantBusy(t, s)
	announced, pending, err := s.PendingLogin(testKey)
	if err != nil || !pending || announced.PID != login.Process.Pid || announced.SignInURL == "" {
		t.Errorf("pending %v, %+v, %v", pending, announced, err)
	}
	for _, p := range []*process{holder, login} {
		bridgetest.Must(t, p.Process.Kill())
		_ = p.Wait()
	}
	save(t, s, named("a"))
	if announced, pending, err := s.PendingLogin(testKey); pending || err != nil || announced != (LoginAnnouncement{}) {
		t.Errorf("pending %v, %+v, %v after the process has died", pending, announced, err)
	}
	l, err := s.TryLockLogin(testKey)
	bridgetest.Must(t, err)
	if announced, pending, err := s.PendingLogin(testKey); !pending || err != nil || announced != (LoginAnnouncement{}) {
		t.Errorf("pending %v, %+v, %v: what a dead process has announced", pending, announced, err)
	}
	bridgetest.Must(t, l.Release())
}

// wantBusy checks that the lock is not to be had, and that reading needs none.
func wantBusy(t *testing.T, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	err := s.WithLock(ctx, testKey, func(*LockedCredential) error { return nil })
	wantKind(t, err, ErrBusy)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error does not tell of the deadline: %v", err)
	}
	if _, err := s.Load(t.Context(), testKey); err != nil {
		t.Error(err)
	}
}

// TestLogin: one signs in at a time, for each key; the others see what it announces.
func TestLogin(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	if _, pending, err := s.PendingLogin(testKey); pending || err != nil {
		t.Errorf("pending in an empty store: %v", err)
	}
	l, err := s.TryLockLogin(testKey)
	bridgetest.Must(t, err)
	_, err = s.TryLockLogin(testKey)
	wantKind(t, err, ErrBusy)
	other, err := s.TryLockLogin(otherKey)
	bridgetest.Must(t, err)
	bridgetest.Must(t, other.Release())
	for _, want := range []LoginAnnouncement{
		{PID: 1, Expires: time.Date(2026, 7, 28, 0, 0, 0, 0, time.UTC)},
		{PID: 1, SignInURL: "https://issuer/authorize?x=y", UserCode: "ABCD-EFGH", RedirectURI: "http://127.0.0.1:1/callback"},
	} {
		bridgetest.Must(t, l.Announce(want))
		if got, pending, err := s.PendingLogin(testKey); !pending || err != nil || got != want {
			t.Errorf("pending %v, %+v, %v", pending, got, err)
		}
	}
	save(t, s, named("a")) // the other lock
	bridgetest.Must(t, s.Delete(within(t), testKey))
	if _, pending, err := s.PendingLogin(testKey); !pending || err != nil {
		t.Errorf("Delete ended the sign-in: %v", err)
	}
	bridgetest.Must(t, l.Release())
	bridgetest.Must(t, l.Release())
	wantKind(t, l.Announce(LoginAnnouncement{}), ErrReleased)
	if _, pending, err := s.PendingLogin(testKey); pending || err != nil {
		t.Errorf("pending after Release: %v", err)
	}
	if left := names(t, filepath.Dir(credPath(s))); len(left) != 3 { // the lock files
		t.Errorf("left: %v", left)
	}
}

// TestLoginWaits: who wants to sign in, and is content with the other's sign-in
// having ended, gets the lock when it has.
func TestLoginWaits(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	l, err := s.TryLockLogin(testKey)
	bridgetest.Must(t, err)
	result := make(chan error)
	go func() {
		next, err := s.LockLogin(within(t), testKey)
		if err == nil {
			err = next.Release()
		}
		result <- err
	}()
	bridgetest.Must(t, l.Release())
	bridgetest.Must(t, <-result)
}

// TestLockClosesFiles: a lock that was not to be had leaves no open file either.
func TestLockClosesFiles(t *testing.T) { // not parallel: others open files
	s := newStore(t)
	before := bridgetest.FDs()
	for range 20 {
		unlock, ok, err := s.tryLock(credentialFolder, "x")
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, ok, err := s.tryLock(credentialFolder, "x"); ok || err != nil {
			t.Fatal("locked twice", err)
		}
		if held, err := s.isLocked(credentialFolder, "x"); !held || err != nil {
			t.Fatal("not locked", err)
		}
		unlock()
		if held, err := s.isLocked(credentialFolder, "x"); held || err != nil {
			t.Fatal("still locked", err)
		}
	}
	if after := bridgetest.FDs(); after != before {
		t.Errorf("%d open files before, %d after", before, after)
	}
}
