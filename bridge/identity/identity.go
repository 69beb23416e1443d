// Package identity tells, by the context of its service, who a client is: its Principal says
// what it may see, its Party with whom it shares sessions, processes and memory.
package identity

import "context"

// principalKey is the key of the Principal in a context.
type principalKey struct{}

// WithPrincipal returns ctx for the service of a client who has authenticated under name; "": it
// has not, and ctx stays as it is. Listening transports do it before they call a Handler.
func WithPrincipal(ctx context.Context, name string) context.Context {
	if name == "" {
		return ctx
	}
	return context.WithValue(ctx, principalKey{}, name)
}

// Principal returns the name under which the client of ctx has authenticated; "": it has not.
func Principal(ctx context.Context) string {
	name, _ := ctx.Value(principalKey{}).(string)
	return name
}

// partyKey is the key of the Party in a context.
type partyKey struct{}

// WithParty returns ctx for the service of a client that counts as party when
// sessions, processes and memory are shared out; with "", ctx stays as it is.
// Listening transports do it before they ask an AcquirePlaceFunc and before
// they call a Handler.
func WithParty(ctx context.Context, party string) context.Context {
	if party == "" {
		return ctx
	}
	return context.WithValue(ctx, partyKey{}, party)
}

// PartyContext is a Context as WithParty makes one, whose party is worked out only when it is asked for: most requests
// need none.
type PartyContext struct {
	context.Context
	Client interface{ Party() string } // its Party is the party; asked each time
}

// Value implements context.Context: for Party it asks Client, for all else the embedded Context.
func (c *PartyContext) Value(key any) any {
	if key == (partyKey{}) {
		return c.Client.Party()
	}
	return c.Context.Value(key)
}

// Party returns who the client of ctx counts as when sessions, processes and memory are shared
// out: its Principal, or, if it has not authenticated, where it comes from. Clients of whom
// nothing is known are one party, "".
//
// A Party says nothing about who may see what: that is Principal.
func Party(ctx context.Context) string {
	if party, ok := ctx.Value(partyKey{}).(string); ok {
		return party
	}
	return Principal(ctx)
}
