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

// defaultSignInTimeout bounds a sign-in, unless its options say otherwise.
const defaultSignInTimeout = 10 * time.Minute

// A Browser opens an address for a person to see. The address is http or https, and must not reach a shell.
type Browser interface{ Open(addr string) error }

// SignInOptions say how a person signs in.
type SignInOptions struct {
	Browser       Browser // nil: there is none, and a device code is asked for where the server has them
	UseDeviceCode bool    // a device code, also where there is a browser
	RegisterAnew  bool    // registers the client anew
	// TriedGeneration is the stored credential that does not do: BeginSignIn returns ErrAlreadySignedIn if there is another one.
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

// ErrAlreadySignedIn is what BeginSignIn returns if somebody has signed in meanwhile.
var ErrAlreadySignedIn = errors.New("somebody has signed in meanwhile")

// errSignInCancelled is the end of a sign-in by [tokenstore.Store.CancelLogin].
var errSignInCancelled = errors.New("it was cancelled")

// A SignInFlow is one sign-in of a person. Wait ends it, and so does Close.
type SignInFlow struct {
	credential  *Credential
	discovery   *discovery
	demands     serverDemands
	oauthClient auth.Client
	loginLock   *tokenstore.LoginLock
	required    SignInRequired // what Instructions returns

	scopes              []string // that are asked for
	codeVerifier        string
	redirectURI         string
	proofKey            tokenstore.Secret         // of DPoP proofs; zero: the token need not be bound
	deviceAuthorization *auth.DeviceAuthorization // nil: the person signs in with a browser that comes back
	callbackReceiver    *callbackReceiver         // nil: the person signs in with a device code

	callbackServer   *http.Server
	servingListeners sync.WaitGroup
	closeOnce        sync.Once
}

// BeginSignIn begins a sign-in: it finds the servers, gets a client id, listens for the browser or asks for a device
// code, announces where the person goes, and opens the browser. tokenstore.ErrBusy: another process
// signs in already. Options.OnError is told that the browser did not open; the person can go to the address alone.
func (c *Credential) BeginSignIn(ctx context.Context, o SignInOptions) (f *SignInFlow, err error) {
	login, err := c.options.Store.TryLockLogin(c.key)
	if err != nil {
		return nil, err
	}
	f = &SignInFlow{credential: c, loginLock: login}
	defer func() {
		if err != nil {
			f.Close()
			f = nil
		}
	}()
	if o.TriedGeneration != nil {
		e, err := c.options.Store.Load(ctx, c.key)
		if err == nil && e.Generation != *o.TriedGeneration && !e.Credential.AccessToken.IsZero() {
			err = ErrAlreadySignedIn
		}
		if err != nil {
			return f, err
		}
	}
	if f.demands, err = c.record.storedDemands(ctx); err != nil {
		return f, err
	}
	o.reportProgress("waiting for the metadata of " + c.options.Server + " and of its authorization server")
	if f.discovery, err = c.metadataFinder.discoverForSignIn(ctx, f.demands.MetadataURL); err != nil {
		return f, err
	}
	f.scopes = c.scopesToRequest(f.discovery, f.demands, true)
	limit := o.Timeout
	if limit <= 0 {
		limit = defaultSignInTimeout
	}
	f.required = SignInRequired{Expires: c.now().Add(limit), Reason: "nobody has signed in to " + c.options.Server}
	if err := f.makeProofKey(ctx); err != nil {
		return f, err
	}
	if (o.UseDeviceCode || o.Browser == nil) && f.discovery.AuthServer.DeviceAuthorizationEndpoint != "" {
		err = f.beginDeviceSignIn(ctx, o)
	} else if o.UseDeviceCode {
		err = &auth.Error{Kind: auth.Unsupported, Operation: "device authorization", Problem: "the authorization server has no device codes",
			Advice: "sign in without --device-code: the address that is then shown can be opened on another machine, too"}
	} else {
		err = f.beginBrowserSignIn(ctx, o)
	}
	if err != nil {
		return f, err
	}
	err = login.Announce(tokenstore.LoginAnnouncement{Server: c.options.Server, Profile: c.options.Profile, PID: os.Getpid(), SignInURL: f.required.URL, UserCode: f.required.UserCode, RedirectURI: f.redirectURI, Expires: f.required.Expires})
	if err == nil && o.Browser != nil && f.deviceAuthorization == nil {
		if err := o.Browser.Open(f.required.URL); err != nil {
			c.reportError(fmt.Errorf("the browser was not opened: %w", err))
		}
	}
	return f, err
}

// checkOpenableURL refuses what a browser would not show.
func checkOpenableURL(addr string) error {
	u, err := url.Parse(addr)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.ContainsFunc(addr, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the address that a person is to open is not http or https, or has a character that no address has")
	}
	return nil
}

// checkSignInURL refuses an address that the authorization server wants a person to open.
func (f *SignInFlow) checkSignInURL(addr string) error {
	if err := checkOpenableURL(addr); err != nil {
		return &auth.Error{Kind: auth.Invalid, Operation: "sign-in", URL: f.discovery.AuthServer.Issuer, Problem: err.Error(), Advice: "tell the operator of the server"}
	}
	return nil
}

// makeProofKey makes the key of proofs if tokens are to be bound, or takes the one that is stored.
func (f *SignInFlow) makeProofKey(ctx context.Context) error {
	e, err := f.credential.options.Store.Load(ctx, f.credential.key)
	if err != nil {
		return err
	}
	s, err := f.credential.newStoredCredential(f.discovery, f.demands, e.Credential, f.scopes)
	f.proofKey = s.DPoPKey
	return err
}

// beginDeviceSignIn asks for a device code, and sets required.
func (f *SignInFlow) beginDeviceSignIn(ctx context.Context, o SignInOptions) (err error) {
	o.reportProgress("waiting for a registration at " + f.discovery.AuthServer.Issuer)
	if f.oauthClient, err = f.credential.registrar.clientForSignIn(ctx, f.discovery, f.credential.redirect.uri(), f.scopes, o.RegisterAnew); err != nil {
		return err
	}
	o.reportProgress("waiting for a code of " + f.discovery.AuthServer.Issuer)
	d, err := f.credential.caller.AuthorizeDevice(ctx, f.discovery.AuthServer, f.oauthClient, f.credential.resourceParam(f.discovery), f.scopes)
	if err != nil {
		f.noteRegistrationUse(err)
		return err
	}
	f.deviceAuthorization = &d
	f.required.URL, f.required.UserCode = d.VerificationURI, d.UserCode
	if !d.Expires.IsZero() && d.Expires.Before(f.required.Expires) {
		f.required.Expires = d.Expires
	}
	return f.checkSignInURL(d.VerificationURI)
}

// beginBrowserSignIn listens for the browser, and sets required. It does not open the browser.
func (f *SignInFlow) beginBrowserSignIn(ctx context.Context, o SignInOptions) error {
	c := f.credential
	listeners, port, err := c.redirect.listen(ctx)
	if err != nil {
		return err
	}
	f.redirectURI = c.redirect.uriWithPort(port)
	expect := auth.ExpectedCallback{State: auth.NewState(), Issuer: f.discovery.AuthServer.Issuer, RequiresIssParameter: f.discovery.AuthServer.SendsIssParameter}
	f.callbackReceiver = newCallbackReceiver(f.redirectURI, expect)
	f.serveCallbacks(listeners)
	o.reportProgress("waiting for a registration at " + f.discovery.AuthServer.Issuer)
	if f.oauthClient, err = c.registrar.clientForSignIn(ctx, f.discovery, f.redirectURI, f.scopes, o.RegisterAnew); err != nil {
		return err
	}
	f.codeVerifier = auth.NewCodeVerifier()
	r := auth.AuthorizationRequest{
		Server: f.discovery.AuthServer, ClientID: f.oauthClient.ID, RedirectURI: f.redirectURI, State: expect.State, CodeChallenge: auth.CodeChallenge(f.codeVerifier),
		Resource: c.resourceParam(f.discovery), Scopes: f.scopes, ExtraParams: c.options.ExtraParams, AllowsPlainHTTP: c.caller.AllowsPlainHTTP(),
	}
	prover, err := c.provers.proverForKey(f.proofKey)
	if err != nil {
		return err
	}
	if prover != nil {
		r.DPoPKeyThumbprint = prover.Thumbprint()
	}
	if f.required.URL, err = r.URL(); err != nil {
		return err
	}
	return f.checkSignInURL(f.required.URL)
}

// serveCallbacks answers the browser, until Close.
func (f *SignInFlow) serveCallbacks(listeners []net.Listener) {
	f.callbackServer = &http.Server{Handler: f.callbackReceiver, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10}
	for _, l := range listeners {
		f.servingListeners.Go(func() { _ = f.callbackServer.Serve(l) })
	}
}

// Instructions returns where the person goes.
func (f *SignInFlow) Instructions() SignInRequired { return f.required }

// AcceptCallbackURL takes the address that a browser ended at, as a person gives it. An error leaves the
// sign-in open, unless it was answered already.
func (f *SignInFlow) AcceptCallbackURL(addr string) error {
	if f.callbackReceiver == nil {
		return errors.New("this sign-in has a code, and waits for no address")
	}
	return f.callbackReceiver.acceptURL(addr)
}

// Wait waits for the person, gets the tokens, stores them, and closes the SignInFlow. It may be called once.
func (f *SignInFlow) Wait(ctx context.Context) error {
	defer f.Close()
	ctx, cancel := context.WithDeadlineCause(ctx, time.Now().Add(f.required.Expires.Sub(f.credential.now())), errNobodyAnswered)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { f.watchForCancel(ctx, end) })
	token, err := f.awaitToken(ctx)
	end(nil)
	watch.Wait()
	if err == nil {
		err = f.storeToken(token)
	}
	f.noteRegistrationUse(err)
	f.credential.record.noteSignInEnd(err)
	return err
}

// cancelPollInterval is how often a sign-in looks whether it was cancelled.
const cancelPollInterval = 500 * time.Millisecond

// watchForCancel ends ctx when somebody has cancelled the sign-in, or its time is over by the clock.
func (f *SignInFlow) watchForCancel(ctx context.Context, end context.CancelCauseFunc) {
	look := time.NewTicker(cancelPollInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			switch {
			case f.loginLock.IsCancelled():
				end(errSignInCancelled)
			case !f.credential.now().Before(f.required.Expires): // the machine has slept, and the timer of ctx with it
				end(errNobodyAnswered)
			}
		}
	}
}

// awaitToken waits for the person's answer, and exchanges it.
func (f *SignInFlow) awaitToken(ctx context.Context) (auth.Token, error) {
	prover, err := f.credential.provers.proverForKey(f.proofKey)
	if err != nil {
		return auth.Token{}, err
	}
	if f.deviceAuthorization != nil {
		return f.pollDeviceCode(ctx, prover)
	}
	select {
	case <-ctx.Done():
		return auth.Token{}, fmt.Errorf("the sign-in at %s: %w", f.discovery.AuthServer.Issuer, signInEndCause(ctx))
	case back := <-f.callbackReceiver.outcome:
		if back.err != nil {
			return auth.Token{}, back.err
		}
		once, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout) // the code works only once
		defer cancel()
		return f.credential.caller.RequestToken(once, f.discovery.AuthServer, f.oauthClient, auth.AuthorizationCodeGrant(back.code, f.codeVerifier, f.redirectURI, f.credential.resourceParam(f.discovery)), prover)
	}
}

// interruptedError is the end of a sign-in whose process was told to end.
type interruptedError struct{}

func (interruptedError) Error() string { return "it was interrupted before anybody had signed in" }
func (interruptedError) Unwrap() error { return context.Canceled }

// signInEndCause returns why a sign-in ends whose ctx is done.
func signInEndCause(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != context.Canceled {
		return cause
	}
	return interruptedError{}
}

// errNobodyAnswered is the end of a sign-in that nobody has answered.
var errNobodyAnswered = fmt.Errorf("nobody has answered in time; sign in again: %w", context.DeadlineExceeded)

// Waits between token requests for a device code (RFC 8628, 3.5).
const (
	slowDownStep              = 5 * time.Second
	maxDeviceCodePollInterval = time.Minute
)

// pollDeviceCode asks until the person has answered.
func (f *SignInFlow) pollDeviceCode(ctx context.Context, prover *auth.Prover) (auth.Token, error) {
	interval := f.deviceAuthorization.PollInterval
	for {
		timer := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return auth.Token{}, fmt.Errorf("the sign-in at %s: %w", f.discovery.AuthServer.Issuer, signInEndCause(ctx))
		case <-timer.C:
		}
		once, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		token, err := f.credential.caller.RequestToken(once, f.discovery.AuthServer, f.oauthClient, auth.DeviceCodeGrant(f.deviceAuthorization.DeviceCode, f.credential.resourceParam(f.discovery)), prover)
		cancel()
		switch {
		case auth.Is(err, auth.AuthorizationPending):
		case auth.Is(err, auth.SlowDown):
			interval += slowDownStep
		case auth.Is(err, auth.Unavailable):
			interval = min(2*interval, max(maxDeviceCodePollInterval, f.deviceAuthorization.PollInterval))
		default:
			return token, err
		}
	}
}

// storeToken stores what signing in has brought.
func (f *SignInFlow) storeToken(t auth.Token) error {
	c := f.credential
	if c.options.DPoP == DPoPRequire && t.Type != auth.SchemeDPoP {
		return &PermanentError{Problem: "DPoP is required", Err: errors.New("the authorization server issued a token that is not bound to a key")}
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	s, err := c.newStoredCredential(f.discovery, f.demands, tokenstore.Credential{DPoPKey: f.proofKey}, f.scopes)
	if err != nil {
		return err
	}
	s.ClientID = f.oauthClient.ID
	s = credentialWithToken(s, t, c.now())
	err = c.options.Store.WithLock(ctx, c.key, func(l *tokenstore.LockedCredential) error {
		if err := l.ForgetTokenRequests(); err != nil {
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

// noteRegistrationUse notes whether the registration was of use. A person who said no has seen that the client is known.
func (f *SignInFlow) noteRegistrationUse(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	if id := f.oauthClient.ID; id != "" && id != f.credential.options.ClientID && id != f.credential.options.ClientMetadataURL && !auth.Is(err, auth.AccessDenied) {
		f.credential.registrar.noteRegistrationUse(ctx, f.discovery.AuthServer.Issuer, id, err == nil)
	}
}

// Close ends the sign-in: nobody listens any more, and others may sign in.
func (f *SignInFlow) Close() {
	f.closeOnce.Do(func() {
		if f.callbackServer != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second) // for the page
			if f.callbackServer.Shutdown(ctx) != nil {
				_ = f.callbackServer.Close()
			}
			cancel()
			f.servingListeners.Wait()
		}
		f.credential.reportError(f.loginLock.Release())
	})
}
