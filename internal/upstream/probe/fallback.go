package probe

import (
	"context"
	"errors"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Fallback is the Dialer for a legacy client of a server whose era is not known.
// Most servers understand initialize, so that is tried: a Conn whose server
// refuses it, answers it with a version that has no sessions, or begins none, in
// which it could ask its client something or tell it of changes, and turns out to
// be a modern one, goes on with a Conn of another Dialer, and nobody notices.
type Fallback struct {
	Prober *Prober
	Legacy bridge.Dialer // speaks legacy to the server
	Modern bridge.Dialer // translates; nil: the server must not be spoken to as a modern one

	// Sessionless reports whether the server has answered initialize without beginning
	// a session.
	Sessionless func() bool
}

// Dial implements bridge.Dialer.
func (f *Fallback) Dial(ctx context.Context) (bridge.Conn, error) {
	if f.Prober.SkipsInitialize() {
		bridge.GiveBack(ctx)
		return f.Modern.Dial(ctx)
	}
	if err := bridge.TakePlace(ctx); err != nil {
		return nil, err
	}
	conn, err := bridge.PullDialed(f.Legacy.Dial(ctx))
	if err != nil {
		return nil, err
	}
	c := &fallbackConn{f: f, client: ctx, conn: conn, decided: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return bridge.Push(c), nil
}

// maxSince is how many messages may follow initialize before it is answered;
// then Send waits.
const maxSince = 1000

// fallbackConn is a Conn that may change its server until initialize is answered.
// Until then, what is sent after it is kept, to be sent again.
type fallbackConn struct {
	f      *Fallback
	client context.Context // of Dial: whom it is for
	ctx    context.Context // done by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // what sends again

	mu      sync.Mutex
	conn    bridge.PullConn // stays once decided is closed, and may be read without mu
	closed  bool
	asked   jsonrpc.ID        // initialize's id; zero: it was not sent
	since   []jsonrpc.Message // initialize and what was sent after it
	again   bool              // that is being sent to another conn: Send waits
	decided chan struct{}     // closed when conn stays, and has got what was sent before
	slow    func()            // see OnSlow

	try  func(jsonrpc.Message) bool // of conn, once decided is closed; may be nil
	from bridge.Offerer             // conn, likewise

	settled bool // conn stays; only Offer uses it
	held    []jsonrpc.Message
	ready   []jsonrpc.Message // for Offer
}

// note keeps what may have to be sent again. It is false when Send has to wait
// for the decision.
func (c *fallbackConn) note(m jsonrpc.Message) (conn bridge.PullConn, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isDecided():
	case c.asked.IsZero() && (m.Kind() != jsonrpc.Request || m.Method() != "initialize"):
	case c.again || len(c.since) == maxSince:
		return nil, false
	default:
		if c.asked.IsZero() {
			c.asked = m.ID()
		}
		c.since = append(c.since, m)
	}
	return c.conn, true
}

func (c *fallbackConn) isDecided() bool {
	select {
	case <-c.decided:
		return true
	default:
		return false
	}
}

func (c *fallbackConn) Send(ctx context.Context, m jsonrpc.Message) error {
	if c.isDecided() {
		return c.conn.Send(ctx, m)
	}
	conn, ok := c.note(m)
	if !ok {
		select {
		case <-c.decided:
		case <-c.ctx.Done():
			return context.Canceled
		case <-ctx.Done():
			return ctx.Err()
		}
		conn = c.current()
	}
	err := conn.Send(ctx, m)
	if err != nil && c.current() != conn {
		return nil // it is sent again
	}
	return err
}

// TrySender is what bridge.TrySender says, once it is decided who the server is.
func (c *fallbackConn) TrySender() func(jsonrpc.Message) bool {
	return func(m jsonrpc.Message) bool { return c.isDecided() && c.try != nil && c.try(m) }
}

// OnSlow is what bridge.OnSlow says, of whichever server it turns out to be.
func (c *fallbackConn) OnSlow(f func()) {
	c.mu.Lock()
	c.slow = f
	conn := c.conn
	c.mu.Unlock()
	bridge.OnSlow(conn, f)
}

// Keeps is what bridge.Keeps says.
func (c *fallbackConn) Keeps() bool { return !c.isDecided() || bridge.Keeps(c.conn) }

func (c *fallbackConn) current() bridge.PullConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

func (c *fallbackConn) Recv(ctx context.Context) (jsonrpc.Message, error) { return c.Offer(ctx, nil) }

// Offer is what bridge.Offer says, once conn stays.
func (c *fallbackConn) Offer(ctx context.Context, take bridge.Taker) (jsonrpc.Message, error) {
	if len(c.ready) > 0 {
		m := c.ready[0]
		c.ready = c.ready[1:]
		return m, nil
	}
	for {
		if c.settled && c.isDecided() {
			if take != nil && c.from != nil {
				return c.from.Offer(ctx, take)
			}
			return c.conn.Recv(ctx)
		}
		conn := c.current()
		if c.settled {
			return bridge.Offer(ctx, conn, take)
		}
		m, err := conn.Recv(ctx)
		if err != nil {
			return m, err
		}
		c.mu.Lock()
		asked := c.asked
		c.mu.Unlock()
		switch {
		case asked.IsZero() || m.Kind() != jsonrpc.Response:
			return m, nil
		case !m.ID().Equivalent(asked):
			c.held = append(c.held, m) // what came of it depends on initialize
			continue
		case c.change(ctx, m):
			c.settled, c.held = true, nil
			continue
		case ClaimsModern(m) != "":
			m = c.f.unusable(m)
		}
		c.settled = true
		c.ready, c.held = c.held, nil
		c.decide(conn)
		return m, nil
	}
}

// decide says that conn stays.
func (c *fallbackConn) decide(conn bridge.PullConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.since = conn, nil
	c.try = bridge.TrySender(conn)
	c.from, _ = conn.(bridge.Offerer)
	close(c.decided)
}

// unusable is what a client hears whose server has answered initialize with a version
// that has no sessions, and is not to be had otherwise (ED6).
func (f *Fallback) unusable(answer jsonrpc.Message) jsonrpc.Message {
	text := "the server has answered initialize with protocol version " + ClaimsModern(answer) + ", which has no initialize"
	if f.Modern != nil {
		text += ", but does not speak " + era.NewestModern + " when it is asked; the bridge's log may say why"
	} else {
		text += "; --protocol legacy keeps the bridge from speaking " + era.NewestModern + " with it"
	}
	return jsonrpc.NewError(answer.ID(), jsonrpc.CodeInternalError, text, []byte(`{"reason":"initialize_failed"}`))
}

// change goes on with a translated Conn if the server is a modern one: it has refused
// initialize, or has answered it as no legacy server does that has sessions. What was
// sent before is sent again by a goroutine: that may have to wait for Recv.
func (c *fallbackConn) change(ctx context.Context, answer jsonrpc.Message) bool {
	p := c.f.Prober
	refused := answer.IsError() || ClaimsModern(answer) != ""
	if c.f.Modern == nil || !refused && !c.f.Sessionless() {
		return false
	}
	old := c.current()
	if answer.IsError() && AnswersModern(answer) {
		p.Said(true)
	} else {
		if refused {
			if p.opts.Placed { // the question takes a place, too
				p.close(old)
				bridge.GiveBack(c.client)
			}
			p.Doubt()
		} else { // the client has its answer: it shall not wait for long
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, p.Patience)
			defer cancel()
		}
		if modern, err := p.Modern(ctx); err != nil || !modern {
			if err != nil && ctx.Err() != nil { // else probe has said it
				p.unasked(err)
			}
			return false
		}
	}
	if refused {
		p.close(old)
		bridge.GiveBack(c.client) // its place is the other's
	}
	other, err := bridge.PullDialed(c.f.Modern.Dial(c.client))
	if err != nil {
		p.log.Warn("the server could not be reached with 2026-07-28", "error", err)
		return false
	}
	p.skipInitialize()
	if !refused { // until now it could have gone on
		p.close(old)
		bridge.GiveBack(c.client)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		p.close(other)
		return false
	}
	c.conn = other
	if c.slow != nil {
		bridge.OnSlow(other, c.slow)
	}
	sent := c.since
	c.again = true
	c.wg.Go(func() {
		for _, m := range sent {
			if err := other.Send(c.ctx, m); err != nil && !errors.Is(err, context.Canceled) {
				p.log.Debug("message dropped", "reason", "the server did not take it", "method", m.Method())
			}
		}
		c.decide(other)
	})
	return true
}

func (c *fallbackConn) Close() error {
	c.mu.Lock()
	c.closed = true
	conn := c.conn
	c.mu.Unlock()
	c.cancel()
	err := conn.Close()
	c.wg.Wait()
	return err
}
