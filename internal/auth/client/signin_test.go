package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// A person is a Browser whose user says yes: it goes where the authorization server sends it.
type person struct {
	w      *world
	change func(back string) string // what comes back; nil: as it is
	opened int
	pages  []string
	status []int
}

func (p *person) Open(addr string) error {
	p.opened++
	r, err := http.NewRequest("GET", addr, nil)
	if err != nil {
		return err
	}
	resp, err := p.w.wire.RoundTrip(r)
	if err != nil {
		return err
	}
	back := resp.Header.Get("Location")
	if p.change != nil {
		back = p.change(back)
	}
	if back != "" {
		return p.visit(back)
	}
	return nil
}

// visit goes to a page on this machine.
func (p *person) visit(addr string) error {
	direct := &http.Transport{DisableKeepAlives: true}
	r, err := http.NewRequest("GET", addr, nil)
	if err != nil {
		return err
	}
	resp, err := direct.RoundTrip(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	p.pages, p.status = append(p.pages, string(text)), append(p.status, resp.StatusCode)
	return err
}

// person returns options of a client that registers itself, and whom to ask. Ports differ from test to test.
func (w *world) person(t *testing.T) (Options, *person) {
	o := w.options()
	o.ClientID, o.Profile = "", t.Name()
	p := &person{w: w}
	o.SignIn = func(ctx context.Context, c *Credential, _ SignInRequired) error {
		return signIn(ctx, c, SignInOptions{Browser: p})
	}
	return o, p
}

func signIn(ctx context.Context, c *Credential, o SignInOptions) error {
	f, err := c.BeginSignIn(ctx, o)
	if err != nil {
		return err
	}
	return f.Wait(ctx)
}

// TestSignIn: the request that met the 401 goes on after the sign-in; the next process needs none.
func TestSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.prm["scopes_supported"] = []string{"mcp:basic"}
	w.meta["scopes_supported"] = []string{"mcp:basic", "offline_access"}
	o, p := w.person(t)
	c := w.credential(t, o)
	w.wantServed(t, c)
	q := w.authorize[0]
	for name, want := range map[string]string{"resource": testServer, "scope": "mcp:basic offline_access", "code_challenge_method": "S256", "client_id": "dyn1", "response_type": "code"} {
		if q.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, q.Get(name), want)
		}
	}
	var reg auth.ClientMetadata
	bridgetest.Must(t, json.Unmarshal([]byte(w.bodies[0]), &reg))
	if reg.ApplicationType != "native" || len(reg.RedirectURIs) != 1 || reg.RedirectURIs[0] != q.Get("redirect_uri") || !strings.Contains(strings.Join(reg.GrantTypes, " "), "refresh_token") {
		t.Errorf("registered was %+v", reg)
	}
	if f := w.forms[0]; f.Get("resource") != testServer || f.Get("redirect_uri") != q.Get("redirect_uri") {
		t.Error("the code was exchanged for something else")
	}
	if p.status[0] != 200 || strings.Contains(p.pages[0], "script") || strings.Contains(p.pages[0], "canary") {
		t.Errorf("the page has status %d: %q", p.status[0], p.pages[0])
	}
	if _, pending, _ := w.store.PendingLogin(c.key); pending {
		t.Error("the sign-in is still announced")
	}
	if p.visit(q.Get("redirect_uri")) == nil {
		t.Error("somebody still listens")
	}
	n := len(w.asked)
	w.wantServed(t, w.credential(t, o))
	if len(w.asked) != n+1 || p.opened != 1 {
		t.Errorf("%d requests more, and %d browser calls", len(w.asked)-n, p.opened)
	}
}

// freePort returns a port that the system gives to nobody who asks for any, nor to who connects.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(20_000)
		if all, err := (redirectTarget{host: "localhost"}).listenOnPort(t.Context(), port); err == nil {
			for _, l := range all {
				l.Close()
			}
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// TestRegistrations: a registration that was of use is used again; one that the server has forgotten is made
// anew, also where only the person sees that.
func TestRegistrations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, p := w.person(t)
	o.RedirectPort = freePort(t) // with another port a client registers anew
	c := w.credential(t, o)
	in := SignInOptions{Browser: p}
	want := func(step string, registered int) {
		t.Helper()
		if len(w.bodies) != registered {
			t.Errorf("%s: %d registrations, want %d", step, len(w.bodies), registered)
		}
	}
	bridgetest.Must(t, signIn(t.Context(), c, in))
	bridgetest.Must(t, signIn(t.Context(), c, in))
	want("a second sign-in", 1)
	p.change = func(string) string { return "" } // the page says that the client is not known
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f, err := c.BeginSignIn(t.Context(), in)
	bridgetest.Must(t, err)
	if err := f.Wait(ctx); err == nil {
		t.Error("nobody signed in, and no error")
	}
	p.change = nil
	bridgetest.Must(t, signIn(t.Context(), c, in))
	want("after one that did not end", 2)
	p.change = func(s string) string { return strings.Replace(s, "?code=", "?error=access_denied&ignored=", 1) }
	if err := signIn(t.Context(), c, in); !auth.Is(err, auth.AccessDenied) {
		t.Errorf("the error is %v", err)
	}
	p.change = nil
	bridgetest.Must(t, signIn(t.Context(), c, in))
	want("after the person said no", 2)
	clear(w.clients)
	if err := signIn(t.Context(), c, in); !auth.Is(err, auth.InvalidClient) {
		t.Errorf("the error is %v", err)
	}
	bridgetest.Must(t, signIn(t.Context(), c, in))
	want("after the server forgot it", 3)
	f, err = c.BeginSignIn(t.Context(), SignInOptions{}) // the port is in use now
	bridgetest.Must(t, err)
	f.Close()
	o.RedirectHost = "localhost"
	bridgetest.Must(t, signIn(t.Context(), w.credential(t, o), in))
	want("with another redirect", 4)
}

// TestRegistrationWithoutScopes: a server that takes no scopes in a registration gets one without.
func TestRegistrationWithoutScopes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.prm["scopes_supported"] = []string{"mcp:read"}
	w.then("/register", answer(400, `{"error": "invalid_client_metadata", "error_description": "scope"}`))
	o, _ := w.person(t)
	w.wantServed(t, w.credential(t, o))
	w.wantCount(t, "/register", 2)
	if len(w.bodies) != 1 || strings.Contains(w.bodies[0], "scope") {
		t.Errorf("registered %q", w.bodies)
	}
}

// TestOneSignIn: while one process signs in another one does not, and hears where the person goes.
func TestOneSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, _ := w.person(t)
	o.SignIn = nil
	c := w.credential(t, o)
	f, err := c.BeginSignIn(t.Context(), SignInOptions{})
	bridgetest.Must(t, err)
	defer f.Close()
	if _, err := c.BeginSignIn(t.Context(), SignInOptions{}); !errors.Is(err, tokenstore.ErrBusy) {
		t.Errorf("the error is %v", err)
	}
	_, _, err = w.post(t, c)
	r, ok := errors.AsType[*SignInRequired](err)
	if !ok || r.URL != f.Instructions().URL || r.URL == "" || r.Expires.IsZero() {
		t.Errorf("the error is %v", err)
	}
}

// TestByHand: the address that a browser elsewhere ended at is taken as text.
func TestByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, p := w.person(t)
	c := w.credential(t, o)
	f, err := c.BeginSignIn(t.Context(), SignInOptions{})
	bridgetest.Must(t, err)
	back := ""
	p.change = func(s string) string { back = s; return "" }
	bridgetest.Must(t, p.Open(f.Instructions().URL))
	for _, bad := range []string{"", "https://evil.test/callback?" + back, back + "x&state=y", "http://127.0.0.1:1/callback?code=x"} {
		err := f.AcceptCallbackURL(bad)
		if err == nil {
			t.Errorf("%q was taken", bad)
		}
		wantNoSecret(t, err)
	}
	bridgetest.Must(t, f.AcceptCallbackURL(" "+back+"\n"))
	bridgetest.Must(t, f.Wait(t.Context()))
	w.wantServed(t, c)
}

// TestForeignAnswer: an answer of another issuer, or a no, ends the sign-in, and nothing is stored.
func TestForeignAnswer(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		change func(string) string
		kind   auth.ErrorKind
	}{
		"foreign issuer": {func(s string) string { return strings.Replace(s, "as.test", "evil.test", 1) }, auth.Mismatch},
		"no issuer":      {func(s string) string { return strings.Replace(s, "iss=", "other=", 1) }, auth.Mismatch},
		"access denied":  {func(s string) string { return strings.Replace(s, "?code=", "?error=access_denied&ignored=", 1) }, auth.AccessDenied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.meta["authorization_response_iss_parameter_supported"] = true
			o, p := w.person(t)
			p.change = x.change
			c := w.credential(t, o)
			err := signIn(t.Context(), c, SignInOptions{Browser: p})
			if !auth.Is(err, x.kind) {
				t.Errorf("the error is %v", err)
			}
			wantNoSecret(t, err)
			w.wantCount(t, "/token", 0)
			if e, _ := w.store.Load(t.Context(), c.key); e.Generation != 0 {
				t.Error("something is stored")
			}
			if strings.Contains(p.pages[0], "denied") || strings.Contains(p.pages[0], "evil") {
				t.Errorf("the page repeats what came: %q", p.pages[0])
			}
		})
	}
}

// TestCallback: requests that do not answer the sign-in leave it open; the first one that does is the only one.
func TestCallback(t *testing.T) {
	t.Parallel()
	v := newCallbackReceiver("http://127.0.0.1:4000/callback", auth.ExpectedCallback{State: "right", Issuer: testIssuer})
	ask := func(method, host, target string) int {
		rec, r := httptest.NewRecorder(), httptest.NewRequest(method, target, nil)
		r.Host = host
		v.ServeHTTP(rec, r)
		if rec.Header().Get("Referrer-Policy") != "no-referrer" || strings.Contains(rec.Body.String(), "script") {
			t.Errorf("%s %s: the page is not as it should be", method, target)
		}
		return rec.Code
	}
	const host, good = "127.0.0.1:4000", "/callback?code=canary&state=right"
	for _, x := range []struct {
		method, host, target string
		want                 int
	}{
		{"GET", host, "/callback?code=x&state=wrong", 400},
		{"GET", host, "/callback?code=x", 400},
		{"GET", host, "/callback?code=x&state=right&state=right", 400},
		{"GET", "evil.test", good, 421},
		{"GET", "localhost:4000", good, 421},
		{"POST", host, good, 405},
		{"HEAD", host, good, 405},
		{"GET", host, "/", 404},
		{"GET", host, good, 200},
		{"GET", host, good, 410},
	} {
		if got := ask(x.method, x.host, x.target); got != x.want {
			t.Errorf("%s %s of %s: status %d, want %d", x.method, x.target, x.host, got, x.want)
		}
	}
	if back := <-v.outcome; back.code != "canary" || back.err != nil {
		t.Errorf("taken was an error: %v", back.err)
	}
}

// TestDevice: without a browser there is a code; the server is asked no more often than it allows.
func TestDevice(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.meta["device_authorization_endpoint"] = testIssuer + "/device"
		c := w.credential(t, w.options())
		var at []time.Duration
		begun := time.Now()
		timed := func(s step) step {
			return func(rw http.ResponseWriter, r *http.Request) bool {
				at = append(at, time.Since(begun))
				return s(rw, r)
			}
		}
		w.then("/token", timed(answer(400, `{"error":"authorization_pending"}`)), timed(answer(400, `{"error":"slow_down"}`)),
			timed(answer(503, "")), timed(func(http.ResponseWriter, *http.Request) bool { return false }))
		f, err := c.BeginSignIn(t.Context(), SignInOptions{})
		bridgetest.Must(t, err)
		if where := f.Instructions(); where.UserCode != "WDJB-MJHT" || where.URL != testIssuer+"/activate" {
			t.Errorf("the person goes to %+v", where)
		}
		if login, _, _ := w.store.PendingLogin(c.key); login.UserCode != "WDJB-MJHT" {
			t.Errorf("announced is %+v", login)
		}
		bridgetest.Must(t, f.Wait(t.Context()))
		if got, want := fmt.Sprint(at), "[5s 10s 20s 40s]"; got != want {
			t.Errorf("asked at %s, want %s", got, want)
		}
		w.wantServed(t, c)
	})
}

// TestDeviceEnds: a no, or a code that has ended, ends the sign-in.
func TestDeviceEnds(t *testing.T) {
	for code, kind := range map[string]auth.ErrorKind{"access_denied": auth.AccessDenied, "expired_token": auth.ExpiredToken} {
		t.Run(code, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.meta["device_authorization_endpoint"] = testIssuer + "/device"
				w.then("/token", answer(400, `{"error":"`+code+`"}`))
				err := signIn(t.Context(), w.credential(t, w.options()), SignInOptions{UseDeviceCode: true})
				if !auth.Is(err, kind) {
					t.Errorf("the error is %v", err)
				}
				wantNoSecret(t, err)
				w.wantCount(t, "/token", 1)
			})
		})
	}
}

// TestSignInResetsBrake: what nobody but a person can end, a person ends.
func TestSignInResetsBrake(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, time.Hour)
		bridgetest.Must(t, w.store.WithLock(t.Context(), c.key, func(l *tokenstore.LockedCredential) error {
			for range 10 {
				_ = l.CountTokenRequest(0)
			}
			return nil
		}))
		w.meta["device_authorization_endpoint"] = testIssuer + "/device"
		bridgetest.Must(t, signIn(t.Context(), c, SignInOptions{UseDeviceCode: true}))
		time.Sleep(2 * time.Hour)
		w.wantServed(t, c)
		w.wantCount(t, "/token", 2)
	})
}

// TestFollow: a sign-in and a sign-out of another process are noticed.
func TestFollow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.credential(t, w.options())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	told := make(chan bool, 8)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.FollowStore(ctx, func(in bool) { told <- in })
	}()
	w.sign(t, c, time.Hour)
	if !<-told {
		t.Error("told was a sign-out")
	}
	bridgetest.Must(t, w.store.Delete(ctx, c.key))
	for in := range told {
		if !in {
			break
		}
	}
	if got := access(t, c); got != "" {
		t.Error("there is a token after the sign-out")
	}
	cancel()
	<-done
}

// TestOpenable: only what a browser shows is given to one.
func TestOpenable(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"https://as.test/a?b=c": true, "http://127.0.0.1:1/a": true,
		"javascript:alert(1)": false, "file:///etc/passwd": false, "https:": false, "": false, "https://as.test/a b": false, "https://as.test/\n": false, "-x": false,
	} {
		if got := checkOpenableURL(addr) == nil; got != want {
			t.Errorf("%q: %v", addr, got)
		}
	}
}

// TestSignInSleeps: a sign-in whose time is over by the clock ends, also where the machine has slept and timers have stood still.
func TestSignInSleeps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, p := w.person(t)
	p.change = func(string) string { return "" } // nobody answers
	var slept atomic.Int64
	o.Now = func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }
	f, err := w.credential(t, o).BeginSignIn(t.Context(), SignInOptions{Browser: p})
	bridgetest.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	time.AfterFunc(2*cancelPollInterval, func() { slept.Store(int64(defaultSignInTimeout)) })
	if err := f.Wait(ctx); !errors.Is(err, errNobodyAnswered) || ctx.Err() != nil {
		t.Errorf("the error is %v", err)
	}
}
