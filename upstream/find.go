package upstream

import (
	"context"
	"errors"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// finder is the Dialer for a legacy client of a server whose era is not known.
// Most servers understand initialize, so that is tried: a Conn whose server
// refuses it, and turns out to be a modern one, goes on with a Conn of
// the other Dialer, and nobody notices.
type finder struct {
	s     *Server
	first bridge.Dialer // speaks legacy to the server
	other bridge.Dialer // translates
}

func (f *finder) Dial(ctx context.Context) (bridge.Conn, error) {
	if f.s.refusesInitialize() {
		bridge.GiveBack(ctx)
		return f.other.Dial(ctx)
	}
	conn, err := f.first.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return &finding{f: f, ctx: ctx, conn: conn}, nil
}

// maxHeld is how many messages may follow initialize before it is answered.
const maxHeld = 1000

// finding is a Conn that may change its server until initialize is answered.
// Until then, what is sent after it is kept, to be sent again.
type finding struct {
	f   *finder
	ctx context.Context // of Dial: whom it is for

	mu     sync.Mutex
	conn   bridge.Conn
	closed bool
	asked  jsonrpc.ID        // initialize's id; zero: it was not sent, or is answered
	since  []jsonrpc.Message // initialize and what was sent after it

	settled bool // initialize is answered; only Recv uses it
	held    []jsonrpc.Message
	ready   []jsonrpc.Message // for Recv
}

// current returns the Conn of now, and notes what is sent while that can change.
func (c *finding) current(m jsonrpc.Message) bridge.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.Kind() == jsonrpc.Request && m.Method() == "initialize" && c.since == nil:
		c.asked = m.ID()
		c.since = append(c.since, m)
	case !c.asked.IsZero() && len(c.since) < maxHeld:
		c.since = append(c.since, m)
	}
	return c.conn
}

func (c *finding) Send(ctx context.Context, m jsonrpc.Message) error {
	conn := c.current(m)
	err := conn.Send(ctx, m)
	if err != nil {
		if now, _ := c.waiting(); now != conn {
			return nil // it was sent again
		}
	}
	return err
}

// waiting returns the id of an initialize that is not answered, and the Conn.
func (c *finding) waiting() (bridge.Conn, jsonrpc.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn, c.asked
}

func (c *finding) Recv(ctx context.Context) (jsonrpc.Message, error) {
	if len(c.ready) > 0 {
		m := c.ready[0]
		c.ready = c.ready[1:]
		return m, nil
	}
	for {
		conn, _ := c.waiting()
		m, err := conn.Recv(ctx)
		if err != nil || c.settled {
			return m, err
		}
		_, asked := c.waiting()
		switch {
		case asked.IsZero() || m.Kind() != jsonrpc.Response:
			return m, nil
		case !m.ID().Equivalent(asked):
			c.held = append(c.held, m) // what came of it depends on initialize
			continue
		case m.IsError() && c.change(ctx):
			c.held = nil
			continue
		}
		c.settle()
		c.ready, c.held = c.held, nil
		return m, nil
	}
}

func (c *finding) settle() {
	c.settled = true
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked, c.since = jsonrpc.ID{}, []jsonrpc.Message{}
}

// change goes on with a translated Conn if the server, which has refused
// initialize, is a modern one.
func (c *finding) change(ctx context.Context) bool {
	s := c.f.s
	s.doubt()
	modern, err := s.speaksModern(ctx)
	if err != nil || !modern {
		return false
	}
	s.initializeRefused()
	c.mu.Lock()
	old := c.conn
	c.mu.Unlock()
	if err := old.Close(); err != nil {
		s.log.Warn("closing", "error", err)
	}
	bridge.GiveBack(c.ctx) // its place is the other's
	other, err := c.f.other.Dial(c.ctx)
	if err != nil {
		s.log.Warn("the server speaks 2026-07-28 only, and could not be reached", "error", err)
		return false
	}
	c.settled = true
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		s.closed(other)
		return false
	}
	c.conn = other
	for _, m := range c.since {
		if err := other.Send(ctx, m); err != nil && !errors.Is(err, context.Canceled) {
			s.log.Debug("message dropped", "reason", "the server did not take it", "method", m.Method())
		}
	}
	c.asked, c.since = jsonrpc.ID{}, []jsonrpc.Message{}
	return true
}

func (c *finding) Close() error {
	c.mu.Lock()
	c.closed = true
	conn := c.conn
	c.mu.Unlock()
	return conn.Close()
}
