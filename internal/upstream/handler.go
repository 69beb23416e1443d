package upstream

import (
	"context"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyclient"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/sharing"
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
		h = s.shared(o)
	case s.spec.Protocol == era.OnlyLegacy:
		h = bridge.Serve(&probe.Fallback{Prober: s.prober, Legacy: own, Sessionless: s.sessionless.Load}, o)
	default:
		h = bridge.Serve(&probe.Fallback{Prober: s.prober, Legacy: direct, Modern: translated, Sessionless: s.sessionless.Load}, o)
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
	return bridge.PushDialed(t.s.translated(ctx, t.s.keys.sessionKey(ctx), nil))
}

func (s *Server) translated(ctx context.Context, key sharing.Key, clientInfo []byte) (bridge.PullConn, error) {
	conn, err := s.pool.Join(ctx, key, clientInfo, false)
	if err != nil {
		return nil, err
	}
	return bridge.Pull(translate.Wrap(bridge.Push(conn), legacyclient.New(legacyclient.Options{}), s.spec.Dropped)), nil
}

// shared returns what serves legacy clients that share a server. Which one may
// depend on what initialize says.
func (s *Server) shared(o bridge.PumpOptions) bridge.Handler {
	return bridge.PullHandler(func(ctx context.Context, client bridge.PullConn) error {
		m, err := opening(ctx, client)
		if err != nil {
			return err
		}
		d := dialFunc(func(ctx context.Context) (bridge.PullConn, error) {
			modern, err := s.prober.Modern(ctx)
			if err != nil {
				return nil, err
			}
			if modern {
				return s.translated(ctx, s.keys.sessionKey(ctx), nil)
			}
			key := sharing.Key{Legacy: true}
			if s.spec.Isolation == Shared {
				return s.translated(ctx, key, nil)
			}
			key.Principal = bridge.Principal(ctx)
			key.Capabilities = string(legacyserver.ProjectCapabilities(m.Lookup("params", "capabilities")))
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

// memberFor makes the client who sends a modern request a member of the shared server
// that is to answer it.
func (s *Server) memberFor(ctx context.Context, m jsonrpc.Message) (*sharing.Member, error) {
	key, clientInfo, err := s.keys.KeyFor(ctx, m)
	if err != nil {
		return nil, err
	}
	return s.pool.Join(ctx, key, clientInfo, m.Method() != "subscriptions/listen")
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
		bridge.GiveBack(ctx) // shared servers ask for places themselves
		return sharing.NewRouter(ctx, s.pool, &s.keys, s.mayKeep), nil
	}), o)
	return bridge.PullHandler(func(ctx context.Context, client bridge.PullConn) error {
		return h.ServeConn(ctx, bridge.Push(s.bind(ctx, client)))
	})
}

// mayKeep reports whether what clients send may be kept, because the server may be a
// legacy one, for which it is translated (bridge.Keeps).
func (s *Server) mayKeep() bool {
	modern, known := s.prober.Known()
	return !known || !modern
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
