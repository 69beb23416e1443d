package bridge

import (
	"context"
	"errors"
)

// Admit asks for a place for one more client, before its session is made. It
// may wait for one, for as long as ctx lasts at most. leave gives the place
// back, exactly once, when the Handler that serves the client has returned.
//
// The error, ErrBusy or one that wraps it, says that there is no place now:
// an HTTP transport answers 503 with Retry-After. Listening transports take an
// Admit as an option, where nil means that everybody is admitted.
type Admit func(ctx context.Context) (leave func(), err error)

// ErrBusy says that as many clients as may be are being served.
var ErrBusy = errors.New("too many clients; try again later")
