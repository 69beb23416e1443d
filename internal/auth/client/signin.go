package client

import (
	"context"
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
	Browser       Browser // nil: there is none, and a device code is asked for where the server has them
	UseDeviceCode bool    // a device code, also where there is a browser
	RegisterAnew  bool    // registers the client anew
	// TriedGeneration is the stored credential that does not do: BeginSignIn returns ErrSignedIn if there is another one.
	// nil: that is not looked at.
	TriedGeneration *tokenstore.Generation
	Timeout         time.Duration // for the person; 0: 10 minutes
	// OnProgress is told what BeginSignIn waits for next, in a few words. nil: nobody is.
	OnProgress func(what string)
}

func (o SignInOptions) reportProgress(what string) {
	if o.OnProgress != nil {
		o.OnProgress(what)
	}
}

// ErrSignedIn is what BeginSignIn returns if somebody has signed in meanwhile.
var ErrSignedIn = errors.New("somebody has signed in meanwhile")

// errCancelled is the end of a sign-in by [tokenstore.Store.CancelLogin].
var errCancelled = errors.New("it was cancelled")

// A SignInFlow is one sign-in of a person. Wait ends it, and so does Close.
type SignInFlow struct {
	c           *Credential
	discovery   *discovery
	demands     serverDemands
	oauthClient auth.Client
	login       *tokenstore.LoginLock
	required    SignInRequired

	scopes   []string
	verifier string
	redirect string
	proofKey tokenstore.Secret // of proofs
	device   *auth.DeviceAuthorization
	receiver *callbackReceiver

	server  *http.Server
	serving sync.WaitGroup
	closing sync.Once
}

// BeginSignIn begins a sign-in: it finds the servers, gets a client id, listens for the browser or asks for a device
// code, announces where the person goes, and opens the browser. tokenstore.ErrBusy: another process
// signs in already. An error of the browser is in Browser; the person can go to the address alone.
func (c *Credential) BeginSignIn(ctx context.Context, o SignInOptions) (f *SignInFlow, err error) {
	login, err := c.o.Store.TryLockLogin(c.key)
	if err != nil {
		return nil, err
	}
	f = &SignInFlow{c: c, login: login}
	defer func() {
		if err != nil {
			f.Close()
			f = nil
		}
	}()
	if o.TriedGeneration != nil {
		e, err := c.o.Store.Load(ctx, c.key)
		if err == nil && e.Generation != *o.TriedGeneration && !e.Credential.Access.IsZero() {
			err = ErrSignedIn
		}
		if err != nil {
			return f, err
		}
	}
	if f.demands, err = c.record.storedDemands(ctx); err != nil {
		return f, err
	}
	o.reportProgress("waiting for the metadata of " + c.o.Server + " and of its authorization server")
	if f.discovery, err = c.finder.discover(ctx, f.demands.MetadataURL, false); err != nil {
		return f, err
	}
	f.scopes = c.scopesToRequest(f.discovery, f.demands, true)
	limit := o.Timeout
	if limit <= 0 {
		limit = signInTimeout
	}
	f.required = SignInRequired{Expires: c.now().Add(limit), Reason: "nobody has signed in to " + c.o.Server}
	if err := f.makeProofKey(ctx); err != nil {
		return f, err
	}
	if (o.UseDeviceCode || o.Browser == nil) && f.discovery.Server.DeviceAuthorizationEndpoint != "" {
		err = f.beginDevice(ctx, o)
	} else if o.UseDeviceCode {
		err = &auth.Error{Kind: auth.Unsupported, Operation: "device authorization", Problem: "the authorization server has no device codes",
			Advice: "sign in without --device-code: the address that is then shown can be opened on another machine, too"}
	} else {
		err = f.beginBrowser(ctx, o)
	}
	if err != nil {
		return f, err
	}
	err = login.Announce(tokenstore.Login{Server: c.o.Server, Profile: c.o.Profile, PID: os.Getpid(), URL: f.required.URL, UserCode: f.required.UserCode, Redirect: f.redirect, Expires: f.required.Expires})
	if err == nil && o.Browser != nil && f.device == nil {
		if err := o.Browser.Open(f.required.URL); err != nil {
			c.reportError(fmt.Errorf("the browser was not opened: %w", err))
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

// checkAddress refuses an address that the authorization server wants a person to open.
func (f *SignInFlow) checkAddress(addr string) error {
	if err := checkOpenable(addr); err != nil {
		return &auth.Error{Kind: auth.Invalid, Operation: "sign-in", URL: f.discovery.Server.Issuer, Problem: err.Error(), Advice: "tell the operator of the server"}
	}
	return nil
}

// makeProofKey makes the key of proofs if tokens are to be bound.
func (f *SignInFlow) makeProofKey(ctx context.Context) error {
	e, err := f.c.o.Store.Load(ctx, f.c.key)
	if err != nil {
		return err
	}
	s, err := f.c.newStoredCredential(f.discovery, f.demands, e.Credential, f.scopes)
	f.proofKey = s.DPoPKey
	return err
}

func (f *SignInFlow) beginDevice(ctx context.Context, o SignInOptions) (err error) {
	o.reportProgress("waiting for a registration at " + f.discovery.Server.Issuer)
	if f.oauthClient, err = f.c.clients.clientForSignIn(ctx, f.discovery, f.c.redirect.uri(), f.scopes, o.RegisterAnew); err != nil {
		return err
	}
	o.reportProgress("waiting for a code of " + f.discovery.Server.Issuer)
	d, err := f.c.caller.AuthorizeDevice(ctx, f.discovery.Server, f.oauthClient, f.c.resourceParam(f.discovery), f.scopes)
	if err != nil {
		f.noteOutcome(err)
		return err
	}
	f.device = &d
	f.required.URL, f.required.UserCode = d.VerificationURI, d.UserCode
	if !d.Expires.IsZero() && d.Expires.Before(f.required.Expires) {
		f.required.Expires = d.Expires
	}
	return f.checkAddress(d.VerificationURI)
}

func (f *SignInFlow) beginBrowser(ctx context.Context, o SignInOptions) error {
	c := f.c
	listeners, port, err := c.redirect.listen(ctx)
	if err != nil {
		return err
	}
	f.redirect = c.redirect.uriAt(port)
	expect := auth.ExpectedCallback{State: auth.NewState(), Issuer: f.discovery.Server.Issuer, RequiresIssParameter: f.discovery.Server.SendsIssParameter}
	f.receiver = newReceiver(f.redirect, expect)
	f.serve(listeners)
	o.reportProgress("waiting for a registration at " + f.discovery.Server.Issuer)
	if f.oauthClient, err = c.clients.clientForSignIn(ctx, f.discovery, f.redirect, f.scopes, o.RegisterAnew); err != nil {
		return err
	}
	f.verifier = auth.NewCodeVerifier()
	r := auth.AuthorizationRequest{
		Server: f.discovery.Server, ClientID: f.oauthClient.ID, RedirectURI: f.redirect, State: expect.State, CodeChallenge: auth.CodeChallenge(f.verifier),
		Resource: c.resourceParam(f.discovery), Scopes: f.scopes, ExtraParams: c.o.ExtraParams, AllowsPlainHTTP: c.caller.AllowsPlainHTTP(),
	}
	prover, err := c.keys.proverOf(f.proofKey)
	if err != nil {
		return err
	}
	if prover != nil {
		r.DPoPKeyThumbprint = prover.Thumbprint()
	}
	if f.required.URL, err = r.URL(); err != nil {
		return err
	}
	return f.checkAddress(f.required.URL)
}

// serve answers the browser.
func (f *SignInFlow) serve(listeners []net.Listener) {
	f.server = &http.Server{Handler: f.receiver, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10}
	for _, l := range listeners {
		f.serving.Go(func() { _ = f.server.Serve(l) })
	}
}

// Where returns where the person goes.
func (f *SignInFlow) Where() SignInRequired { return f.required }

// Callback takes the address that a browser ended at, as a person gives it. The error leaves the
// sign-in open.
func (f *SignInFlow) Callback(addr string) error {
	if f.receiver == nil {
		return errors.New("this sign-in has a code, and waits for no address")
	}
	return f.receiver.takeAddress(addr)
}

// Wait waits for the person, gets the tokens, stores them, and closes the SignInFlow. It may be called once.
func (f *SignInFlow) Wait(ctx context.Context) error {
	defer f.Close()
	ctx, cancel := context.WithDeadlineCause(ctx, time.Now().Add(f.required.Expires.Sub(f.c.now())), errNobodyAnswered)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { f.watchCancel(ctx, end) })
	token, err := f.awaitToken(ctx)
	end(nil)
	watch.Wait()
	if err == nil {
		err = f.storeToken(token)
	}
	f.noteOutcome(err)
	f.c.record.noteSignInEnd(err)
	return err
}

// cancelPollInterval is how often a sign-in looks whether it was cancelled.
const cancelPollInterval = 500 * time.Millisecond

// watchCancel ends ctx when somebody has cancelled the sign-in, or its time is over by the clock.
func (f *SignInFlow) watchCancel(ctx context.Context, end context.CancelCauseFunc) {
	look := time.NewTicker(cancelPollInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			switch {
			case f.login.Cancelled():
				end(errCancelled)
			case !f.c.now().Before(f.required.Expires): // the machine has slept, and the timer of ctx with it
				end(errNobodyAnswered)
			}
		}
	}
}

// awaitToken waits for the person's answer, and exchanges it.
func (f *SignInFlow) awaitToken(ctx context.Context) (auth.Token, error) {
	prover, err := f.c.keys.proverOf(f.proofKey)
	if err != nil {
		return auth.Token{}, err
	}
	if f.device != nil {
		return f.pollDeviceCode(ctx, prover)
	}
	select {
	case <-ctx.Done():
		return auth.Token{}, fmt.Errorf("the sign-in at %s: %w", f.discovery.Server.Issuer, endOf(ctx))
	case back := <-f.receiver.result:
		if back.err != nil {
			return auth.Token{}, back.err
		}
		once, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout) // the code works only once
		defer cancel()
		return f.c.caller.RequestToken(once, f.discovery.Server, f.oauthClient, auth.AuthorizationCodeGrant(back.code, f.verifier, f.redirect, f.c.resourceParam(f.discovery)), prover)
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
	slowDownStep    = 5 * time.Second
	maxPollInterval = time.Minute
)

// pollDeviceCode asks until the person has answered.
func (f *SignInFlow) pollDeviceCode(ctx context.Context, prover *auth.Prover) (auth.Token, error) {
	interval := f.device.PollInterval
	for {
		timer := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return auth.Token{}, fmt.Errorf("the sign-in at %s: %w", f.discovery.Server.Issuer, endOf(ctx))
		case <-timer.C:
		}
		once, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		token, err := f.c.caller.RequestToken(once, f.discovery.Server, f.oauthClient, auth.DeviceCodeGrant(f.device.DeviceCode, f.c.resourceParam(f.discovery)), prover)
		cancel()
		switch {
		case auth.Is(err, auth.AuthorizationPending):
		case auth.Is(err, auth.SlowDown):
			interval += slowDownStep
		case auth.Is(err, auth.Unavailable):
			interval = min(2*interval, max(maxPollInterval, f.device.PollInterval))
		default:
			return token, err
		}
	}
}

// storeToken stores what signing in has brought.
func (f *SignInFlow) storeToken(t auth.Token) error {
	c := f.c
	if c.o.DPoP == DPoPRequire && t.Type != auth.SchemeDPoP {
		return &PermanentError{Problem: "DPoP is required", Err: errors.New("the authorization server issued a token that is not bound to a key")}
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	s, err := c.newStoredCredential(f.discovery, f.demands, tokenstore.Credential{DPoPKey: f.proofKey}, f.scopes)
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
		err = c.record.noteSignIn(ctx)
	}
	return err
}

// noteOutcome notes whether the registration was of use. A person who said no has seen that the client is known.
func (f *SignInFlow) noteOutcome(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	if id := f.oauthClient.ID; id != "" && id != f.c.o.ClientID && id != f.c.o.ClientMetadataURL && !auth.Is(err, auth.AccessDenied) {
		f.c.clients.noteUse(ctx, f.discovery.Server.Issuer, id, err == nil)
	}
}

// Close ends the sign-in: nobody listens any more, and others may sign in.
func (f *SignInFlow) Close() {
	f.closing.Do(func() {
		if f.server != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second) // for the page
			if f.server.Shutdown(ctx) != nil {
				_ = f.server.Close()
			}
			cancel()
			f.serving.Wait()
		}
		f.c.reportError(f.login.Release())
	})
}
