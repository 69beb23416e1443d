package outbound

import (
	"context"
	"crypto/rand"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// An Asker has the client of this process show the person where to sign in, where it has declared URL elicitation. It is for
// one client that is the person's own: whoever opens the address signs in for all who use the credential. The zero
// value works. Its methods may be called concurrently; those of nil do nothing.
type Asker struct {
	orderMu sync.Mutex // held while the client is told something, so that it hears it in order; locked before mu

	mu             sync.Mutex
	current        *clientPrompt
	awaitedAddress string // the address of the sign-in that the requests wait for
	lastShown      string // the address that was shown last
	declined       string // the address that the person does not want to open
	waiting        map[*context.CancelCauseFunc]struct{}
}

// Handler returns h for a client that may be asked, while its conversation lasts.
func (a *Asker) Handler(h bridge.Handler) bridge.Handler {
	if a == nil {
		return h
	}
	return bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		to := &clientPrompt{asker: a, ctx: ctx, client: c, calls: map[jsonrpc.ID]*modernCall{}, byState: map[string]*modernCall{}, byRetry: map[jsonrpc.ID]*modernCall{}}
		a.setCurrent(to)
		defer a.setCurrent(nil)
		return h.ServeConn(ctx, bridge.Intercept(c, bridge.Hooks{Receive: to.fromClient, Send: to.toClient, Sent: to.afterSend}))
	})
}

func (a *Asker) setCurrent(to *clientPrompt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current = to
}

// Ask shows the client where the person goes, once for each address. It may wait for the client to read.
func (a *Asker) Ask(server string, need client.SignInRequired) {
	if a == nil || need.URL == "" {
		return
	}
	a.tell(func(to *clientPrompt) (all []jsonrpc.Message) {
		a.awaitedAddress = need.URL
		if to != nil && a.lastShown != need.URL {
			if all = to.question(displayURL(server), need); all != nil {
				a.lastShown = need.URL
			}
		}
		return all
	})
}

// tell sends the client what f returns, which is called with the lock held; to is nil where there is no client.
func (a *Asker) tell(f func(to *clientPrompt) []jsonrpc.Message) {
	a.orderMu.Lock()
	defer a.orderMu.Unlock()
	a.mu.Lock()
	to := a.current
	all := f(to)
	a.mu.Unlock()
	for _, m := range all {
		if m.Kind() != jsonrpc.Invalid {
			_ = to.client.Send(to.ctx, m) // a client that is gone needs no answer
		}
	}
}

// wait returns a ctx that ends with client.ErrSignInTimeout as its cause if the person does not want to sign in. end is called when
// the wait is over. It is refused if the person has not wanted to open addr, where the sign-in is; "": it has not begun.
func (a *Asker) wait(parent context.Context, addr string) (ctx context.Context, end func(), refused bool) {
	if a == nil {
		return parent, func() {}, false
	}
	ctx, cancel := context.WithCancelCause(parent)
	a.mu.Lock()
	defer a.mu.Unlock()
	if addr != "" && addr == a.declined {
		cancel(client.ErrSignInTimeout)
		return ctx, func() {}, true
	}
	if a.waiting == nil {
		a.waiting = map[*context.CancelCauseFunc]struct{}{}
	}
	a.waiting[&cancel] = struct{}{}
	return ctx, func() {
		a.mu.Lock()
		delete(a.waiting, &cancel)
		a.mu.Unlock()
		cancel(nil)
	}, false
}

// decline ends the requests that wait, if they do so for the sign-in at this address. The lock is held.
func (a *Asker) decline(addr string) {
	if addr != a.awaitedAddress {
		return // that sign-in is over
	}
	a.declined = addr
	for cancel := range a.waiting {
		(*cancel)(client.ErrSignInTimeout)
	}
}

// signedIn tells a client that was asked that it need not show the address any more.
func (a *Asker) signedIn() {
	if a == nil {
		return
	}
	a.tell(func(to *clientPrompt) []jsonrpc.Message {
		if to == nil {
			return nil
		}
		return []jsonrpc.Message{to.settledMessage()}
	})
}

// signInMessage is what the person reads beside the address.
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

// unguessableName returns a name that nobody can guess.
func unguessableName() string { return "mcp-bridge-" + rand.Text() }
