package probe

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Fallback is the Dialer for one legacy client of a server whose era is not known. Most servers understand
// initialize, so its Conn is one of Legacy first. If the server refuses initialize, answers it with a version
// that has no sessions, or begins no session in which it could ask its client something or tell it of
// changes, and turns out to be a modern one, the Conn goes on with one of Modern, and the client does not
// notice.
type Fallback struct {
	Prober *Prober       // finds out the server's era
	Legacy bridge.Dialer // makes Conns that speak legacy to the server
	Modern bridge.Dialer // makes Conns that translate for a modern server; nil: the server must not be spoken to as a modern one

	// Sessionless reports whether the server has answered initialize last without beginning a session.
	Sessionless func() bool

	staysLegacy atomic.Bool // the Conn is one of Legacy, and will not be replaced any more
}

// KeepsRequests is bridge.PumpOptions.KeepsRequests. It is true as long as the Conn may still be replaced, since what
// it was sent is sent again then, and for good once the Conn is one of Modern, which translates.
func (f *Fallback) KeepsRequests() bool { return !f.staysLegacy.Load() }

// Dial implements bridge.Dialer: it returns a Conn of Legacy that may be replaced by one of Modern, or one of
// Modern at once if the server is known to need that.
func (f *Fallback) Dial(ctx context.Context) (bridge.Conn, error) {
	if f.Prober.needsTranslation() {
		admission.ReleaseProcessPlace(ctx)
		return f.Modern.Dial(ctx)
	}
	if err := admission.AcquireProcessPlace(ctx); err != nil {
		return nil, err
	}
	conn, err := f.Legacy.Dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &fallbackConn{f: f, clientCtx: ctx, conn: conn, decided: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// maxToResend is how many messages, with initialize, may be sent before initialize is answered; then Send
// waits.
const maxToResend = 1000

// A fallbackConn has a Conn of Fallback.Legacy (conn) until initialize is answered; then one of Fallback.Modern
// may replace it. Until then, what is sent is kept, to be sent again to the Conn of Modern.
//
// What the server sends passes a fallbackSink. Until the answer to initialize has come, it holds back responses and
// hands on all else. The answer decides which Conn stays. After it everything is handed on. mu is not held across
// calls of a Conn.
type fallbackConn struct {
	f         *Fallback          // the Fallback that has made it
	clientCtx context.Context    // the ctx of Dial, which says who the client is
	ctx       context.Context    // the ctx of Sends of toResend to another Conn, and of waits for decided; done at Close, and not before
	cancel    context.CancelFunc // ends ctx
	wg        sync.WaitGroup     // waits for the goroutine that sends toResend

	mu           sync.Mutex        // guards the fields below, up to decided
	conn         bridge.Conn       // the Conn to the server; once decided is closed, it stays, and may be read without mu
	closed       bool              // Close was called
	initializeID jsonrpc.ID        // the id of the client's initialize; zero: it was not sent yet
	toResend     []jsonrpc.Message // initialize and what was sent after it: it is sent again if a Conn of Modern replaces conn; nil once that is decided
	resending    bool              // toResend is being sent to the Conn of Modern that has replaced the first one, so Send waits
	decided      chan struct{}     // closed when conn will not be replaced any more, and has got what was sent before

	answerSeen    bool              // the answer to initialize has come; only Receive and its fallbackSink use this
	refuserClosed bool              // conn, whose server had refused initialize, was closed, to ask the server for its era or to replace it; only Receive and its fallbackSink use this
	held          []jsonrpc.Message // responses that came before the answer to initialize; only Receive and its fallbackSink use this
	handOnFirst   []jsonrpc.Message // what the client gets before anything else, if conn stays: the answer to initialize, and held; only Receive and its fallbackSink use this
}

// noteSent keeps a message that may have to be sent again, and returns the Conn to send it to. false: Send
// has to wait until it is decided which Conn stays.
func (c *fallbackConn) noteSent(m jsonrpc.Message) (conn bridge.Conn, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isDecided():
	case c.initializeID.IsZero() && (m.Kind() != jsonrpc.Request || m.Method() != "initialize"):
	case c.resending || len(c.toResend) == maxToResend:
		return nil, false
	default:
		if c.initializeID.IsZero() {
			c.initializeID = m.ID()
		}
		c.toResend = append(c.toResend, m)
	}
	return c.conn, true
}

// isDecided reports whether conn will not be replaced any more.
func (c *fallbackConn) isDecided() bool {
	select {
	case <-c.decided:
		return true
	default:
		return false
	}
}

// Send implements bridge.Conn: it sends m to conn, and keeps it if it may have to be sent again. If it cannot
// be kept it waits until it is decided which Conn stays.
func (c *fallbackConn) Send(ctx context.Context, m jsonrpc.Message) error {
	if c.isDecided() {
		return c.conn.Send(ctx, m)
	}
	conn, ok := c.noteSent(m)
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

// TrySend implements bridge.Conn. It takes no message before it is decided which Conn stays.
func (c *fallbackConn) TrySend(m jsonrpc.Message) bool { return c.isDecided() && c.conn.TrySend(m) }

// current returns conn.
func (c *fallbackConn) current() bridge.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

// errServerReplaced ends Receive of the first Conn, once another one has replaced it.
var errServerReplaced = errors.New("another server has taken its place")

// Receive implements bridge.Conn: it receives from conn, and goes on with another conn when that has been
// replaced.
func (c *fallbackConn) Receive(ctx context.Context, sink bridge.Sink) error {
	for {
		conn := c.current()
		if c.answerSeen && len(c.handOnFirst) == 0 {
			return conn.Receive(ctx, sink)
		}
		err := conn.Receive(ctx, &fallbackSink{ctx, c, sink})
		if c.current() != conn {
			continue
		}
		if c.refuserClosed { // it will not offer its answer again
			if failed := c.handOnReady(ctx, sink); failed != nil {
				return failed
			}
		}
		return err
	}
}

// A fallbackSink is the Sink of a fallbackConn's first Conn: it looks for the answer to initialize.
type fallbackSink struct {
	ctx  context.Context // the ctx of Receive: the one of Send ends when the first Conn is closed
	c    *fallbackConn   // the fallbackConn that receives with it
	sink bridge.Sink     // the client's Sink
}

// TrySend implements bridge.Sink: it hands m on if that isUndecisive. false: it is not, or sink has not taken
// it; then Send has to take it.
func (s *fallbackSink) TrySend(m jsonrpc.Message) bool {
	return s.isUndecisive(&m) && s.sink.TrySend(m)
}

// isUndecisive reports whether a message of the server may be handed on at once, because it has nothing to do with which
// Conn stays, or that is decided and nothing waits to be handed on before it.
func (s *fallbackSink) isUndecisive(m *jsonrpc.Message) bool {
	if s.c.answerSeen {
		return len(s.c.handOnFirst) == 0
	}
	if m.Kind() != jsonrpc.Response {
		return true
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.initializeID.IsZero()
}

// Send implements bridge.Sink: it hands m on, or gives it to sendDecisive.
func (s *fallbackSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if s.isUndecisive(&m) {
		return s.sink.Send(ctx, m)
	}
	return s.sendDecisive(ctx, m)
}

// sendDecisive takes a message that is not isUndecisive: the answer to initialize, which decides which Conn
// stays, a response that comes before that and waits for it, or one that is offered again. The error is
// errServerReplaced if a Conn of Modern has taken the place of the first one, or that of the client's Sink.
func (s *fallbackSink) sendDecisive(ctx context.Context, m jsonrpc.Message) error {
	c := s.c
	switch {
	case c.answerSeen: // m is what could not be handed on last
	case !m.ID().Equivalent(c.initializeID):
		c.held = append(c.held, m) // what came of it depends on initialize
		return nil
	case c.switchToModern(s.ctx, m):
		c.answerSeen, c.held = true, nil
		return errServerReplaced
	default:
		if ClaimsModern(m) != "" {
			m = c.f.unusableAnswer(m)
		}
		c.answerSeen = true
		c.handOnFirst, c.held = append([]jsonrpc.Message{m}, c.held...), nil
		c.f.staysLegacy.Store(true)
		c.decide(c.current())
	}
	return c.handOnReady(ctx, s.sink) // after an error m is offered again
}

// handOnReady hands the messages in handOnFirst to sink. After an error the rest stays there.
func (c *fallbackConn) handOnReady(ctx context.Context, sink bridge.Sink) error {
	for len(c.handOnFirst) > 0 {
		if err := sink.Send(ctx, c.handOnFirst[0]); err != nil {
			return err
		}
		c.handOnFirst = c.handOnFirst[1:]
	}
	return nil
}

// decide makes conn the Conn that stays. It is called once, and closes no Conn.
func (c *fallbackConn) decide(conn bridge.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.toResend = conn, nil
	close(c.decided)
}

// unusableAnswer returns the error for a client whose server has answered initialize with a version that has
// no sessions, and cannot be used as a modern one (ED6).
func (f *Fallback) unusableAnswer(answer jsonrpc.Message) jsonrpc.Message {
	text := "the server has answered initialize with protocol version " + ClaimsModern(answer) + ", which has no initialize"
	if f.Modern != nil {
		text += ", but does not speak " + era.NewestModern + " when it is asked; the bridge's log may say why"
	} else {
		text += "; --protocol legacy keeps the bridge from speaking " + era.NewestModern + " with it"
	}
	return jsonrpc.NewError(answer.ID(), jsonrpc.CodeInternalError, text, []byte(`{"reason":"initialize_failed"}`))
}

// switchToModern replaces the Conn by one of Modern if the answer to initialize suggests that the server is a
// modern one, and it is: it has refused initialize, or has answered it as no legacy server does that has
// sessions. A goroutine sends again what was sent before: that may have to wait for Receive. If switched is false, the
// Conn stays; it may be closed then (refuserClosed).
func (c *fallbackConn) switchToModern(ctx context.Context, answer jsonrpc.Message) (switched bool) {
	p := c.f.Prober
	refused := answer.IsError() || ClaimsModern(answer) != ""
	if c.f.Modern == nil || !refused && !c.f.Sessionless() {
		return false
	}
	old := c.current()
	if !c.findsModern(ctx, old, answer, refused) {
		return false
	}
	if refused {
		c.refuserClosed = true
		p.close(old)
		admission.ReleaseProcessPlace(c.clientCtx) // its place is the other's
	}
	other, err := c.f.Modern.Dial(c.clientCtx)
	if err != nil {
		p.log.Warn("the server could not be reached with 2026-07-28", "error", err)
		return false
	}
	p.skipInitialize()
	if !refused { // until now it could have gone on
		p.close(old)
		admission.ReleaseProcessPlace(c.clientCtx)
	}
	return c.switchTo(other)
}

// findsModern reports whether the server is a modern one, by answer, its answer to initialize, or by asking the server.
// refused: the answer refuses initialize; then old, the first Conn, may be closed, since the question takes a place, too.
func (c *fallbackConn) findsModern(ctx context.Context, old bridge.Conn, answer jsonrpc.Message, refused bool) bool {
	p := c.f.Prober
	if answer.IsError() && AnswersModern(answer) {
		p.NoteEra(true)
		return true
	}
	switch {
	case signInReason(answer) == httpdial.ReasonAuthServerUnavailable: // to ask would wait for the identity provider once more
		return false
	case p.IsUnasked(answer) && !isUnauthorized(answer): // it would not be reached now either
		return false
	}
	if refused {
		if p.opts.NeedsPlace {
			c.refuserClosed = true
			p.close(old)
			admission.ReleaseProcessPlace(c.clientCtx)
		}
		p.forgetFinding()
	} else { // the client has its answer: it shall not wait for long
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.AnswerTimeout)
		defer cancel()
	}
	if isUnauthorized(answer) { // the client has waited for a sign-in once, and shall not wait twice as long
		ctx = httpdial.Unattended(ctx)
	}
	modern, err := p.Modern(ctx)
	if err != nil && ctx.Err() != nil { // else inquire has said it
		p.noteUnasked(err)
	}
	return err == nil && modern
}

// switchTo makes other the Conn that stays, and starts the goroutine that sends it what was sent before.
// false: Close was called meanwhile, and other is closed.
func (c *fallbackConn) switchTo(other bridge.Conn) bool {
	p := c.f.Prober
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		p.close(other)
		return false
	}
	defer c.mu.Unlock()
	c.conn = other
	sent := c.toResend
	c.resending = true
	c.wg.Go(func() {
		for _, m := range sent {
			if err := other.Send(c.ctx, m); err != nil && !errors.Is(err, context.Canceled) && p.opts.Dropped != nil {
				p.opts.Dropped(m, "the server did not take it")
			}
		}
		c.decide(other)
	})
	return true
}

// Close implements bridge.Conn: it closes conn, and waits for the goroutine that sends again.
func (c *fallbackConn) Close(reason error) error {
	c.mu.Lock()
	c.closed = true
	conn := c.conn
	c.mu.Unlock()
	c.cancel()
	err := conn.Close(reason)
	c.wg.Wait()
	return err
}
