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

// defaultSignInTimeout is how long a person has to sign in, unless SignInOptions.Timeout says otherwise.
const defaultSignInTimeout = 10 * time.Minute

// A Browser opens an address for a person to see. The address is http or https, and must not reach a shell.
type Browser interface{ Open(addr string) error }

// SignInOptions say how a person signs in.
type SignInOptions struct {
	Browser         Browser                // opens the page; nil: there is none, and a device code is asked for where the server has them
	UseDeviceCode   bool                   // the person signs in with a device code even if there is a Browser
	RegisterAnew    bool                   // the client is registered again even if a registration is stored; no effect where ClientID or ClientMetadataURL is its id
	TriedGeneration *tokenstore.Generation // the generation of the stored credential that is not enough: BeginSignIn returns ErrAlreadySignedIn if another one with an access token is stored; nil: that is not checked
	Timeout         time.Duration          // how long the person has, at most: a device code may end sooner; 0: 10 minutes
	OnProgress      func(what string)      // told what BeginSignIn waits for next, in a few words; nil: nobody is told
}

// reportProgress calls OnProgress, if that is set.
func (o SignInOptions) reportProgress(what string) {
	if o.OnProgress != nil {
		o.OnProgress(what)
	}
}

// ErrAlreadySignedIn is what BeginSignIn returns if another credential than TriedGeneration, with an access token, is stored by now.
var ErrAlreadySignedIn = errors.New("somebody has signed in meanwhile")

// errSignInCancelled is the error of a sign-in that [tokenstore.Store.CancelLogin] has ended.
var errSignInCancelled = errors.New("it was cancelled")

// A SignInFlow is one sign-in of a person that is under way. Wait ends it, and so does Close.
type SignInFlow struct {
	credential  *Credential           // the credential that it is for
	discovery   *discovery            // the metadata that the sign-in works with
	demands     serverDemands         // what challenges had asked for when the sign-in began
	oauthClient auth.Client           // who we are to the authorization server
	loginLock   *tokenstore.LoginLock // keeps other processes from signing in; Close releases it
	required    SignInRequired        // what Instructions returns: where the person goes

	scopes              []string                  // the scopes that are asked for
	codeVerifier        string                    // the code verifier of PKCE
	redirectURI         string                    // where the browser comes back to; "" with a device code
	proofKey            tokenstore.Secret         // the key of DPoP proofs; zero: the token is not bound to a key
	deviceAuthorization *auth.DeviceAuthorization // the device code and what belongs to it; nil: the person signs in with a browser that comes back
	callbackReceiver    *callbackReceiver         // takes the browser's return; nil: the person signs in with a device code

	callbackServer   *http.Server   // serves callbackReceiver; nil: with a device code
	servingListeners sync.WaitGroup // the goroutines of callbackServer, one for each listener
	closeOnce        sync.Once      // makes only the first Close do something
}

// BeginSignIn begins a sign-in: it finds the servers, gets a client id, listens for the browser or asks for a device code, announces where the person goes, and
// opens the browser. tokenstore.ErrBusy: another process signs in already. Options.OnError is told that the browser did not open; the person can go to the
// address alone.
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

// checkOpenableURL returns an error if an address is not http or https, or has a character that no address has.
func checkOpenableURL(addr string) error {
	u, err := url.Parse(addr)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.ContainsFunc(addr, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the address that a person is to open is not http or https, or has a character that no address has")
	}
	return nil
}

// checkSignInURL returns an error if the address that the authorization server wants a person to open is not fit for a browser.
func (f *SignInFlow) checkSignInURL(addr string) error {
	if err := checkOpenableURL(addr); err != nil {
		return &auth.Error{Kind: auth.Invalid, Operation: "sign-in", URL: f.discovery.AuthServer.Issuer, Problem: err.Error(), Advice: "tell the operator of the server"}
	}
	return nil
}

// makeProofKey sets proofKey to the stored one or a new one, if tokens are to be bound to a key.
func (f *SignInFlow) makeProofKey(ctx context.Context) error {
	e, err := f.credential.options.Store.Load(ctx, f.credential.key)
	if err != nil {
		return err
	}
	s, err := f.credential.newStoredCredential(f.discovery, f.demands, e.Credential, f.scopes)
	f.proofKey = s.DPoPKey
	return err
}

// beginDeviceSignIn asks for a device code, and sets required to the page and the code.
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

// beginBrowserSignIn listens for the browser to come back, and sets required to the page to open. It does not open the browser.
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

// serveCallbacks serves callbackReceiver at the listeners, until Close.
func (f *SignInFlow) serveCallbacks(listeners []net.Listener) {
	f.callbackServer = &http.Server{Handler: f.callbackReceiver, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10}
	for _, l := range listeners {
		f.servingListeners.Go(func() { _ = f.callbackServer.Serve(l) })
	}
}

// Instructions returns where the person signs in, with which code, and until when.
func (f *SignInFlow) Instructions() SignInRequired { return f.required }

// AcceptCallbackURL takes the URL that a browser ended at, as a person gives it, in the place of the browser itself. An error leaves the sign-in open, unless
// it was answered already.
func (f *SignInFlow) AcceptCallbackURL(addr string) error {
	if f.callbackReceiver == nil {
		return errors.New("this sign-in has a code, and waits for no address")
	}
	return f.callbackReceiver.acceptURL(addr)
}

// Wait waits for the person, gets the tokens, stores them, and closes the SignInFlow. nil: the person is signed in. It may be called once.
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

// cancelPollInterval is how often Wait looks whether somebody has cancelled the sign-in.
const cancelPollInterval = 500 * time.Millisecond

// watchForCancel calls end, which cancels ctx, with the cause when another process has cancelled the sign-in, or its time is over by the clock. It returns when ctx is done.
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

// awaitToken waits for the person's answer, and exchanges it for a token.
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

// interruptedError is the error of a sign-in that ended because its ctx was cancelled, such as by Ctrl-C.
type interruptedError struct{}

// Error says that the sign-in was interrupted.
func (interruptedError) Error() string { return "it was interrupted before anybody had signed in" }

// Unwrap returns context.Canceled.
func (interruptedError) Unwrap() error { return context.Canceled }

// signInEndCause returns the error for a sign-in whose ctx is done: the cause of ctx, or interruptedError if it was simply cancelled.
func signInEndCause(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != context.Canceled {
		return cause
	}
	return interruptedError{}
}

// errNobodyAnswered is the error of a sign-in whose time is over without an answer of the person.
var errNobodyAnswered = fmt.Errorf("nobody has answered in time; sign in again: %w", context.DeadlineExceeded)

// Waits between token requests for a device code (RFC 8628, 3.5).
const (
	slowDownStep              = 5 * time.Second // by how much each SlowDown lengthens the wait between token requests for a device code
	maxDeviceCodePollInterval = time.Minute     // a token request for a device code that gets no usable answer doubles the wait for the next, up to this, or up to the server's own interval if that is longer
)

// pollDeviceCode asks for the token of the device code again and again until the person has agreed or refused, or ctx is done.
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

// storeToken stores the token that signing in has brought, as a new credential.
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

// noteRegistrationUse notes whether the sign-in, which ended with err, shows that the server knows the client's registration. A person who said no does not
// count against it.
func (f *SignInFlow) noteRegistrationUse(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	if id := f.oauthClient.ID; id != "" && id != f.credential.options.ClientID && id != f.credential.options.ClientMetadataURL && !auth.Is(err, auth.AccessDenied) {
		f.credential.registrar.noteRegistrationUse(ctx, f.discovery.AuthServer.Issuer, id, err == nil)
	}
}

// Close ends the sign-in: nobody listens for the browser any more, and others may sign in. Only the first call does anything.
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
