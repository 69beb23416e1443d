package upstream

import (
	"bytes"
	"context"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
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
	own := s.Dialer(lasting)
	switch {
	case s.spec.Protocol == era.OnlyModern:
		h = bridge.Serve(translated, o)
	case s.spec.Isolation == PerPrincipal || s.spec.Isolation == Shared:
		h = s.sharing(o)
	case s.spec.Protocol == era.OnlyLegacy:
		h = bridge.Serve(own, o)
	default:
		h = bridge.Serve(&finder{s: s, first: own, other: translated}, o)
	}
	return h
}

// asLegacy returns h for clients whose initialize may ask for a modern version.
func asLegacy(h bridge.Handler) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		m, err := client.Recv(ctx)
		if err != nil {
			return h.ServeConn(ctx, client) // which sees the same
		}
		return h.ServeConn(ctx, bridge.Unread(client, era.LegacyInitialize(m)))
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
	return t.s.translated(ctx, t.s.sessionKey(ctx), nil)
}

func (s *Server) translated(ctx context.Context, key unitKey, clientInfo []byte) (bridge.Conn, error) {
	conn, err := s.join(ctx, key, clientInfo)
	if err != nil {
		return nil, err
	}
	return bridge.Translate(conn, era.LegacyClient(era.LegacyClientOptions{Dropped: s.spec.Dropped})), nil
}

// sharing returns what serves legacy clients that share a server. Which one may
// depend on what initialize says.
func (s *Server) sharing(o bridge.PumpOptions) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		m, err := opening(ctx, client)
		if err != nil {
			return err
		}
		d := dialFunc(func(ctx context.Context) (bridge.Conn, error) {
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
			key.capabilities = string(era.ProjectCapabilities(m.Lookup("params", "capabilities")))
			return s.translated(ctx, key, m.Lookup("params", "clientInfo"))
		})
		return bridge.Serve(d, o).ServeConn(ctx, bridge.Unread(client, m))
	})
}

// opening returns a legacy client's first message but for pings, which need no
// server, and notifications, which can mean nothing yet.
func opening(ctx context.Context, client bridge.Conn) (jsonrpc.Message, error) {
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

type dialFunc func(ctx context.Context) (bridge.Conn, error)

func (f dialFunc) Dial(ctx context.Context) (bridge.Conn, error) { return f(ctx) }

// modernKey returns which unit of a modern server a request uses.
func (s *Server) modernKey(ctx context.Context) unitKey {
	switch s.spec.Isolation {
	case PerPrincipal, PerSession:
		return unitKey{principal: bridge.Principal(ctx)}
	case PerRequest:
		return unitKey{alone: s.number.Add(1)}
	}
	return unitKey{}
}

// sessionKey returns which unit of a modern server a legacy client's session uses.
func (s *Server) sessionKey(ctx context.Context) unitKey {
	if s.spec.Isolation == PerSession {
		return unitKey{alone: s.number.Add(1)}
	}
	return s.modernKey(ctx)
}

// keyFor returns which unit a modern request goes to, and what that is told of
// its client if it begins with it.
func (s *Server) keyFor(ctx context.Context, m jsonrpc.Message) (key unitKey, clientInfo []byte, err error) {
	modern, err := s.speaksModern(ctx)
	if err != nil {
		return key, nil, err
	}
	key, clientInfo = s.keyOf(ctx, m, modern)
	return key, clientInfo, nil
}

// keyAtOnce is keyFor, if it is known which era the server speaks, and the request
// has no unit of its own.
func (s *Server) keyAtOnce(ctx context.Context, m jsonrpc.Message) (key unitKey, ok bool) {
	modern, known := s.era()
	if !known || s.spec.Isolation == PerRequest {
		return key, false
	}
	key, _ = s.keyOf(ctx, m, modern)
	return key, true
}

// keyOf is keyFor a server of which that is known.
func (s *Server) keyOf(ctx context.Context, m jsonrpc.Message, modern bool) (key unitKey, clientInfo []byte) {
	if modern {
		return s.modernKey(ctx), nil
	}
	if key, ok := s.keyOfState(ctx, m); ok {
		return key, nil
	}
	key.legacy = true
	if s.spec.Isolation == Shared {
		return key, nil
	}
	key.principal = bridge.Principal(ctx)
	key.capabilities, clientInfo = s.said(m)
	if s.spec.Isolation == PerRequest {
		key.alone = s.number.Add(1)
	}
	return key, clientInfo
}

// said returns what a modern request says of its client: its capabilities, as a
// legacy server is told of them, and its clientInfo. Most say with each request
// what they have said with the last.
func (s *Server) said(m jsonrpc.Message) (capabilities string, clientInfo []byte) {
	last, raw := s.last.Load(), m.Meta()
	if last != nil && len(raw) > 0 && string(raw) == last.meta {
		return last.projected, last.clientInfo
	}
	meta := era.MetaOf(m)
	next := introduction{capabilities: string(meta.Capabilities), clientInfo: meta.ClientInfo}
	known := last != nil && next.capabilities == last.capabilities
	if known {
		next.projected = last.projected
	} else {
		next.projected = string(era.ProjectCapabilities(meta.Capabilities))
	}
	if m.ProgressToken().IsZero() { // else it is another each time
		next.meta = string(raw)
	}
	if len(raw) <= maxCapabilities && (!known || last.meta == "" && next.meta != "") {
		next.clientInfo = bytes.Clone(meta.ClientInfo)
		s.last.Store(&next)
	}
	return next.projected, meta.ClientInfo
}

// introduction is what a client has said of itself.
type introduction struct {
	meta         string // the whole _meta; "": another one will not have the same
	capabilities string // raw
	projected    string // the capabilities for a legacy server
	clientInfo   []byte // raw
}

// keyOfState returns the unit in which the call waits that m goes on with, if
// it is the client's (C.4.2).
func (s *Server) keyOfState(ctx context.Context, m jsonrpc.Message) (unitKey, bool) {
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
	if u == nil || u.key.principal != bridge.Principal(ctx) {
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
	return s.join(ctx, key, clientInfo)
}

// Exchange returns what serves the single request of a modern client's Conn.
func (s *Server) Exchange(o bridge.PumpOptions) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		m, err := client.Recv(ctx)
		if err != nil {
			return err
		}
		m, ok, err := s.unbound(ctx, client, m)
		if !ok {
			return err
		}
		client = s.bind(ctx, bridge.Unread(client, m), false)
		conn, err := s.memberFor(ctx, m)
		if err != nil {
			return bridge.Serve(failing{err}, o).ServeConn(ctx, client)
		}
		err = bridge.Exchange(ctx, client, conn, o)
		return errors.Join(err, conn.Close())
	})
}

// failing is a Dialer that fails.
type failing struct{ err error }

func (f failing) Dial(context.Context) (bridge.Conn, error) { return nil, f.err }

// Modern returns what serves modern clients that send many requests on one Conn.
func (s *Server) Modern(o bridge.PumpOptions) bridge.Handler {
	if s.spec.Clients == era.OnlyLegacy {
		return refuse(s.spec.Clients)
	}
	h := bridge.Serve(dialFunc(func(ctx context.Context) (bridge.Conn, error) {
		bridge.GiveBack(ctx) // units ask for places themselves
		return newDesk(ctx, s), nil
	}), o)
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		return h.ServeConn(ctx, s.bind(ctx, client, true))
	})
}

// refuse returns what answers clients of an era that is not served (ED5).
func refuse(served era.Eras) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
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
