package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/signin"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// browse is what $BROWSER calls: it follows redirects, as a browser does.
func browse(addr string) {
	resp, err := http.Get(addr)
	if err != nil {
		os.Exit(1)
	}
	_ = resp.Body.Close()
	os.Exit(0)
}

// A machine is where a person has the program.
type machine struct {
	t   *testing.T
	env map[string]string
}

func newMachine(t *testing.T, browser bool) *machine {
	m := &machine{t, map[string]string{authDirVariable: filepath.Join(t.TempDir(), "auth"), "SSH_CONNECTION": "x"}}
	if browser {
		m.env["BROWSER"] = os.Args[0] + " browse"
	}
	return m
}

// run runs the program. stdin and watch may be nil; watch is called in a goroutine of its own, with what is written to stdout.
func (m *machine) run(stdin *os.File, watch func(stdout io.Reader), args ...string) (status int, stdout, stderr string) {
	m.t.Helper()
	if stdin == nil {
		var err error
		stdin, err = os.Open(os.DevNull)
		bridgetest.Must(m.t, err)
		defer stdin.Close()
	}
	r, w, err := os.Pipe()
	bridgetest.Must(m.t, err)
	defer r.Close()
	var out, errs strings.Builder
	read := make(chan struct{})
	go func() {
		defer close(read)
		from := io.TeeReader(r, &out)
		if watch != nil {
			watch(from)
		}
		_, _ = io.Copy(io.Discard, from)
	}()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	status = run(ctx, args, environment{stdin: stdin, stdout: w, stderr: &errs, lookup: func(name string) (string, bool) { v, ok := m.env[name]; return v, ok }})
	_ = w.Close()
	<-read
	for _, text := range []string{out.String(), errs.String()} {
		if strings.Contains(text, "canary") {
			m.t.Errorf("%q shows a secret: %s", args, text)
		}
	}
	return status, out.String(), errs.String()
}

// endTokens has all stored access tokens end by their own word.
func (m *machine) endTokens() { m.endTokensAt(time.Now().Add(-time.Minute)) }

func (m *machine) endTokensAt(at time.Time) {
	m.t.Helper()
	store, err := tokenstore.Open(m.t.Context(), tokenstore.Options{Dir: m.env[authDirVariable]})
	bridgetest.Must(m.t, err)
	all, err := store.List()
	bridgetest.Must(m.t, err)
	for _, one := range all {
		bridgetest.Must(m.t, store.WithLock(m.t.Context(), one.Key, func(l *tokenstore.LockedCredential) error {
			c := l.Entry().Credential
			c.ExpiresAt, c.IssuedAt = at, at.Add(-time.Hour)
			_, err := l.Save(c, l.Entry().Generation)
			return err
		}))
	}
}

// want runs the program and checks its exit status and that its output has words.
func (m *machine) want(status int, words string, args ...string) string {
	m.t.Helper()
	got, out, errs := m.run(nil, nil, args...)
	if got != status || !strings.Contains(out+errs, words) {
		m.t.Errorf("%q: status %d, want %d and %q; stdout %q, stderr %q", args, got, status, words, out, errs)
	}
	return out
}

// A person signs in, sees that, and signs out; the tokens are revoked.
func TestLoginStatusLogout(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, true)
	m.want(exitOK, "Nobody is signed in", "status")
	m.want(exitSignIn, "mcp-bridge login "+server.URL, "status", server.URL)
	m.want(exitOK, "Signed in to "+server.URL, "login", server.URL)
	m.want(exitOK, "renewed without you", "status", server.URL)
	var all []credentialStatus
	bridgetest.Must(t, json.Unmarshal([]byte(m.want(exitOK, `"usable": true`, "status", "--json", "--check")), &all))
	if len(all) != 1 || all[0].ClientID != "registered" || all[0].Scopes[0] != "tools" {
		t.Errorf("status is %+v", all)
	}
	out := m.want(exitOK, "Signed in to "+server.URL+"\nThe provider has not given the scope other\n", "login", "--profile", "work", "--scope", "tools", "--scope", "other", server.URL)
	if strings.Contains(out, "scope tools") {
		t.Errorf("login says %s", out)
	}
	m.want(exitOK, "Signed out", "logout", "--profile", "work", server.URL)
	m.want(exitOK, "Signed in", "login", "--resource", "https://other.example", server.URL)
	if out = m.want(exitOK, "  resource   https://other.example\n", "status", server.URL); strings.Count(out, "resource") != 1 {
		t.Errorf("status says %s", out)
	}
	m.want(exitOK, "Signed out", "logout", "--resource", "https://other.example", server.URL)
	m.want(exitOK, "Signed in", "login", server.URL)
	m.want(exitOK, "renewed without you", "status", server.URL)
	m.want(exitOK, "Signed out", "logout", "--all", "--forget-client")
	if n := server.CountValidTokens(); n != 0 {
		t.Errorf("%d tokens are still valid", n)
	}
	m.want(exitOK, "Nobody is signed in to "+server.URL, "logout", server.URL)
	m.want(exitSignIn, "not signed in", "status", server.URL)
	m.want(exitOK, "Signed in", "login", server.URL)
	if n := server.CountRequests("/register"); n != 4 { // each profile and resource has its own port
		t.Errorf("%d registrations", n)
	}
}

// The login that status advises can be pasted into a shell. Where it is not known which server a file was for, that is said.
func TestStatusAdvisesLogin(t *testing.T) {
	m := newMachine(t, true)
	m.want(exitSignIn, "not signed in: run mcp-bridge login 'https://mcp.example/mcp?a=b&c=d'\n", "status", "https://mcp.example/mcp?a=b&c=d")
	for name, l := range map[string]tokenstore.ListEntry{
		"unreadable": {Err: errors.New("no JSON")},
		"set aside":  {BrokenFiles: []string{"/auth/x.json.broken"}},
	} {
		s := newCredentialStatus(l, time.Now())
		if want := "not usable: run mcp-bridge login URL, with the URL of the server that this sign-in was for"; s.state() != want || s.Server != "unknown" || s.Usable {
			t.Errorf("%s: %+v, state %q", name, s, s.state())
		}
	}
}

// --profile also chooses among the sign-ins to all servers.
func TestProfileOfAllServers(t *testing.T) {
	server, other := authtest.New(t), authtest.New(t)
	m := newMachine(t, true)
	for _, args := range []string{"login " + server.URL, "login --profile work " + server.URL, "login --profile work " + other.URL} {
		m.want(exitOK, "Signed in", strings.Fields(args)...)
	}
	if out := m.want(exitOK, server.URL, "status", "--profile", "work"); strings.Count(out, "profile    work") != 2 || strings.Count(out, "state") != 2 {
		t.Errorf("status says %s", out)
	}
	m.want(exitOK, "Signed out of "+other.URL+" (profile work)", "logout", "--all", "--forget-client", "--profile", "work")
	if out := m.want(exitOK, server.URL, "status"); strings.Count(out, "state") != 1 || strings.Contains(out, "work") {
		t.Errorf("after the sign-out from one profile, status says %s", out)
	}
	m.want(exitOK, "Signed out of "+server.URL, "logout", "--all")
}

// status --check does not spend the refresh token of a client that somebody has registered by hand, unless the flags say which that
// is: without its secret the server would refuse it, and might revoke all.
func TestStatusCheckNeedsTheClient(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, true)
	m.want(exitOK, "Signed in", "login", "--client-id", "mine", server.URL)
	m.endTokens()
	asked := server.CountRequests("/token")
	for _, args := range [][]string{{"status", "--check"}, {"status", "--check", server.URL}, {"status", "--check", "--client-id", "other", server.URL}} {
		m.want(exitOK, "not renewed: give --client-id mine, ", args...)
	}
	if n := server.CountRequests("/token"); n != asked {
		t.Errorf("%d token requests", n-asked)
	}
	if m.want(exitOK, "signed in", "status", "--check", "--client-id", "mine", server.URL); server.CountRequests("/token") != asked+1 {
		t.Errorf("with its client id: %d token requests", server.CountRequests("/token")-asked)
	}
	m.want(exitOK, "Signed in", "login", "--profile", "own", server.URL) // this one has registered itself
	m.endTokens()
	asked = server.CountRequests("/token")
	if m.want(exitOK, "signed in", "status", "--check", "--profile", "own", server.URL); server.CountRequests("/token") != asked+1 {
		t.Errorf("of a client that has registered itself: %d token requests", server.CountRequests("/token")-asked)
	}
}

// newRefusingProvider returns a provider whose token endpoint answers with the status refuse, unless that is 0.
func newRefusingProvider(t *testing.T) (provider *authtest.Server, refuse *atomic.Int32) {
	refuse = new(atomic.Int32)
	h := httptest.NewUnstartedServer(nil)
	provider = authtest.ServerAt("http://" + h.Listener.Addr().String())
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := int(refuse.Load()); status != 0 && r.URL.Path == "/token" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, map[int]string{http.StatusUnauthorized: `{"error":"invalid_client"}`}[status])
			return
		}
		provider.ServeHTTP(w, r)
	})
	h.Start()
	t.Cleanup(h.Close)
	return provider, refuse
}

// status --check says that a token could not be renewed, whether anybody waits for that or the old token is still good, and its exit
// status is that of a failure: no sign-in is needed where the provider does not answer.
func TestStatusCheckTellsOfFailure(t *testing.T) {
	server, refuse := newRefusingProvider(t)
	m := newMachine(t, true)
	m.want(exitOK, "Signed in", "login", server.URL)
	m.want(exitOK, "signed in", "status", "--check")
	for name, ends := range map[string]time.Time{"ended": time.Now().Add(-time.Minute), "due": time.Now().Add(time.Minute)} {
		m.endTokensAt(ends)
		refuse.Store(http.StatusServiceUnavailable)
		out := m.want(exitFail, "signed in, token ", "status", "--check", server.URL)
		if !strings.Contains(out, "  problem    not renewed: token request at http://") {
			t.Errorf("%s: %s", name, out)
		}
		var all []credentialStatus
		bridgetest.Must(t, json.Unmarshal([]byte(m.want(exitFail, `"problem"`, "status", "--json", "--check")), &all))
		m.want(exitOK, "signed in, token ", "status", server.URL)
		refuse.Store(0)
		if out = m.want(exitOK, "signed in, token until", "status", "--check"); strings.Contains(out, "problem") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// What is stored when the provider has refused a client's first token request is no sign-in.
func TestStatusAfterRefusedClient(t *testing.T) {
	server, refuse := newRefusingProvider(t)
	refuse.Store(http.StatusUnauthorized)
	m := newMachine(t, true)
	m.wantAnswer(http.StatusUnauthorized, signin.Settings{Server: server.URL, Mode: "client-credentials", Client: signin.Client{ID: "robot", Secret: tokenstore.NewSecret("wrong")}})
	store, err := tokenstore.Open(t.Context(), tokenstore.Options{Dir: m.env[authDirVariable]})
	bridgetest.Must(t, err)
	if all, err := store.List(); err != nil || len(all) != 1 {
		t.Fatalf("the request was not counted: %v, %v", all, err)
	}
	m.want(exitOK, "Nobody is signed in to any server.", "status")
	m.env[clientSecretVariable] = "wrong"
	m.want(exitSignIn, "gets a token when it connects", "status", "--auth", "client-credentials", "--client-id", "robot", server.URL)
	m.want(exitOK, "Nobody is signed in to any server", "logout", "--all")
}

// doctor uses the stored credential, and has nobody sign in.
func TestDoctorUsesStored(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, true)
	m.want(exitOK, "no sign-in is stored", "doctor", server.URL)
	m.want(exitOK, "mcp-bridge login "+server.URL, "doctor", server.URL)
	if n := server.CountRequests("/register") + server.CountRequests("/authorize") + server.CountRequests("/token"); n != 0 {
		t.Errorf("doctor made %d requests for a sign-in", n)
	}
	m.want(exitOK, "Signed in", "login", server.URL)
	says := func(wants string, args ...string) {
		t.Helper()
		if _, stdout, stderr := m.run(nil, nil, append([]string{"doctor"}, args...)...); !strings.Contains(stdout, wants) {
			t.Errorf("doctor %q: %s%s", args, stdout, stderr)
		}
	}
	says("credential    the stored one", server.URL)
	says("wants credentials", "--auth", "none", server.URL)
	says("wants credentials", "--profile", "work", server.URL)
	if _, stdout, _ := m.run(nil, nil, "doctor", "--profile", "at work", "--resource", "off", "--allow-private-auth=false", server.URL); !strings.Contains(strings.Join(strings.Fields(stdout), " "), "mcp-bridge login --profile 'at work' --resource off "+server.URL) {
		t.Errorf("the command is not that of this sign-in: %s", stdout)
	}
	m.endTokens()
	renewed := server.CountRequests("/token")
	if says("the stored one", server.URL); server.CountRequests("/token") != renewed+1 {
		t.Errorf("%d requests to renew it", server.CountRequests("/token")-renewed)
	}
	m.endTokensAt(time.Now().Add(20 * time.Second)) // due: the new one is used, as the old one may have ended with it
	server.RevokeAllTokens()
	if _, stdout, stderr := m.run(nil, nil, "doctor", server.URL); strings.Contains(stdout, "H18") {
		t.Errorf("the old token was used: %s%s", stdout, stderr)
	}
}

// doctor takes the flags of each way to get a token without a person, and uses the token that connect has got so, or gets the first one. If
// the provider refuses it, the report says so, and advises nobody to sign in.
func TestDoctorWithoutPerson(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, false)
	assertion := filepath.Join(t.TempDir(), "assertion")
	bridgetest.Must(t, os.WriteFile(assertion, []byte("assertion-canary"), 0o600))
	flags := []string{"doctor", "--auth", "jwt-bearer", "--client-id", "robot", "--assertion-file", assertion, server.URL}
	m.wantAnswer(http.StatusOK, signin.Settings{Server: server.URL, Mode: "jwt-bearer", Client: signin.Client{ID: "robot"}, AssertionFile: assertion})
	if out := m.want(exitOK, "credential    the stored one", flags...); strings.Contains(out, "H18") {
		t.Errorf("jwt-bearer: %s", out)
	}
	m.want(exitOK, "", "doctor", "--auth", "enterprise", "--client-id", "robot", "--idp-issuer", server.URL, "--idp-token-url", server.URL+"/token",
		"--idp-client-id", "bridge", "--idp-client-secret-file", assertion, "--id-token-file", assertion, server.URL)
	m.want(exitOK, "Signed out", "logout", server.URL)
	if out := m.want(exitOK, "credential    the stored one", flags...); strings.Contains(out, "H18") {
		t.Errorf("the first token: %s", out)
	}

	server, refuse := newRefusingProvider(t)
	refuse.Store(http.StatusUnauthorized)
	out := strings.Join(strings.Fields(m.want(exitOK, "H18", append(flags[:len(flags)-1], server.URL)...)), " ")
	if !strings.Contains(out, "invalid_client") || !strings.Contains(out, "Nobody signs in for this client") || strings.Contains(out, "mcp-bridge login") {
		t.Errorf("refused: %s", out)
	}
}

// Where there is no browser, a code is shown if the server has them.
func TestLoginByCode(t *testing.T) {
	server := authtest.New(t)
	server.OfferDevice()
	newMachine(t, false).want(exitOK, "WDJB-MJHT", "login", server.URL)
}

// Else the address is shown, and the one that the browser ends at is pasted, or given by another process.
func TestLoginByAddress(t *testing.T) {
	for _, how := range []string{"pasted", "callback", "callback on stdin"} {
		t.Run(how, func(t *testing.T) {
			server := authtest.New(t)
			m := newMachine(t, false)
			stdin, paste, err := os.Pipe()
			bridgetest.Must(t, err)
			defer stdin.Close()
			defer paste.Close()
			status, out, errs := m.run(stdin, func(stdout io.Reader) {
				addr := answerOf(t, stdout)
				switch how {
				case "pasted":
					_, _ = io.WriteString(paste, "nonsense\n"+strings.Replace(addr, "state=", "state=old", 1)+"\n"+addr+"\n")
				case "callback":
					m.want(exitOK, "Signed in", "login", server.URL, "--callback", addr)
				default:
					in, toIn, err := os.Pipe()
					bridgetest.Must(t, err)
					defer in.Close()
					_, _ = io.WriteString(toIn, addr+"\n")
					_ = toIn.Close()
					if status, out, errs := m.run(in, nil, "login", server.URL, "--callback", "-"); status != exitOK {
						t.Errorf("status %d; %q, %q", status, out, errs)
					}
				}
			}, "login", server.URL)
			command := "run here, in a terminal, while this command waits:\n  mcp-bridge login --callback - " + server.URL + "\n"
			if status != exitOK || !strings.Contains(out, "ssh -N -L") || !strings.Contains(out, command) || strings.Contains(out, "paste here") || how == "pasted" && (!strings.Contains(errs, "earlier sign-in") || strings.Contains(errs, "sign in again")) {
				t.Errorf("status %d; stdout %q, stderr %q", status, out, errs)
			}
		})
	}
}

// answerOf reads the address that a person is told, goes there, and returns the one at which the browser ends.
func answerOf(t *testing.T, stdout io.Reader) string {
	var text strings.Builder
	for b := make([]byte, 1); !strings.Contains(text.String(), "THIS-HOST"); text.Write(b) {
		if _, err := stdout.Read(b); err != nil {
			t.Errorf("no address in %q", text.String())
			return ""
		}
	}
	for word := range strings.FieldsSeq(text.String()) {
		if strings.HasPrefix(word, "http://") {
			resp, err := http.DefaultTransport.RoundTrip(httpGet(t, word))
			bridgetest.Must(t, err)
			_ = resp.Body.Close()
			return resp.Header.Get("Location")
		}
	}
	t.Errorf("no address in %q", text.String())
	return ""
}

func httpGet(t *testing.T, addr string) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, addr, nil)
	bridgetest.Must(t, err)
	return req
}

// What is wrong with a call is said, with what to write instead.
func TestLoginMistakes(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, true)
	for _, c := range []struct {
		args   string
		status int
		words  string
	}{
		{"login", exitUsage, "URL"},
		{"login one two", exitUsage, "URL"},
		{"login name", exitUsage, "URL"},
		{"login --auth-prompt error " + server.URL, exitUsage, "--auth-prompt error is for connect and serve"},
		{"login --cancel " + server.URL, exitFail, "no sign-in"},
		{"login --callback http://x " + server.URL, exitFail, "no sign-in"},
		{"login --detached", exitFail, "stdin"},
		{"login --devicecode " + server.URL, exitUsage, "--device-code"},
		{"login --device-code " + server.URL, exitFail, "without --device-code"},
		{"logout", exitUsage, "--all"},
		{"logout --all " + server.URL, exitUsage, "--all"},
		{"status a b", exitUsage, "URL"},
		{"status --config x", exitUsage, "name"},
	} {
		m.want(c.status, c.words, strings.Fields(c.args)...)
	}
	server.DenySignIn()
	m.want(exitFail, "denied", "login", server.URL)
}

// A login with a way to get tokens that needs no person is refused by one message, whatever else that way needs.
func TestLoginWithoutPerson(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, true)
	secret := filepath.Join(t.TempDir(), "secret")
	bridgetest.Must(t, os.WriteFile(secret, []byte("canary"), 0o600))
	const needsNobody = " needs nobody to sign in: connect and serve get a token by themselves; doctor with the same flags tries whether they can"
	for args, says := range map[string]string{
		"--auth client-credentials": "--auth client-credentials" + needsNobody,
		"--auth client-credentials --client-id c --client-secret-file " + secret:         "--auth client-credentials" + needsNobody,
		"--auth jwt-bearer --client-id c --assertion-file " + secret + " --auth-wait 9s": "--auth jwt-bearer" + needsNobody,
		"--auth enterprise": "--auth enterprise" + needsNobody,
		"--auth none":       "--auth none uses no credential: there is nothing to sign in for",
		"--auth person":     `--auth "person": use auto, none, client-credentials, jwt-bearer or enterprise`,
	} {
		status, out, errs := m.run(nil, nil, append(strings.Fields("login "+args), server.URL)...)
		if want := "mcp-bridge: " + says + "\nRun \"mcp-bridge help\" for the manual.\n"; status != exitUsage || out != "" || errs != want {
			t.Errorf("%s: status %d, stdout %q, stderr %q; want %q", args, status, out, errs, want)
		}
	}
}

// What a login has guessed of a server without metadata counts for that login only: when the server has got its metadata, the next one
// finds it. What a server answers that asks for no sign-in is said.
func TestLoginAfterMending(t *testing.T) {
	for name, c := range map[string]struct {
		mcp       int    // status of a server that is not yet mended; 0: it asks for a sign-in
		words     string // of the first login
		challenge string // of the server that is mended; "": its own, which announces the metadata
		fresh     bool
	}{
		"metadata held back":        {0, "client registration at ", "", false},
		"metadata held back, fresh": {0, "client registration at ", "", true},
		"not protected":             {200, "/mcp answers a request without a sign-in, with status 200, and may need none", "", false},
		"not protected, fresh":      {200, "with status 200, and may need none", "Bearer", true},
		"nothing announced":         {404, "with status 404, and may need none", "Bearer", false},
	} {
		t.Run(name, func(t *testing.T) {
			var mended atomic.Bool
			provider := authtest.New(t)
			h := httptest.NewUnstartedServer(nil)
			origin := "http://" + h.Listener.Addr().String()
			challenge := cmp.Or(c.challenge, `Bearer resource_metadata="`+origin+`/.well-known/oauth-protected-resource/mcp"`)
			h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/mcp" && c.mcp != 0 && !mended.Load():
					w.WriteHeader(c.mcp)
				case r.URL.Path == "/mcp":
					w.Header().Set("WWW-Authenticate", challenge)
					w.WriteHeader(http.StatusUnauthorized)
				case mended.Load() && r.URL.Path == "/.well-known/oauth-protected-resource/mcp":
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"resource":"`+origin+`/mcp","authorization_servers":["`+strings.TrimSuffix(provider.URL, "/mcp")+`"]}`)
				default:
					w.WriteHeader(map[bool]int{true: http.StatusUnauthorized, false: http.StatusNotFound}[c.mcp == 0])
				}
			})
			h.Start()
			t.Cleanup(h.Close)
			m := newMachine(t, true)
			_, _, errs := m.run(nil, nil, "login", origin+"/mcp")
			if !strings.Contains(errs, c.words) || (c.mcp != 0) == strings.Contains(errs, "by hand") {
				t.Errorf("the first login says %q", errs)
			}
			mended.Store(true)
			args := []string{"login", origin + "/mcp"}
			if c.fresh {
				args = append(args, "--fresh")
			}
			m.want(exitOK, "Signed in to "+origin+"/mcp", args...)
		})
	}
}

// logout --forget-client deletes what is stored of registrations also where nobody is signed in any more, and nothing that another sign-in
// uses.
func TestLogoutForgetsRegistrations(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, true)
	forgot := "Forgot the registration of the bridge at " + strings.TrimSuffix(server.URL, "/mcp") + "\n"
	registrations := func(want int) {
		t.Helper()
		store, err := tokenstore.Open(t.Context(), tokenstore.Options{Dir: m.env[authDirVariable]})
		bridgetest.Must(t, err)
		all, err := store.Registrations(t.Context(), strings.TrimSuffix(server.URL, "/mcp"))
		if err != nil || len(all) != want {
			t.Errorf("%d registrations, want %d; %v", len(all), want, err)
		}
	}
	m.want(exitOK, "Signed in", "login", server.URL)
	if out := m.want(exitOK, "Signed out", "logout", server.URL); strings.Contains(out, "Forgot") {
		t.Errorf("logout says %q", out)
	}
	registrations(1)
	m.want(exitOK, "Nobody is signed in to https://other.example/mcp\n", "logout", "--forget-client", "https://other.example/mcp")
	registrations(1)
	m.want(exitOK, "Nobody is signed in to "+server.URL+"\n"+forgot, "logout", "--forget-client", server.URL)
	registrations(0)
	if out := m.want(exitOK, "Nobody is signed in", "logout", "--forget-client", server.URL); strings.Contains(out, "Forgot") {
		t.Errorf("logout says %q", out)
	}
	m.want(exitOK, "Signed in", "login", server.URL)
	m.want(exitOK, "Signed out of "+server.URL+"\n"+forgot, "logout", "--forget-client", server.URL)
	registrations(0)
	for _, profile := range []string{"one", "two"} {
		m.want(exitOK, "Signed in", "login", "--profile", profile, server.URL)
		m.want(exitOK, "Signed out", "logout", "--profile", profile, server.URL)
	}
	registrations(2)
	m.want(exitOK, "Nobody is signed in to any server\n"+forgot, "logout", "--all", "--forget-client")
	registrations(0)
}

// A server of a configuration file is named, and what the file says of signing in counts.
func TestLoginByName(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, true)
	file := filepath.Join(t.TempDir(), "servers.json")
	text := `{"mcpServers": {"tools": {"url": "` + server.URL + `", "mcp-bridge": {"auth": {"profile": "work", "clientId": "by-hand"}}}, "other": {"command": "x"}}}`
	bridgetest.Must(t, os.WriteFile(file, []byte(text), 0o600))
	m.want(exitOK, "Signed in", "login", "--config", file, "tools")
	if out := m.want(exitOK, "work", "status", "--config", file, "tools"); !strings.Contains(out, "by-hand") {
		t.Errorf("status: %s", out)
	}
	m.want(exitUsage, "command", "login", "--config", file, "other")
	m.want(exitUsage, "nobody", "login", "--config", file, "nobody")
	m.want(exitOK, "Signed out", "logout", "--config", file, "tools")

	// doctor says which command does the same without the file.
	bridgetest.Must(t, os.WriteFile(file, []byte(strings.Replace(text, `"by-hand"`, `"by-hand", "allowPrivate": true`, 1)), 0o600))
	_, stdout, _ := m.run(nil, nil, "doctor", "--config", file, "tools")
	_, command, found := strings.Cut(strings.Join(strings.Fields(stdout), " "), "mcp-bridge login ")
	if command, _, _ = strings.Cut(command, server.URL); !found {
		t.Fatalf("doctor advises no sign-in: %s", stdout)
	}
	m.want(exitOK, "Signed in", append(append([]string{"login"}, strings.Fields(command)...), server.URL)...)
	m.want(exitOK, "Signed out", "logout", "--config", file, "tools")
}

// credential returns what a bridge with these settings has of its server. It ends with the test.
func (m *machine) credential(s signin.Settings) (*client.Credential, client.Options) {
	m.t.Helper()
	s.StoreDir = m.env[authDirVariable]
	o, err := s.Options(m.t.Context())
	bridgetest.Must(m.t, err)
	c, err := client.New(o)
	bridgetest.Must(m.t, err)
	m.t.Cleanup(func() {
		c.Close(context.Background())
		o.HTTPClient.CloseIdleConnections()
	})
	return c, o
}

// wantAnswer has a bridge with these settings send its server a request, and checks the status of the answer.
func (m *machine) wantAnswer(want int, s signin.Settings) {
	m.t.Helper()
	c, o := m.credential(s)
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodPost, s.Server, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	bridgetest.Must(m.t, err)
	got := http.StatusUnauthorized
	if resp, err := (&client.Transport{Base: o.HTTPClient.Transport, Credential: c}).RoundTrip(req); err == nil {
		got = resp.StatusCode
		_ = resp.Body.Close()
	}
	if got != want {
		m.t.Errorf("status %d, want %d", got, want)
	}
}

// A client that needs no person is signed in also when its token has ended: the next call gets a new one.
func TestStatusMachine(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, false)
	m.wantAnswer(200, signin.Settings{Server: server.URL, Mode: signin.ModeClientCredentials,
		Client: signin.Client{ID: "ci", Secret: tokenstore.NewSecret("secret-canary")}})
	m.want(exitOK, "signed in as a client without a person, token until", "status", server.URL)
	m.endTokens()
	out := m.want(exitOK, "token ended", "status", server.URL)
	if strings.Contains(out, "mcp-bridge login") {
		t.Errorf("a login does not help here: %s", out)
	}
	m.want(exitOK, `"renewable": true`, "status", "--json")
	m.want(exitOK, "Signed out", "logout", server.URL)
}

// A sign-out while the provider is down says once, in one line, that it could not be told.
func TestLogoutProviderDown(t *testing.T) {
	provider := authtest.ServerAt("")
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { provider.ServeHTTP(w, r) }))
	_ = h.Listener.Close()
	var err error
	h.Listener, err = net.Listen("tcp", bridgetest.FreeAddr(t)) // where nobody else listens when it is down
	bridgetest.Must(t, err)
	h.Start()
	provider = authtest.ServerAt(h.URL)
	m := newMachine(t, true)
	m.want(exitOK, "Signed in", "login", provider.URL)
	h.Close()
	status, out, errs := m.run(nil, nil, "logout", provider.URL)
	if status != exitOK || !strings.Contains(out, "Signed out of "+provider.URL) || strings.Contains(errs, `\n`) || strings.Count(errs, "/revoke") != 1 {
		t.Errorf("status %d; stdout %q, stderr %s", status, out, errs)
	}
	m.want(exitSignIn, "not signed in", "status", provider.URL)
}

// The command that takes the browser's address names the store, without which it could not read what is under way.
func TestCallbackCommandNamesStore(t *testing.T) {
	store, err := tokenstore.Open(t.Context(), tokenstore.Options{Dir: filepath.Join(t.TempDir(), "store")})
	bridgetest.Must(t, err)
	c, err := client.New(client.Options{Store: store, Server: "https://mcp.example/mcp", Profile: "work"})
	bridgetest.Must(t, err)
	defer c.Close(context.Background())
	var f loginFlags
	bridgetest.Must(t, f.flagSet().Parse([]string{"--token-store", "keyring"}))
	const want = "mcp-bridge login --callback - --profile work --token-store keyring https://mcp.example/mcp"
	if got := f.callbackCommand(c); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// logout says of several sign-ins at one server which they were, and what their provider said once: no line is there twice.
func TestLogoutSeveral(t *testing.T) {
	for _, down := range []bool{true, false} {
		provider := authtest.ServerAt("")
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.URL.Path, "/.well-known/oauth-authorization-server") {
				provider.ServeHTTP(w, r)
				return
			}
			answer := httptest.NewRecorder()
			provider.ServeHTTP(answer, r)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, strings.Replace(answer.Body.String(), `"revocation_endpoint"`, map[bool]string{true: `"revocation_endpoint"`, false: `"none"`}[down], 1))
		}))
		defer h.Close()
		provider = authtest.ServerAt(h.URL)
		m := newMachine(t, true)
		for _, flags := range []string{"", "--profile work ", "--profile work --resource https://other.example ", "--client-id mine "} {
			m.want(exitOK, "Signed in", append(strings.Fields("login "+flags), provider.URL)...)
		}
		if down {
			h.Close()
		}
		status, out, errs := m.run(nil, nil, "logout", provider.URL)
		all := strings.Split(strings.TrimSpace(out+errs), "\n")
		slices.Sort(all)
		if n := len(all); status != exitOK || len(slices.Compact(all)) != n || n != 4 {
			t.Errorf("status %d; stdout %s, stderr %s", status, out, errs)
		}
		for _, want := range []string{"Signed out of " + provider.URL + "\n", "Signed out of " + provider.URL + " (profile work)\n", "Signed out of " + provider.URL + " (profile work, resource https://other.example)\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing in %s", want, out)
			}
		}
		if want := "The authorization server " + h.URL + " cannot be told; what was issued ends by itself\n"; strings.Contains(out, want) == down {
			t.Errorf("stdout %s", out)
		}
		m.want(exitSignIn, "not signed in", "status", provider.URL)
	}
}

// Where the provider wants the client's secret before it revokes, logout says which flags were missing.
func TestLogoutWithoutSecret(t *testing.T) {
	provider := authtest.ServerAt("")
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/revoke" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"invalid_client"}`)
			return
		}
		provider.ServeHTTP(w, r)
	}))
	defer h.Close()
	provider = authtest.ServerAt(h.URL)
	m := newMachine(t, true)
	m.want(exitOK, "Signed in", "login", "--client-id", "mine", provider.URL)
	status, out, errs := m.run(nil, nil, "logout", provider.URL)
	if status != exitOK || !strings.Contains(out, "Signed out") || !strings.Contains(errs, "--client-id mine") || strings.Contains(errs, `\n`) {
		t.Errorf("status %d; stdout %q, stderr %s", status, out, errs)
	}
}

// A login beside the sign-in of a connect says how it goes on where the browser is elsewhere, and takes the address that is pasted.
func TestLoginBesideConnect(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, false)
	c, _ := m.credential(signin.Settings{Server: server.URL})
	flow, err := c.BeginSignIn(t.Context(), client.SignInOptions{})
	bridgetest.Must(t, err)
	ended := make(chan error, 1)
	waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { ended <- flow.Wait(waiting) }()
	stdin, paste, err := os.Pipe()
	bridgetest.Must(t, err)
	defer stdin.Close()
	defer paste.Close()
	status, out, errs := m.run(stdin, func(stdout io.Reader) {
		addr := answerOf(t, stdout)
		base, _, _ := strings.Cut(addr, "?")
		m.want(exitFail, "earlier sign-in", "login", server.URL, "--callback", base+"?code=c&state=old")
		_, _ = io.WriteString(paste, base+"?code=c&state=old\n"+addr+"\n")
	}, "login", server.URL)
	if status != exitOK || !strings.Contains(out, "ssh -N -L") || !strings.Contains(out, "Another process") || !strings.Contains(errs, "mcp-bridge status shows it") {
		t.Errorf("status %d; stdout %q, stderr %q", status, out, errs)
	}
	bridgetest.Must(t, <-ended)
}

// status says that the server refuses what is stored, in words, as JSON and by its exit status, until the server takes it.
func TestStatusRefused(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, true)
	m.want(exitOK, "Signed in", "login", server.URL)
	asks := func(want int) {
		t.Helper()
		m.wantAnswer(want, signin.Settings{Server: server.URL})
	}
	server.RefuseAllTokens(true)
	asks(401)
	out := m.want(exitSignIn, "refused", "status", server.URL)
	if !strings.Contains(out, "ask its operator") || strings.Contains(out, "signed in") {
		t.Error(out)
	}
	var all []credentialStatus
	bridgetest.Must(t, json.Unmarshal([]byte(m.want(exitSignIn, `"refusedAt"`, "status", "--json")), &all))
	if len(all) != 1 || all[0].Usable || all[0].Problem == "" || time.Since(all[0].RefusedAt).Abs() > time.Minute {
		t.Errorf("status is %+v", all)
	}
	server.RefuseAllTokens(false)
	asks(200)
	m.want(exitOK, "signed in", "status", server.URL)
	server.RefuseAllTokens(true)
	asks(401)
	m.want(exitOK, "Signed in", "login", server.URL)
	m.want(exitOK, "signed in", "status", server.URL) // nobody knows better
}

// A login that is interrupted says that nobody has signed in, and so does what later asks how it ended.
func TestLoginInterrupted(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, false)
	r, w, err := os.Pipe()
	bridgetest.Must(t, err)
	defer r.Close()
	defer w.Close()
	stdin, hold, err := os.Pipe()
	bridgetest.Must(t, err)
	defer stdin.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "/authorize?") {
				interrupt()
			}
		}
	}()
	var errs strings.Builder
	status := run(ctx, []string{"login", server.URL}, environment{stdin: stdin, stdout: w, stderr: &errs, lookup: func(name string) (string, bool) { v, ok := m.env[name]; return v, ok }})
	_ = hold.Close()
	if text := errs.String(); status == exitOK || !strings.Contains(text, "interrupted: nobody has signed in to "+server.URL) || strings.Contains(text, "context") {
		t.Errorf("status %d, %s", status, text)
	}
	o, err := signin.Settings{Server: server.URL, StoreDir: m.env[authDirVariable]}.Options(t.Context())
	bridgetest.Must(t, err)
	c, err := client.New(o)
	bridgetest.Must(t, err)
	defer c.Close(t.Context())
	if last := c.LastFailedSignIn(t.Context()); !strings.Contains(last.Problem, "interrupted") || strings.Contains(last.Problem, "context") {
		t.Errorf("it is remembered as %q", last.Problem)
	}
}

// A keyring that does not answer costs doctor a few seconds, and no more.
func TestDoctorKeyringHangs(t *testing.T) {
	bus, err := net.Listen("unix", filepath.Join(t.TempDir(), "bus"))
	bridgetest.Must(t, err)
	defer bus.Close() // it lets everybody in, and answers nobody
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+bus.Addr().String())
	server := authtest.New(t)
	_, out, errs := newMachine(t, false).run(nil, nil, "doctor", "--token-store", "keyring", server.URL)
	if text := strings.Join(strings.Fields(out), " "); !strings.Contains(text, "could not be read or renewed within 5s") {
		t.Errorf("%s%s", out, errs)
	}
}

// A status --check that is interrupted while the provider renews a token waits for the answer: the provider has replaced what is stored.
func TestStatusInterrupted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	bridgetest.Must(t, err)
	provider := authtest.ServerAt("http://" + l.Addr().String())
	ctx, interrupt := context.WithCancel(t.Context())
	var holds atomic.Bool
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" && holds.Load() {
			text, _ := io.ReadAll(r.Body) // so that the end of the request is noticed
			r.Body = io.NopCloser(bytes.NewReader(text))
			interrupt()
			select {
			case <-r.Context().Done():
				t.Error("the request is given up")
			case <-time.After(time.Second): // long after the interrupt
			}
		}
		provider.ServeHTTP(w, r)
	}))
	_ = h.Listener.Close()
	h.Listener = l
	h.Start()
	defer h.Close()
	m := newMachine(t, true)
	m.want(exitOK, "Signed in", "login", provider.URL)
	m.endTokens()
	holds.Store(true)
	_ = run(ctx, []string{"status", "--check", provider.URL}, environment{stdin: os.Stdin, stdout: os.Stdout, stderr: io.Discard, lookup: func(name string) (string, bool) { v, ok := m.env[name]; return v, ok }})
	store, err := tokenstore.Open(t.Context(), tokenstore.Options{Dir: m.env[authDirVariable]})
	bridgetest.Must(t, err)
	all, err := store.List()
	bridgetest.Must(t, err)
	if len(all) != 1 || !time.Now().Before(all[0].Entry.Credential.ExpiresAt) {
		t.Error("the new token is not stored")
	}
}
