package tokenstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func TestDefaultDir(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	if runtime.GOOS != "linux" {
		t.Skip("the folder is that of the XDG specification on Linux only")
	}
	for state, want := range map[string]string{
		"":              home + "/.local/state/mcp-bridge/auth",
		"relative/path": home + "/.local/state/mcp-bridge/auth",
		"/var/state":    "/var/state/mcp-bridge/auth",
	} {
		t.Setenv("XDG_STATE_HOME", state)
		if got, err := DefaultDir(); got != want || err != nil {
			t.Errorf("XDG_STATE_HOME=%s: %s, %v", state, got, err)
		}
	}
	t.Setenv("XDG_STATE_HOME", filepath.Join(home, "state"))
	s, err := Open(within(t), Options{})
	bridgetest.Must(t, err)
	if want := filepath.Join(home, "state", "mcp-bridge", "auth"); s.Dir() != want {
		t.Errorf("the folder is %s, not %s", s.Dir(), want)
	}
}

// full is a credential with a value in every field.
func full() Credential {
	at := time.Date(2026, 7, 28, 1, 2, 3, 4, time.UTC)
	return Credential{
		Server: "https://example.com/mcp", Profile: "work", Account: "me", Issuer: "https://issuer/", TokenEndpoint: "https://issuer/t",
		RevocationEndpoint: "https://issuer/r", ClientID: "c", Resource: "https://example.com/mcp", TokenType: "DPoP", IssuedAt: at,
		ExpiresAt: at.Add(time.Hour), RequestedScopes: []string{"a", "b"}, GrantedScopes: []string{"a"}, LastProblem: "none", IsMachine: true,
		AccessToken: NewSecret(canary + "1"), RefreshToken: NewSecret(canary + "2 <&>\u2028"), IDToken: NewSecret(canary + "3"), DPoPKey: NewSecret(canary + "4"),
	}
}

// TestRoundTrip: what is saved is loaded, every field of it, by another Store too; nothing
// saved is nothing loaded.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	if e, err := s.Load(within(t), testKey); err != nil || !reflect.DeepEqual(e, Entry{Key: testKey}) {
		t.Errorf("an empty store has %+v, %v", e, err)
	}
	c := full()
	for i := range reflect.ValueOf(c).NumField() {
		if reflect.ValueOf(c).Field(i).IsZero() {
			t.Errorf("the test has no value for %s", reflect.TypeOf(c).Field(i).Name)
		}
	}
	g, err := s.Save(within(t), testKey, c, 0)
	bridgetest.Must(t, err)
	e, err := open(t, s.Dir()).Load(within(t), testKey)
	bridgetest.Must(t, err)
	if want := (Entry{Key: testKey, Generation: g, Credential: c}); !reflect.DeepEqual(e, want) {
		t.Errorf("loaded %+v, want %+v", e, want)
	}
	if e.Credential.RefreshToken.Reveal() != canary+"2 <&>\u2028" {
		t.Errorf("the refresh token is %q", e.Credential.RefreshToken.Reveal())
	}
	info, err := os.Stat(credPath(s))
	bridgetest.Must(t, err)
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v", info.Mode())
	}
}

// TestGenerations: who did not read what is stored now does not overwrite it; after a deletion
// old generations do not come back.
func TestGenerations(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	first, err := s.Save(within(t), testKey, named("a"), 0)
	bridgetest.Must(t, err)
	second, err := s.Save(within(t), testKey, named("b"), first)
	bridgetest.Must(t, err)
	for _, old := range []Generation{0, first, second + 1} {
		_, err := s.Save(within(t), testKey, named("c"), old)
		wantKind(t, err, ErrStale)
	}
	wantAccount(t, s, "b")
	bridgetest.Must(t, s.Delete(within(t), testKey))
	_, err = s.Save(within(t), testKey, named("c"), second)
	wantKind(t, err, ErrStale)
	wantAccount(t, s, "")
	third, err := s.Save(within(t), testKey, named("d"), 0)
	bridgetest.Must(t, err)
	if third == first || third == second || first == second {
		t.Errorf("generations %d, %d, %d", first, second, third)
	}
}

// TestLockExcludes: within a process too. The credential that the function of WithLock sees is the
// one of the last Save, and the LockedCredential is of no use after it.
func TestLockExcludes(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if err := increment(s, within(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wantAccount(t, s, "80")
	var kept *LockedCredential
	locked(t, s, func(l *LockedCredential) error { kept = l; return nil })
	_, err := kept.Save(named("x"), kept.Entry().Generation)
	wantKind(t, err, ErrReleased)
	wantKind(t, kept.CountTokenRequest(0), ErrReleased)
	wantKind(t, kept.ForgetTokenRequests(), ErrReleased)
	wantKind(t, kept.MarkRefreshTokenSpent(NewSecret("x")), ErrReleased)
	wantKind(t, kept.Delete(), ErrReleased)
	wantAccount(t, s, "80")
	own := errors.New("own")
	if err := s.WithLock(within(t), testKey, func(*LockedCredential) error { return own }); err != own {
		t.Errorf("WithLock returned %v", err)
	}
}

// TestNewerIsLeftAlone: a file of a later format is not read, not overwritten, not set aside.
func TestNewerIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	save(t, s, named("a"))
	newer := `{"version":2,"kind":["other"],"name":7,"generation":"x","data":"` + canary + `"}`
	bridgetest.Must(t, os.WriteFile(credPath(s), []byte(newer), 0o600))
	_, err := s.Load(within(t), testKey)
	wantKind(t, err, ErrNewer)
	_, err = s.Save(within(t), testKey, named("b"), 0)
	wantKind(t, err, ErrNewer)
	wantKind(t, s.WithLock(within(t), testKey, func(*LockedCredential) error { t.Error("work was called"); return nil }), ErrNewer)
	if got := contents(t, credPath(s)); got != newer {
		t.Errorf("the file is %s", got)
	}
	bridgetest.Must(t, saveMetadata(t, s, testKey, Metadata{}))
	path := s.filePath(metadataFolder, string(testKey)+".json")
	bridgetest.Must(t, os.WriteFile(path, []byte(newer), 0o600))
	wantKind(t, saveMetadata(t, s, testKey, Metadata{}), ErrNewer)
	if all, err := s.List(); err != nil || len(all) != 1 || !errors.Is(all[0].Err, ErrNewer) {
		t.Errorf("List: %v, %v", all, err)
	}
	bridgetest.Must(t, s.Delete(within(t), testKey)) // since the user says so
	wantAccount(t, s, "")
}

// TestBroken: a file that cannot be understood is reported once, is kept under another
// name, and does not stand in the way of the next sign-in. So is every file that ends early.
func TestBroken(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	save(t, s, named("a"))
	good := contents(t, credPath(s))
	other := strings.Replace(good, string(testKey), string(otherKey), 1)
	bad := []string{"null", "[]", "7", `{"version":1}`, `{"version":0}`, `{"version":"1"}`, "\x00\x00\x00\x00", other,
		good + good, good + "x", strings.Replace(good, `"generation":`, `"generation":-`, 1), strings.Replace(good, `"cred"`, `"meta"`, 1),
		strings.Replace(good, `"plain"`, `"x"`, 1), strings.Replace(good, `"credential"`, `"x"`, 1), strings.Replace(good, `"access"`, `"access":7,"x"`, 1)}
	for n := range len(good) - 1 { // without the line feed at the end it is whole
		if n%7 == 0 || n > len(good)-10 {
			bad = append(bad, good[:n])
		}
	}
	for i, content := range bad {
		bridgetest.Must(t, os.WriteFile(credPath(s), []byte(content), 0o600))
		var err error
		if i%2 == 0 {
			_, err = s.Load(within(t), testKey)
		} else {
			err = s.WithLock(within(t), testKey, func(*LockedCredential) error { t.Error("work was called"); return nil })
		}
		e := wantKind(t, err, ErrBroken)
		if !strings.HasPrefix(e.MovedTo, credPath(s)+brokenInfix) || contents(t, e.MovedTo) != content {
			t.Errorf("%.40q was moved to %q", content, e.MovedTo)
		}
		wantAccount(t, s, "")
	}
	save(t, s, named("b"))
	all, err := s.List()
	bridgetest.Must(t, err)
	if len(all) != 1 || all[0].Entry.Credential.Account != "b" || len(all[0].BrokenFiles) != len(bad) {
		t.Errorf("List: %+v", all)
	}
	bridgetest.Must(t, s.Delete(within(t), testKey))
	if left := names(t, filepath.Dir(credPath(s))); !slices.Equal(left, []string{string(testKey) + ".lock", string(testKey) + ".login"}) {
		t.Errorf("Delete leaves %v", left)
	}
}

// A waitingContext tells when somebody begins to wait for its end.
type waitingContext struct {
	context.Context
	once    *sync.Once
	waiting chan struct{}
}

func (c waitingContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.waiting) })
	return c.Context.Done()
}

// TestBrokenIsLookedAtAgain: who finds a broken file while another process writes it anew
// does not set the good one aside.
func TestBrokenIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	save(t, s, named("a"))
	good := contents(t, credPath(s))
	bridgetest.Must(t, os.WriteFile(credPath(s), []byte(good[:20]), 0o600))
	unlock, err := s.lock(within(t), credentialFolder, string(testKey)+lockSuffix)
	bridgetest.Must(t, err)
	result := make(chan error)
	ctx := waitingContext{within(t), new(sync.Once), make(chan struct{})}
	go func() {
		_, err := s.Load(ctx, testKey)
		result <- err
	}()
	<-ctx.waiting // for the lock, so it has found the broken file
	bridgetest.Must(t, os.WriteFile(credPath(s)+".x", []byte(good), 0o600))
	bridgetest.Must(t, renameFile(credPath(s)+".x", credPath(s)))
	unlock()
	bridgetest.Must(t, <-result)
	wantAccount(t, s, "a")
}

// TestFaults: what fails before the rename leaves the old file, with no other beside it.
func TestFaults(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	save(t, s, named("old"))
	for _, step := range []string{"half", "written", "synced"} {
		s.injectFault = func(at string) error {
			if at == step {
				return errors.New("fault")
			}
			return nil
		}
		e := wantAccount(t, s, "old")
		_, err := s.Save(within(t), testKey, named("new"), e.Generation)
		wantKind(t, err, ErrIO)
		locked(t, s, func(l *LockedCredential) error {
			wantKind(t, l.CountTokenRequest(0), ErrIO)
			if l.Entry().Credential.Account != "old" {
				t.Errorf("after a fault: %+v", l.Entry())
			}
			return nil
		})
		if left := names(t, filepath.Dir(credPath(s))); len(left) != 2 {
			t.Errorf("left after a fault: %v", left)
		}
	}
	s.injectFault = nil
	save(t, s, named("new"))
	wantAccount(t, s, "new")
}

// TestListAndDelete: each key by itself.
func TestListAndDelete(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	if all, err := s.List(); err != nil || len(all) != 0 {
		t.Errorf("List of an empty store: %v, %v", all, err)
	}
	save(t, s, named("a"))
	_, err := s.Save(within(t), otherKey, named("b"), 0)
	bridgetest.Must(t, err)
	bridgetest.Must(t, saveMetadata(t, s, testKey, Metadata{}))
	bridgetest.Must(t, os.WriteFile(s.filePath(credentialFolder, "README"), nil, 0o600))
	all, err := s.List()
	bridgetest.Must(t, err)
	var got []string
	for _, l := range all {
		got = append(got, fmt.Sprintf("%v %s %v", l.Key == l.Entry.Key, l.Entry.Credential.Account, l.Err))
	}
	if want := []string{"true a <nil>", "true b <nil>"}; !slices.Equal(got, want) {
		t.Errorf("List: %q", got)
	}
	bridgetest.Must(t, s.Delete(within(t), testKey))
	bridgetest.Must(t, s.Delete(within(t), testKey)) // what is not there
	if all, err = s.List(); err != nil || len(all) != 1 || all[0].Key != otherKey {
		t.Errorf("List after Delete: %v, %v", all, err)
	}
	if left := names(t, filepath.Join(s.dir, layoutFolder, metadataFolder)); slices.Contains(left, string(testKey)+".json") {
		t.Errorf("Delete leaves metadata: %v", left)
	}
	locked(t, s, func(l *LockedCredential) error {
		if _, err := l.Save(named("c"), 0); err != nil {
			return err
		}
		if err := l.Delete(); err != nil {
			return err
		}
		_, err := l.Save(named("d"), 0)
		return err
	})
	wantAccount(t, s, "d")
}

// TestFolderGoesAway: a user who deletes the folder is signed out, and can sign in again.
func TestFolderGoesAway(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	save(t, s, named("a"))
	bridgetest.Must(t, os.RemoveAll(s.Dir()))
	wantAccount(t, s, "")
	if all, err := s.List(); err != nil || len(all) != 0 {
		t.Errorf("List: %v, %v", all, err)
	}
	if _, pending, err := s.PendingLogin(testKey); pending || err != nil {
		t.Errorf("pending: %v, %v", pending, err)
	}
	save(t, s, named("b"))
	wantAccount(t, s, "b")
}

// TestDeletedLock: a lock whose file somebody has deleted is not the one that others take, so
// it is taken anew.
func TestDeletedLock(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be deleted")
	}
	s := newStore(t)
	l := newFlock(s.filePath(credentialFolder, "x"))
	if ok, err := l.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if current, err := isLockFileCurrent(l); !current || err != nil {
		t.Errorf("a lock is not current: %v", err)
	}
	for _, now := range []func() error{
		func() error { return os.Remove(l.Path()) },
		func() error { return os.WriteFile(l.Path(), nil, 0o600) }, // another file of that name
	} {
		bridgetest.Must(t, now())
		if current, err := isLockFileCurrent(l); current || err != nil {
			t.Errorf("a deleted lock is current: %v", err)
		}
	}
	bridgetest.Must(t, l.Unlock())
	// Who works under such a lock finds the generation gone.
	save(t, s, named("a"))
	err := s.WithLock(within(t), testKey, func(l *LockedCredential) error {
		bridgetest.Must(t, os.RemoveAll(s.Dir()))
		save(t, s, named("b"))
		_, err := l.Save(named("c"), l.Entry().Generation)
		return err
	})
	wantKind(t, err, ErrStale)
	wantAccount(t, s, "b")
}

func TestRegistrations(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const issuer = "https://issuer.example.com/"
	at := time.Date(2026, 7, 28, 0, 0, 0, 0, time.UTC)
	want := []Registration{{ClientID: "a", RedirectURIs: []string{"http://127.0.0.1:1/callback"}, AuthMethod: "none", RegisteredAt: at,
		SecretExpiresAt: at, LastUsed: at, ManagementURL: "https://issuer/m", ClientSecret: NewSecret(canary), ManagementToken: NewSecret(canary + "m")}, {ClientID: "b"}}
	for i := range reflect.ValueOf(want[0]).NumField() {
		if reflect.ValueOf(want[0]).Field(i).IsZero() {
			t.Errorf("the test has no value for %s", reflect.TypeOf(want[0]).Field(i).Name)
		}
	}
	update := func(work func([]Registration) ([]Registration, error)) error {
		return s.UpdateRegistrations(within(t), issuer, work)
	}
	bridgetest.Must(t, update(func(old []Registration) ([]Registration, error) {
		if len(old) != 0 {
			t.Errorf("registrations of a new issuer: %v", old)
		}
		return want, nil
	}))
	own := errors.New("own")
	if err := update(func(old []Registration) ([]Registration, error) { return nil, own }); err != own {
		t.Errorf("UpdateRegistrations returned %v", err)
	}
	if got, err := s.Registrations(within(t), issuer); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("registrations %+v, %v", got, err)
	}
	if got, err := s.Registrations(within(t), strings.TrimSuffix(issuer, "/")); err != nil || got != nil {
		t.Errorf("an issuer of another spelling has %v, %v", got, err)
	}
	bad := s.filePath(clientFolder, issuerFileName("bad")+".json")
	bridgetest.Must(t, os.WriteFile(bad, []byte(canary), 0o600))
	issuers, err := s.IssuersWithRegistrations()
	wantKind(t, err, ErrBroken)
	if !slices.Equal(issuers, []string{issuer}) {
		t.Errorf("issuers %q", issuers)
	}
	_, err = s.Registrations(within(t), "bad")
	if e := wantKind(t, err, ErrBroken); contents(t, e.MovedTo) != canary {
		t.Errorf("moved to %q", e.MovedTo)
	}
	bridgetest.Must(t, update(func([]Registration) ([]Registration, error) { return nil, nil }))
	if issuers, err := s.IssuersWithRegistrations(); err != nil || len(issuers) != 0 {
		t.Errorf("issuers %q, %v", issuers, err)
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	want := Metadata{Expires: time.Date(2026, 7, 28, 0, 0, 0, 0, time.UTC), Documents: map[string]json.RawMessage{"server": json.RawMessage(`{"a":1}`)}}
	for range 2 {
		bridgetest.Must(t, saveMetadata(t, s, testKey, want))
		if got, err := s.Metadata(within(t), testKey); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("metadata %v, %v", got, err)
		}
	}
	path := s.filePath(metadataFolder, string(testKey)+".json")
	bridgetest.Must(t, os.WriteFile(path, []byte("{"), 0o600))
	bridgetest.Must(t, saveMetadata(t, s, testKey, want)) // the broken one is kept
	if len(names(t, filepath.Dir(path))) != 3 {
		t.Errorf("files: %v", names(t, filepath.Dir(path)))
	}
	err := saveMetadata(t, s, testKey, Metadata{Documents: map[string]json.RawMessage{"x": json.RawMessage(`"` + strings.Repeat("x", maxFileBytes) + `"`)}})
	wantKind(t, err, ErrInput)
	if got, err := s.Metadata(within(t), testKey); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("metadata %v, %v", got, err)
	}
}

// TestInvalidUTF8: JSON would make another token of it.
func TestInvalidUTF8(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, err := s.Save(within(t), testKey, Credential{AccessToken: NewSecret(canary + "\xff")}, 0)
	wantKind(t, err, ErrInput)
	wantAccount(t, s, "")
}

func BenchmarkStore(b *testing.B) {
	s, err := Open(b.Context(), Options{Dir: filepath.Join(b.TempDir(), "auth")})
	bridgetest.Must(b, err)
	g, err := s.Save(b.Context(), testKey, full(), 0)
	bridgetest.Must(b, err)
	b.Run("Load", func(b *testing.B) {
		for b.Loop() {
			_, err := s.Load(b.Context(), testKey)
			bridgetest.Must(b, err)
		}
	})
	b.Run("WithLock", func(b *testing.B) {
		for b.Loop() {
			bridgetest.Must(b, s.WithLock(b.Context(), testKey, func(*LockedCredential) error { return nil }))
		}
	})
	b.Run("Save", func(b *testing.B) {
		for b.Loop() {
			g, err = s.Save(b.Context(), testKey, full(), g)
			bridgetest.Must(b, err)
		}
	})
}

// FuzzFile: whatever is in a file, reading it does not panic; what can be read can be
// written, and is then the same.
func FuzzFile(f *testing.F) {
	s := &Store{dir: f.TempDir(), now: time.Now}
	of := storeFile{credentialFolder, string(testKey)}
	c := full()
	b, err := pack(c, c.secretsByName())
	bridgetest.Must(f, err)
	good, err := s.encodeFile(of, 3, storedCredential{Credential: &b, RequestTimes: []time.Time{time.Unix(0, 0)}, RateLimitedAt: time.Unix(1, 0), SpentRefreshHashes: []string{"x"}})
	bridgetest.Must(f, err)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(`{"version":1,"kind":"cred","name":"` + testKey + `","generation":0,"plain":{}}`))
	f.Add([]byte(`{"version":2}`))
	seal, err := newSealer(make([]byte, sealKeySize))
	bridgetest.Must(f, err)
	sealed := &Store{dir: s.dir, now: time.Now, sealer: seal}
	hidden, err := sealed.encodeFile(of, 3, storedCredential{Credential: &b})
	bridgetest.Must(f, err)
	f.Add(hidden)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, s := range []*Store{s, sealed} {
			var c storedCredential
			g, err := s.decodeFile(of, data, &c)
			if err != nil {
				continue
			}
			e, err := c.toEntry(testKey, g)
			bridgetest.Must(t, err)
			again, err := s.encodeFile(of, g, c)
			if err != nil {
				continue // a time that cannot be written in JSON
			}
			var c2 storedCredential
			g2, err := s.decodeFile(of, again, &c2)
			bridgetest.Must(t, err)
			e2, err := c2.toEntry(testKey, g2)
			bridgetest.Must(t, err)
			if g2 != g || !reflect.DeepEqual(e.Credential, e2.Credential) || !slices.Equal(c.SpentRefreshHashes, c2.SpentRefreshHashes) {
				t.Errorf("%+v became %+v", e, e2)
			}
		}
	})
}
