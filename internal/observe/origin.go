package observe

import (
	"context"
	"errors"
	"sync/atomic"
)

// SessionOrigin is what a transport and the Watchers tell each other of a session, beside its Conn. The
// transport says where the client comes from, who it is, and how the session has ended: it sets the fields,
// and gives the SessionOrigin to its Handler with WithOrigin. If there is an Observer, the SessionOrigin holds from then on the
// Session that Watchers know. Observed, Session and Tag tell of that, and may be called concurrently.
type SessionOrigin struct {
	Remote    string // where the client comes from: its address, or "socket"; "": not known
	Principal string // the name of the user who the client is; "": nobody was authenticated

	// DescribeEnd says, once or twice when the session is over, how it has ended: in words without
	// content, and whether something went wrong. err is what the Handler has returned. nil: err
	// says it all.
	DescribeEnd func(err error) (how string, failed bool)

	session atomic.Pointer[Session] // the Session that Watchers know; nil: there is no Observer, or the Handler has not begun
}

// originKey is the key of the SessionOrigin in a context.
type originKey struct{}

// WithOrigin returns the ctx of a Handler that serves o's session.
func WithOrigin(ctx context.Context, o *SessionOrigin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// originOf returns the SessionOrigin that WithOrigin has put into ctx; nil: there is none.
func originOf(ctx context.Context) *SessionOrigin {
	o, _ := ctx.Value(originKey{}).(*SessionOrigin)
	return o
}

// Observed reports whether Watchers are told how the session ends, as they are if there is an Observer: the transport need not
// log that then. It is false until the Handler has begun.
func (o *SessionOrigin) Observed() bool { return o.session.Load() != nil }

// Session returns the Session that Watchers know; nil: there is no Observer, or the Handler has not begun.
func (o *SessionOrigin) Session() *Session { return o.session.Load() }

// Tag returns what a log line calls the session: the name that Watchers know it by, or else
// own.
func (o *SessionOrigin) Tag(own string) string {
	if s := o.session.Load(); s != nil {
		return s.Name
	}
	return own
}

// describeEnd returns in words how a session has ended, and whether something went wrong: what DescribeEnd says, or else what err
// says. o may be nil.
func (o *SessionOrigin) describeEnd(err error) (how string, failed bool) {
	switch {
	case o != nil && o.DescribeEnd != nil:
		return o.DescribeEnd(err)
	case err == nil:
		return "the client has gone", false
	}
	return err.Error(), !errors.Is(err, context.Canceled)
}

// setOrigin notes what the transport says of the client, and has o hold the Session. A nil o changes nothing.
func (s *Session) setOrigin(o *SessionOrigin) {
	if o == nil {
		return
	}
	s.origin, s.Remote, s.Principal = o, o.Remote, o.Principal
	o.session.Store(s)
}
