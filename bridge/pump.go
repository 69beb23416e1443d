package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/say"
	"github.com/mcp-bridge/mcp-bridge/internal/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// DefaultGrace is how long a Pump waits for answers that are still owed once
// its context has ended.
const DefaultGrace = 5 * time.Second

// DefaultDrain is how long a Pump waits for answers that are still owed once
// the client has said that it sends nothing more.
const DefaultDrain = 30 * time.Second

// owingAfter is how long it takes until a wait for answers is no matter of course.
const owingAfter = time.Second

// maxRenewal is how many times RequestTimeout a request may take at most when
// progress goes on and on.
const maxRenewal = 10

// maxUnanswered is how many requests of each side may wait for the other's
// answers. A side that answers none must not make the books grow for ever.
const maxUnanswered = 10_000

// PumpOptions tune a Pump. The zero value works.
type PumpOptions struct {
	// Drain bounds the wait for owed answers after the client's EOF (ST8).
	// 0 means DefaultDrain, negative means not to wait.
	Drain time.Duration

	// Grace bounds the wait for owed answers, and for a server that takes
	// nothing, after ctx is done. 0 means DefaultGrace, negative means not to wait.
	Grace time.Duration

	// GraceNow, if not nil, is asked for the Grace when ctx is done: why it is
	// done may make a difference.
	GraceNow func() time.Duration

	// Shutdown, if not nil, is closed when the program is about to end. From then
	// on no wait lasts longer than Grace, also one that GraceNow had allowed more.
	Shutdown <-chan struct{}

	// RequestTimeout is how long the server may stay silent on a request
	// before it is cancelled and answered with an error (J8). Progress on the
	// request starts it anew, but no request lasts longer than ten times as
	// long. 0 means forever.
	RequestTimeout time.Duration

	// Owing is told, once, when the client sends nothing more, by its end or by
	// ctx's, and after a second is still waited for: how many answers the server owes,
	// and how many the client has not taken. nil is fine.
	Owing func(owed, untaken int)

	// Budget is the memory for what is kept of the client's requests until they
	// are answered; the Party of Pump's ctx is who holds it. A request for which
	// there is none left is answered with an error (data.reason "busy"). nil: no limit.
	Budget *budget.Budget

	// Dropped is told of each message that reached nobody, and why. The
	// reason never holds content. It may be called concurrently; nil is fine.
	Dropped func(m jsonrpc.Message, reason string)
}

// Pump copies messages between one client and one server, byte for byte and
// in order, until the conversation is over. It runs two goroutines, one per
// direction, whose work may be done by whoever brings a message (see Offer). It
// returns when everything it started has ended; it closes neither Conn.
//
// It keeps the books on who owes whom an answer, so that no request is left
// hanging:
//
//   - After the client's io.EOF it goes on until the server owes nothing
//     (bounded by Drain), then returns nil.
//   - When ctx is done it takes nothing more from the client, waits likewise
//     (bounded by Grace), answers what is still owed with an error, and
//     returns nil.
//   - When the server ends, every request it owes is answered with a JSON-RPC
//     error that carries the server's error, and that error is returned.
//   - When the client is gone (any error but io.EOF), the server is told to
//     cancel what it owes, and the error is returned. A Pump that is blocked
//     in a Send to the server learns of it if the client's Conn knows of it
//     (HungUp), and gives up when the server takes nothing for some seconds
//     more; else it learns of it only by ctx: whoever knows that the client has
//     gone should end ctx too.
//   - A subscriptions/listen of 2026-07-28 is not waited for: when any of this
//     happens it is cancelled at the server, and ends with its result for a
//     client that is still there (ST13). It has no RequestTimeout.
//   - When ctx is a Guest's, its Lobby knows what the server owes: only a session
//     in which nothing but subscriptions is open is ended for another party.
//   - When server is a Mux's Conn, or wraps one, and the client leaves too much
//     unread, nobody waits for the client any more: ErrSlow is returned (D.2).
//
// A response that nobody waits for is dropped (J12), except that an id which
// is the same JSON value in another spelling finds its request and gets back
// the spelling that was asked with; so do progress tokens and cancellations.
func Pump(ctx context.Context, toClient, toServer Conn, opts PumpOptions) error {
	client, server := Pull(toClient), Pull(toServer)
	p := &pump{client: client, server: server, try: TrySender(server), opts: opts}
	p.toServer.init(maxUnanswered)
	p.toClient.init(maxUnanswered)
	if opts.Budget != nil {
		p.toServer.share = opts.Budget.Share(Party(ctx))
		defer p.toServer.share.Free()
	}
	return p.run(ctx)
}

type pump struct {
	client, server PullConn
	try            func(jsonrpc.Message) bool // TrySender of server
	opts           PumpOptions
	ctx            context.Context            // of the conversation; done when it is over
	toServer       ledger                     // the client's requests, owed by the server
	toClient       ledger                     // the server's requests, owed by the client
	admitted       bool                       // what fromClient gets was entered into the books by admitter
	entered        jsonrpc.Message            // by taker into the books: fromServer sends it
	tryClient      func(jsonrpc.Message) bool // TrySender of client, where that gains something; fromServer's
	lateness       sync.WaitGroup             // what waits for a grace to be over

	// deaf is true after the server did not take a refusal in time: who floods
	// us with requests and does not read must not make its own output wait
	// for each of them. It is false again once the server has taken something.
	deaf atomic.Bool

	// unheard is true once all subscriptions (subscriptions/listen) were ended:
	// what the server still says about them reaches nobody.
	unheard atomic.Bool

	endText string // what clients are told of the server's end; set before toServer is shut
	endData []byte

	recv     context.Context         // of receiving from the client
	stopRecv context.CancelCauseFunc // with why, when the client is known to be gone
}

var errServerEnded = errors.New("the server has ended the conversation")

// errDrained ends both directions in an orderly way.
var errDrained = errors.New("conversation over")

func (p *pump) run(parent context.Context) error {
	// The copying goes on for a while after parent is done, so it has a
	// context of its own; the cause tells the directions why they stop.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	p.ctx = ctx
	defer p.toServer.wait()
	defer p.lateness.Wait()
	defer cancel(nil)
	unwatch, watched := InUse(parent, p.toServer.inProgress)
	defer unwatch()
	if watched {
		p.toServer.watch()
	}
	OnSlow(p.server, func() { cancel(ErrSlow) })
	late, stop := p.late(ctx, parent)
	defer stop()
	p.recv, p.stopRecv = context.WithCancelCause(late)
	defer p.stopRecv(nil)
	defer context.AfterFunc(parent, func() { p.stopRecv(errStopped) })()

	var wg sync.WaitGroup
	var clientErr error
	wg.Go(func() {
		if clientErr = p.fromClient(late); clientErr == errServerEnded {
			return // what is owed is being answered
		}
		p.clientEnded(ctx, late, clientErr)
		cancel(errDrained)
	})
	serverErr := p.fromServer(ctx)
	serverEnded := context.Cause(ctx) == nil
	if serverEnded {
		// First, nothing more is taken. What the client sends once it knows
		// is for its transport to refuse: no server has seen it.
		p.stopRecv(errServerEnded)
		p.fail(ctx, serverErr)
	}
	cancel(errDrained)
	wg.Wait()
	switch {
	case context.Cause(ctx) == ErrSlow:
		return ErrSlow
	case serverEnded:
		if errors.Is(serverErr, io.EOF) {
			return errServerEnded
		}
		return serverErr
	case clientErr != nil && !over(clientErr):
		return fmt.Errorf("client: %w", clientErr)
	}
	return nil
}

// over reports whether the client's direction ended in an orderly way.
func over(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, errStopped) || errors.Is(err, errHungUp) || errors.Is(err, context.Canceled)
}

// errStopped says that the client's direction ended because Pump's ctx is done.
var errStopped = errors.New("stopped")

// late returns a context that is done a grace after parent is, when waiting
// must have an end; stop ends it at once.
func (p *pump) late(ctx, parent context.Context) (late context.Context, stop func()) {
	late, cancel := context.WithCancel(ctx)
	p.lateness.Add(1)
	unused := context.AfterFunc(parent, func() {
		defer p.lateness.Done()
		defer cancel()
		p.opts.awaitGrace(late.Done())
	})
	return late, func() {
		if unused() {
			p.lateness.Done()
		}
		cancel()
	}
}

// grace returns the Grace as it is now.
func (o PumpOptions) grace() time.Duration {
	if o.GraceNow != nil {
		return o.GraceNow()
	}
	return orDefault(o.Grace, DefaultGrace)
}

// awaitGrace waits for as long as what is owed may take once ctx is done, or
// until done is closed.
func (o PumpOptions) awaitGrace(done <-chan struct{}) {
	d := o.grace()
	if d <= 0 {
		return
	}
	end := time.Now().Add(d)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return
	case <-done:
		return
	case <-o.Shutdown:
		t.Reset(min(time.Until(end), orDefault(o.Grace, DefaultGrace)))
	}
	select {
	case <-t.C:
	case <-done:
	}
}

func orDefault(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}

// fromClient copies from the client to the server until the client ends or
// Pump's ctx is done. What it waits for ends with ctx.
func (p *pump) fromClient(ctx context.Context) error {
	sendCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := newLookout(p.client, cancel)
	defer watch.stop()
	take := p.admitter()
	from, _ := p.client.(Offerer) // Offer would look for it with each message
	for {
		var m jsonrpc.Message
		var err error
		if from != nil && take != nil {
			m, err = from.Offer(p.recv, take)
		} else {
			m, err = p.client.Recv(p.recv)
		}
		if err != nil {
			if p.recv.Err() != nil && errors.Is(err, context.Canceled) {
				return context.Cause(p.recv)
			}
			return err
		}
		tried := p.admitted
		p.admitted = false
		if !tried {
			var ok bool
			if m, ok = p.admit(ctx, m); !ok {
				continue
			}
		}
		if tried || p.try == nil || !p.try(m) {
			err = watch.send(sendCtx, p.server, m)
		}
		if err == nil {
			p.hears()
		}
		if err != nil {
			switch {
			case ctx.Err() != nil:
				return errStopped
			case err == errHungUp:
				return err
			}
			// A server that takes nothing more is as good as gone. Its
			// Recv says what became of it, if it still can say anything.
			p.reject(ctx, m, err)
		}
	}
}

// hears says that the server has taken something.
func (p *pump) hears() {
	if p.deaf.Load() {
		p.deaf.Store(false)
	}
}

// admit enters a client's message into the books. It reports whether the
// server is to get it, and in what spelling.
func (p *pump) admit(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, bool) {
	switch m.Kind() {
	case jsonrpc.Request:
		c := p.newCall(m)
		switch err := p.toServer.open(c); err {
		case nil:
		case errShut:
			p.tooLate(ctx, c.id)
			return m, false
		case say.ErrTooMany:
			p.answer(ctx, c.id, jsonrpc.CodeInternalError, err.Error(), nil)
			return m, false
		case errTooMuch:
			p.answer(ctx, c.id, jsonrpc.CodeInternalError, err.Error(), say.Busy)
			return m, false
		default: // J3
			p.answer(ctx, c.id, jsonrpc.CodeInvalidRequest, err.Error(), nil)
			return m, false
		}
		p.arm(c)
	case jsonrpc.Notification:
		switch m.Method() {
		case say.Progress:
			return p.withToken(m, &p.toClient, 0)
		case say.Cancelled:
			if method, ok := p.toServer.method(m.RequestID()); !ok || method == "initialize" { // J11, J12
				p.drop(m, "cancels no request that can be cancelled")
				return m, false
			}
			return closing(m, &p.toServer), true
		}
	case jsonrpc.Response:
		id, ok := p.toClient.answered(m.ID())
		if !ok {
			p.drop(m, "answers no request of the server")
			return m, false
		}
		if id != m.ID() {
			m = m.WithID(id)
		}
	}
	return m, true
}

// newCall is newCall for a client's request, all of which the server's side may keep.
func (p *pump) newCall(m jsonrpc.Message) *call {
	c := newCall(m)
	switch size := m.Size(); {
	case c.method == "initialize": // who makes a lost session anew has to say it again
		c.size, c.lasts = c.size+size, true
	case c.method == say.Listen, size > budget.Free:
		c.size += kept(p.server, &m)
	}
	return c
}

// withToken returns a progress notification with the token as it was asked
// with. It starts the time-out of the request anew. Progress of a request that
// is over, or was cancelled, or of none, reaches nobody (J12, J13).
func (p *pump) withToken(m jsonrpc.Message, l *ledger, timeout time.Duration) (jsonrpc.Message, bool) {
	token := m.ProgressToken()
	asked, ok := l.progress(token, timeout)
	if !ok || token.IsZero() {
		p.drop(m, "progress of no request that is in progress")
		return m, false
	}
	if asked != token {
		m = m.WithProgressToken(asked)
	}
	return m, true
}

// closing takes the request that a cancellation is about out of the books, and
// returns the cancellation with its id as it was asked with.
func closing(m jsonrpc.Message, l *ledger) jsonrpc.Message {
	id := m.RequestID()
	if asked, ok := l.close(id); ok && asked != id {
		return m.WithRequestID(asked)
	}
	return m
}

// fromServer copies from the server to the client until the server ends.
func (p *pump) fromServer(ctx context.Context) error {
	try := TrySender(p.client)
	take := p.taker(ctx, try)
	if !SendsItself(p.client) { // else what is not taken is sent
		p.tryClient = try
	}
	from, _ := p.server.(Offerer) // as in fromClient
	for {
		var m jsonrpc.Message
		var err error
		if from != nil {
			m, err = from.Offer(ctx, take)
		} else {
			m, err = p.server.Recv(ctx)
		}
		switch {
		case err != nil:
			return err
		case p.entered.Kind() != jsonrpc.Invalid:
			m, p.entered = p.entered, jsonrpc.Message{}
			p.send(ctx, m)
		default:
			p.pass(ctx, m)
		}
	}
}

// pass copies a message from the server to the client.
func (p *pump) pass(ctx context.Context, m jsonrpc.Message) {
	if m, ok := p.returned(ctx, m); ok {
		p.send(ctx, m)
	}
}

// send sends the client a message that is in the books.
func (p *pump) send(ctx context.Context, m jsonrpc.Message) {
	var err error
	if m.Kind() != jsonrpc.Response || p.tryClient == nil || !p.tryClient(m) { // some Conns have a goroutine that writes what was sent
		err = p.client.Send(ctx, m)
	}
	if err != nil {
		p.drop(m, "the client did not take it")
	}
	switch {
	case m.Kind() == jsonrpc.Response:
		p.toServer.settled()
	case m.Kind() == jsonrpc.Request && err != nil:
		if id, ok := p.toClient.close(m.ID()); ok {
			p.refuse(ctx, id, jsonrpc.CodeInternalError, "the client did not take the request")
		}
	}
	if err != nil && ctx.Err() == nil {
		p.stopRecv(err) // it takes nothing more: it is gone
	}
}

// returned enters a server's message into the books. It reports whether the
// client is to get it, and in what spelling. A response that it is to get
// must be settled afterwards.
func (p *pump) returned(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, bool) {
	switch m.Kind() {
	case jsonrpc.Response:
		id, ok := p.toServer.take(m.ID())
		if !ok {
			p.drop(m, "answers no request that is in progress")
			return m, false
		}
		if id != m.ID() {
			m = m.WithID(id)
		}
	case jsonrpc.Request:
		if err := p.toClient.open(newCall(m)); err != nil {
			p.refuse(ctx, m.ID(), jsonrpc.CodeInternalError, err.Error())
			return m, false
		}
	case jsonrpc.Notification:
		switch m.Method() {
		case say.Progress:
			return p.withToken(m, &p.toServer, p.opts.RequestTimeout)
		case say.Cancelled:
			if asked, ok := p.toServer.endListen(m.RequestID()); ok { // ST13
				return m.WithRequestID(asked), true
			}
			m = closing(m, &p.toClient)
		}
		if p.unheard.Load() && !say.SubscriptionOf(m).IsZero() {
			p.drop(m, "belongs to a subscription that is over")
			return m, false
		}
	}
	return m, true
}

// clientEnded runs when nothing more comes from the client. It lets the
// server finish what it owes, where somebody still waits for it.
func (p *pump) clientEnded(ctx, late context.Context, err error) {
	if ctx.Err() != nil { // the server ended first
		return
	}
	// Nobody answers the server's requests any more; it must not wait for it.
	p.farewell(ctx, p.toClient.shut(false), func(ctx context.Context, c *call) {
		p.refuse(ctx, c.id, jsonrpc.CodeInternalError, errShut.Error())
	})
	p.endListens(ctx, over(err))
	if over(err) && err != errHungUp {
		p.drain(late, errors.Is(err, io.EOF))
	}
	if ctx.Err() != nil {
		return
	}
	left := p.toServer.shut(false)
	p.farewell(ctx, left, func(ctx context.Context, c *call) {
		if c.method != "initialize" {
			p.cancelAtServer(ctx, c.id, "the client has gone")
		}
	})
	if over(err) {
		text, data := ErrClosing.Error(), say.ShuttingDown
		if err == errHungUp {
			text, data = err.Error(), say.TimedOut
		}
		p.farewell(ctx, left, func(ctx context.Context, c *call) {
			p.answer(ctx, c.id, jsonrpc.CodeInternalError, text, data)
		})
	}
}

// endListens ends the client's open subscriptions. Nobody waits for what they
// still might say: the server may be silent on them for ever.
func (p *pump) endListens(ctx context.Context, listening bool) {
	p.unheard.Store(true)
	open := p.toServer.takeListens()
	p.farewell(ctx, open, func(ctx context.Context, c *call) {
		p.cancelAtServer(ctx, c.id, "the client has gone")
	})
	p.farewell(ctx, open, func(ctx context.Context, c *call) {
		if listening {
			p.endListen(ctx, c.id)
		}
		p.toServer.settled()
	})
}

// farewell says something (part) about each of calls, to a side that may be stuck:
// all of it together takes a bounded time.
func (p *pump) farewell(ctx context.Context, calls []*call, part func(ctx context.Context, c *call)) {
	ctx, cancel := context.WithTimeout(ctx, say.MaxWait)
	defer cancel()
	for _, c := range calls {
		part(ctx, c)
	}
}

// drain waits until the server owes nothing or late is done; after the
// client's end, for no more than Drain.
func (p *pump) drain(late context.Context, clientEnd bool) {
	var enough <-chan time.Time
	if d := orDefault(p.opts.Drain, DefaultDrain); clientEnd {
		if d < 0 {
			return
		}
		t := time.NewTimer(d)
		defer t.Stop()
		enough = t.C
	}
	gone, drained := p.recv.Done(), p.toServer.drained()
	owing := time.NewTimer(owingAfter)
	defer owing.Stop()
	for {
		select {
		case <-owing.C:
			if p.opts.Owing != nil {
				p.opts.Owing(p.toServer.owed())
			}
			continue
		case <-gone:
			if why := context.Cause(p.recv); over(why) || why == errServerEnded {
				gone = nil // told to stop, but somebody still listens
				continue
			}
		case <-drained:
		case <-enough:
		case <-late.Done():
		}
		return
	}
}

// fail answers everything the server owes once it has ended.
func (p *pump) fail(ctx context.Context, err error) {
	text, data := say.Ending(err)
	p.endText, p.endData = text, data
	for _, c := range p.toServer.shut(true) {
		if c.method == say.Listen {
			p.endListen(ctx, c.id)
		} else {
			p.answer(ctx, c.id, jsonrpc.CodeInternalError, text, data)
		}
		p.toServer.settled()
	}
}

// tooLate answers a request that the client has sent before it could know that the
// server has ended. fromClient waits for nothing else any more.
func (p *pump) tooLate(ctx context.Context, id jsonrpc.ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), say.MaxWait)
	defer cancel()
	p.answer(ctx, id, jsonrpc.CodeInternalError, p.endText, p.endData)
}

// endListen ends a client's open subscription gracefully (ST13).
func (p *pump) endListen(ctx context.Context, id jsonrpc.ID) {
	result, cancelled := say.ListenEnd(id)
	for _, m := range []jsonrpc.Message{result, cancelled} {
		if err := p.client.Send(ctx, m); err != nil {
			p.drop(m, "the client did not take it")
		}
	}
}

// answer sends the client an error of the bridge's own.
func (p *pump) answer(ctx context.Context, id jsonrpc.ID, code int, text string, data []byte) {
	m := jsonrpc.NewError(id, code, text, data)
	if err := p.client.Send(ctx, m); err != nil {
		p.drop(m, "the client did not take it")
	}
}

// refuse sends the server an error in the client's place.
func (p *pump) refuse(ctx context.Context, id jsonrpc.ID, code int, text string) {
	ctx, cancel := context.WithTimeout(ctx, say.MaxWait)
	defer cancel()
	m := jsonrpc.NewError(id, code, text, nil)
	if p.deaf.Load() {
		p.drop(m, "the server takes nothing")
		return
	}
	if err := p.server.Send(ctx, m); err != nil {
		p.deaf.Store(true)
		p.drop(m, "the server did not take it")
	}
}

// reject answers a message that the server did not take. A server that is
// ending says so in the other direction in a moment, and better.
func (p *pump) reject(ctx context.Context, m jsonrpc.Message, err error) {
	if m.Kind() != jsonrpc.Request {
		p.drop(m, "the server did not take it")
		return
	}
	t := time.NewTimer(say.MaxWait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return
	case <-t.C:
	}
	if _, ok := p.toServer.close(m.ID()); ok {
		p.answer(ctx, m.ID(), jsonrpc.CodeInternalError, "the server did not take the request: "+err.Error(), say.ServerEnded)
	}
}

// cancelAtServer tells the server that nobody waits for a request any more.
func (p *pump) cancelAtServer(ctx context.Context, id jsonrpc.ID, why string) {
	ctx, cancel := context.WithTimeout(ctx, say.MaxWait)
	defer cancel()
	m := say.Cancellation(id, why)
	if err := p.server.Send(ctx, m); err != nil {
		p.drop(m, "the server did not take it")
	}
}

// arm starts the time-out of a request (J8). A subscription has none.
func (p *pump) arm(c *call) {
	if p.opts.RequestTimeout <= 0 || c.method == say.Listen {
		return
	}
	p.toServer.arm(c, p.opts.RequestTimeout, func() {
		if c.method != "initialize" {
			p.cancelAtServer(p.ctx, c.id, "timed out")
		}
		within := p.opts.RequestTimeout
		if !time.Now().Before(c.deadline) {
			within *= maxRenewal
		}
		p.answer(p.ctx, c.id, jsonrpc.CodeInternalError, fmt.Sprintf("the server did not answer within %v", within), say.TimedOut)
	})
}

func (p *pump) drop(m jsonrpc.Message, reason string) {
	if p.opts.Dropped != nil {
		p.opts.Dropped(m, reason)
	}
}
