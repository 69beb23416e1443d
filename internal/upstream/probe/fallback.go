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

// Fallback is the Dialer for one legacy client of a server whose era is not known.
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

	staysLegacy atomic.Bool // the Conn is Legacy's for good
}

// KeepsRequests is KeepsRequests of bridge.PumpOptions: as long as the Conn may still become a translating
// one, it may have to send again what it was sent.
func (f *Fallback) KeepsRequests() bool { return !f.staysLegacy.Load() }

// Dial implements bridge.Dialer.
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

// maxSentSince is how many messages may follow initialize before it is answered;
// then Send waits.
const maxSentSince = 1000

// fallbackConn is a Conn that may change its server until initialize is answered.
// Until then, what is sent after it is kept, to be sent again.
//
// What the server sends passes a sink: before the answer to initialize all but
// responses is handed on, the answer decides, and everything after it is handed on. mu is not
// held across calls of a Conn.
type fallbackConn struct {
	f         *Fallback
	clientCtx context.Context // of Dial: whom it is for
	ctx       context.Context // done by Close
	cancel    context.CancelFunc
	wg        sync.WaitGroup // what sends again

	mu           sync.Mutex
	conn         bridge.Conn // stays once decided is closed, and may be read without mu
	closed       bool
	initializeID jsonrpc.ID        // initialize's id; zero: it was not sent
	sentSince    []jsonrpc.Message // initialize and what was sent after it
	resending    bool              // sentSince is being sent to another conn: Send waits
	decided      chan struct{}     // closed when conn stays, and has got what was sent before

	// Only Receive, and the sink that it gives conn, use these.
	answerSeen    bool              // the answer to initialize has come
	refuserClosed bool              // conn, which had refused initialize, was closed: to ask the server, or for a modern conn
	held          []jsonrpc.Message // responses that have come before the answer to initialize
	handOnFirst   []jsonrpc.Message // the answer, if conn stays, and held: what is to be handed on first
}

// noteSent keeps what may have to be sent again. It is false when Send has to wait
// for the decision.
func (c *fallbackConn) noteSent(m jsonrpc.Message) (conn bridge.Conn, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isDecided():
	case c.initializeID.IsZero() && (m.Kind() != jsonrpc.Request || m.Method() != "initialize"):
	case c.resending || len(c.sentSince) == maxSentSince:
		return nil, false
	default:
		if c.initializeID.IsZero() {
			c.initializeID = m.ID()
		}
		c.sentSince = append(c.sentSince, m)
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

// TrySend takes messages once it is decided who the server is.
func (c *fallbackConn) TrySend(m jsonrpc.Message) bool { return c.isDecided() && c.conn.TrySend(m) }

func (c *fallbackConn) current() bridge.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

// errServerReplaced ends Receive of the first server's Conn, once another one has taken its place.
var errServerReplaced = errors.New("another server has taken its place")

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

// fallbackSink is what a fallbackConn gives its first server to send to.
type fallbackSink struct {
	ctx  context.Context // of Receive: that of Send ends when the server is closed
	c    *fallbackConn
	sink bridge.Sink
}

func (s *fallbackSink) TrySend(m jsonrpc.Message) bool {
	return s.isUndecisive(&m) && s.sink.TrySend(m)
}

// isUndecisive reports whether a message is no matter of the decision.
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

func (s *fallbackSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if s.isUndecisive(&m) {
		return s.sink.Send(ctx, m)
	}
	return s.sendDecisive(ctx, m)
}

// sendDecisive is Send for a message of which isUndecisive is false.
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

// handOnReady hands on what is ready.
func (c *fallbackConn) handOnReady(ctx context.Context, sink bridge.Sink) error {
	for len(c.handOnFirst) > 0 {
		if err := sink.Send(ctx, c.handOnFirst[0]); err != nil {
			return err
		}
		c.handOnFirst = c.handOnFirst[1:]
	}
	return nil
}

// decide says that conn stays.
func (c *fallbackConn) decide(conn bridge.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.sentSince = conn, nil
	close(c.decided)
}

// unusableAnswer is what a client hears whose server has answered initialize with a version
// that has no sessions, and is not to be had otherwise (ED6).
func (f *Fallback) unusableAnswer(answer jsonrpc.Message) jsonrpc.Message {
	text := "the server has answered initialize with protocol version " + ClaimsModern(answer) + ", which has no initialize"
	if f.Modern != nil {
		text += ", but does not speak " + era.NewestModern + " when it is asked; the bridge's log may say why"
	} else {
		text += "; --protocol legacy keeps the bridge from speaking " + era.NewestModern + " with it"
	}
	return jsonrpc.NewError(answer.ID(), jsonrpc.CodeInternalError, text, []byte(`{"reason":"initialize_failed"}`))
}

// switchToModern goes on with a translated Conn if the server is a modern one: it has refused
// initialize, or has answered it as no legacy server does that has sessions. What was
// sent before is sent again by a goroutine: that may have to wait for Receive.
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

// findsModern reports whether the server is a modern one, of which old may say so itself.
// If old has refused initialize it may be closed, as the question takes a place, too.
func (c *fallbackConn) findsModern(ctx context.Context, old bridge.Conn, answer jsonrpc.Message, refused bool) bool {
	p := c.f.Prober
	if answer.IsError() && AnswersModern(answer) {
		p.NoteEra(true)
		return true
	}
	if signInReason(answer) == httpdial.ReasonAuthServerUnavailable { // to ask would wait for the identity provider once more
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

// switchTo makes other the server's Conn, and has sent to it again what was sent before. It is
// false if this Conn was closed meanwhile.
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
	sent := c.sentSince
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
