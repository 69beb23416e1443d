package access

import (
	"context"
	"errors"
	"net/http"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// An Authenticator finds out who has sent a request, in the place of Policy.Tokens and of the
// certificates of TLS clients, and knows which messages a sender may send. Enter calls Authenticate
// after it has checked Host and Origin; transports ask about each message before they pass it on.
// Its methods may be called concurrently.
type Authenticator interface {
	// Authenticate returns r with its Sender (Sender.Context), or r and why it is refused. It sets the
	// headers of the reply that belong to a Refusal on h. It must not read the body of r.
	Authenticate(h http.Header, r *http.Request) (*http.Request, *Refusal)

	// Authorize returns why the sender of r may not send these messages: nil if it may. It sets the
	// headers of the reply on h, as Authenticate does.
	Authorize(h http.Header, r *http.Request, messages ...jsonrpc.Message) *Refusal

	// Forbidden reports whether the sender of r may not send m, for transports that do not answer each
	// message with a status, as Authorize wants it; r is the request that has opened the connection.
	// If m is a request that is refused, reply is its answer; else reply is invalid.
	Forbidden(r *http.Request, m jsonrpc.Message) (reply jsonrpc.Message, refused bool)
}

// Authenticates reports whether every request needs credentials: there are Tokens or an Authenticator. Certificates of
// TLS clients, which the listener asks for, do not count.
func (p *Policy) Authenticates() bool { return p.Tokens != nil || p.Authenticator != nil }

// A Sender is who has sent a request.
type Sender struct {
	Name             string          // the name of its Principal; "": it has not authenticated
	TokenContext     context.Context // done when the token of the request is not valid any more; nil: it is valid for ever
	PrincipalContext context.Context // done when the Principal has no valid token any more; nil: it always has one
}

// ErrExpired is the cause (context.Cause) of a TokenContext that is done because the token has
// expired, and was not revoked. Streams end then; what is being answered may be finished.
var ErrExpired = errors.New("the token has expired")

// Context returns ctx for a request of this sender: of a request with that context, Principal, TokenContext and
// PrincipalContext return what the Sender has.
func (s Sender) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, principalKey{}, principal{s.Name, s.TokenContext, s.PrincipalContext})
}

// Sender returns who sends a request with this token; ok is false if the token is not valid, as every token is with a
// nil Tokens.
func (t *Tokens) Sender(token string) (s Sender, ok bool) {
	if t == nil {
		return Sender{}, false
	}
	name, sum := t.lookup(token)
	if name == "" {
		return Sender{}, false
	}
	who := t.principalOf(name, sum)
	return Sender{who.name, who.tokenCtx, who.sessionCtx}, true
}
