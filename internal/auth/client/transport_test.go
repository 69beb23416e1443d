package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// post sends a message to the MCP server, and returns the answer's status and text.
func (w *world) post(t *testing.T, c *Credential) (int, string, error) {
	t.Helper()
	hc := &http.Client{Transport: &Transport{Base: w.wire, Credential: c}}
	resp, err := hc.Post(w.server, "application/json", strings.NewReader(`{"jsonrpc":"2.0"}`))
	if err != nil {
		wantNoSecret(t, err)
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	bridgetest.Must(t, err)
	return resp.StatusCode, string(text), nil
}

// wantServed checks that the MCP server takes what the client sends.
func (w *world) wantServed(t *testing.T, c *Credential) {
	t.Helper()
	if status, text, err := w.post(t, c); err != nil || status != 200 || text != "served" {
		t.Errorf("status %d, %q, error %v", status, text, err)
	}
}

// signsIn is a SignInFunc that stores a credential with these scopes, as another process would.
func (w *world) signsIn(t *testing.T, count *int) SignInFunc {
	return func(ctx context.Context, c *Credential, _ SignInRequired) error {
		*count++
		w.sign(t, c, 0)
		w.mu.Lock()
		w.granted[w.stored(t, c).AccessToken.Reveal()] = "mcp:other"
		w.mu.Unlock()
		return c.record.noteSignIn(ctx)
	}
}

// TestNobodySignedIn: the error says so, until somebody does; then the request goes on with nothing restarted.
func TestNobodySignedIn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		for range 3 {
			_, _, err := w.post(t, c)
			if r, ok := errors.AsType[*SignInRequired](err); !ok || !strings.Contains(r.Reason, testServer) {
				t.Fatalf("the error is %v", err)
			}
		}
		w.wantCount(t, "/.well-known/oauth-authorization-server", 1)
		other := w.credential(t, w.options())
		w.sign(t, other, 0)
		w.wantServed(t, c)
	})
}

// TestManyRefused: of many requests that are refused at the same time, one finds out why.
func TestManyRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, 0)
		clear(w.access)
		w.then("/.well-known/oauth-protected-resource", func(http.ResponseWriter, *http.Request) bool { time.Sleep(time.Second); return false })
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { w.wantServed(t, c) })
		}
		wg.Wait()
		w.wantCount(t, "/token", 1)
		w.wantCount(t, "/.well-known/oauth-protected-resource", 1)
	})
}

// TestDeadRefreshToken: an access token that was refused is sent once only, also where its refresh token turns out to be dead, which
// changes what is stored; then a person is asked, and not taken to have signed in.
func TestDeadRefreshToken(t *testing.T) {
	for name, one := range map[string]struct {
		life     time.Duration
		requests int // before somebody signs in
		want     int // requests to the server until then
	}{
		"refused":            {0, 1, 1},
		"ended by its word":  {time.Hour, 1, 1},
		"refused and asked":  {0, 3, 3},
		"ended, asked again": {time.Hour, 3, 3},
	} {
		inner := func(t *testing.T, w *world) {
			o := w.options()
			asked, answer := 0, false
			o.SignIn = func(ctx context.Context, c *Credential, need SignInRequired) error {
				e, err := w.store.Load(ctx, c.key)
				bridgetest.Must(t, err)
				if e.Generation != need.TriedGeneration {
					return nil // as another process, which looks for another credential
				}
				if asked++; !answer {
					return &need
				}
				return w.signsIn(t, new(int))(ctx, c, need)
			}
			c := w.credential(t, o)
			w.sign(t, c, one.life)
			_ = access(t, c)
			clear(w.access)
			clear(w.refresh)
			time.Sleep(2 * time.Hour)
			for n := range one.requests {
				if answer = n == one.requests-1; answer {
					w.wantServed(t, c)
				} else if _, _, err := w.post(t, c); err == nil {
					t.Error("it was served")
				}
			}
			if asked != one.requests {
				t.Errorf("somebody was asked %d times, want %d", asked, one.requests)
			}
			w.wantCount(t, "/mcp", one.want+1)
			w.wantCount(t, "/token", 1)
		}
		t.Run(name, func(t *testing.T) { inBubble(t, inner) })
	}
}

// TestWarm: with a stored credential no request is made but the one to the MCP server.
func TestWarm(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, 0)
		w.wantServed(t, c)
		if len(w.asked) != 1 {
			t.Errorf("requests: %q", w.asked)
		}
	})
}

// TestRefusedToken: after a 401 the token is renewed, and the body sent again.
func TestRefusedToken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, 0)
		clear(w.access)
		w.wantServed(t, c)
		w.wantCount(t, "/token", 1)
		w.wantCount(t, "/mcp", 2)
		if len(w.posted) != 2 || w.posted[0] == "" || w.posted[1] != w.posted[0] {
			t.Errorf("sent was %q", w.posted)
		}
	})
}

// TestTransportAllocs: a request with a stored token costs three allocations more than one without.
func TestTransportAllocs(t *testing.T) {
	w := newWorld(t)
	c := w.credential(t, w.options())
	w.sign(t, c, time.Hour)
	r, err := http.NewRequest("POST", testServer, http.NoBody)
	bridgetest.Must(t, err)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	rt := &Transport{Base: done{}, Credential: c}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := rt.RoundTrip(r); err != nil {
			t.Error(err)
		}
	}); n > 3 {
		t.Errorf("%v allocations", n)
	}
}

// done answers everything.
type done struct{}

func (done) RoundTrip(*http.Request) (*http.Response, error) { return okay, nil }

var okay = &http.Response{StatusCode: 200, Body: http.NoBody}

// BenchmarkTransport is what a stored credential adds to a request.
func BenchmarkTransport(b *testing.B) {
	store, err := tokenstore.Open(b.Context(), tokenstore.Options{Dir: b.TempDir() + "/auth"})
	bridgetest.Must(b, err)
	c, err := New(Options{Store: store, Server: testServer})
	bridgetest.Must(b, err)
	defer c.Close(b.Context())
	_, err = store.Save(b.Context(), c.key, tokenstore.Credential{TokenType: "Bearer", AccessToken: tokenstore.NewSecret("x"), IssuedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)}, 0)
	bridgetest.Must(b, err)
	r, err := http.NewRequest("POST", testServer, http.NoBody)
	bridgetest.Must(b, err)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	rt := &Transport{Base: done{}, Credential: c}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = rt.RoundTrip(r)
	}
}

// TestNotReplayable: a body that cannot be read twice is sent once; the next request has the new token.
func TestNotReplayable(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, 0)
		clear(w.access)
		r, err := http.NewRequestWithContext(t.Context(), "POST", testServer, io.MultiReader(strings.NewReader("x")))
		bridgetest.Must(t, err)
		resp, err := (&Transport{Base: w.wire, Credential: c}).RoundTrip(r)
		bridgetest.Must(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != 401 {
			t.Errorf("status %d", resp.StatusCode)
		}
		w.wantCount(t, "/mcp", 1)
		w.wantServed(t, c)
		w.wantCount(t, "/mcp", 2)
	})
}

// TestPassedOn: requests with a credential of their own, and those for other servers, are left alone.
func TestPassedOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		other := newFake("https://as.test", "https://other.test/mcp")
		w.wire["other.test"], w.wire["mcp.test:8443"] = other, other
		c := w.credential(t, w.options())
		w.sign(t, c, 0)
		rt := &Transport{Base: w.wire, Credential: c}
		for _, addr := range []string{"https://other.test/mcp", "https://mcp.test:8443/mcp", "http://mcp.test/mcp", testServer} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", addr, nil)
			bridgetest.Must(t, err)
			if addr == testServer {
				r.Header.Set("Authorization", "Basic own")
			}
			resp, err := rt.RoundTrip(r)
			bridgetest.Must(t, err)
			_ = resp.Body.Close()
			if resp.StatusCode != 401 {
				t.Errorf("%s: status %d", addr, resp.StatusCode)
			}
		}
		for _, h := range append(other.seen, w.seen[:len(w.seen)-1]...) {
			if h.Get("Authorization") != "" {
				t.Error("the credential went to another origin")
			}
		}
		if got := w.seen[len(w.seen)-1].Get("Authorization"); got != "Basic own" {
			t.Errorf("the request's own header became %q", got)
		}
	})
}

// TestMoved: a server that names another authorization server gets nothing of the old one, and the old one nothing.
func TestMoved(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o := w.options()
		o.ClientID = ""
		c := w.credential(t, o)
		w.sign(t, c, 0)
		clear(w.access)
		w.prm["authorization_servers"] = []string{"https://as2.test"}
		w.wire["as2.test"] = newFake("https://as2.test", testServer)
		for range 3 {
			_, _, err := w.post(t, c)
			if r, ok := errors.AsType[*SignInRequired](err); !ok || !strings.Contains(r.Reason, "another authorization server") && !strings.Contains(r.Reason, "nobody") {
				t.Fatalf("the error is %v", err)
			}
		}
		w.wantCount(t, "/token", 0)
	})
}

// TestMetadataAway: that the metadata is away is no change, and the token is renewed.
func TestMetadataAway(t *testing.T) {
	for _, status := range []int{404, 503} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				c := w.credential(t, w.options())
				_, _, _ = w.post(t, c)
				w.sign(t, c, 0)
				clear(w.access)
				for _, path := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"} {
					w.then(path, answer(status, ""))
				}
				w.wantServed(t, c)
				w.wantCount(t, "/token", 1)
				if s, err := c.record.storedDiscovery(t.Context()); err != nil || s.OriginIsAuthServer || s.AuthServer.Issuer != testIssuer {
					t.Errorf("what was known of the server is lost: %+v, %v", s, err)
				}
			})
		})
	}
}

// TestStepUp: a 403 asks for all scopes so far and those that the server names, three attempts in all.
func TestStepUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o, count := w.options(), 0
		o.SignIn = w.signsIn(t, &count)
		w.challenge = `Bearer scope="mcp:read"`
		c := w.credential(t, o)
		w.scopes = []string{"mcp:write"}
		var last error
		for range 5 {
			_, _, last = w.post(t, c)
		}
		if _, ok := errors.AsType[*PermanentError](last); !ok || !strings.Contains(last.Error(), "mcp:write") || !strings.Contains(last.Error(), "has to allow them") {
			t.Errorf("the error is %v", last)
		}
		if count != 3 {
			t.Errorf("%d sign-ins", count)
		}
		other := w.credential(t, o) // remembered over processes
		_, _, _ = w.post(t, other)
		if count != 3 {
			t.Errorf("%d sign-ins after a restart", count)
		}
		wanted, err := c.record.storedDemands(t.Context())
		bridgetest.Must(t, err)
		if got := scopeKey(wanted.Scopes); got != "mcp:read mcp:write" {
			t.Errorf("asked for would be %q", got)
		}
	})
}

// TestForbidden: a 403 that is not about scopes is the server's answer.
func TestForbidden(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, 0)
		w.then("/mcp", answer(403, "no"))
		if status, text, err := w.post(t, c); status != 403 || text != "no" || err != nil {
			t.Errorf("status %d, %q, %v", status, text, err)
		}
	})
}

// TestEveryTokenRefused: a server that refuses what is issued for it ends in an error, not in a loop.
func TestEveryTokenRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, 0)
		for range 10 {
			w.mu.Lock()
			clear(w.access)
			w.mu.Unlock()
			w.then("/mcp", answer(401, ""), answer(401, ""))
			_, _, err := w.post(t, c)
			if _, ok := errors.AsType[*SignInRequired](err); !ok {
				t.Fatalf("the error is %v", err)
			}
			w.next["/mcp"] = nil
		}
		if n := w.count("/token"); n > 2 {
			t.Errorf("%d token requests", n)
		}
	})
}

// TestEveryNewTokenRefused: where each sign-in brings a token that is refused, the error says what may be wrong, and who can tell.
func TestEveryNewTokenRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o, count := w.options(), 0
		o.SignIn = w.signsIn(t, &count)
		c := w.credential(t, o)
		w.then("/mcp", answer(401, ""), answer(401, ""), answer(401, ""), answer(401, ""), answer(401, ""))
		_, _, err := w.post(t, c)
		if _, ok := errors.AsType[*PermanentError](err); !ok || !strings.Contains(err.Error(), "ask its operator") || !strings.Contains(err.Error(), "--resource") {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestAdvice: where no client can be had, the error says what to register and where.
func TestAdvice(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o := w.options()
		o.ClientID = ""
		w.meta["registration_endpoint"] = nil
		c := w.credential(t, o)
		_, _, err := w.post(t, c)
		if err == nil || !auth.Is(err, auth.Unsupported) || !strings.Contains(err.Error(), c.redirect.uri()) || !strings.Contains(err.Error(), testIssuer) {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestResource: what is sent as resource is what was published, unless the user says otherwise.
func TestResource(t *testing.T) {
	for name, x := range map[string]struct {
		change    func(*Options)
		published string
		want      string
	}{
		"published": {func(*Options) {}, testServer, testServer},
		"parent":    {func(*Options) {}, "https://mcp.test/", "https://mcp.test/"},
		"given":     {func(o *Options) { o.Resource = "api://x" }, testServer, "api://x"},
		"off":       {func(o *Options) { o.NoResource = true }, testServer, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.resource = x.published
				o := w.options()
				o.Machine, o.ClientAuth = ClientCredentials{}, withSecret
				x.change(&o)
				w.wantServed(t, w.credential(t, o))
				if got := w.forms[0].Get("resource"); got != x.want {
					t.Errorf("resource %q, want %q", got, x.want)
				}
			})
		})
	}
}

// TestForeignResource: metadata of another resource is not used.
func TestForeignResource(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.resource = "https://evil.test/mcp"
		_, _, err := w.post(t, w.credential(t, w.options()))
		if !auth.Is(err, auth.Mismatch) {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestScopeRules: challenge, else what the server lists, else nothing; offline_access where it is offered.
func TestScopeRules(t *testing.T) {
	listed := &discovery{Resource: auth.ResourceMetadata{ScopesSupported: []string{"a", "b"}}, AuthServer: auth.ServerMetadata{Scopes: []string{"a", "offline_access"}}}
	for name, x := range map[string]struct {
		site    *discovery
		wants   serverDemands
		given   []string
		offline bool
		want    string
	}{
		"challenge": {listed, serverDemands{Scopes: []string{"c"}}, nil, false, "c"},
		"listed":    {listed, serverDemands{}, nil, false, "a b"},
		"none":      {&discovery{}, serverDemands{}, nil, true, ""},
		"given":     {listed, serverDemands{Scopes: []string{"c"}}, []string{"g"}, false, "g c"},
		"offline":   {listed, serverDemands{}, nil, true, "a b offline_access"},
		"no scopes": {&discovery{AuthServer: listed.AuthServer}, serverDemands{}, nil, true, ""},
		"unlisted":  {&discovery{Resource: listed.Resource}, serverDemands{}, nil, true, "a b"},
	} {
		c := &credentialBase{options: Options{Scopes: x.given}}
		if got := auth.JoinScope(c.scopesToRequest(x.site, x.wants, x.offline)); got != x.want {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}

// TestGuessIsNotTrusted: endpoints that were guessed while the metadata was held back are not used any more once a server that announces
// metadata has it.
func TestGuessIsNotTrusted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var mended atomic.Bool
		missing := answer(404, "")
		w.wire["mcp.test"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/mcp" && !mended.Load() {
				missing(rw, r)
				return
			}
			w.fake.ServeHTTP(rw, r)
		})
		o := w.options()
		o.Machine, o.ClientAuth = ClientCredentials{}, withSecret
		c := w.credential(t, o)
		if _, _, err := w.post(t, c); err == nil {
			t.Fatal("there is a token without an authorization server")
		}
		mended.Store(true)
		time.Sleep(10 * time.Minute)
		w.wantServed(t, c)
		w.wantCount(t, "/token", 1)
		w.wantCount(t, "/.well-known/oauth-protected-resource", 1)
	})
}

// TestKeyOnly: a server that has no metadata, and none of the endpoints of revision 2025-03-26, wants a key and not a
// sign-in: its 401 is the answer, and it is not asked again for each request. One that has them is signed in to.
func TestKeyOnly(t *testing.T) {
	const prm, as = "/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server"
	inBubble(t, func(t *testing.T, w *world) {
		w.challenge = `Bearer realm="keys"`
		missing := answer(404, "")
		w.wire["mcp.test"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/.well-known/") {
				w.mu.Lock()
				w.asked = append(w.asked, r.Method+" "+r.URL.Path)
				w.mu.Unlock()
				missing(rw, r)
				return
			}
			w.fake.ServeHTTP(rw, r)
		})
		w.then("/register", answer(404, ""))
		o := w.options()
		o.ClientID = ""
		o.SignIn = func(context.Context, *Credential, SignInRequired) error {
			t.Error("somebody is to sign in")
			return nil
		}
		c := w.credential(t, o)
		for range 3 {
			if status, _, err := w.post(t, c); status != 401 || err != nil {
				t.Fatalf("status %d, error %v", status, err)
			}
		}
		w.wantCount(t, prm, 1)
		w.wantCount(t, as, 1)
		w.wantCount(t, "/register", 1)
		time.Sleep(discoveryCacheTime + time.Second) // the server has got an authorization server since
		signedIn := 0
		o.SignIn = w.signsIn(t, &signedIn)
		c = w.credential(t, o)
		w.wantServed(t, c)
		if signedIn != 1 {
			t.Errorf("%d sign-ins", signedIn)
		}
		w.wantCount(t, "/register", 2)
	})
}
