package upstream

import (
	"context"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyclient"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/sharing"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Handler returns what serves clients of both eras on connections of their own: a socket, our stdin. With
// lasting, a legacy client's Conn to a remote server outlives the session there (clientDialer).
func (s *Server) Handler(lasting bool, o bridge.PumpOptions) bridge.Handler {
	return bridge.ByEra(asLegacy(s.LegacyHandler(lasting, o)), s.modernHandler(o))
}

// LegacyHandler returns what serves the sessions of legacy clients: with Conns of their own or shared ones,
// translated where that is needed. With lasting, a Conn to a remote server outlives the session there
// (clientDialer). If Spec.ClientEras has no legacy revisions, each request is refused.
func (s *Server) LegacyHandler(lasting bool, o bridge.PumpOptions) bridge.Handler {
	if s.spec.ClientEras == era.OnlyModern {
		return refusingHandler(s.spec.ClientEras)
	}
	var h bridge.Handler
	translated := &translatingDialer{s}
	direct := s.clientDialer(lasting)
	own := dialFunc(func(ctx context.Context) (bridge.Conn, error) {
		if err := admission.AcquireProcessPlace(ctx); err != nil {
			return nil, err
		}
		return direct.Dial(ctx)
	})
	switch {
	case s.spec.Protocol == era.OnlyModern:
		o.KeepsRequests = keepsAlways
		h = bridge.Serve(translated, o)
	case s.spec.Isolation == PerPrincipal || s.spec.Isolation == Shared:
		o.KeepsRequests = keepsAlways
		h = s.sharedHandler(o)
	case s.spec.Protocol == era.OnlyLegacy:
		h = s.fallbackHandler(own, nil, o)
	default:
		h = s.fallbackHandler(direct, translated, o)
	}
	return h
}

// keepsAlways is bridge.PumpOptions.KeepsRequests where all messages are translated. It returns true: the bridge keeps
// each request until it is answered, since it may have to send it again.
func keepsAlways() bool { return true }

// fallbackHandler returns what serves legacy clients with Conns of their own, which the Dialer legacy makes, or with
// those of the Dialer modern if the server turns out to be a modern one that legacy clients cannot use; modern nil:
// legacy makes all.
func (s *Server) fallbackHandler(legacy, modern bridge.Dialer, o bridge.PumpOptions) bridge.Handler {
	serve := func() bridge.Handler { // is no part of what waits for a session's end, which should need little stack
		d := &probe.Fallback{Prober: s.prober, Legacy: legacy, Modern: modern, Sessionless: s.sessionless.Load}
		own := o
		own.KeepsRequests = d.KeepsRequests
		return bridge.Serve(d, own)
	}
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		return serve().ServeConn(ctx, client)
	})
}

// asLegacy returns a Handler that has h serve its clients. Where a client's initialize asks for a modern version, h gets
// an initialize that asks for a legacy one.
func asLegacy(h bridge.Handler) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		return h.ServeConn(ctx, withLegacyInitialize(ctx, client))
	})
}

// withLegacyInitialize returns client with a first message that asks for no modern version: client itself if its first
// message asks for none, as mostly.
func withLegacyInitialize(ctx context.Context, client bridge.Conn) bridge.Conn {
	first, err := bridge.First(ctx, client)
	if changed := era.LegacyInitialize(first); err == nil && changed.Key() == first.Key() {
		return client
	}
	begun := false
	return bridge.Intercept(client, bridge.Hooks{Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) {
		if !begun {
			begun = true
			*m = era.LegacyInitialize(*m)
		}
		return nil
	}})
}

// LegacyOnlyHandler returns what serves clients of a transport that has no modern requests (SS9): each modern request
// is refused, and so is each legacy one if Spec.ClientEras has no legacy revisions.
func (s *Server) LegacyOnlyHandler(o bridge.PumpOptions) bridge.Handler {
	served := era.OnlyLegacy
	if s.spec.ClientEras == era.OnlyModern {
		served = era.OnlyModern
	}
	return bridge.ByEra(asLegacy(s.LegacyHandler(false, o)), refusingHandler(served))
}

// SharesAlways reports whether all clients are served by servers of the pool, which ask Spec.AcquirePlace themselves, so that
// a session needs no place for a process. With Isolation PerSession or PerRequest such a server may be one client's alone.
func (s *Server) SharesAlways() bool {
	return s.spec.Protocol == era.OnlyModern || s.spec.Isolation == PerPrincipal || s.spec.Isolation == Shared
}

// A translatingDialer is the Dialer of legacy clients for a modern server: its Conns translate.
type translatingDialer struct {
	s *Server // the configured server
}

// Dial implements bridge.Dialer: it makes the client a member of a shared server, and returns a Conn that
// translates for it.
func (t *translatingDialer) Dial(ctx context.Context) (bridge.Conn, error) {
	return t.s.dialTranslated(ctx, t.s.keys.sessionKey(ctx), nil)
}

// dialTranslated returns a Conn for a legacy client: a Member of the shared server with this key, and
// translation around it. If there is no such server yet, one begins, and is told clientInfo (raw; nil: nothing) of its
// client.
func (s *Server) dialTranslated(ctx context.Context, key sharing.Key, clientInfo []byte) (bridge.Conn, error) {
	conn, err := s.pool.Join(ctx, key, clientInfo, false)
	if err != nil {
		return nil, err
	}
	return translate.Wrap(conn, legacyclient.New(legacyclient.Options{}), s.spec.Dropped), nil
}

// sharedHandler returns what serves legacy clients that share servers. Which server it is may depend on the
// client's initialize.
func (s *Server) sharedHandler(o bridge.PumpOptions) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		m, err := awaitFirstRequest(ctx, client)
		if err != nil {
			return err
		}
		d := dialFunc(func(ctx context.Context) (bridge.Conn, error) {
			key := sharing.Key{Legacy: true}
			var info []byte
			if s.spec.Isolation != Shared {
				key.Principal = identity.Principal(ctx)
				key.Capabilities = string(legacyserver.ProjectCapabilities(m.Lookup("params", "capabilities")))
				info = m.Lookup("params", "clientInfo")
			}
			modern, err := s.prober.Modern(probe.WithInitializeParams(ctx, legacyserver.InitializeParams([]byte(key.Capabilities), info)))
			switch {
			case err != nil:
				return nil, err
			case modern:
				return s.dialTranslated(ctx, s.keys.sessionKey(ctx), nil)
			}
			return s.dialTranslated(ctx, key, info)
		})
		return bridge.Serve(d, o).ServeConn(ctx, client)
	})
}

// awaitFirstRequest returns the first message of a legacy client that needs a server: a request other than ping. It
// answers pings before that, and drops notifications and responses, which can mean nothing yet. The message stays the
// client's next one. The error says that the client, or ctx, has ended before.
func awaitFirstRequest(ctx context.Context, client bridge.Conn) (jsonrpc.Message, error) {
	defer admission.MarkUnused(ctx)()
	s := &firstRequestSink{client: client}
	err := client.Receive(ctx, s)
	if s.firstRequest.Kind() != jsonrpc.Invalid {
		err = nil
	}
	return s.firstRequest, err
}

// A firstRequestSink is the Sink of awaitFirstRequest. Its Send ends Receive with errFirstRequestSeen.
type firstRequestSink struct {
	client       bridge.Conn     // gets the answers to pings
	firstRequest jsonrpc.Message // the first request other than ping, which awaitFirstRequest returns; invalid: it has not come yet
}

// errFirstRequestSeen ends Receive when the first request other than ping has come, which stays with the client's Conn.
var errFirstRequestSeen = errors.New("the client's first request is not taken")

// TrySend implements bridge.Sink: it drops what is no request; false: m is one.
func (s *firstRequestSink) TrySend(m jsonrpc.Message) bool { return m.Kind() != jsonrpc.Request }

// Send implements bridge.Sink: it drops m if that is no request, answers a ping, and ends Receive at any
// other request, which it notes.
func (s *firstRequestSink) Send(ctx context.Context, m jsonrpc.Message) error {
	switch {
	case m.Kind() != jsonrpc.Request:
		return nil
	case m.Method() != "ping":
		s.firstRequest = m
		return errFirstRequestSeen
	}
	return s.client.Send(ctx, jsonrpc.NewResult(m.ID(), nil))
}

// memberFor makes the client that sends m, a modern request, a member of the shared server that is to answer it. The error
// is why there is none. ctx has the client's principal and party.
func (s *Server) memberFor(ctx context.Context, m jsonrpc.Message) (*sharing.Member, error) {
	key, clientInfo, err := s.keys.KeyFor(ctx, m)
	if err != nil {
		return nil, err
	}
	return s.pool.Join(ctx, key, clientInfo, m.Method() != "subscriptions/listen")
}

// ExchangeHandler returns what serves the single request of a modern client's Conn (Streamable HTTP).
func (s *Server) ExchangeHandler(o bridge.PumpOptions) bridge.Handler {
	o.KeepsRequests = s.mayKeepRequests
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		var no *era.Refusal
		client = s.sealState(ctx, client, func(why *era.Refusal) bool {
			no = why
			return false
		})
		m, err := bridge.First(ctx, client)
		switch {
		case err != nil:
			return err
		case no != nil:
			return client.Send(ctx, no.Response(m.ID()))
		}
		conn, err := s.memberFor(context.WithValue(ctx, clientConnKey{}, client), m)
		if err != nil {
			return bridge.Serve(failingDialer{err}, o).ServeConn(ctx, client)
		}
		m = jsonrpc.Message{} // its bytes are not kept
		err = bridge.Exchange(ctx, client, conn, o)
		return errors.Join(err, conn.Close(nil))
	})
}

// A failingDialer is a Dialer whose Dial always fails.
type failingDialer struct {
	err error // the error of Dial
}

// Dial implements bridge.Dialer: it returns err.
func (f failingDialer) Dial(context.Context) (bridge.Conn, error) { return nil, f.err }

// modernHandler returns what serves modern clients that send many requests on one Conn. If Spec.ClientEras is
// OnlyLegacy, each request is refused.
func (s *Server) modernHandler(o bridge.PumpOptions) bridge.Handler {
	if s.spec.ClientEras == era.OnlyLegacy {
		return refusingHandler(s.spec.ClientEras)
	}
	o.KeepsRequests = s.mayKeepRequests
	h := bridge.Serve(dialFunc(func(ctx context.Context) (bridge.Conn, error) {
		// Shared servers ask for places themselves. The client's own place is that of its legacy session, if it has one.
		return sharing.NewRouter(ctx, s.pool, &s.keys), nil
	}), o)
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		answer := func(*era.Refusal) bool { return true }
		return h.ServeConn(context.WithValue(ctx, clientConnKey{}, client), s.sealState(ctx, client, answer))
	})
}

// mayKeepRequests is bridge.PumpOptions.KeepsRequests for modern clients. It returns true if the server is a legacy one,
// for which requests are translated, and kept until they are answered, or if it is not known which era the server speaks.
func (s *Server) mayKeepRequests() bool {
	modern, known := s.prober.Known()
	return !known || !modern
}

// refusingHandler returns what answers each request with the versions in served, for clients of an era that
// is not served (ED5).
func refusingHandler(served era.Eras) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		defer admission.MarkUnused(ctx)()
		s := &versionsSink{client: client, served: served}
		_ = client.Receive(ctx, s)
		return s.err
	})
}

// A versionsSink answers each request with the error that names the versions in served.
type versionsSink struct {
	client bridge.Conn // gets the answers
	served era.Eras    // the eras that are served
	err    error       // why an answer could not be sent; nil: all were
}

// TrySend implements bridge.Sink: it drops what is no request; false: m is one.
func (s *versionsSink) TrySend(m jsonrpc.Message) bool { return m.Kind() != jsonrpc.Request }

// Send implements bridge.Sink: it answers m with the versions that are served, if that is a request, and
// drops it otherwise.
func (s *versionsSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() != jsonrpc.Request {
		return nil
	}
	asked := era.MetaOf(m).Revision()
	if v, ok := jsonrpc.Text(m.Lookup("params", "protocolVersion")); ok && asked == "" {
		asked = v
	}
	s.err = s.client.Send(ctx, era.UnsupportedVersion(s.served, asked).Response(m.ID()))
	return s.err
}
