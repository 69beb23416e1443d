package tokenstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A clock is what a Store takes for the time.
type clock struct{ at time.Time }

func clocked(t *testing.T) (*Store, *clock) {
	s := newStore(t)
	c := &clock{time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)}
	s.now = func() time.Time { return c.at }
	return s, c
}

// requests makes token requests until the rate limit is on, at most n, and returns how many.
func requests(t *testing.T, s *Store, n, limit int) (made int) {
	t.Helper()
	for range n {
		err := s.WithLock(within(t), testKey, func(l *LockedCredential) error { return l.CountTokenRequest(limit) })
		if errors.Is(err, ErrRateLimit) {
			return made
		}
		bridgetest.Must(t, err)
		made++
	}
	return made
}

// TestBrake: six requests a minute of all Stores together; then none, until it is reset.
func TestBrake(t *testing.T) {
	t.Parallel()
	s, now := clocked(t)
	other := open(t, s.Dir())
	other.now = s.now
	g := save(t, s, named("a"))
	for range 10 { // one each ten seconds is allowed for ever
		if requests(t, s, 1, 0)+requests(t, other, 1, 0) != 2 {
			t.Fatal("a request was refused")
		}
		now.at = now.at.Add(20 * time.Second)
	}
	now.at = now.at.Add(time.Hour)
	if n := requests(t, s, 4, 0) + requests(t, other, 10, 0); n != 6 {
		t.Errorf("%d requests in a minute", n)
	}
	limited := wantAccount(t, s, "a")
	if !limited.RateLimitedAt.Equal(now.at) || limited.Generation != g {
		t.Errorf("the entry is %+v", limited)
	}
	now.at = now.at.Add(24 * time.Hour)
	if n := requests(t, s, 1, 0); n != 0 {
		t.Error("the rate limit is off after a day")
	}
	save(t, s, named("b"))
	if n := requests(t, s, 1, 100); n != 0 {
		t.Error("the rate limit is off after a Save")
	}
	locked(t, s, (*LockedCredential).ForgetTokenRequests)
	if n := requests(t, s, 10, 0); n != 6 {
		t.Errorf("%d requests after a reset", n)
	}
	if e := wantAccount(t, s, "b"); e.RateLimitedAt.IsZero() {
		t.Error("the entry does not tell of the rate limit")
	}
}

func TestBrakeLimits(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{0: 6, -1: 6, 1: 1, 15: 15} {
		s, _ := clocked(t)
		if n := requests(t, s, 40, limit); n != want {
			t.Errorf("limit %d: %d requests", limit, n)
		}
		if e, err := s.Load(within(t), testKey); err != nil || e.Generation != 0 || e.RateLimitedAt.IsZero() {
			t.Errorf("without a credential: %+v, %v", e, err)
		}
	}
}

// TestBrakeClock: a clock that goes back by a day neither locks out for that day nor takes
// the rate limit off.
func TestBrakeClock(t *testing.T) {
	t.Parallel()
	s, now := clocked(t)
	requests(t, s, 5, 0)
	now.at = now.at.Add(-24 * time.Hour)
	if n := requests(t, s, 1, 0); n != 1 {
		t.Error("the sixth request was refused")
	}
	now.at = now.at.Add(time.Minute)
	if n := requests(t, s, 5, 0); n != 5 {
		t.Errorf("a minute later only %d requests", n)
	}
	for range 3 { // a clock that goes back before each request
		now.at = now.at.Add(-24 * time.Hour)
		if requests(t, s, 1, 0) == 0 {
			return
		}
	}
	t.Error("the rate limit does not work while the clock goes back")
}

// TestSpent: a refresh token that was replaced or refused is known as spent, and is not in the file.
func TestSpent(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	first, second := NewSecret(canary+"-first"), NewSecret(canary+"-second")
	spent := func(want bool, refresh Secret) {
		t.Helper()
		locked(t, open(t, s.Dir()), func(l *LockedCredential) error {
			if l.IsRefreshTokenSpent(refresh) != want {
				t.Errorf("spent: %v", !want)
			}
			return nil
		})
	}
	save(t, s, Credential{RefreshToken: first})
	spent(false, first)
	save(t, s, Credential{RefreshToken: first}) // the issuer may give the same one again
	spent(false, first)
	save(t, s, Credential{RefreshToken: second, AccessToken: NewSecret("a")})
	spent(true, first)
	spent(false, second)
	spent(false, Secret{})
	g := wantAccount(t, s, "").Generation
	locked(t, s, func(l *LockedCredential) error { return l.MarkRefreshTokenSpent(NewSecret("a third one")) })
	spent(true, NewSecret("a third one"))
	if e := wantAccount(t, s, ""); e.Generation != g || !e.Credential.RefreshToken.Equal(second) {
		t.Errorf("another token's end changed the credential: %+v", e)
	}
	locked(t, s, func(l *LockedCredential) error { return l.MarkRefreshTokenSpent(second) })
	e := wantAccount(t, s, "")
	if e.Generation == g || !e.Credential.RefreshToken.IsZero() || e.Credential.AccessToken.Reveal() != "a" {
		t.Errorf("after the end of the stored token: %+v", e)
	}
	spent(true, second)
	save(t, s, Credential{RefreshToken: first}) // given by the issuer, so it is good
	spent(false, first)
	save(t, s, Credential{})
	for i := range maxSpentHashes - 1 {
		locked(t, s, func(l *LockedCredential) error { return l.MarkRefreshTokenSpent(NewSecret(fmt.Sprint(i))) })
	}
	spent(true, first)
	locked(t, s, func(l *LockedCredential) error { return l.MarkRefreshTokenSpent(NewSecret("one more")) })
	spent(false, first) // the oldest one is forgotten
	if len(contents(t, credPath(s))) > 100*maxSpentHashes {
		t.Error("the file grows")
	}
}
