package outbound

import (
	"cmp"
	"context"
	"crypto/rand"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A SignInElicitor has the client of this process show the person where to sign in, where it has declared URL elicitation. It is for
// one client that is the person's own: whoever opens the address signs in for all who use the credential. The zero
// value works. Its methods may be called concurrently; those of nil do nothing.
type SignInElicitor struct {
	orderMu sync.Mutex // held while the client is told something, so that it hears it in order; locked before mu

	mu              sync.Mutex                       // guards the fields below, and those of clientPrompt
	currentPrompt   *clientPrompt                    // the conversation with the client; nil: there is no client
	awaitedURL      string                           // the address of the sign-in that requests wait for, as AskClient got it last; "": it never did
	lastShownURL    string                           // the address that a client was last asked to show; "": none was
	declinedURL     string                           // the address that the person has declined to open; "": none
	waitingRequests map[*context.CancelCauseFunc]int // one for each request that waits for a sign-in, which ends the wait; with the HTTP status of the server's answer, or 401 if it was not asked
}

// WrapHandler returns a Handler that serves as h does, and makes its client the one that is asked to show addresses, as
// long as h serves it.
func (a *SignInElicitor) WrapHandler(h bridge.Handler) bridge.Handler {
	if a == nil {
		return h
	}
	return bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		to := &clientPrompt{elicitor: a, ctx: ctx, client: c, calls: map[jsonrpc.ID]*modernCall{}, callsByRequestState: map[string]*modernCall{}, callsByRetryID: map[jsonrpc.ID]*modernCall{}}
		a.setCurrentPrompt(to)
		defer a.setCurrentPrompt(nil)
		return h.ServeConn(ctx, bridge.Intercept(c, bridge.Hooks{Receive: to.interceptReceived, Send: to.interceptSent, Sent: to.afterSend}))
	})
}

// setCurrentPrompt makes to the conversation with the client; nil: there is no client any more.
func (a *SignInElicitor) setCurrentPrompt(to *clientPrompt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.currentPrompt = to
}

// AskClient asks the client to show need.URL, unless it was asked to show that last, or cannot show addresses. server
// is the URL of the server. It may wait for the client to read.
func (a *SignInElicitor) AskClient(server string, need client.SignInRequired) {
	if a == nil || need.URL == "" {
		return
	}
	a.sendToClient(func(to *clientPrompt) (all []jsonrpc.Message) {
		a.awaitedURL = need.URL
		if to != nil && a.lastShownURL != need.URL {
			if all = to.promptMessages(redactURL(server), need); all != nil {
				a.lastShownURL = need.URL
			}
		}
		return all
	})
}

// sendToClient sends the client the messages that f returns. f is called with mu held. Where there is no client, to is
// nil and f must return nothing.
func (a *SignInElicitor) sendToClient(f func(to *clientPrompt) []jsonrpc.Message) {
	a.orderMu.Lock()
	defer a.orderMu.Unlock()
	a.mu.Lock()
	to := a.currentPrompt
	all := f(to)
	a.mu.Unlock()
	for _, m := range all {
		if m.Kind() != jsonrpc.Invalid {
			_ = to.client.Send(to.ctx, m) // a client that is gone needs no answer
		}
	}
}

// beginWait notes that a request waits for a sign-in. It returns a ctx that ends, with the cause
// client.ErrSignInTimeout, if the person declines to sign in. The caller calls end when its wait is over. addr is where
// the person signs in; "": the sign-in has not begun. refused: the person has declined to open addr.
func (a *SignInElicitor) beginWait(parent context.Context, addr string) (ctx context.Context, end func(), refused bool) {
	if a == nil {
		return parent, func() {}, false
	}
	ctx, cancel := context.WithCancelCause(parent)
	a.mu.Lock()
	defer a.mu.Unlock()
	if addr != "" && addr == a.declinedURL {
		cancel(client.ErrSignInTimeout)
		return ctx, func() {}, true
	}
	if a.waitingRequests == nil {
		a.waitingRequests = map[*context.CancelCauseFunc]int{}
	}
	a.waitingRequests[&cancel] = cmp.Or(statusIn(parent), statusUnauthorized)
	return ctx, func() {
		a.mu.Lock()
		delete(a.waitingRequests, &cancel)
		a.mu.Unlock()
		cancel(nil)
	}, false
}

// waitingStatusLocked returns the HTTP status that the server has answered to all requests that wait for a sign-in; 401 if it has answered
// them with different ones, or none waits. mu is held.
func (a *SignInElicitor) waitingStatusLocked() int {
	common := 0
	for _, status := range a.waitingRequests {
		if common != 0 && status != common {
			return statusUnauthorized
		}
		common = status
	}
	return cmp.Or(common, statusUnauthorized)
}

// declineLocked is called when the person declines to open addr. If that is the address of the sign-in that requests
// wait for, it keeps addr as declined and ends the waits of all those requests. Otherwise that sign-in is over, and
// nothing is done. mu is held.
func (a *SignInElicitor) declineLocked(addr string) {
	if addr != a.awaitedURL {
		return // that sign-in is over
	}
	a.declinedURL = addr
	for cancel := range a.waitingRequests {
		(*cancel)(client.ErrSignInTimeout)
	}
}

// settlePrompt tells a legacy client that was asked to show an address that this is settled (settledMessage).
func (a *SignInElicitor) settlePrompt() {
	if a == nil {
		return
	}
	a.sendToClient(func(to *clientPrompt) []jsonrpc.Message {
		if to == nil {
			return nil
		}
		return []jsonrpc.Message{to.settledMessage()}
	})
}

// signInMessage returns the text that the person reads beside the address. server is how the server is shown.
func signInMessage(server string, need client.SignInRequired) string {
	text := "Sign in to " + server
	if need.UserCode != "" {
		text += ", with the code " + printable.Text(need.UserCode)
	}
	if need.Reason != "" {
		text += ": " + printable.Text(need.Reason)
	}
	return text
}

// newUnguessableID returns a random text that nobody can guess.
func newUnguessableID() string { return "mcp-bridge-" + rand.Text() }
