package upstream

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/sharing"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A keyChooser says which shared server a client uses (D.1).
type keyChooser struct {
	isolation      Isolation     // which clients share the server's process or connection, as Spec.Isolation says
	eraWaitTimeout time.Duration // how long KeyFor waits until it is known which era the server speaks; 0: as long as that takes
	prober         *probe.Prober // knows which era the server speaks
	pool           *sharing.Pool // has the shared servers
	sealer         *era.Sealer   // opens the requestState of legacy servers

	exclusiveNumber    atomic.Uint64                // the last number that was given out for sharing.Key.Exclusive, by which no two clients or requests get the same server
	lastIntroduction   atomic.Pointer[introduction] // what a modern client has said of itself in one of the last requests, which need not be read again; nil: none yet
	introductionMisses atomic.Uint32                // how many requests with the same capabilities as lastIntroduction, and no progress token, had another _meta; it wraps around
}

// modernKey returns the key of the shared server that a request of a principal uses if the server is modern. All principals
// share one server, unless the isolation says otherwise or the principal was isolated after crashes.
func (k *keyChooser) modernKey(principal string) sharing.Key {
	switch k.isolation {
	case PerPrincipal, PerSession:
		return sharing.Key{Principal: principal}
	case PerRequest:
		return sharing.Key{Exclusive: k.exclusiveNumber.Add(1)}
	}
	if k.pool.IsIsolated(principal) {
		return sharing.Key{Principal: principal}
	}
	return sharing.Key{}
}

// sessionKey returns the key of the shared server that a legacy client's session uses if the server is
// modern. ctx has the client's principal.
func (k *keyChooser) sessionKey(ctx context.Context) sharing.Key {
	if k.isolation == PerSession {
		return sharing.Key{Exclusive: k.exclusiveNumber.Add(1)}
	}
	return k.modernKey(identity.Principal(ctx))
}

// KeyFor implements sharing.Keys: it returns the key of the shared server that a modern client's request
// uses. It waits until it is known which era the server speaks, for eraWaitTimeout at most; err: that is not
// known then.
func (k *keyChooser) KeyFor(ctx context.Context, m jsonrpc.Message) (key sharing.Key, clientInfo []byte, err error) {
	asking := k.withProgress(ctx, m)
	if k.eraWaitTimeout > 0 {
		var stop context.CancelFunc
		asking, stop = context.WithTimeout(asking, k.eraWaitTimeout)
		defer stop()
	}
	if _, known := k.prober.Known(); !known {
		legacy, info := k.keyOf(identity.Principal(ctx), m, false)
		asking = probe.WithInitializeParams(asking, legacyserver.InitializeParams([]byte(legacy.Capabilities), info))
	}
	modern, err := k.prober.Modern(asking)
	switch {
	case err != nil && asking.Err() != nil && ctx.Err() == nil:
		return key, nil, noAnswerError(k.eraWaitTimeout)
	case err != nil:
		return key, nil, err
	}
	key, clientInfo = k.keyOf(identity.Principal(ctx), m, modern)
	return key, clientInfo, nil
}

// clientConnKey is the key, in a context, of the Conn of the client whose requests are served.
type clientConnKey struct{}

// withProgress returns a ctx for the question which era the server speaks. While m waits for the answer, its
// client (clientConnKey) is told what is waited for, if m asks for progress: somebody may have to sign in
// first. A client that does not read is not waited for.
func (k *keyChooser) withProgress(ctx context.Context, m jsonrpc.Message) context.Context {
	client, _ := ctx.Value(clientConnKey{}).(bridge.Conn)
	if _, known := k.prober.Known(); known || client == nil {
		return ctx
	}
	if tell := httpdial.ProgressTeller(m, true, func(n jsonrpc.Message) { client.TrySend(n) }); tell != nil {
		return httpdial.WithProgress(ctx, tell)
	}
	return ctx
}

// A noAnswerError says that it was not found out within this time which era the server speaks.
type noAnswerError time.Duration

// Error returns the text, with the time.
func (n noAnswerError) Error() string {
	return fmt.Sprintf("the server did not answer within %v", time.Duration(n))
}

// PublicError is what clients are told (bridge.Serve).
func (n noAnswerError) PublicError() string { return n.Error() }

// PublicData is the data of the error that clients get: the reason "timeout".
func (n noAnswerError) PublicData() []byte { return []byte(`{"reason":"timeout"}`) }

// KeyWithoutWaiting implements sharing.Keys. false: it is not known which era the server speaks, or each
// request has a server of its own.
func (k *keyChooser) KeyWithoutWaiting(principal string, m jsonrpc.Message) (key sharing.Key, ok bool) {
	modern, known := k.prober.Known()
	if !known || k.isolation == PerRequest {
		return key, false
	}
	key, _ = k.keyOf(principal, m, modern)
	return key, true
}

// keyOf returns the key of the shared server that the request m of a modern client uses. If that server is
// yet to begin, clientInfo is what it is told of its client. modern: the server is modern.
func (k *keyChooser) keyOf(principal string, m jsonrpc.Message, modern bool) (key sharing.Key, clientInfo []byte) {
	if modern {
		return k.modernKey(principal), nil
	}
	if key, ok := k.keyOfState(principal, m); ok {
		return key, nil
	}
	key.Legacy = true
	if k.isolation == Shared {
		return key, nil
	}
	introduction := k.introductionOf(m)
	key.Principal, key.Capabilities = principal, introduction.capabilities
	if k.isolation == PerRequest {
		key.Exclusive = k.exclusiveNumber.Add(1)
	}
	return key, introduction.clientInfo
}

// introductionOf returns what a modern request says of its client. Most say the same as the request before;
// then nothing is read or allocated.
func (k *keyChooser) introductionOf(m jsonrpc.Message) introduction {
	raw, last := m.Meta(), k.lastIntroduction.Load()
	if last != nil && len(raw) > 0 && string(raw) == last.meta {
		return *last
	}
	meta := era.MetaOf(m)
	next := introduction{clientInfo: meta.ClientInfo}
	if last != nil && string(meta.Capabilities) == last.rawCapabilities {
		next.rawCapabilities, next.capabilities = last.rawCapabilities, last.capabilities
	} else {
		next.rawCapabilities, next.capabilities = string(meta.Capabilities), string(legacyserver.ProjectCapabilities(meta.Capabilities))
		last = nil
	}
	// Of clients with the same capabilities that take turns one is kept, and sometimes
	// another. A _meta with a progress token is another each time.
	constant := m.ProgressToken().IsZero()
	if len(raw) <= sharing.MaxIntroductionSize && (last == nil || constant && k.introductionMisses.Add(1)%replaceAfterMisses == 0) {
		kept := next
		if kept.clientInfo = bytes.Clone(meta.ClientInfo); constant {
			kept.meta = string(raw)
		}
		k.lastIntroduction.Store(&kept)
	}
	return next
}

// replaceAfterMisses is how many requests with the capabilities of lastIntroduction must have had another _meta before
// lastIntroduction is replaced. A request with other capabilities replaces it at once.
const replaceAfterMisses = 8

// An introduction is what a modern request says of its client.
type introduction struct {
	meta            string // the whole _meta, raw; "": it is not kept, because it has a progress token, which differs each time
	rawCapabilities string // the capabilities in _meta, raw
	capabilities    string // what a legacy server is told of rawCapabilities
	clientInfo      []byte // the clientInfo in _meta, raw
}

// keyOfState returns the key of the shared server in which a call waits for m, its retry, by the requestState
// of m (C.4.2). false: m is no such retry, or the server has ended or is not this principal's.
func (k *keyChooser) keyOfState(principal string, m jsonrpc.Message) (sharing.Key, bool) {
	text, ok := era.RequestStateOf(m)
	if !ok {
		return sharing.Key{}, false
	}
	state, err := k.sealer.Open(text)
	if err != nil {
		return sharing.Key{}, false // the server that gets it will say so
	}
	at := k.pool.ByID(state.Unit)
	if at == nil || at.Key.Principal != principal {
		return sharing.Key{}, false
	}
	return at.Key, true
}
