package resource

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
)

// TestSleep: the machine sleeps, so that its clock goes on and timers do not: what was opened with a token that has expired
// meanwhile ends within a minute after that, and what is still valid does not.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		e := tokenExpiries{now: func() time.Time { return time.Now().Add(time.Duration(slept.Load())).Round(0) }}
		defer e.close()
		long := e.contextUntil(e.now().Add(5 * time.Hour))
		short := e.contextUntil(e.now().Add(time.Hour))
		time.Sleep(10 * time.Minute)
		slept.Store(int64(2 * time.Hour))
		if short.Err() != nil {
			t.Error("it has ended too early")
		}
		time.Sleep(clockCheckInterval)
		synctest.Wait()
		if context.Cause(short) != access.ErrExpired || long.Err() != nil {
			t.Errorf("after the sleep: %v, and the other %v", context.Cause(short), long.Err())
		}
		time.Sleep(2*time.Hour + 52*time.Minute)
		synctest.Wait()
		if context.Cause(long) != access.ErrExpired {
			t.Error("the other one goes on")
		}
	})
}

// TestClockOfProtector: a Protector goes by the wall clock, which has no reading of another one.
func TestClockOfProtector(t *testing.T) {
	t.Parallel()
	p, err := New(Options{Issuers: []Issuer{{URL: "https://id.example"}}, PublicURL: public, Resources: []Resource{{Paths: []string{"/mcp"}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if now := p.options.Now(); now != now.Round(0) {
		t.Errorf("%v has a monotonic reading", now)
	}
}

// TestIntrospectedClockBack: an answer of the introspection endpoint counts for a minute, also where the clock is set back a day
// meanwhile.
func TestIntrospectedClockBack(t *testing.T) {
	t.Parallel()
	p, as, clock := setup(t, func(as *provider, o *Options) {
		o.Issuers = nil
		o.Introspection = &Introspection{Endpoint: as.URL + "/introspect", ClientID: "bridge", ClientSecret: func() (string, error) { return authtest.IntrospectionClientSecret, nil }}
		as.Introspection["opaque-token-of-ann"] = map[string]any{"active": true, "sub": "ann", "aud": audience, "scope": "mcp"}
	})
	want(t, p, "Bearer opaque-token-of-ann", 200)
	as.Change(func() { delete(as.Introspection, "opaque-token-of-ann") })
	want(t, p, "Bearer opaque-token-of-ann", 200)
	clock.add(-24 * time.Hour)
	want(t, p, "Bearer opaque-token-of-ann", 401)
}
