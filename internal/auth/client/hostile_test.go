package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// TestSignInAgainAndAgain: a server that always wants more does not open a browser for each request.
func TestSignInAgainAndAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o, count := w.options(), 0
		o.SignIn = w.signsIn(t, &count)
		c := w.credential(t, o)
		w.wantServed(t, c)
		refuse := func(n int) step {
			return answer(403, "", "WWW-Authenticate", fmt.Sprintf(`Bearer error="insufficient_scope", scope="mcp:%d"`, n))
		}
		more := func() error {
			var err error
			for n := range 30 {
				w.then("/mcp", refuse(3*n), refuse(3*n+1), refuse(3*n+2))
				_, _, err = w.post(t, c)
				w.next["/mcp"] = nil
			}
			return err
		}
		err := more()
		if _, ok := errors.AsType[*PermanentError](err); !ok || !strings.Contains(err.Error(), "again and again") {
			t.Errorf("the error is %v", err)
		}
		if count != maxRecentSignIns {
			t.Errorf("%d sign-ins", count)
		}
		time.Sleep(signInWindow)
		if _ = more(); count <= maxRecentSignIns || count > 2*maxRecentSignIns {
			t.Errorf("%d sign-ins after a while", count)
		}
	})
}

// TestUselessSignIn: where the server refuses what signing in brings, as one does that expects another audience, a person is asked
// once, and not again before an hour has passed: neither with a token that can be renewed nor with one that cannot, nor by another
// process. The store says so until the server takes the token.
func TestUselessSignIn(t *testing.T) {
	for _, renewable := range []bool{true, false} {
		t.Run(fmt.Sprint("renewable ", renewable), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				o, count := w.options(), 0
				signs := w.signsIn(t, &count)
				o.SignIn = func(ctx context.Context, c *Credential, need SignInRequired) error {
					err := signs(ctx, c, need)
					if !renewable {
						clear(w.refresh)
					}
					return err
				}
				refuses := func(c *Credential) {
					t.Helper()
					w.then("/mcp", answer(401, ""), answer(401, ""), answer(401, ""), answer(401, ""))
					_, _, err := w.post(t, c)
					w.next["/mcp"] = nil
					if _, ok := errors.AsType[*PermanentError](err); !ok || !strings.Contains(err.Error(), "ask its operator") || !strings.Contains(err.Error(), "mcp-bridge login --client-id c1 "+testServer) {
						t.Errorf("the error is %v", err)
					}
				}
				c := w.credential(t, o)
				for range 3 {
					refuses(c)
					time.Sleep(time.Minute)
				}
				other := w.credential(t, o)
				refuses(other)
				if count != 1 {
					t.Errorf("somebody was asked to sign in %d times", count)
				}
				for range 2 { // a server that leaves initialize open
					restarted := w.credential(t, o)
					w.wantServed(t, restarted)
					refuses(restarted)
					w.wantServed(t, w.credential(t, o))
				}
				refuses(w.credential(t, o))
				if count != 1 {
					t.Errorf("after restarts, somebody was asked to sign in %d times", count)
				}
				refusal := func() (TokenRefusal, bool) {
					e, err := w.store.Load(t.Context(), c.key)
					bridgetest.Must(t, err)
					return LastTokenRefusal(t.Context(), w.store, e)
				}
				if r, refused := refusal(); !refused || !strings.Contains(r.Reason, "operator") {
					t.Errorf("the store says %v, %+v", refused, r)
				}
				time.Sleep(stepUpWindow)
				w.wantServed(t, w.credential(t, o)) // the operator has mended it
				if _, refused := refusal(); refused {
					t.Error("the store still says that the server refuses the token")
				}
			})
		})
	}
}

// TestProvenSignIn: a server that forgets the tokens which it has taken has somebody sign in again at once.
func TestProvenSignIn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o, count := w.options(), 0
		o.SignIn = w.signsIn(t, &count)
		c := w.credential(t, o)
		for n := range 3 {
			w.wantServed(t, c)
			time.Sleep(time.Second) // tokens are told apart by when they came
			clear(w.access)
			clear(w.refresh)
			if count != n+1 {
				t.Errorf("%d sign-ins, want %d", count, n+1)
			}
		}
	})
}

// TestStepUpLater: attempts that brought nothing are no reason for ever.
func TestStepUpLater(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o, count := w.options(), 0
		o.SignIn = w.signsIn(t, &count)
		c := w.credential(t, o)
		w.scopes = []string{"mcp:write"}
		for range 5 {
			_, _, _ = w.post(t, c)
		}
		before := count
		time.Sleep(stepUpWindow)
		for range 5 {
			_, _, _ = w.post(t, c)
		}
		if before != 3 || count != before+maxStepUps {
			t.Errorf("%d sign-ins, and then %d", before, count-before)
		}
	})
}

// TestManyScopes: what challenges name is bounded.
func TestManyScopes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o, count := w.options(), 0
		o.SignIn = w.signsIn(t, &count)
		var all []string
		for n := range maxScopes + 1 {
			all = append(all, fmt.Sprintf("s%d", n))
		}
		w.challenge = `Bearer scope="` + strings.Join(all, " ") + `"`
		_, _, err := w.post(t, w.credential(t, o))
		if _, ok := errors.AsType[*PermanentError](err); !ok || !strings.Contains(err.Error(), "101 scopes") || count != 0 {
			t.Errorf("%d sign-ins, %v", count, err)
		}
	})
}

// TestHostileAddresses: what a person is to open is checked before anybody is told of it.
func TestHostileAddresses(t *testing.T) {
	long := make([]string, 3000)
	for n := range long {
		long[n] = fmt.Sprintf("scope%d", n)
	}
	for name, x := range map[string]struct {
		change func(w *world)
		says   string
	}{
		"letters of other alphabets": {func(w *world) { w.meta["authorization_endpoint"] = testIssuer + "/\u202egnp.evil" }, "has a character that no address has"},
		"of this machine's files":    {func(w *world) { w.meta["authorization_endpoint"] = "file:///etc/passwd" }, `"file", not https`},
		"script":                     {func(w *world) { w.meta["authorization_endpoint"] = "javascript:alert(1)" }, `"javascript", not https`},
		"control character":          {func(w *world) { w.meta["authorization_endpoint"] = testIssuer + "/\x1b]0;x\x07" }, "not a valid URL"},
		"very long":                  {func(w *world) { w.prm["scopes_supported"] = long }, "too many scopes"},
		"replaced parameter":         {func(w *world) { w.meta["authorization_endpoint"] = testIssuer + "/a?redirect_uri=https://evil.test" }, "redirect_uri"},
		"for a code": {func(w *world) {
			w.meta["device_authorization_endpoint"] = testIssuer + "/device"
			w.then("/device", answer(200, `{"device_code":"d","user_code":"u","verification_uri":"https://as.test/\u202e","expires_in":600}`))
		}, "has a character that no address has"},
		"code": {func(w *world) {
			w.meta["device_authorization_endpoint"] = testIssuer + "/device"
			w.then("/device", answer(200, `{"device_code":"d","user_code":"\u001b[2Ju","verification_uri":"https://as.test/d","expires_in":600}`))
		}, "no user code that a person could type"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			x.change(w)
			o, _ := w.person(t)
			c := w.credential(t, o)
			f, err := c.BeginSignIn(t.Context(), SignInOptions{})
			if err == nil {
				f.Close()
			}
			if err == nil || !strings.Contains(err.Error(), x.says) || !strings.Contains(err.Error(), testIssuer) || strings.ContainsAny(err.Error(), "\x1b\u202e\n") {
				t.Errorf("the error is %v", err)
			}
			if login, _, _ := w.store.PendingLogin(c.key); login.SignInURL != "" {
				t.Errorf("%q was announced", login.SignInURL)
			}
		})
	}
}

// TestDiscoveryEnds: servers that say nothing do not hold a request for long.
func TestDiscoveryEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.prm["authorization_servers"] = []string{testIssuer + "/1", testIssuer + "/2", testIssuer + "/3", testIssuer + "/4"}
		for _, at := range []string{"/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"} {
			for n := range 5 {
				w.then(fmt.Sprintf("%s/%d", at, n), hang)
				w.then(fmt.Sprintf("/%d%s", n, at), hang)
			}
		}
		begun := time.Now()
		_, _, err := w.post(t, w.credential(t, w.options()))
		if took := time.Since(begun); took > discoveryTimeout || !auth.Is(err, auth.Unavailable) || !strings.Contains(err.Error(), testIssuer) {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// TestHostileWords: what servers say in errors reaches a terminal as text, in one line of bounded length, and
// without our secrets.
func TestHostileWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o, p := w.person(t)
	c := w.credential(t, o)
	words := "\x1b]0;owned\x07\r\nX: y\u202e" + strings.Repeat("very long ", 10_000)
	w.then("/token", func(rw http.ResponseWriter, r *http.Request) bool {
		w.json(rw, 400, map[string]string{"error": "invalid_request\x1b[2J", "error_description": words})
		return true
	})
	_, _, err := w.post(t, c)
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\x07\r\n\u202e") || len(err.Error()) > 2000 || !strings.Contains(err.Error(), "owned") {
		t.Errorf("the error is %q", err)
	}
	w.then("/register", func(rw http.ResponseWriter, r *http.Request) bool {
		w.json(rw, 400, map[string]string{"error": words, "error_description": words})
		return true
	})
	_, _, err = w.post(t, c)
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\x07\r\n\u202e") || len(err.Error()) > 2000 || !strings.Contains(err.Error(), "redirect URI") {
		t.Errorf("the error is %q", err)
	}
	if p.opened != 1 {
		t.Errorf("%d browser calls", p.opened)
	}
}

// TestHostileChallenges: a 401 that cannot be read is one without an address, whatever is in it.
func TestHostileChallenges(t *testing.T) {
	for name, header := range map[string][]string{
		"quotes that do not end": {`Bearer resource_metadata="https://evil.test/x, scope="a`},
		"many":                   {strings.Repeat(`Basic realm="x", `, 500) + `Bearer resource_metadata="https://evil.test/x"`},
		"long":                   {"Bearer x=" + strings.Repeat("y", 20<<10), `Bearer resource_metadata="https://evil.test/x"`},
		"twice":                  {`Bearer resource_metadata="https://evil.test/x", resource_metadata="https://mcp.test/x"`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				o := w.options()
				var told []error
				o.OnError = func(err error) { told = append(told, err) }
				w.then("/mcp", func(rw http.ResponseWriter, _ *http.Request) bool {
					rw.Header()["Www-Authenticate"] = header
					rw.WriteHeader(401)
					return true
				})
				_, _, err := w.post(t, w.credential(t, o))
				if _, ok := errors.AsType[*SignInRequired](err); !ok {
					t.Errorf("the error is %v", err)
				}
				if len(told) != 1 || !strings.HasPrefix(told[0].Error(), "WWW-Authenticate, line ") {
					t.Errorf("told was %v", told)
				}
			})
		})
	}
}

// TestEnterpriseClient: the company's provider is asked by a client of its own.
func TestEnterpriseClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	asked := false
	e := EnterpriseManaged{
		IDP: auth.ServerMetadata{Issuer: "https://idp.test", TokenEndpoint: "https://idp.test/token"}, IDPClient: auth.Client{ID: "me", AuthMethod: auth.ClientAuthNone},
		IDToken: func() (tokenstore.Secret, error) { return tokenstore.NewSecret("id-canary"), nil },
		IDPHTTPClient: &http.Client{Transport: wire{"idp.test": http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			asked = true
			w.json(rw, 200, map[string]string{"access_token": "assertion-canary", "token_type": "N_A", "issued_token_type": auth.TypeIDJAG})
		})}},
	}
	o := w.options()
	o.Machine = e
	c := w.credential(t, o)
	w.wantServed(t, c)
	if !asked {
		t.Error("the provider was not asked")
	}
}

// TestSlowRefusal: a server that refuses and does not finish its answer does not hold the request.
func TestSlowRefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := httptest.NewServer(w)
	defer s.Close()
	w.issuer, w.server, w.resource = s.URL, s.URL+"/mcp", s.URL+"/mcp"
	w.then("/mcp", func(rw http.ResponseWriter, r *http.Request) bool {
		rw.Header().Set("Content-Length", "10")
		rw.Header().Set("WWW-Authenticate", "Bearer")
		rw.WriteHeader(401)
		_ = http.NewResponseController(rw).Flush()
		return hang(rw, r)
	})
	o, count := w.options(), 0
	o.HTTPClient, o.SignIn = s.Client(), w.signsIn(t, &count)
	hc := &http.Client{Transport: &Transport{Base: s.Client().Transport, Credential: w.credential(t, o)}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", w.server, strings.NewReader("{}"))
	bridgetest.Must(t, err)
	resp, err := hc.Do(r)
	if err != nil || resp.StatusCode != 200 || count != 1 {
		t.Fatalf("%d sign-ins, %v", count, err)
	}
	_ = resp.Body.Close()
}

// TestLongRetryAfter: a server that wants to be left alone for a day is asked before.
func TestLongRetryAfter(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.credential(t, w.options())
		w.sign(t, c, time.Hour)
		_ = access(t, c)
		time.Sleep(2 * time.Hour)
		w.then("/token", answer(503, "", "Retry-After", "86400"))
		first := access(t, c)
		time.Sleep(maxRetryAfter)
		if access(t, c) == first {
			t.Error("the token is not renewed")
		}
	})
}

// TestOtherListener: where a browser could take localhost for an address at which another program listens, that port is not
// used.
func TestOtherListener(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("there is no IPv6: %v", err)
	}
	defer func() { _ = other.Close() }()
	w := newWorld(t)
	o, p := w.person(t)
	o.RedirectHost, o.RedirectPort = "localhost", other.Addr().(*net.TCPAddr).Port
	_, _, err = w.post(t, w.credential(t, o))
	if _, ok := errors.AsType[*PermanentError](err); !ok || !strings.Contains(err.Error(), "--redirect-port") || p.opened != 0 {
		t.Errorf("%d browser calls, %v", p.opened, err)
	}
}

// TestBrokenChallenge: where a challenge cannot be read, what is wrong with the metadata is told all the same.
func TestBrokenChallenge(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.challenge = `Bearer error="invalid_token`
		w.meta["token_endpoint"] = "file:///etc/passwd"
		status, _, err := w.post(t, w.credential(t, w.options()))
		if !auth.Is(err, auth.Invalid) || !strings.Contains(err.Error(), "token_endpoint") {
			t.Errorf("status %d, %v", status, err)
		}
	})
}

// TestInvalidMetadataTooLate: metadata that cannot be used, as a server without sign-in may have, shows no authorization server,
// also where the request has ended when it comes.
func TestInvalidMetadataTooLate(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	o := w.options()
	o.HTTPClient = &http.Client{Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
		body := endingBody{strings.NewReader("this is no JSON"), cancel}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body, Request: r}, nil
	})}
	c := w.credential(t, o)
	if s, err := c.responder.discoverAfter401(ctx, auth.Demand{}, nil); s != nil || err != errNoAuthServer || ctx.Err() == nil {
		t.Errorf("%v, %v", s, err)
	}
}

// A roundTripFunc is a RoundTripper.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An endingBody is the body of a response that ends a ctx when it has been read.
type endingBody struct {
	io.Reader
	cancel context.CancelFunc
}

func (b endingBody) Close() error { b.cancel(); return nil }
