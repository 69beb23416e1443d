package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// ErrSignInTimeout is the cause of a ctx whose request waits for a sign-in no longer: Options.SignInWait is over, or the person has declined (outbound.SignInElicitor).
var ErrSignInTimeout = errors.New("nobody has signed in within the time that a request waits for it")

// noAnswerYetError says that a request for metadata, a registration or a token was not answered before the time of withSignInTimeout was over.
type noAnswerYetError struct{}

// Error says that there is no answer yet.
func (noAnswerYetError) Error() string { return "there is no answer yet" }

// Unwrap returns context.DeadlineExceeded.
func (noAnswerYetError) Unwrap() error { return context.DeadlineExceeded }

// minSignInWait is the shortest time that a request waits for a sign-in: it takes a few requests to find out where a person goes.
const minSignInWait = 10 * time.Second

// signInWait returns how long a request waits for a sign-in if Options.SignInWait is not 0.
func (c *credentialBase) signInWait() time.Duration { return max(c.options.SignInWait, minSignInWait) }

// withSignInTimeout returns a ctx for all that a request waits for until somebody has signed in. With Options.SignInWait it ends after that, with the cause
// ErrSignInTimeout.
func (c *credentialBase) withSignInTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.options.SignInWait == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, c.signInWait(), ErrSignInTimeout)
}

// explainSignInTimeout returns err, or if err comes from the end of ctx (of withSignInTimeout), an error that says what has taken so long.
func (c *credentialBase) explainSignInTimeout(ctx context.Context, err error) error {
	if err == nil || context.Cause(ctx) != ErrSignInTimeout || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrSignInTimeout) {
		return err
	}
	late := &auth.Error{Operation: "sign-in", URL: c.options.Server, Err: err}
	if e, ok := errors.AsType[*auth.Error](err); ok {
		copied := *e
		copied.Err = noAnswerYetError{} // ErrSignInTimeout says what a person has not done
		late = &copied
	}
	late.Kind, late.Problem, late.Advice = auth.Unavailable, fmt.Sprintf("it takes longer than a request waits for a sign-in, %v", c.signInWait()), "--auth-wait says how long that is"
	return late
}
