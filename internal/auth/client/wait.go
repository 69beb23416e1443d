package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// ErrWaited is the cause of a ctx whose request has waited for a sign-in as long as Options.Wait.
var ErrWaited = errors.New("nobody has signed in within the time that a request waits for it")

// noAnswerYet is the end of the time of a request to somebody who is asked for metadata, a registration or a token.
type noAnswerYet struct{}

func (noAnswerYet) Error() string { return "there is no answer yet" }
func (noAnswerYet) Unwrap() error { return context.DeadlineExceeded }

// minWait is how long a request waits at least: it takes a few requests to find out where a person goes.
const minWait = 10 * time.Second

// waitTimeout returns how long a request waits for a sign-in.
func (c *Credential) waitTimeout() time.Duration { return max(c.o.Wait, minWait) }

// bounded returns a ctx for all that a request waits for until somebody has signed in.
func (c *Credential) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.o.Wait == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, c.waitTimeout(), ErrWaited)
}

// waited returns err as who made the request is to know it, where that is the end of the time of ctx, which is bounded's: what
// has taken so long. The error of an HTTP request is the cause of its ctx.
func (c *Credential) waited(ctx context.Context, err error) error {
	if err == nil || context.Cause(ctx) != ErrWaited || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrWaited) {
		return err
	}
	late := &auth.Error{Doing: "sign-in", URL: c.o.Server, Err: err}
	if e, ok := errors.AsType[*auth.Error](err); ok {
		copied := *e
		copied.Err = noAnswerYet{} // ErrWaited says what a person has not done
		late = &copied
	}
	late.Kind, late.What, late.Do = auth.Unavailable, fmt.Sprintf("it takes longer than a request waits for a sign-in, %v", c.waitTimeout()), "--auth-wait says how long that is"
	return late
}
