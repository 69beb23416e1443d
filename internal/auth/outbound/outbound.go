// Package outbound puts a credential (package client) under the clients of a remote server, and says in the
// words of the bridge what is wrong where there is none.
package outbound

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
)

// Options say what an Authorizer works with.
type Options struct {
	Credential *client.Credential // the credential that requests are sent with; required; Close closes it
	Logger     hclog.Logger       // is told why there is no credential, not twice in a row the same, and that another process has changed the credential; nil: nobody is
	OnClosed   func()             // called once the credential is closed; nil: nothing is
}

// An Authorizer adds the credential of one remote server to the requests of this process. Its methods may be called
// concurrently. Close ends it.
type Authorizer struct {
	options     Options // the Options that New got
	serverLabel string  // the server's URL as it is shown: without what may be secret

	loginCommand string // the command line that signs in to the server

	ctx              context.Context    // done at Close
	cancel           context.CancelFunc // ends ctx
	wg               sync.WaitGroup     // the goroutine that follows the store
	isFollowingStore atomic.Bool        // followStore was called: a goroutine follows the store
	closeOnce        sync.Once          // makes only the first Close do something

	mu         sync.Mutex // guards the fields below
	closed     bool       // Close was called
	lastLogged string     // what logOnce has logged last; "": nothing
}

// closeTimeout is how long Close waits for a token request that is under way.
const closeTimeout = 10 * time.Second

// New returns the Authorizer of a credential. It makes no request, and starts nothing before the first request that was sent with
// a credential, or has failed. From then on a goroutine follows the store, so that a sign-in or a sign-out in another process is
// noticed at once; Close ends it.
func New(o Options) *Authorizer {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	a := &Authorizer{options: o, serverLabel: redactURL(o.Credential.Server())}
	a.loginCommand = strings.Join(append(append([]string{"mcp-bridge", "login"}, o.Credential.LoginFlags()...), a.serverLabel), " ")
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// followStore starts the goroutine that follows the store, unless it runs or Close was called.
func (a *Authorizer) followStore() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.isFollowingStore.Swap(true) {
		return
	}
	a.wg.Go(func() {
		if err := a.options.Credential.FollowStore(a.ctx, a.onCredentialChanged); err != nil && a.ctx.Err() == nil {
			a.logOnce("the stored credentials cannot be watched: a sign-in in another process is noticed with the next request", "error", err.Error())
		}
	})
}

// Authorize returns a RoundTripper that sends requests through base with the credential: it is for the Authorize of
// remote.Options. Its errors are of type *httpdial.Fault where a person can do something about them.
func (a *Authorizer) Authorize(base http.RoundTripper) http.RoundTripper {
	return &faultTransport{a, base}
}

// Close ends the Authorizer and closes the credential. It waits for a token request that is under way, for at most 10
// seconds. It is called once the connections to the server have ended.
func (a *Authorizer) Close() {
	a.closeOnce.Do(func() {
		a.mu.Lock()
		a.closed = true
		a.mu.Unlock()
		a.cancel()
		a.wg.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		a.options.Credential.Close(ctx)
		if a.options.OnClosed != nil {
			a.options.OnClosed()
		}
	})
}

// onCredentialChanged logs that another process has changed the stored credential. signedIn: there is one.
func (a *Authorizer) onCredentialChanged(signedIn bool) {
	a.mu.Lock()
	a.lastLogged = ""
	a.mu.Unlock()
	if signedIn {
		a.options.Logger.Debug("there is a new credential", "url", a.serverLabel)
		return
	}
	a.options.Logger.Info("signed out", "url", a.serverLabel)
}

// logOnce logs a warning with these fields, unless it was the last one that it has logged.
func (a *Authorizer) logOnce(what string, pairs ...any) {
	key := what
	for _, p := range pairs {
		if s, ok := p.(string); ok {
			key += "\x00" + s
		}
	}
	a.mu.Lock()
	again := a.lastLogged == key
	a.lastLogged = key
	a.mu.Unlock()
	if !again {
		a.options.Logger.Warn(what, append(pairs, "url", a.serverLabel)...)
	}
}

// A faultTransport is a client.Transport whose errors are those that clients may see: *httpdial.Fault.
type faultTransport struct {
	authorizer *Authorizer       // has the credential
	base       http.RoundTripper // sends the requests
}

// RoundTrip implements http.RoundTripper: it sends r with the credential. Its errors are those of faultFor.
func (t *faultTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	last := statusNoter{base: t.base}
	resp, err := (&client.Transport{Base: &last, Credential: t.authorizer.options.Credential}).RoundTrip(r.WithContext(context.WithValue(r.Context(), statusNoterKey{}, &last)))
	if !t.authorizer.isFollowingStore.Load() && (err != nil || resp.Request != nil && resp.Request.Header["Authorization"] != nil) {
		t.authorizer.followStore()
	}
	if err != nil {
		return nil, t.authorizer.faultFor(r.Context(), err, last.status)
	}
	return resp, nil
}

// A statusNoter is a RoundTripper that notes the status of the last answer to one request, which may be sent several
// times, one after the other.
type statusNoter struct {
	base   http.RoundTripper // sends the request
	status int               // the HTTP status; 0: there was no answer
}

// statusNoterKey is the key of a request's statusNoter in its context.
type statusNoterKey struct{}

// statusIn returns the HTTP status that the server last answered to the request whose context is ctx, or made of that;
// 0: there was no answer.
func statusIn(ctx context.Context) int {
	if n, ok := ctx.Value(statusNoterKey{}).(*statusNoter); ok {
		return n.status
	}
	return 0
}

// RoundTrip implements http.RoundTripper: it sends r through base, and notes the status of the answer.
func (n *statusNoter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.base.RoundTrip(r)
	if err == nil {
		n.status = resp.StatusCode
	}
	return resp, err
}

// faultFor returns the error that clients get for an error of client.Transport: a *httpdial.Fault, which it logs.
// Errors of the network, and those of a request that has been given up, stay as they are. status is the HTTP status
// that the server has answered; 0: it was not asked.
func (a *Authorizer) faultFor(ctx context.Context, err error, status int) error {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return err
	}
	f := faultOf(err, a.serverLabel, a.loginCommand, status)
	if f == nil {
		return err
	}
	// Whoever has made the request tells the log of the Fault, too: of two lines with the same fields it has one.
	a.logOnce("no credential for the server", f.LogAttrs()...)
	return f
}

// redactURL returns a URL without user name, query and fragment; "the server" if it is not valid.
func redactURL(addr string) string {
	u, err := url.Parse(addr)
	if err != nil {
		return "the server"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}
