package signin

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// PrompterOptions say how a Prompter works.
type PrompterOptions struct {
	Settings Settings          // the settings of the server; required
	Store    *tokenstore.Store // has the credential; required
	// DetachedCommand is a program and its arguments, which calls RunDetachedSignIn with its stdin and stdout: a process
	// that outlives this one. nil: the sign-in is in this process.
	DetachedCommand []string
	LookupEnv       func(string) (string, bool) // reads environment variables; required
	// OnSignInURL is told where the person signs in, by a request that waits, unless that is the address it was told last. It may be
	// called concurrently. nil: nobody is told.
	OnSignInURL func(client.SignInRequired)
}

// A Prompter gets a person to sign in to one server, for the requests of this process. Of all processes only one signs
// the person in at a time; with a DetachedCommand, that is a process of its own. Its methods may be called
// concurrently.
type Prompter struct {
	options PrompterOptions    // the options that NewPrompter got
	ctx     context.Context    // done at Close: ends a sign-in in this process
	cancel  context.CancelFunc // ends ctx
	running sync.WaitGroup     // the goroutines of runStart, for which Close waits

	mu               sync.Mutex   // guards the fields below, and signInStart.progress
	closed           bool         // Close was called: no sign-in begins any more
	currentStart     *signInStart // the sign-in that is about to begin; nil: none is
	lastAnnouncedURL string       // the address that OnSignInURL was told last
}

// A signInStart is a sign-in that is about to begin, for all requests that wait for that.
type signInStart struct {
	done     chan struct{} // closed when the sign-in has begun, or could not
	err      error         // why the sign-in could not begin; nil: it has begun, another process signs in, or somebody has signed in. To be read once done is closed
	progress string        // what the start of the sign-in waits for, in a few words; "": not known; guarded by Prompter.mu
}

// NewPrompter returns a Prompter. Close ends it.
func NewPrompter(o PrompterOptions) *Prompter {
	p := &Prompter{options: o}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Close ends a sign-in that is in this process, and waits for its end. A process of its own goes on.
func (p *Prompter) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.running.Wait()
}

// failedSignInPause is how long after a failed sign-in SignIn begins no other one: a client that tries again and again
// must not open a page each time.
const failedSignInPause = 5 * time.Minute

// answerPollInterval is how often a waiting request looks whether the person has signed in.
const answerPollInterval = 250 * time.Millisecond

// SignIn is a client.SignInFunc: it has a person sign in, unless another process does already, and waits for that as
// long as Settings.SignInWait. nil: somebody has signed in. If nobody has in that time, or the last sign-in failed
// just now, it returns a *client.SignInRequired that says where the person signs in, or why nobody does; if no
// sign-in can begin, a *client.PermanentError.
func (p *Prompter) SignIn(ctx context.Context, c *client.Credential, need client.SignInRequired) error {
	if p.isSignedIn(ctx, c, need) {
		return nil
	}
	if need.URL == "" {
		if last := c.LastFailedSignIn(ctx); !last.EndedAt.IsZero() && time.Since(last.EndedAt).Abs() < failedSignInPause {
			need.Reason = fmt.Sprintf("the last sign-in brought nothing: %s", last.Problem)
			return &need
		}
		if err := p.awaitStart(ctx, c, need); err != nil {
			return err
		}
	}
	return p.awaitAnswer(ctx, c, need)
}

// isSignedIn reports whether a credential with an access token is stored whose generation is not need.TriedGeneration, the one
// that was not enough.
func (p *Prompter) isSignedIn(ctx context.Context, c *client.Credential, need client.SignInRequired) bool {
	e, err := p.options.Store.Load(ctx, c.Key())
	return err == nil && e.Generation != 0 && e.Generation != need.TriedGeneration && !e.Credential.AccessToken.IsZero()
}

// awaitStart begins a sign-in, unless one is about to begin in this process, and waits until it has begun. need is the
// error if that takes too long (its Reason says what is waited for), or if Close was called. If the sign-in cannot begin, the
// error is a *client.PermanentError.
func (p *Prompter) awaitStart(ctx context.Context, c *client.Credential, need client.SignInRequired) error {
	p.mu.Lock()
	s := p.currentStart
	if s == nil && !p.closed {
		s = &signInStart{done: make(chan struct{})}
		p.currentStart = s
		p.running.Go(func() {
			p.runStart(s, signInOrder{p.options.Settings, p.options.Settings.Client.Secret.Reveal(), need.TriedGeneration})
		})
	}
	p.mu.Unlock()
	if s == nil {
		return &need
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		if context.Cause(ctx) != client.ErrSignInTimeout {
			return ctx.Err()
		}
		p.mu.Lock()
		need.Reason = "the sign-in has not begun within the time of --auth-wait, it is still " + cmp.Or(s.progress, "starting")
		p.mu.Unlock()
		return &need
	}
	if s.err != nil {
		return &client.PermanentError{Problem: "nobody can sign in to " + c.Server(), Err: s.err}
	}
	return nil
}

// runStart begins a sign-in for s. With a DetachedCommand it returns then; without one, or if it cannot be started, it
// waits for the end of the sign-in, which is in this process.
func (p *Prompter) runStart(s *signInStart, o signInOrder) {
	var once sync.Once
	began := func(err error) {
		once.Do(func() {
			p.mu.Lock()
			s.err, p.currentStart = err, nil
			p.mu.Unlock()
			close(s.done)
		})
	}
	doing := func(what string) {
		p.mu.Lock()
		s.progress = what
		p.mu.Unlock()
	}
	if p.options.DetachedCommand != nil {
		said, err := startDetached(p.options.DetachedCommand, o)
		if err == nil {
			stop := context.AfterFunc(p.ctx, func() { _ = said.Close() })
			began(awaitStartReport(said, doing))
			stop()
			_ = said.Close()
			return
		}
	}
	_ = signInPerson(p.ctx, o, p.options.LookupEnv, doing, began) // LastFailedSignIn returns the error
}

// awaitAnswer waits until the person has signed in. need is the error if the time to wait is over (then it has where to
// sign in), or if the sign-in ends without a credential (then it has why).
func (p *Prompter) awaitAnswer(ctx context.Context, c *client.Credential, need client.SignInRequired) error {
	late := time.NewTimer(cmp.Or(p.options.Settings.SignInWait, DefaultSignInWait))
	defer late.Stop()
	tick := time.NewTicker(answerPollInterval)
	defer tick.Stop()
	gone := 0
	for {
		if p.isSignedIn(ctx, c, need) {
			return nil
		}
		login, pending, err := p.options.Store.PendingLogin(c.Key())
		switch {
		case err != nil:
			return err
		case pending:
			gone = 0
		default:
			gone++
		}
		if gone > 4 { // it has ended, and not as a moment ago before its beginning
			if last := c.LastFailedSignIn(ctx); last.Problem != "" {
				need.Reason = "the sign-in has ended: " + last.Problem
			}
			need.URL, need.UserCode, need.Expires = "", "", time.Time{}
			return &need
		}
		if login.SignInURL != "" {
			need.URL, need.UserCode, need.Expires = login.SignInURL, login.UserCode, login.Expires
			p.announceURL(need)
		}
		select {
		case <-tick.C:
		case <-late.C:
			return &need
		case <-ctx.Done():
			if context.Cause(ctx) == client.ErrSignInTimeout {
				return &need
			}
			return ctx.Err()
		}
	}
}

// announceURL calls OnSignInURL, unless it was told of this address last.
func (p *Prompter) announceURL(need client.SignInRequired) {
	p.mu.Lock()
	known := p.lastAnnouncedURL == need.URL
	p.lastAnnouncedURL = need.URL
	p.mu.Unlock()
	if !known && p.options.OnSignInURL != nil {
		p.options.OnSignInURL(need)
	}
}
