package upstream

import (
	"bytes"
	"context"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyclient"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Handler returns what serves clients of both eras on connections of their
// own: a socket, our stdin. What lasting means is said at Dialer.
func (s *Server) Handler(lasting bool, o bridge.PumpOptions) bridge.Handler {
	return bridge.ByEra(asLegacy(s.Legacy(lasting, o)), s.Modern(o))
}

// Legacy returns what serves the sessions of legacy clients.
func (s *Server) Legacy(lasting bool, o bridge.PumpOptions) bridge.Handler {
	if s.spec.Clients == era.OnlyModern {
		return refuse(s.spec.Clients)
	}
	var h bridge.Handler
	translated := &translator{s}
	direct := s.Dialer(lasting)
	own := dialFunc(func(ctx context.Context) (bridge.PullConn, error) {
		if err := bridge.TakePlace(ctx); err != nil {
			return nil, err
		}
		return bridge.PullDialed(direct.Dial(ctx))
	})
	switch {
	case s.spec.Protocol == era.OnlyModern:
		h = bridge.Serve(translated, o)
	case s.spec.Isolation == PerPrincipal || s.spec.Isolation == Shared:
		h = s.sharing(o)
	case s.spec.Protocol == era.OnlyLegacy:
		h = bridge.Serve(&finder{s: s, first: own}, o)
	default:
		h = bridge.Serve(&finder{s: s, first: direct, other: translated}, o)
	}
	return h
}

// asLegacy returns h for clients whose initialize may ask for a modern version.
func asLegacy(h bridge.Handler) bridge.Handler {
	return bridge.PullHandler(func(ctx context.Context, client bridge.PullConn) error {
		m, err := client.Recv(ctx)
		if err != nil {
			return h.ServeConn(ctx, bridge.Push(client)) // which sees the same
		}
		return h.ServeConn(ctx, bridge.Push(bridge.Unread(client, era.LegacyInitialize(m))))
	})
}

// LegacyOnly returns what serves clients of a transport that has no place for
// modern requests (SS9): each of those is refused.
func (s *Server) LegacyOnly(o bridge.PumpOptions) bridge.Handler {
	served := era.OnlyLegacy
	if s.spec.Clients == era.OnlyModern {
		served = era.OnlyModern
	}
	return bridge.ByEra(asLegacy(s.Legacy(false, o)), refuse(served))
}

// SharesAlways reports whether no client ever has a process of its own.
func (s *Server) SharesAlways() bool {
	return s.spec.Protocol == era.OnlyModern || s.spec.Isolation == PerPrincipal || s.spec.Isolation == Shared
}

// translator is the Dialer of legacy clients for a modern server.
type translator struct{ s *Server }

func (t *translator) Dial(ctx context.Context) (bridge.Conn, error) {
	return bridge.PushDialed(t.s.translated(ctx, t.s.sessionKey(ctx), nil))
}

func (s *Server) translated(ctx context.Context, key unitKey, clientInfo []byte) (bridge.PullConn, error) {
	conn, err := s.join(ctx, key, clientInfo, false)
	if err != nil {
		return nil, err
	}
	return bridge.Pull(translate.Wrap(bridge.Push(conn), legacyclient.New(legacyclient.Options{}), s.spec.Dropped)), nil
}

// sharing returns what serves legacy clients that share a server. Which one may
// depend on what initialize says.
func (s *Server) sharing(o bridge.PumpOptions) bridge.Handler {
	return bridge.PullHandler(func(ctx context.Context, client bridge.PullConn) error {
		m, err := opening(ctx, client)
		if err != nil {
			return err
		}
		d := dialFunc(func(ctx context.Context) (bridge.PullConn, error) {
			modern, err := s.speaksModern(ctx)
			if err != nil {
				return nil, err
			}
			if modern {
				return s.translated(ctx, s.sessionKey(ctx), nil)
			}
			key := unitKey{legacy: true}
			if s.spec.Isolation == Shared {
				return s.translated(ctx, key, nil)
			}
			key.principal = bridge.Principal(ctx)
			key.capabilities = string(legacyserver.ProjectCapabilities(m.Lookup("params", "capabilities")))
			return s.translated(ctx, key, m.Lookup("params", "clientInfo"))
		})
		return bridge.Serve(d, o).ServeConn(ctx, bridge.Push(bridge.Unread(client, m)))
	})
}

// opening returns a legacy client's first message but for pings, which need no
// server, and notifications, which can mean nothing yet.
func opening(ctx context.Context, client bridge.PullConn) (jsonrpc.Message, error) {
	defer bridge.Unused(ctx)()
	for {
		m, err := client.Recv(ctx)
		switch {
		case err != nil:
			return m, err
		case m.Kind() != jsonrpc.Request:
		case m.Method() != "ping":
			return m, nil
		default:
			if err := client.Send(ctx, jsonrpc.NewResult(m.ID(), nil)); err != nil {
				return m, err
			}
		}
	}
}

type dialFunc func(ctx context.Context) (bridge.PullConn, error)

func (f dialFunc) Dial(ctx context.Context) (bridge.Conn, error) { return bridge.PushDialed(f(ctx)) }

// modernKey returns which unit of a modern server a request uses.
func (s *Server) modernKey(principal string) unitKey {
	switch s.spec.Isolation {
	case PerPrincipal, PerSession:
		return unitKey{principal: principal}
	case PerRequest:
		return unitKey{alone: s.number.Add(1)}
	}
	if s.apart.has(principal) {
		return unitKey{principal: principal}
	}
	return unitKey{}
}

// sessionKey returns which unit of a modern server a legacy client's session uses.
func (s *Server) sessionKey(ctx context.Context) unitKey {
	if s.spec.Isolation == PerSession {
		return unitKey{alone: s.number.Add(1)}
	}
	return s.modernKey(bridge.Principal(ctx))
}

// keyFor returns which unit a modern request goes to, and what that is told of
// its client if it begins with it.
func (s *Server) keyFor(ctx context.Context, m jsonrpc.Message) (key unitKey, clientInfo []byte, err error) {
	modern, err := s.speaksModern(ctx)
	if err != nil {
		return key, nil, err
	}
	key, clientInfo = s.keyOf(bridge.Principal(ctx), m, modern)
	return key, clientInfo, nil
}

// keyAtOnce is keyFor, if it is known which era the server speaks, and the request
// has no unit of its own.
func (s *Server) keyAtOnce(principal string, m jsonrpc.Message) (key unitKey, ok bool) {
	modern, known := s.era()
	if !known || s.spec.Isolation == PerRequest {
		return key, false
	}
	key, _ = s.keyOf(principal, m, modern)
	return key, true
}

// keyOf is keyFor a server of which that is known.
func (s *Server) keyOf(principal string, m jsonrpc.Message, modern bool) (key unitKey, clientInfo []byte) {
	if modern {
		return s.modernKey(principal), nil
	}
	if key, ok := s.keyOfState(principal, m); ok {
		return key, nil
	}
	key.legacy = true
	if s.spec.Isolation == Shared {
		return key, nil
	}
	introduction := s.introductionOf(m)
	key.principal, key.capabilities = principal, introduction.capabilities
	if s.spec.Isolation == PerRequest {
		key.alone = s.number.Add(1)
	}
	return key, introduction.clientInfo
}

// introductionOf returns what a modern request says of its client. Most say with
// each what they have said with the last, and then nothing is read or allocated.
func (s *Server) introductionOf(m jsonrpc.Message) introduction {
	raw, last := m.Meta(), s.introduced.Load()
	if last != nil && len(raw) > 0 && string(raw) == last.meta {
		return *last
	}
	meta := era.MetaOf(m)
	next := introduction{clientInfo: meta.ClientInfo}
	if last != nil && string(meta.Capabilities) == last.raw {
		next.raw, next.capabilities = last.raw, last.capabilities
	} else {
		next.raw, next.capabilities = string(meta.Capabilities), string(legacyserver.ProjectCapabilities(meta.Capabilities))
		last = nil
	}
	// Of clients that take turns one is kept, and sometimes another. A _meta with
	// a progress token is another each time.
	constant := m.ProgressToken().IsZero()
	if len(raw) <= maxCapabilities && (last == nil || constant && s.missed.Add(1)%replaceAfter == 0) {
		kept := next
		if kept.clientInfo = bytes.Clone(meta.ClientInfo); constant {
			kept.meta = string(raw)
		}
		s.introduced.Store(&kept)
	}
	return next
}

// replaceAfter is how many requests say something else than what is kept before
// that is replaced.
const replaceAfter = 8

// introduction is what a client says of itself.
type introduction struct {
	meta         string // the whole _meta; "": it is not kept
	raw          string // the capabilities
	capabilities string // as a legacy server is told of them
	clientInfo   []byte // raw
}

// keyOfState returns the unit in which the call waits that m goes on with, if
// it is the client's (C.4.2).
func (s *Server) keyOfState(principal string, m jsonrpc.Message) (unitKey, bool) {
	text, ok := era.StateOf(m)
	if !ok {
		return unitKey{}, false
	}
	state, err := s.sealer.Open(text)
	if err != nil {
		return unitKey{}, false // the unit that gets it will say so
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.byID[state.Unit]
	if u == nil || u.key.principal != principal {
		return unitKey{}, false
	}
	return u.key, true
}

// memberFor makes the client who sends a modern request a member of the unit
// that is to answer it.
func (s *Server) memberFor(ctx context.Context, m jsonrpc.Message) (*member, error) {
	key, clientInfo, err := s.keyFor(ctx, m)
	if err != nil {
		return nil, err
	}
	return s.join(ctx, key, clientInfo, m.Method() != "subscriptions/listen")
}

// Exchange returns what serves the single request of a modern client's Conn.
func (s *Server) Exchange(o bridge.PumpOptions) bridge.Handler {
	return bridge.PullHandler(func(ctx context.Context, client bridge.PullConn) error {
		m, err := client.Recv(ctx)
		if err != nil {
			return err
		}
		if b, ok := s.bind(ctx, client).(*bound); ok {
			var no *era.Refusal
			if m, no = b.unbound(m); no != nil {
				return client.Send(ctx, no.Response(m.ID()))
			}
			client = b
		}
		client = bridge.Unread(client, m)
		conn, err := s.memberFor(ctx, m)
		if err != nil {
			return bridge.Serve(failing{err}, o).ServeConn(ctx, bridge.Push(client))
		}
		m = jsonrpc.Message{} // its bytes are not kept
		err = bridge.Exchange(ctx, bridge.Push(client), bridge.Push(conn), o)
		return errors.Join(err, conn.Close())
	})
}

// failing is a Dialer that fails.
type failing struct{ err error }

func (f failing) Dial(context.Context) (bridge.Conn, error) { return bridge.PushDialed(nil, f.err) }

// Modern returns what serves modern clients that send many requests on one Conn.
func (s *Server) Modern(o bridge.PumpOptions) bridge.Handler {
	if s.spec.Clients == era.OnlyLegacy {
		return refuse(s.spec.Clients)
	}
	h := bridge.Serve(dialFunc(func(ctx context.Context) (bridge.PullConn, error) {
		bridge.GiveBack(ctx) // units ask for places themselves
		return newDesk(ctx, s), nil
	}), o)
	return bridge.PullHandler(func(ctx context.Context, client bridge.PullConn) error {
		return h.ServeConn(ctx, bridge.Push(s.bind(ctx, client)))
	})
}

// refuse returns what answers clients of an era that is not served (ED5).
func refuse(served era.Eras) bridge.Handler {
	return bridge.PullHandler(func(ctx context.Context, client bridge.PullConn) error {
		defer bridge.Unused(ctx)()
		for {
			m, err := client.Recv(ctx)
			if err != nil {
				return nil
			}
			if m.Kind() != jsonrpc.Request {
				continue
			}
			asked := era.MetaOf(m).Revision()
			if v, ok := jsonrpc.Text(m.Lookup("params", "protocolVersion")); ok && asked == "" {
				asked = v
			}
			if err := client.Send(ctx, era.Unsupported(served, asked).Response(m.ID())); err != nil {
				return err
			}
		}
	})
}
