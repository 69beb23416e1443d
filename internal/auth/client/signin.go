package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// signInTimeout bounds a sign-in, unless its options say otherwise.
const signInTimeout = 10 * time.Minute

// A Browser opens an address for a person to see. The address is http or https, and must not reach a shell.
type Browser interface{ Open(addr string) error }

// SignInOptions say how a person signs in.
type SignInOptions struct {
	Browser Browser // nil: there is none, and a device code is asked for where the server has them
	Device  bool    // a device code, also where there is a browser
	Anew    bool    // registers the client anew
	// Known is the stored credential that does not do: Begin returns ErrSignedIn if there is another one.
	// nil: that is not looked at.
	Known *tokenstore.Generation
	Limit time.Duration // for the person; 0: 10 minutes
	// Doing is told what Begin waits for next, in a few words. nil: nobody is.
	Doing func(what string)
}

func (o SignInOptions) doing(what string) {
	if o.Doing != nil {
		o.Doing(what)
	}
}

// ErrSignedIn is what Begin returns if somebody has signed in meanwhile.
var ErrSignedIn = errors.New("somebody has signed in meanwhile")

// errCancelled is the end of a sign-in by [tokenstore.Store.CancelLogin].
var errCancelled = errors.New("the sign-in was cancelled")

// A Flow is one sign-in of a person. Wait ends it, and so does Close.
type Flow struct {
	c           *Credential
	site        *site
	wants       serverDemands
	oauthClient auth.Client
	login       *tokenstore.LoginLock
	needed      Required

	scopes   []string
	verifier string
	redirect string
	key      tokenstore.Secret // of proofs
	device   *auth.DeviceAuthorization
	receiver *receiver

	server  *http.Server
	serving sync.WaitGroup
	closing sync.Once
}

// Begin begins a sign-in: it finds the servers, gets a client id, listens for the browser or asks for a device
// code, announces where the person goes, and opens the browser. tokenstore.ErrBusy: another process
// signs in already. An error of the browser is in Browser; the person can go to the address alone.
func (c *Credential) Begin(ctx context.Context, o SignInOptions) (f *Flow, err error) {
	login, err := c.o.Store.TryLockLogin(c.key)
	if err != nil {
		return nil, err
	}
	f = &Flow{c: c, login: login}
	defer func() {
		if err != nil {
			f.Close()
			f = nil
		}
	}()
	if o.Known != nil {
		e, err := c.o.Store.Load(ctx, c.key)
		if err == nil && e.Generation != *o.Known && !e.Credential.Access.IsZero() {
			err = ErrSignedIn
		}
		if err != nil {
			return f, err
		}
	}
	if f.wants, err = c.askedByServer(ctx); err != nil {
		return f, err
	}
	o.doing("waiting for the metadata of " + c.o.Server + " and of its authorization server")
	if f.site, err = c.discover(ctx, f.wants.Announced, false); err != nil {
		return f, err
	}
	f.scopes = c.scopes(f.site, f.wants, true)
	limit := o.Limit
	if limit <= 0 {
		limit = signInTimeout
	}
	f.needed = Required{Expires: c.now().Add(limit), Reason: "nobody has signed in to " + c.o.Server}
	if err := f.makeKey(ctx); err != nil {
		return f, err
	}
	if (o.Device || o.Browser == nil) && f.site.Server.DeviceAuthorization != "" {
		err = f.beginDevice(ctx, o)
	} else if o.Device {
		err = &auth.Error{Kind: auth.Unsupported, Doing: "device authorization", What: "the authorization server has no device codes"}
	} else {
		err = f.beginBrowser(ctx, o)
	}
	if err != nil {
		return f, err
	}
	err = login.Announce(tokenstore.Login{Server: c.o.Server, Profile: c.o.Profile, PID: os.Getpid(), URL: f.needed.URL, UserCode: f.needed.UserCode, Redirect: f.redirect, Expires: f.needed.Expires})
	if err == nil && o.Browser != nil && f.device == nil {
		if err := o.Browser.Open(f.needed.URL); err != nil {
			c.notice(fmt.Errorf("the browser was not opened: %w", err))
		}
	}
	return f, err
}

// checkOpenable refuses what a browser would not show.
func checkOpenable(addr string) error {
	u, err := url.Parse(addr)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.ContainsFunc(addr, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the address that a person is to open is not http or https, or has a character that no address has")
	}
	return nil
}

// openable refuses an address that the authorization server wants a person to open.
func (f *Flow) openable(addr string) error {
	if err := checkOpenable(addr); err != nil {
		return &auth.Error{Kind: auth.Invalid, Doing: "sign-in", URL: f.site.Server.Issuer, What: err.Error(), Do: "tell the operator of the server"}
	}
	return nil
}

// makeKey makes the key of proofs if tokens are to be bound.
func (f *Flow) makeKey(ctx context.Context) error {
	e, err := f.c.o.Store.Load(ctx, f.c.key)
	if err != nil {
		return err
	}
	s, err := f.c.begin(f.site, f.wants, e.Credential, f.scopes)
	f.key = s.DPoPKey
	return err
}

func (f *Flow) beginDevice(ctx context.Context, o SignInOptions) (err error) {
	o.doing("waiting for a registration at " + f.site.Server.Issuer)
	if f.oauthClient, err = f.c.identify(ctx, f.site, f.c.redirectURI(f.c.port()), f.scopes, o.Anew); err != nil {
		return err
	}
	o.doing("waiting for a code of " + f.site.Server.Issuer)
	d, err := f.c.caller.AuthorizeDevice(ctx, f.site.Server, f.oauthClient, f.c.resource(f.site), f.scopes)
	if err != nil {
		f.finish(err)
		return err
	}
	f.device = &d
	f.needed.URL, f.needed.UserCode = d.URL, d.UserCode
	if !d.Expires.IsZero() && d.Expires.Before(f.needed.Expires) {
		f.needed.Expires = d.Expires
	}
	return f.openable(d.URL)
}

func (f *Flow) beginBrowser(ctx context.Context, o SignInOptions) error {
	c := f.c
	listeners, port, err := c.listen(ctx)
	if err != nil {
		return err
	}
	f.redirect = c.redirectURI(port)
	expect := auth.Expectation{State: auth.NewState(), Issuer: f.site.Server.Issuer, IssParameter: f.site.Server.IssParameter}
	f.receiver = newReceiver(f.redirect, expect)
	f.serve(listeners)
	o.doing("waiting for a registration at " + f.site.Server.Issuer)
	if f.oauthClient, err = c.identify(ctx, f.site, f.redirect, f.scopes, o.Anew); err != nil {
		return err
	}
	f.verifier = auth.NewVerifier()
	r := auth.AuthorizationRequest{
		Server: f.site.Server, ClientID: f.oauthClient.ID, RedirectURI: f.redirect, State: expect.State, Challenge: auth.CodeChallenge(f.verifier),
		Resource: c.resource(f.site), Scopes: f.scopes, Extra: c.o.Extra, PlainHTTP: c.caller.PlainHTTP(),
	}
	prover, err := c.proverOf(f.key)
	if err != nil {
		return err
	}
	if prover != nil {
		r.JKT = prover.Thumbprint()
	}
	if f.needed.URL, err = r.URL(); err != nil {
		return err
	}
	return f.openable(f.needed.URL)
}

// serve answers the browser.
func (f *Flow) serve(listeners []net.Listener) {
	f.server = &http.Server{Handler: f.receiver, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10}
	for _, l := range listeners {
		f.serving.Go(func() { _ = f.server.Serve(l) })
	}
}

// Where returns where the person goes.
func (f *Flow) Where() Required { return f.needed }

// Callback takes the address that a browser ended at, as a person gives it. The error leaves the
// sign-in open.
func (f *Flow) Callback(addr string) error {
	if f.receiver == nil {
		return errors.New("this sign-in has a code, and waits for no address")
	}
	return f.receiver.deliver(addr)
}

// Wait waits for the person, gets the tokens, stores them, and closes the Flow. It may be called once.
func (f *Flow) Wait(ctx context.Context) error {
	defer f.Close()
	ctx, cancel := context.WithDeadlineCause(ctx, time.Now().Add(f.needed.Expires.Sub(f.c.now())), errNobodyAnswered)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { f.watchCancel(ctx, end) })
	token, err := f.token(ctx)
	end(nil)
	watch.Wait()
	if err == nil {
		err = f.store(token)
	}
	f.finish(err)
	f.c.noteEnd(err)
	return err
}

// cancelLook is how often a sign-in looks whether it was cancelled.
const cancelLook = 500 * time.Millisecond

// watchCancel ends ctx when somebody has cancelled the sign-in, or its time is over by the clock.
func (f *Flow) watchCancel(ctx context.Context, end context.CancelCauseFunc) {
	look := time.NewTicker(cancelLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			switch {
			case f.login.Cancelled():
				end(errCancelled)
			case !f.c.now().Before(f.needed.Expires): // the machine has slept, and the timer of ctx with it
				end(errNobodyAnswered)
			}
		}
	}
}

// token waits for the person's answer, and exchanges it.
func (f *Flow) token(ctx context.Context) (auth.Token, error) {
	prover, err := f.c.proverOf(f.key)
	if err != nil {
		return auth.Token{}, err
	}
	if f.device != nil {
		return f.poll(ctx, prover)
	}
	select {
	case <-ctx.Done():
		return auth.Token{}, fmt.Errorf("the sign-in at %s: %w", f.site.Server.Issuer, endOf(ctx))
	case back := <-f.receiver.result:
		if back.err != nil {
			return auth.Token{}, back.err
		}
		once, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout) // the code works only once
		defer cancel()
		return f.c.caller.Token(once, f.site.Server, f.oauthClient, auth.AuthorizationCode(back.code, f.verifier, f.redirect, f.c.resource(f.site)), prover)
	}
}

// interrupted is the end of a sign-in whose process was told to end.
type interrupted struct{}

func (interrupted) Error() string { return "it was interrupted before anybody had signed in" }
func (interrupted) Unwrap() error { return context.Canceled }

// endOf returns why a sign-in ends whose ctx is done.
func endOf(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != context.Canceled {
		return cause
	}
	return interrupted{}
}

// errNobodyAnswered is the end of a sign-in that nobody has answered.
var errNobodyAnswered = fmt.Errorf("nobody has answered in time; sign in again: %w", context.DeadlineExceeded)

// Waits between token requests for a device code (RFC 8628, 3.5).
const (
	slowDown = 5 * time.Second
	maxPoll  = time.Minute
)

// poll asks until the person has answered.
func (f *Flow) poll(ctx context.Context, prover *auth.Prover) (auth.Token, error) {
	interval := f.device.Interval
	for {
		timer := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return auth.Token{}, fmt.Errorf("the sign-in at %s: %w", f.site.Server.Issuer, endOf(ctx))
		case <-timer.C:
		}
		once, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		token, err := f.c.caller.Token(once, f.site.Server, f.oauthClient, auth.DeviceCode(f.device.DeviceCode, f.c.resource(f.site)), prover)
		cancel()
		switch {
		case auth.Is(err, auth.AuthorizationPending):
		case auth.Is(err, auth.SlowDown):
			interval += slowDown
		case auth.Is(err, auth.Unavailable):
			interval = min(2*interval, max(maxPoll, f.device.Interval))
		default:
			return token, err
		}
	}
}

// store stores what signing in has brought.
func (f *Flow) store(t auth.Token) error {
	c := f.c
	if c.o.DPoP == DPoPRequire && t.Type != auth.SchemeDPoP {
		return &Permanent{What: "DPoP is required", Err: errors.New("the authorization server issued a token that is not bound to a key")}
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	s, err := c.begin(f.site, f.wants, tokenstore.Credential{DPoPKey: f.key}, f.scopes)
	if err != nil {
		return err
	}
	s.ClientID = f.oauthClient.ID
	s = withToken(s, t, c.now())
	err = c.o.Store.WithLock(ctx, c.key, func(l *tokenstore.Locked) error {
		if err := l.ForgetRequests(); err != nil {
			return err
		}
		_, err := l.Save(s, l.Entry().Generation)
		return err
	})
	if err == nil {
		err = c.attempted(ctx)
	}
	return err
}

// finish notes whether the registration was of use. A person who said no has seen that the client is known.
func (f *Flow) finish(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	if id := f.oauthClient.ID; id != "" && id != f.c.o.ClientID && id != f.c.o.Document && !auth.Is(err, auth.AccessDenied) {
		f.c.prove(ctx, f.site.Server.Issuer, id, err == nil)
	}
}

// Close ends the sign-in: nobody listens any more, and others may sign in.
func (f *Flow) Close() {
	f.closing.Do(func() {
		if f.server != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second) // for the page
			if f.server.Shutdown(ctx) != nil {
				_ = f.server.Close()
			}
			cancel()
			f.serving.Wait()
		}
		f.c.notice(f.login.Release())
	})
}

// endedDocument is the name of the stored document about the last sign-in, an Ended.
const endedDocument = "ended"

// An Ended is how a sign-in ended that brought nothing.
type Ended struct {
	At      time.Time `json:"at,omitzero"` // zero: the last one was good, or there was none
	Problem string    `json:"problem,omitempty"`
}

// noteEnd remembers how a sign-in has ended, for other processes.
func (c *Credential) noteEnd(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	end := Ended{}
	if err != nil {
		end = Ended{c.now(), err.Error()}
	}
	if now := c.LastEnd(ctx); now != end {
		if err := c.remember(ctx, endedDocument, end, time.Time{}); err != nil {
			c.notice(err)
		}
	}
}

// LastEnd returns how the last sign-in of any process ended, if it brought nothing.
func (c *Credential) LastEnd(ctx context.Context) Ended {
	var end Ended
	m, err := c.o.Store.Metadata(ctx, c.key)
	if err != nil || m.Documents[endedDocument] == nil || json.Unmarshal(m.Documents[endedDocument], &end) != nil {
		return Ended{}
	}
	return end
}
