package client

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// inBubble runs a test with a clock of its own.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

// TestRenewedOnce: of many who use a token that has ended, one asks for a new one.
func TestRenewedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, time.Hour)
		first := access(t, c)
		time.Sleep(2 * time.Hour)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if got := access(t, c); got == first {
					t.Error("the old token is used")
				}
			})
		}
		wg.Wait()
		w.wantCount(t, "/token", 1)
		if form := w.forms[0]; form.Get("resource") != testServer || form.Get("grant_type") != "refresh_token" {
			t.Errorf("the refresh was %v", form)
		}
		if s := w.stored(t, c); s.AccessToken.Reveal() != access(t, c) || !w.refresh[s.RefreshToken.Reveal()] {
			t.Error("the new pair is not stored")
		}
	})
}

// TestRenewedAhead: in the last part of its life a token is renewed, while nobody waits for that; and
// without traffic nothing happens.
func TestRenewedAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, time.Hour)
		first := access(t, c)
		time.Sleep(54 * time.Minute)
		if access(t, c) != first {
			t.Error("another token")
		}
		synctest.Wait()
		w.wantCount(t, "/token", 0)
		time.Sleep(5*time.Minute + 30*time.Second)
		w.then("/token", func(http.ResponseWriter, *http.Request) bool { time.Sleep(time.Second); return false })
		if access(t, c) != first {
			t.Error("somebody waited for a token that was still valid")
		}
		time.Sleep(2 * time.Second)
		if access(t, c) == first {
			t.Error("the token was not renewed")
		}
		w.wantCount(t, "/token", 1)
	})
}

// TestNoExpiry: a token of which nobody says when it ends is renewed after a 401 only.
func TestNoExpiry(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.life = ""
		c := w.credential(t, w.options())
		w.sign(t, c, 0)
		first := access(t, c)
		time.Sleep(1000 * time.Hour)
		if access(t, c) != first {
			t.Error("the token was renewed")
		}
		h, err := c.renewer.replaceRefusedToken(t.Context(), c.tokens.current.Load())
		bridgetest.Must(t, err)
		if h.token().AccessToken == first {
			t.Error("the refused token is used")
		}
		time.Sleep(1000 * time.Hour)
		_ = access(t, c)
		w.wantCount(t, "/token", 1)
	})
}

// TestCallerLeaves: what a caller that leaves has asked for is stored all the same; and Close waits for it.
func TestCallerLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, time.Hour)
		time.Sleep(2 * time.Hour)
		w.then("/token", func(http.ResponseWriter, *http.Request) bool { time.Sleep(10 * time.Second); return false })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Token(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Token returned %v", err)
		}
		c.Close(t.Context())
		if s := w.stored(t, c); !w.refresh[s.RefreshToken.Reveal()] {
			t.Error("the rotated pair is lost")
		}
		w.wantCount(t, "/token", 1)
	})
}

// TestFailsOnce: of many who use a token that has ended, one asks, also if that fails.
func TestFailsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, time.Hour)
		first := access(t, c)
		time.Sleep(2 * time.Hour)
		for range 20 {
			w.then("/token", func(rw http.ResponseWriter, r *http.Request) bool {
				time.Sleep(time.Second)
				return answer(503, "")(rw, r)
			})
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if access(t, c) != first {
					t.Error("the old token is not used")
				}
			})
		}
		wg.Wait()
		w.wantCount(t, "/token", 1)
	})
}

// TestClockBack: a clock that is set back a day does not hold up a renewal for a day.
func TestClockBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o := w.options()
		var back time.Duration
		o.Now = func() time.Time { return time.Now().Add(-back) }
		c := w.credential(t, o)
		w.sign(t, c, 0)
		w.then("/token", answer(503, ""))
		h, err := c.renewer.usableSnapshot(t.Context())
		bridgetest.Must(t, err)
		if _, err := c.renewer.replaceRefusedToken(t.Context(), h); err == nil {
			t.Error("no error")
		}
		back = 25 * time.Hour
		if _, err := c.renewer.replaceRefusedToken(t.Context(), h); err != nil {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestTransient: what may work later deletes nothing, the old token is used, and the next attempt is not at once.
func TestTransient(t *testing.T) {
	for name, fault := range map[string]step{
		"503":              answer(503, "", "Retry-After", "60"),
		"429":              answer(429, `{"error":"slow_down_please"}`),
		"page":             answer(200, "<html>", "Content-Type", "text/html"),
		"redirect":         answer(307, "", "Location", "https://evil.test/token"),
		"500 server_error": answer(500, `{"error":"server_error"}`),
		"no token":         answer(200, `{"token_type":"Bearer"}`),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				c := w.credential(t, w.options())
				w.sign(t, c, time.Hour)
				first := access(t, c)
				before := w.stored(t, c).RefreshToken
				time.Sleep(2 * time.Hour)
				w.then("/token", fault)
				for range 5 {
					if access(t, c) != first {
						t.Error("the old token is not used")
					}
				}
				w.wantCount(t, "/token", 1)
				if !w.stored(t, c).RefreshToken.Equal(before) {
					t.Error("the refresh token is gone")
				}
				if name == "503" {
					time.Sleep(55 * time.Second)
					_ = access(t, c)
					w.wantCount(t, "/token", 1)
				}
				time.Sleep(2 * time.Minute)
				if access(t, c) == first {
					t.Error("the token is not renewed afterwards")
				}
				w.wantCount(t, "/token", 2)
			})
		})
	}
}

// TestExpiresInText: a life that is a string is a life.
func TestExpiresInText(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.life = `"600"`
		c := w.credential(t, w.options())
		w.sign(t, c, time.Hour)
		time.Sleep(2 * time.Hour)
		_ = access(t, c)
		if life := w.stored(t, c).ExpiresAt.Sub(c.now()); life != 10*time.Minute {
			t.Errorf("the token ends in %v", life)
		}
	})
}

// TestInvalidGrant: a refresh token that is refused is never sent again; a valid access token stays in use.
func TestInvalidGrant(t *testing.T) {
	for _, status := range []int{400, 200} {
		inner := func(t *testing.T, w *world) {
			c := w.credential(t, w.options())
			w.sign(t, c, time.Hour)
			first := access(t, c)
			time.Sleep(59 * time.Minute)
			w.then("/token", answer(status, `{"error":"invalid_grant"}`))
			_ = access(t, c)
			synctest.Wait()
			if access(t, c) != first {
				t.Error("the valid access token is not used")
			}
			time.Sleep(time.Hour)
			for _, other := range []*Credential{c, w.credential(t, w.options())} {
				_ = access(t, other)
				h, err := other.renewer.replaceRefusedToken(t.Context(), other.tokens.current.Load())
				if h != nil || err != nil {
					t.Errorf("there is a token again: %v, %v", h != nil, err)
				}
				if access(t, other) != "" {
					t.Error("the token that was refused is used again")
				}
			}
			w.wantCount(t, "/token", 1)
			if s := w.stored(t, c); !s.RefreshToken.IsZero() || s.AccessToken.IsZero() {
				t.Errorf("stored is refresh %v, access %v", s.RefreshToken, s.AccessToken)
			}
		}
		t.Run(http.StatusText(status), func(t *testing.T) { inBubble(t, inner) })
	}
}

// TestRefusedForGood: an access token that was refused is not used again when its renewal has failed for good.
func TestRefusedForGood(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, 0)
		clear(w.refresh)
		h, err := c.renewer.usableSnapshot(t.Context())
		bridgetest.Must(t, err)
		_, err = c.renewer.replaceRefusedToken(t.Context(), h)
		if _, ok := errors.AsType[*SignInRequired](err); !ok {
			t.Errorf("the error is %v", err)
		}
		if access(t, c) != "" {
			t.Error("it is used again")
		}
	})
}

// TestLostAnswer: the server rotates and does not answer. The token is sent once more, and not a third time
// once the server has said that it is spent.
func TestLostAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, time.Hour)
		_ = access(t, c)
		time.Sleep(2 * time.Hour)
		old := w.stored(t, c).RefreshToken.Reveal()
		w.then("/token", func(rw http.ResponseWriter, r *http.Request) bool {
			w.mu.Lock()
			delete(w.refresh, old)
			w.spent[old] = true
			w.mu.Unlock()
			return hang(rw, r)
		})
		_ = access(t, c)
		w.wantCount(t, "/token", 2)
		if !w.stored(t, c).RefreshToken.IsZero() {
			t.Error("the spent token is kept")
		}
		time.Sleep(time.Hour)
		_, _ = c.renewer.replaceRefusedToken(t.Context(), c.tokens.current.Load())
		w.wantCount(t, "/token", 2)
	})
}

// TestAdopts: after a 401 for a token that another process has replaced, the new one is taken and none is asked for.
func TestAdopts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.credential(t, w.options()), w.credential(t, w.options())
		w.sign(t, a, time.Hour)
		_, _ = access(t, a), access(t, b)
		old := b.tokens.current.Load()
		_, err := a.renewer.replaceRefusedToken(t.Context(), a.tokens.current.Load())
		bridgetest.Must(t, err)
		h, err := b.renewer.replaceRefusedToken(t.Context(), old)
		bridgetest.Must(t, err)
		if h.token().AccessToken != access(t, a) || access(t, b) != access(t, a) {
			t.Error("they have different tokens")
		}
		w.wantCount(t, "/token", 1)
	})
}

// TestBrake: a server that refuses every token does not get more than a few token requests, from all
// processes together; then the error stays.
func TestBrake(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		cs := []*Credential{w.credential(t, w.options()), w.credential(t, w.options())}
		w.sign(t, cs[0], time.Hour)
		var last error
		for range 10 {
			for _, c := range cs {
				h, err := c.renewer.usableSnapshot(t.Context())
				if h != nil {
					_, err = c.renewer.replaceRefusedToken(t.Context(), h)
				}
				if err != nil {
					last = err
				}
			}
		}
		w.wantCount(t, "/token", tokenstore.DefaultRequestsPerMinute)
		if !errors.Is(last, tokenstore.ErrRateLimit) {
			t.Errorf("the error is %v", last)
		}
	})
}

// TestForgottenClient: who is not known any more must sign in; a client that somebody registered by hand is a mistake of
// settings, and loses nothing.
func TestForgottenClient(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o := w.options()
		byHand := w.credential(t, o)
		w.sign(t, byHand, time.Hour)
		h, err := byHand.renewer.usableSnapshot(t.Context())
		bridgetest.Must(t, err)
		delete(w.clients, "c1")
		var permanent *PermanentError
		if _, err := byHand.renewer.replaceRefusedToken(t.Context(), h); !errors.As(err, &permanent) {
			t.Errorf("the error is %v", err)
		}
		wantNoSecret(t, err)
		if w.stored(t, byHand).RefreshToken.IsZero() {
			t.Error("the refresh token is gone")
		}
		o.ClientID = ""
		dynamic := w.credential(t, o)
		w.sign(t, dynamic, time.Hour)
		h, err = dynamic.renewer.usableSnapshot(t.Context())
		bridgetest.Must(t, err)
		var required *SignInRequired
		if _, err := dynamic.renewer.replaceRefusedToken(t.Context(), h); !errors.As(err, &required) {
			t.Errorf("the error is %v", err)
		}
		w.wantCount(t, "/token", 2)
	})
}

// TestNotWritten: a pair that cannot be stored is used, and stored as soon as that works. If it is due by then, it is what is
// renewed, not the one before it.
func TestNotWritten(t *testing.T) {
	for later, requests := range map[time.Duration]int{time.Minute: 1, 2 * time.Hour: 2} {
		t.Run(later.String(), func(t *testing.T) { testNotWritten(t, later, requests) })
	}
}

// testNotWritten has the new credential asked for so long after the store can be written again, and wants so many token requests.
func testNotWritten(t *testing.T, later time.Duration, requests int) {
	inBubble(t, func(t *testing.T, w *world) {
		o := w.options()
		var mu sync.Mutex
		var told []error
		o.OnError = func(err error) { mu.Lock(); told = append(told, err); mu.Unlock() }
		c := w.credential(t, o)
		w.sign(t, c, time.Hour)
		first := access(t, c)
		time.Sleep(2 * time.Hour)
		folder := filepath.Join(w.store.Dir(), "v1", "cred")
		w.then("/token", func(http.ResponseWriter, *http.Request) bool { _ = os.Chmod(folder, 0o755); return false })
		second := access(t, c)
		if second == first {
			t.Error("the new token is not used")
		}
		bridgetest.Must(t, os.Chmod(folder, 0o700))
		mu.Lock()
		if len(told) != 1 || !errors.Is(told[0], tokenstore.ErrUnsafe) {
			t.Errorf("told was %v", told)
		}
		mu.Unlock()
		time.Sleep(later)
		third := access(t, c)
		if isNew := third != second; third == "" || isNew != (requests > 1) {
			t.Errorf("another token: %v", isNew)
		}
		synctest.Wait()
		if w.stored(t, c).AccessToken.Reveal() != third {
			t.Error("it was not stored afterwards")
		}
		w.wantCount(t, "/token", requests)
	})
}

// TestOnlyRefresh: a credential without an access token gets one before the first request.
func TestOnlyRefresh(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, 0)
		s := w.stored(t, c)
		s.AccessToken = tokenstore.Secret{}
		e, err := w.store.Load(t.Context(), c.key)
		bridgetest.Must(t, err)
		_, err = w.store.Save(t.Context(), c.key, s, e.Generation)
		bridgetest.Must(t, err)
		if got := access(t, c); !w.access[got] {
			t.Error("there is no token")
		}
		w.wantCount(t, "/token", 1)
	})
}

// TestSignedOut: a running process does not bring back what was deleted.
func TestSignedOut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, time.Hour)
		_ = access(t, c)
		bridgetest.Must(t, w.store.Delete(t.Context(), c.key))
		time.Sleep(2 * time.Hour)
		if got := access(t, c); got != "" {
			t.Error("there is a token")
		}
		w.wantCount(t, "/token", 0)
	})
}

// TestRenewAt: ten processes that share a token of five seconds do not ask for more than 13 in a minute.
func TestRenewAt(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	w := newWorld(t)
	c := w.credential(t, w.options())
	for _, x := range []struct {
		life, first, last time.Duration
	}{{5 * time.Second, 4580 * time.Millisecond, 4800 * time.Millisecond}, {time.Hour, 55 * time.Minute, time.Hour - maxRenewAhead/2}, {24 * time.Hour, 24*time.Hour - maxRenewAhead, 24*time.Hour - maxRenewAhead/2}} {
		for _, r := range []float64{0, 1} {
			c.random = func() float64 { return r }
			h, err := c.tokens.newSnapshot(tokenstore.Entry{Generation: 1, Credential: tokenstore.Credential{
				AccessToken: tokenstore.NewSecret("a"), TokenType: "Bearer", IssuedAt: now, ExpiresAt: now.Add(x.life)}})
			bridgetest.Must(t, err)
			if at := h.renewAt.Sub(now); at < x.first || at > x.last {
				t.Errorf("a token that lives for %v is renewed after %v, want %v to %v", x.life, at, x.first, x.last)
			}
		}
	}
}
