package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// A testClock is a clock that a test sets.
type testClock struct{ offset atomic.Int64 }

func (c *testClock) now() time.Time      { return start.Add(time.Duration(c.offset.Load())) }
func (c *testClock) add(d time.Duration) { c.offset.Add(int64(d)) }
func (c *testClock) caller(from *EndpointCaller) *EndpointCaller {
	from.Now = c.now
	return from
}

// A provider serves a key set, and counts the requests for it.
type provider struct {
	mu     sync.Mutex
	status int
	body   string
	asked  int
	wait   chan struct{} // nil: it answers at once
}

func (p *provider) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	p.asked++
	status, body, wait := p.status, p.body, p.wait
	p.mu.Unlock()
	if wait != nil {
		<-wait
	}
	reply(w, status, body)
}

func (p *provider) set(status int, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.body = status, body
}

func (p *provider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// keySet returns JSON of public keys.
func keySet(t *testing.T, keys ...jose.JSONWebKey) string {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// newSet returns a KeySet of a provider that serves body.
func newSet(t *testing.T, body string) (*KeySet, *provider, *testClock) {
	t.Helper()
	p, clock := &provider{status: 200, body: body}, &testClock{}
	addr, c := serve(t, p.ServeHTTP)
	return &KeySet{URL: addr, Caller: clock.caller(c)}, p, clock
}

func TestKeysAreFetchedOnce(t *testing.T) {
	t.Parallel()
	key := newKey(t, elliptic.P256())
	s, p, _ := newSet(t, keySet(t, jose.JSONWebKey{Key: key.Public(), KeyID: "k1"}))
	p.wait = make(chan struct{})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if keys, err := s.keysFor(within(t), "k1", "ES256"); err != nil || len(keys) != 1 {
				t.Errorf("%v, %v", keys, err)
			}
		})
	}
	close(p.wait)
	wg.Wait()
	if p.count() != 1 {
		t.Errorf("fetched %d times", p.count())
	}
}

func TestUnknownKeysFetchSeldom(t *testing.T) {
	t.Parallel()
	old, young := newKey(t, elliptic.P256()), newKey(t, elliptic.P256())
	first := jose.JSONWebKey{Key: old.Public(), KeyID: "k1"}
	s, p, clock := newSet(t, keySet(t, first))
	ctx := within(t)
	if _, err := s.keysFor(ctx, "k1", "ES256"); err != nil {
		t.Fatal(err)
	}
	clock.add(31 * time.Second)
	for i := range 10_000 {
		_, err := s.keysFor(ctx, fmt.Sprint("random", i), "ES256")
		wantKind(t, err, InvalidToken)
	}
	if p.count() != 2 {
		t.Errorf("10,000 unknown keys: fetched %d times", p.count()-1)
	}
	p.set(200, keySet(t, first, jose.JSONWebKey{Key: young.Public(), KeyID: "k2"}))
	clock.add(29 * time.Second)
	_, err := s.keysFor(ctx, "k2", "ES256")
	wantKind(t, err, InvalidToken)
	clock.add(time.Second)
	if _, err := s.keysFor(ctx, "k2", "ES256"); err != nil || p.count() != 3 {
		t.Errorf("the new key after 30 s: %v, fetched %d times", err, p.count())
	}
	if _, err := s.keysFor(ctx, "k2", "RS256"); !Is(err, InvalidToken) {
		t.Errorf("an algorithm of another kind: %v", err)
	}
	if keys, err := s.keysFor(ctx, "", "ES256"); err != nil || len(keys) != 2 {
		t.Errorf("without a key id: %d keys, %v", len(keys), err)
	}
}

func TestProviderAway(t *testing.T) {
	t.Parallel()
	key := newKey(t, elliptic.P256())
	body := keySet(t, jose.JSONWebKey{Key: key.Public(), KeyID: "k1"})
	s, p, clock := newSet(t, body)
	p.set(503, "")
	ctx := within(t)
	_, err := s.keysFor(ctx, "k1", "ES256")
	if e := wantKind(t, err, Unavailable); e.RetryAfter != minFirstFetchInterval {
		t.Errorf("never had keys: %+v", e)
	}
	_, err = s.keysFor(ctx, "k1", "ES256")
	if wantKind(t, err, Unavailable); p.count() != 1 {
		t.Errorf("asked %d times at once", p.count())
	}
	p.set(200, body)
	clock.add(minFirstFetchInterval)
	keys, err := s.keysFor(ctx, "k1", "ES256")
	if err != nil {
		t.Fatal(err)
	}
	p.set(500, "")
	clock.add(time.Hour)
	for range 3 {
		if _, err := s.keysFor(ctx, "k1", "ES256"); err != nil {
			t.Errorf("a known key while the provider is away: %v", err)
		}
	}
	if has, err := s.Has(ctx, keys[0].thumbprint); !has || err != nil {
		t.Errorf("%v, %v", has, err)
	}
	if has, err := s.Has(ctx, "other"); has || err != nil {
		t.Errorf("%v, %v", has, err)
	}
	if p.count() != 3 {
		t.Errorf("asked %d times", p.count())
	}
	_, err = s.keysFor(ctx, "k2", "ES256") // perhaps the provider has it by now
	wantKind(t, err, Unavailable)
	clock.add(23*time.Hour - time.Second)
	if _, err := s.keysFor(ctx, "k1", "ES256"); err != nil {
		t.Errorf("within 24 hours: %v", err)
	}
	clock.add(time.Second)
	_, err = s.keysFor(ctx, "k1", "ES256")
	wantKind(t, err, Unavailable)
	_, err = s.Has(ctx, keys[0].thumbprint)
	wantKind(t, err, Unavailable)
}

func TestWithdrawnKey(t *testing.T) {
	t.Parallel()
	a, b := jose.JSONWebKey{Key: newKey(t, elliptic.P256()).Public(), KeyID: "a"}, jose.JSONWebKey{Key: newKey(t, elliptic.P256()).Public(), KeyID: "b"}
	s, p, clock := newSet(t, keySet(t, a, b))
	ctx := within(t)
	keys, err := s.keysFor(ctx, "a", "ES256")
	if err != nil {
		t.Fatal(err)
	}
	p.set(200, keySet(t, b))
	clock.add(14 * time.Minute)
	if has, err := s.Has(ctx, keys[0].thumbprint); !has || err != nil || p.count() != 1 {
		t.Errorf("%v, %v, asked %d times", has, err, p.count())
	}
	clock.add(time.Minute)
	if has, err := s.Has(ctx, keys[0].thumbprint); has || err != nil || p.count() != 2 {
		t.Errorf("%v, %v, asked %d times", has, err, p.count())
	}
}

func TestClockSetBack(t *testing.T) {
	t.Parallel()
	s, p, clock := newSet(t, keySet(t, jose.JSONWebKey{Key: newKey(t, elliptic.P256()).Public(), KeyID: "k1"}))
	ctx := within(t)
	for range 3 {
		if _, err := s.keysFor(ctx, "k1", "ES256"); err != nil {
			t.Fatal(err)
		}
	}
	clock.add(-24 * time.Hour)
	for range 3 {
		if _, err := s.keysFor(ctx, "k1", "ES256"); err != nil {
			t.Error(err)
		}
	}
	if p.count() != 2 {
		t.Errorf("asked %d times", p.count())
	}
}

// TestCallerThatLeaves: a fetch goes on for the others when the caller who has begun it has left.
func TestCallerThatLeaves(t *testing.T) {
	t.Parallel()
	s, p, _ := newSet(t, keySet(t, jose.JSONWebKey{Key: newKey(t, elliptic.P256()).Public(), KeyID: "k1"}))
	p.wait = make(chan struct{})
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	_, err := s.keysFor(ctx, "k1", "ES256")
	wantKind(t, err, Unavailable)
	close(p.wait)
	if _, err := s.keysFor(within(t), "k1", "ES256"); err != nil || p.count() != 1 {
		t.Errorf("the fetch did not go on: %v, %d requests", err, p.count())
	}
}

// A blackHole is a RoundTripper that answers nothing: each request lasts as long as its ctx. It counts them.
type blackHole struct{ requests atomic.Int32 }

func (b *blackHole) RoundTrip(r *http.Request) (*http.Response, error) {
	b.requests.Add(1)
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// newSilentSet returns a KeySet of a provider that answers nothing. It is closed with the test.
func newSilentSet(t *testing.T) (*KeySet, *blackHole) {
	b := new(blackHole)
	s := &KeySet{URL: "https://as.test/jwks", Caller: &EndpointCaller{HTTP: &http.Client{Transport: b}}}
	t.Cleanup(s.Close)
	return s, b
}

// TestSilentProvider: a provider that answers nothing is waited for as long as one fetch lasts, although the next one is due
// by then, and no longer than the caller's ctx. Those who come meanwhile wait for the same fetch.
func TestSilentProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, b := newSilentSet(t)
		began := time.Now()
		var wg sync.WaitGroup
		for _, lasts := range []time.Duration{time.Second, 2 * time.Second, time.Minute, time.Minute} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), lasts)
				defer cancel()
				_, err := s.keysFor(ctx, "k1", "ES256")
				if waited := time.Since(began); !Is(err, Unavailable) || waited != min(lasts, keysFetchTimeout) {
					t.Errorf("with %v: %v after %v", lasts, err, waited)
				}
			})
		}
		wg.Wait()
		if n := b.requests.Load(); n != 1 {
			t.Errorf("%d requests", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Has(ctx, "thumbprint"); !Is(err, Unavailable) || time.Since(began) != 2*keysFetchTimeout || b.requests.Load() != 2 {
			t.Errorf("the next one: %v after %v, %d requests", err, time.Since(began), b.requests.Load())
		}
	})
}

// TestCloseKeySet: Close ends the fetch in progress, and those who wait for it are told at once. No other one begins.
func TestCloseKeySet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, b := newSilentSet(t)
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := s.keysFor(t.Context(), "k1", "ES256"); !Is(err, Unavailable) {
				t.Error(err)
			}
		})
		synctest.Wait()
		s.Close()
		wg.Wait()
		if _, err := s.keysFor(t.Context(), "k1", "ES256"); !Is(err, Unavailable) || b.requests.Load() != 1 || time.Since(began) != 0 {
			t.Errorf("%v, %d requests, after %v", err, b.requests.Load(), time.Since(began))
		}
	})
}

// TestWaitAfterPrefetchCutShort: who waits for a fetch that is cut short waits for another one.
func TestWaitAfterPrefetchCutShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, b := newSilentSet(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.Prefetch(ctx) })
		synctest.Wait()
		began := time.Now()
		_, err := s.keysFor(t.Context(), "k1", "ES256")
		if waited := time.Since(began); !Is(err, Unavailable) || b.requests.Load() != 2 || waited != time.Second+keysFetchTimeout {
			t.Errorf("%v, %d requests, after %v", err, b.requests.Load(), waited)
		}
		wg.Wait()
	})
}

// A fetch that was cut short does not keep the next one waiting.
func TestPrefetchCutShort(t *testing.T) {
	t.Parallel()
	s, _, _ := newSet(t, keySet(t, jose.JSONWebKey{Key: newKey(t, elliptic.P256()).Public(), KeyID: "k1"}))
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	if err := s.Prefetch(ctx); err == nil {
		t.Error("the fetch went on")
	}
	if _, err := s.keysFor(within(t), "k1", "ES256"); err != nil {
		t.Error(err)
	}
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	ec := newKey(t, elliptic.P256())
	public, private := keyJSON(t, ec.Public()), keyJSON(t, ec)
	with := func(text, more string) string { return strings.TrimSuffix(text, "}") + "," + more + "}" }
	weak := keyJSON(t, &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 2046, 1), E: 65537})
	strong := keyJSON(t, &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 2047, 1), E: 65537})
	vast := keyJSON(t, &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 9000, 1), E: 65537})
	seed := ed25519.NewKeyFromSeed(make([]byte, 32))
	for name, test := range map[string]struct {
		text string
		algs string
	}{
		"EC":              {public, "ES256"},
		"RSA":             {strong, "RS256 RS384 RS512 PS256 PS384 PS512"},
		"RSA for one":     {with(strong, `"alg":"PS256","use":"sig"`), "PS256"},
		"Ed25519":         {keyJSON(t, seed.Public()), "EdDSA"},
		"P-521":           {keyJSON(t, newKey(t, elliptic.P521()).Public()), "ES512"},
		"verify":          {with(public, `"key_ops":["verify"],"x5c":["bad"]`), "ES256"},
		"private":         {private, ""},
		"secret":          {`{"kty":"oct","k":"c2VjcmV0"}`, ""},
		"weak RSA":        {weak, ""},
		"vast RSA":        {vast, ""},
		"encryption":      {with(public, `"use":"enc"`), ""},
		"signing":         {with(public, `"key_ops":["sign"]`), ""},
		"HS256":           {with(public, `"alg":"HS256"`), ""},
		"other algorithm": {with(public, `"alg":"ES384"`), ""},
		"member twice":    {with(public, `"kty":"RSA"`), ""},
		"point off curve": {`{"kty":"EC","crv":"P-256","x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE","y":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE"}`, ""},
		"no key":          {`{}`, ""},
		"not an object":   {`[]`, ""},
	} {
		k, err := parseKey([]byte(test.text))
		if got := strings.Join(k.algs, " "); test.algs == "" && err == nil || test.algs != "" && (err != nil || got != test.algs || k.thumbprint == "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	many := func(n int) string { return `{"keys":[` + strings.TrimSuffix(strings.Repeat(public+",", n), ",") + `]}` }
	if keys, err := parseKeys([]byte(many(100))); err != nil || len(keys) != 100 {
		t.Errorf("100 keys: %d, %v", len(keys), err)
	}
	for _, text := range []string{many(101), many(0), `{"keys":{}}`, `{}`, `<html>`, `{"keys":[{"kty":"oct","k":"x"}]}`} {
		_, err := parseKeys([]byte(text))
		wantKind(t, err, Invalid)
	}
}

// keyJSON returns a key as JSON.
func keyJSON(t *testing.T, key any) string {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKey{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func FuzzParseKeys(f *testing.F) {
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), append(make([]byte, 31), 1))
	if err != nil {
		f.Fatal(err)
	}
	text, _ := json.Marshal(jose.JSONWebKey{Key: key.Public(), KeyID: "k", Algorithm: "ES256"})
	f.Add(`{"keys":[` + string(text) + `]}`)
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := parseKeys([]byte(text))
		if (err == nil) != (len(keys) > 0) || len(keys) > maxKeysPerSet {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for _, k := range keys {
			if len(k.algs) == 0 || k.thumbprint == "" || !k.jwk.IsPublic() {
				t.Fatalf("%q has the key %+v", text, k)
			}
		}
	})
}
