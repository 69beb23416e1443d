package tokenstore

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A fakeRing is a keyring in memory.
type fakeRing struct {
	mu       sync.Mutex
	secrets  map[string]string
	err      error         // of every call
	forgets  bool          // keeps nothing
	sets     int           // calls of Set
	stuck    chan struct{} // not nil: Get waits until it is closed
	tellsAll bool          // the error of Set has the secret in its text
	meets    int           // so many calls of Get return only when as many have come
	meet     sync.WaitGroup
}

func (r *fakeRing) Get(_ context.Context, service, user string) (string, bool, error) {
	if r.stuck != nil {
		<-r.stuck
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	secret, found := r.secrets[service+"/"+user]
	if r.meets > 0 {
		r.meets--
		r.mu.Unlock()
		r.meet.Done()
		r.meet.Wait()
		r.mu.Lock()
	}
	return secret, found, r.err
}

func (r *fakeRing) Set(_ context.Context, service, user, secret string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sets++
	if r.tellsAll {
		return errors.New("cannot store " + secret)
	}
	if r.secrets == nil {
		r.secrets = map[string]string{}
	}
	if !r.forgets {
		r.secrets[service+"/"+user] = secret
	}
	return r.err
}

func openSealed(t *testing.T, dir string, ring Keyring) *Store {
	t.Helper()
	s, err := Open(within(t), Options{Dir: dir, Keyring: ring})
	bridgetest.Must(t, err)
	return s
}

// TestSealed: nothing that is secret stands in any file; with the same keyring everything is
// there again, with another one, or with none, that is said, and the files stay as they are.
func TestSealed(t *testing.T) {
	t.Parallel()
	ring := &fakeRing{}
	dir := t.TempDir()
	bridgetest.Must(t, os.Chmod(dir, 0o700))
	s := openSealed(t, dir, ring)
	g := save(t, s, named("a"))
	bridgetest.Must(t, saveMetadata(t, s, testKey, Metadata{Documents: map[string]json.RawMessage{"x": json.RawMessage(`"` + canary + `"`)}}))
	bridgetest.Must(t, s.UpdateRegistrations(within(t), canary, func([]Registration) ([]Registration, error) {
		return []Registration{{ClientID: canary, ClientSecret: NewSecret(canary)}}, nil
	}))
	login, err := s.TryLockLogin(testKey)
	bridgetest.Must(t, err)
	bridgetest.Must(t, login.Announce(LoginAnnouncement{SignInURL: canary}))
	for _, sub := range []string{credentialFolder, clientFolder, metadataFolder} {
		for _, name := range names(t, s.filePath(sub, "")) {
			if strings.Contains(contents(t, s.filePath(sub, name)), canary) {
				t.Errorf("%s/%s has a secret in it", sub, name)
			}
		}
	}
	if got, _, err := s.PendingLogin(testKey); err != nil || got.SignInURL != canary {
		t.Errorf("pending %+v, %v", got, err)
	}
	bridgetest.Must(t, login.Release())
	again := openSealed(t, dir, ring)
	if e := wantAccount(t, again, "a"); e.Generation != g || e.Credential.AccessToken.Reveal() != canary+"-a-a" {
		t.Errorf("%+v", e)
	}
	if issuers, err := again.IssuersWithRegistrations(); err != nil || len(issuers) != 1 || issuers[0] != canary {
		t.Errorf("issuers %q, %v", issuers, err)
	}
	if ring.sets != 1 {
		t.Errorf("%d keys were made", ring.sets)
	}
	before := contents(t, credPath(s))
	refuses := func(s *Store, kind ErrorKind) {
		t.Helper()
		_, err := s.Load(within(t), testKey)
		wantKind(t, err, kind)
		_, err = s.Save(within(t), testKey, named("b"), g)
		wantKind(t, err, kind)
		if contents(t, credPath(s)) != before {
			t.Error("the file is another one")
		}
	}
	refuses(open(t, dir), ErrSealed)
	refuses(openSealed(t, dir, &fakeRing{}), ErrOtherKey)
	bridgetest.Must(t, s.Delete(within(t), testKey))
	save(t, open(t, dir), named("plain"))
	before = contents(t, credPath(s))
	refuses(s, ErrPlain)
}

// TestSealedTampered: an encrypted file that was changed, or is that of another key or
// generation, is broken.
func TestSealedTampered(t *testing.T) {
	t.Parallel()
	s := openSealed(t, t.TempDir()+"/auth", &fakeRing{})
	g := save(t, s, named("a"))
	other, err := s.Save(within(t), otherKey, named("b"), 0)
	bridgetest.Must(t, err)
	e, err := parseEnvelope(storeFile{credentialFolder, string(testKey)}, []byte(contents(t, credPath(s))))
	bridgetest.Must(t, err)
	foreign, err := parseEnvelope(storeFile{credentialFolder, string(otherKey)}, []byte(contents(t, s.filePath(credentialFolder, string(otherKey)+".json"))))
	bridgetest.Must(t, err)
	later, flipped, short := e, *e.Sealed, *e.Sealed
	later.Generation = g + 1
	moved := e
	moved.Sealed, moved.Generation = foreign.Sealed, other
	flipped.Data = append([]byte{^flipped.Data[0]}, flipped.Data[1:]...)
	short.Nonce = short.Nonce[1:]
	for _, bad := range []fileEnvelope{later, moved, {Version: 1, Kind: e.Kind, Name: e.Name, Generation: g, Sealed: &flipped},
		{Version: 1, Kind: e.Kind, Name: e.Name, Generation: g, Sealed: &short}} {
		data, err := json.Marshal(bad)
		bridgetest.Must(t, err)
		bridgetest.Must(t, os.WriteFile(credPath(s), data, 0o600))
		_, err = s.Load(within(t), testKey)
		if e := wantKind(t, err, ErrBroken); e.MovedTo == "" {
			t.Error("it was not set aside")
		}
	}
}

// TestNoKeyring: each way in which a keyring can fail is an error of Open; nothing is stored
// in plain instead, and a key that is not ours stays.
func TestNoKeyring(t *testing.T) {
	t.Parallel()
	foreign := map[string]string{keyringService + "/" + keyringUser: canary}
	for name, ring := range map[string]*fakeRing{
		"fails": {err: errors.New("away")}, "forgets": {forgets: true}, "foreign": {secrets: foreign}, "tells all": {tellsAll: true},
	} {
		_, err := Open(within(t), Options{Dir: t.TempDir() + "/auth", Keyring: ring})
		wantKind(t, err, ErrNoKeyring)
		if name == "foreign" && ring.sets != 0 {
			t.Error("a foreign key was overwritten")
		}
		if name == "tells all" && strings.Contains(err.Error(), "cannot store") {
			t.Errorf("the key is in the error: %v", err)
		}
	}
}

// TestStuckKeyring: Open does not wait longer than its ctx, nor longer than somebody takes to unlock the keyring, and when the keyring answers at
// last, no key is made for the Open that has given up.
func TestStuckKeyring(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/auth"
	synctest.Test(t, func(t *testing.T) {
		stuck := &fakeRing{stuck: make(chan struct{})}
		for _, limit := range []time.Duration{time.Second, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			began := time.Now()
			_, err := Open(ctx, Options{Dir: dir, Keyring: stuck})
			cancel()
			wantKind(t, err, ErrNoKeyring)
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != min(limit, keyringTimeout) {
				t.Errorf("after %v the error does not tell of the ctx: %v", took, err)
			}
		}
		close(stuck.stuck)
		synctest.Wait()
		if stuck.sets != 0 {
			t.Error("a key was made")
		}
	})
}

// TestKeyringGivesUp: the error is the same whether Open or the keyring is the first to see that the time is over.
func TestKeyringGivesUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/auth"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var wg sync.WaitGroup
	for range 16 { // so that sometimes the answer comes before Open looks
		wg.Go(func() {
			for range 100 {
				_, err := Open(ctx, Options{Dir: dir, Keyring: &fakeRing{err: context.Canceled}})
				if !errors.Is(err, ErrNoKeyring) || !strings.Contains(err.Error(), "it has not answered in time") {
					t.Errorf("the error is %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestOneKeyForAll: of many that find no key, one makes it.
func TestOneKeyForAll(t *testing.T) {
	t.Parallel()
	const openers = 8
	ring, dir := &fakeRing{}, t.TempDir()+"/auth"
	ring.meet.Add(openers) // all find no key before one makes it
	ring.meets = openers
	var wg sync.WaitGroup
	for range openers {
		wg.Go(func() {
			if _, err := Open(within(t), Options{Dir: dir, Keyring: ring}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if ring.sets != 1 {
		t.Errorf("%d keys were made", ring.sets)
	}
}
