package outbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func TestMain(m *testing.M) { bridgetest.CheckLeaks(m) }

// newServer returns a server that takes the token "good" only, and has the metadata of an authorization server.
func newServer(t *testing.T) string {
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/mcp":
			if r.Header.Get("Authorization") != "Bearer good" {
				w.Header().Set("WWW-Authenticate", "Bearer")
				w.WriteHeader(http.StatusUnauthorized)
			}
		case "/.well-known/oauth-protected-resource/mcp":
			fmt.Fprintf(w, `{"resource":"%s/mcp","authorization_servers":["%s"]}`, server.URL, server.URL)
		case "/.well-known/oauth-authorization-server":
			fmt.Fprintf(w, `{"issuer":"%s","authorization_endpoint":"%[1]s/authorize","token_endpoint":"%[1]s/token","code_challenge_methods_supported":["S256"],"response_types_supported":["code"]}`, server.URL)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func newStore(t *testing.T) *tokenstore.Store {
	store, err := tokenstore.Open(t.Context(), tokenstore.Options{Dir: filepath.Join(t.TempDir(), "auth")})
	bridgetest.Must(t, err)
	return store
}

// Who has not signed in is told where, the log is told once, and after a sign-in of another process the
// next request goes on.
func TestSignInNeeded(t *testing.T) {
	url := newServer(t)
	store := newStore(t)
	c, err := client.New(client.Options{Store: store, Server: url + "/mcp", ClientID: "c1"})
	bridgetest.Must(t, err)
	var log bytes.Buffer
	base := &http.Transport{}
	a := New(Options{Credential: c, Logger: hclog.New(&hclog.LoggerOptions{Output: &log}), OnClosed: base.CloseIdleConnections})
	rt := a.Authorize(base)
	ask := func() (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/mcp", strings.NewReader("{}"))
		bridgetest.Must(t, err)
		return rt.RoundTrip(req)
	}
	for range 3 {
		_, err := ask()
		f, ok := errors.AsType[*httpdial.Fault](err)
		if !ok || f.Reason != httpdial.ReasonAuthRequired || !strings.HasPrefix(f.Text, "Sign-in needed for "+url+"/mcp: run: mcp-bridge login --client-id c1 "+url+"/mcp (") {
			t.Fatalf("the error is %v", err)
		}
	}
	bridgetest.Must(t, store.WithLock(t.Context(), c.Key(), func(l *tokenstore.LockedCredential) error {
		_, err := l.Save(tokenstore.Credential{Server: url + "/mcp", Issuer: url, ClientID: "c1", TokenType: "Bearer", AccessToken: tokenstore.NewSecret("good")}, l.Entry().Generation)
		return err
	}))
	resp, err := ask()
	bridgetest.Must(t, err)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d after the sign-in", resp.StatusCode)
	}
	a.Close()
	if n := strings.Count(log.String(), "Sign-in needed"); n != 1 || !strings.Contains(log.String(), "status=401 error=") {
		t.Errorf("the log was told %d times:\n%s", n, &log)
	}
}

// The status that clients are told is the server's own: 403 where it wants more rights, also with the address to sign in at.
func TestStatusIsTheServers(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/mcp":
				w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="more"`)
				w.WriteHeader(status)
			case "/.well-known/oauth-protected-resource/mcp":
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"resource":"http://%s/mcp","authorization_servers":["http://%[1]s"]}`, r.Host)
			case "/.well-known/oauth-authorization-server":
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"issuer":"http://%s","authorization_endpoint":"http://%[1]s/authorize","token_endpoint":"http://%[1]s/token","code_challenge_methods_supported":["S256"]}`, r.Host)
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		defer server.Close()
		c, err := client.New(client.Options{Store: newStore(t), Server: server.URL + "/mcp", ClientID: "c1", SignIn: func(_ context.Context, _ *client.Credential, need client.SignInRequired) error {
			need.URL = "https://as.example/open"
			return &need
		}})
		bridgetest.Must(t, err)
		base := &http.Transport{}
		a := New(Options{Credential: c, OnClosed: base.CloseIdleConnections})
		defer a.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/mcp", strings.NewReader("{}"))
		bridgetest.Must(t, err)
		_, err = a.Authorize(base).RoundTrip(req)
		f, ok := errors.AsType[*httpdial.Fault](err)
		if want := fmt.Sprintf(`{"reason":"authorization_required","status":%d,"url":"https://as.example/open"}`, status); !ok || string(f.ErrorData()) != want {
			t.Errorf("the error is %v; want %s", err, want)
		}
	}
}

// What clients are told of each kind of error.
func TestFaults(t *testing.T) {
	expires := time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC)
	for name, one := range map[string]struct {
		err                error
		reason, text, more string
		transient          bool
	}{
		"nobody": {err: &client.SignInRequired{Reason: "nobody has signed in"}, reason: "authorization_required", text: "Sign-in needed for https://h/mcp: run: mcp-bridge login --profile work https://h/mcp (nobody has signed in)"},
		"pending": {err: fmt.Errorf("x: %w", &client.SignInRequired{URL: "https://as/a?b=\x1b\"", UserCode: "AB-CD", Expires: expires}), reason: "authorization_required",
			text: `Sign-in needed for https://h/mcp: open https://as/a?b=`, more: `"userCode":"AB-CD","expiresAt":"2026-11-23T01:02:03Z"`},
		"permanent": {err: &client.PermanentError{Problem: "the server refuses", Err: errors.New("status 401")}, reason: "authorization_failed", text: "the server refuses: status 401"},
		"refused":   {err: &auth.Error{Kind: auth.AccessDenied, Operation: "token request", Problem: "no"}, reason: "authorization_failed", text: "token request: no"},
		"away":      {err: &auth.Error{Kind: auth.Unavailable, Operation: "token request", Problem: "no answer"}, reason: "authorization_server", text: "no answer", transient: true},
	} {
		f := faultOf(one.err, "https://h/mcp", "mcp-bridge login --profile work https://h/mcp", 0)
		if f == nil || f.Reason != one.reason || !strings.Contains(f.Text, one.text) || f.Transient != one.transient || !strings.Contains(string(f.ErrorData()), one.more) || strings.Contains(f.Text, "\x1b") {
			t.Errorf("%s: %+v", name, f)
			continue
		}
		m := f.Response(jsonrpc.IntID(1))
		if _, err := jsonrpc.Parse(m.Bytes()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f := faultOf(errors.New("connection refused"), "https://h/mcp", "", 0); f != nil {
		t.Errorf("an error of the network is %+v", f)
	}
}

// Nobody signs in for a request that the bridge makes by itself.
func TestUnattended(t *testing.T) {
	store := newStore(t)
	c, err := client.New(client.Options{Store: store, Server: "https://h/mcp"})
	bridgetest.Must(t, err)
	signIn := ReportSignInProgress(func(context.Context, *client.Credential, client.SignInRequired) error {
		t.Error("somebody is asked to sign in")
		return nil
	}, store, nil)
	err = signIn(httpdial.Unattended(t.Context()), c, client.SignInRequired{Reason: "r", URL: "https://a"})
	if need, ok := errors.AsType[*client.SignInRequired](err); !ok || need.URL != "https://a" {
		t.Errorf("the error is %v", err)
	}
}

// While a request waits for a sign-in, its client hears of it every ten seconds, and nothing afterwards.
func TestTelling(t *testing.T) {
	store := newStore(t)
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New(client.Options{Store: store, Server: "https://h/mcp?key=canary"})
		bridgetest.Must(t, err)
		var told []string
		ctx := httpdial.WithProgress(t.Context(), func(text string) { told = append(told, text) })
		signIn := ReportSignInProgress(func(context.Context, *client.Credential, client.SignInRequired) error {
			time.Sleep(25 * time.Second)
			return nil
		}, store, nil)
		bridgetest.Must(t, signIn(ctx, c, client.SignInRequired{}))
		if want := "waiting for sign-in to https://h/mcp"; len(told) != 2 || told[0] != want {
			t.Errorf("told %q, want %q twice", told, want)
		}
	})
}
