package upstream

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/schemas"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/sharing"
)

// A connector is the Dialer of one shared server: its Conns speak modern, whatever the server speaks. On the
// way it learns the server's tools, and whether its era has changed.
type connector struct {
	s           *Server                             // the configured server
	shared      *sharing.Server                     // the shared server for which it makes Conns
	toolSchemas *schemas.Table                      // learns the server's tools
	filter      atomic.Pointer[legacyserver.Filter] // the Filter of the last legacy server that it has started; nil: none, or the server is modern

	starts       int // how many Conns to modern servers Dial has returned: servers after the first may be asked whether they are modern still; only Dial uses it
	failedProbes int // how many servers have ended at the question which era they speak, since one has answered that it is modern; only Dial uses it
}

// newConnector returns the connector of a shared server, and its hasParked, which reports whether calls in the server
// wait for their clients. It is sharing.Options.Connect.
func (s *Server) newConnector(shared *sharing.Server) (bridge.Dialer, func() bool) {
	c := &connector{s: s, shared: shared, toolSchemas: s.table(shared.Key)}
	return c, c.hasParked
}

// hasParked reports whether calls in the server wait for something that their clients were asked.
func (c *connector) hasParked() bool {
	f := c.filter.Load()
	return f != nil && f.Parked() > 0
}

// Dial implements bridge.Dialer: it starts the server, or connects to it, and returns a Conn that speaks
// modern. The Mux calls it.
func (c *connector) Dial(ctx context.Context) (bridge.Conn, error) {
	ctx = identity.WithParty(ctx, c.shared.Party)
	if c.shared.Key.Legacy {
		return c.dialLegacy(ctx)
	}
	var conn bridge.Conn
	if spare := c.s.prober.TakeSpare(); spare != nil {
		spare.Holder.TransferTo(c.shared)
		conn = spare.Conn
	} else {
		var err error
		if conn, err = c.s.dialAdmitted(ctx, c.s.dialers.modern, c.shared); err != nil {
			return nil, err
		}
		if err := c.checkStillModern(ctx, conn); err != nil {
			return nil, errors.Join(err, conn.Close(nil))
		}
	}
	c.starts++
	return c.watchModernServer(conn), nil
}

// dialLegacy starts a legacy server, or connects to it, and returns a Conn that speaks modern through
// translation.
func (c *connector) dialLegacy(ctx context.Context) (bridge.Conn, error) {
	var conn bridge.Conn
	opening := legacyserver.InitializeParams([]byte(c.shared.Key.Capabilities), c.shared.ClientInfo)
	if spare := c.s.prober.TakeOpened(opening); spare != nil {
		spare.Holder.TransferTo(c.shared)
		conn = spare.Conn
	} else {
		var err error
		if conn, err = c.s.dialAdmitted(ctx, c.s.sharedLegacyDialer(), c.shared); err != nil {
			return nil, err
		}
	}
	f := legacyserver.New(legacyserver.Options{
		Capabilities: []byte(c.shared.Key.Capabilities), ClientInfo: c.shared.ClientInfo,
		Principal: c.shared.Key.Principal, Unit: c.shared.ID(), ServerRun: rand.Text(), Sealer: c.s.sealer,
		ParkTimeout: c.s.spec.ParkTimeout,
	})
	c.filter.Store(f)
	conn = translate.Wrap(c.watchLegacyServer(conn), f, c.s.spec.Dropped)
	return &initializingConn{Conn: c.watchTranslated(conn), filter: f}, nil
}

// maxFailedProbes is how many servers in a row must have ended at the question which era they speak before
// checkStillModern takes that for a change of era: an older server may do just that.
const maxFailedProbes = 3

// checkStillModern asks a process (or a server behind a lasting connection) that takes the place of one that has ended
// whether it still speaks 2026-07-28: its program may have been replaced by an older one. nil: it does, or it need not
// be asked, or it says that it does not and the finding is too fresh to be doubted. probe.ErrChanged: it does not, and
// the shared server was ended. (A server at an http URL says so with each answer.)
func (c *connector) checkStillModern(ctx context.Context, conn bridge.Conn) error {
	if c.starts == 0 || c.s.spec.Protocol != era.Auto || c.s.isHTTP() {
		return nil
	}
	modern, err := c.s.prober.Discover(ctx, conn)
	switch {
	case modern:
		c.failedProbes = 0
		return nil
	case errors.Is(err, probe.ErrUnasked): // it may be the same when it is there again
		return err
	case err != nil:
		if c.failedProbes++; c.failedProbes < maxFailedProbes {
			return err
		}
	}
	if !c.endIfChanged() {
		return err
	}
	return probe.ErrChanged
}

// endIfChanged is called when the server may be one of the other era by now. It ends the shared server, so
// that the next client finds out, unless the finding is too fresh to be doubted or --protocol says what is spoken. A
// server at an http URL is asked instead. ended: the shared server was ended.
func (c *connector) endIfChanged() (ended bool) {
	if !c.s.prober.SuspectOtherEra() {
		return false
	}
	c.shared.Shutdown(probe.ErrChanged)
	return true
}
