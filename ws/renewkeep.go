package ws

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	renewSteady     = 10 * time.Second // a connection that has lived so long was no failure
	renewInitialize = time.Minute      // how long the answer to initialize may take
	renewRestore    = 10 * time.Second // for subscriptions and log level of a new session
	mostRetryAfter  = time.Minute      // of what the server says, how much is waited for
	mostEarly       = 1000             // messages of a server that come before it has initialized
)

// keep makes a connection, and another one when that is lost, until there is
// no use in it any more.
func (r *renewer) keep() {
	failures := 0 // in a row
	for {
		l, waiting, early, f := r.connect()
		again := false
		if f != nil {
			again = r.notConnected(waiting, f, failures)
		} else if again = !r.install(l, waiting); again {
			_ = l.conn.Close() // the client has begun anew
		} else {
			began := time.Now()
			f = r.relay(l, early)
			_ = l.conn.Close()
			if time.Since(began) >= renewSteady {
				failures = 0
			}
			again = r.lose(l, f, failures)
		}
		if !again {
			return
		}
		r.pause()
		failures++
	}
}

// connect makes one attempt; waiting is what messages wait for, nil: none do.
// Where the client takes a session for granted, it initializes in its place;
// early is what the server has said meanwhile, or might have (ST9).
func (r *renewer) connect() (l *link, waiting *attempt, early []jsonrpc.Message, f *httpdial.Fault) {
	r.mu.Lock()
	waiting = r.st.attempt
	resume := r.st.resume
	r.mu.Unlock()
	conn, err := r.open(r.ctx)
	if err != nil {
		return nil, waiting, nil, fault(err, r.opts.Where)
	}
	l = &link{conn: conn, told: resume}
	if !resume {
		return l, waiting, nil, nil
	}
	p := &replay{r: r, conn: conn}
	if f = p.run(); f != nil {
		_ = conn.Close()
		return nil, waiting, nil, f
	}
	r.opts.Logger.Info("connected again", "url", r.opts.Where)
	return l, waiting, append(p.changed, p.early...), nil
}

// install makes l the connection that messages go to; false: the client has
// begun anew while the attempt was under way.
func (r *renewer) install(l *link, waiting *attempt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.st.attempt != waiting {
		r.st.next = time.Time{}
		return false
	}
	r.st.link, r.st.down = l, nil
	r.settle(nil)
	return true
}

// settle tells those who wait how the attempt has ended. r.mu is held.
func (r *renewer) settle(f *httpdial.Fault) {
	if a := r.st.attempt; a != nil {
		a.fault = f
		close(a.done)
		r.st.attempt = nil
	}
}

// notConnected deals with an attempt that has failed, and decides whether
// there is to be another one.
func (r *renewer) notConnected(waiting *attempt, f *httpdial.Fault, failures int) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return false
	}
	if r.st.attempt != waiting { // the client has begun anew
		r.st.next = time.Time{}
		return true
	}
	r.opts.Logger.Warn("cannot connect", append(f.Attrs(), "url", r.opts.Where)...)
	if !r.st.resume {
		if !f.Transient || r.opts.NoRenew || r.st.books.Initialize.Kind() != jsonrpc.Request {
			r.settle(f)
			r.st.keeper = false
			return false
		}
		// The client may never ask again: it gets a session all the same.
		r.st.resume = true
		more := *f
		more.Text = httpdial.Also(more.Text, "it is tried again for as long as the client stays")
		r.settle(&more)
	}
	r.putOff(f, failures)
	return true
}

// putOff has the next attempt wait. Nobody waits with it. r.mu is held.
func (r *renewer) putOff(f *httpdial.Fault, failures int) {
	r.settle(f)
	r.st.down = f
	r.st.next = time.Now().Add(max(httpdial.Backoff(failures), min(f.RetryAfter, mostRetryAfter)))
}

// pause waits for the next attempt, unless a client comes that wants it now.
func (r *renewer) pause() {
	r.mu.Lock()
	wait := time.Until(r.st.next)
	r.mu.Unlock()
	if wait > 0 {
		httpdial.Pause(r.ctx, r.kick, wait)
	}
}

// relay hands on what comes over a connection, until it is lost.
func (r *renewer) relay(l *link, early []jsonrpc.Message) *httpdial.Fault {
	for _, m := range early {
		r.incoming(l, m)
	}
	for {
		m, err := l.conn.Recv(r.ctx)
		if err != nil {
			return fault(err, r.opts.Where)
		}
		r.incoming(l, m)
	}
}

func (r *renewer) incoming(l *link, m jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Response:
		r.claim(m)
	case jsonrpc.Request:
		tracked, ok := r.track(l, m)
		if !ok {
			e := jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError, "too many requests wait for the client's answers", nil)
			_ = l.conn.Send(r.ctx, e) // if it is lost, so is who asked
			return
		}
		m = tracked
	case jsonrpc.Notification:
		if m.Method() == "notifications/cancelled" {
			m = r.untrack(l, m)
		}
	}
	_ = r.push(r.ctx, r.in, m)
}

// lose deals with a connection that is lost: who waits for a response gets an
// error, and nobody waits any more for what the server has asked. It decides
// whether there is to be another connection.
func (r *renewer) lose(l *link, f *httpdial.Fault, failures int) (again bool) {
	r.mu.Lock()
	r.st.link = nil
	renew := r.st.resume && !r.opts.NoRenew
	if renew {
		r.st.attempt = newAttempt() // what comes now waits for it
	}
	calls := slices.Collect(maps.Keys(r.st.calls))
	clear(r.st.calls)
	withdrawn := r.st.books.Withdrawn(l, "the connection to the server was lost")
	r.mu.Unlock()
	if r.ctx.Err() != nil {
		return false
	}
	r.opts.Logger.Warn("the session is lost", "url", r.opts.Where, "reason", f.Reason)
	for _, id := range calls {
		_ = r.push(r.ctx, r.in, f.Response(id))
	}
	for _, m := range withdrawn {
		_ = r.push(r.ctx, r.in, m)
	}
	return r.goesOn(renew, f, failures)
}

// goesOn is the end of lose.
func (r *renewer) goesOn(renew bool, f *httpdial.Fault, failures int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.opts.NoRenew:
		r.st.lost = true
		r.settle(f)
		close(r.ended)
		return false
	case !renew && r.st.attempt == nil:
		r.st.keeper = false
		return false
	case renew && failures > 0: // it keeps breaking
		r.putOff(f, failures-1)
	default:
		r.st.next = time.Time{}
	}
	return true
}

// replay tells a new connection what the client has told the old one.
type replay struct {
	r    *renewer
	conn interface {
		Recv(ctx context.Context) (jsonrpc.Message, error)
		Send(ctx context.Context, m jsonrpc.Message) error
	}
	early   []jsonrpc.Message // what the server has sent meanwhile
	changed []jsonrpc.Message // what the client is told of the new session, with TellRenewed
}

// run initializes in the client's place, with the client's own words but
// another id, and restores log level and subscriptions (LE5).
func (p *replay) run() *httpdial.Fault {
	p.r.mu.Lock()
	initialize, initialized := p.r.st.books.Opening()
	settings := p.r.st.books.Settings()
	p.r.mu.Unlock()
	ctx, cancel := context.WithTimeout(p.r.ctx, renewInitialize)
	defer cancel()
	answer, err := p.ask(ctx, initialize)
	if err == nil && answer.IsError() {
		return &httpdial.Fault{Reason: httpdial.ReasonRefused, Own: answer, Text: p.r.opts.Where + " refused to initialize the session again"}
	}
	if err == nil {
		err = p.conn.Send(ctx, initialized)
	}
	if err != nil {
		return p.fault(err)
	}
	if p.r.opts.TellRenewed {
		p.r.mu.Lock()
		p.changed = p.r.st.books.Changed(answer)
		p.r.mu.Unlock()
	}
	ctx, cancel = context.WithTimeout(p.r.ctx, renewRestore)
	defer cancel()
	for _, m := range settings {
		answer, err := p.ask(ctx, m)
		if err != nil && ctx.Err() == nil {
			return p.fault(err)
		}
		if err != nil || answer.IsError() {
			p.r.opts.Logger.Warn("the new session did not take over a setting of the old one", "method", m.Method())
		}
	}
	return nil
}

func (p *replay) fault(err error) *httpdial.Fault {
	if errors.Is(err, context.DeadlineExceeded) {
		return &httpdial.Fault{Reason: httpdial.ReasonTimeout, Transient: true, Text: p.r.opts.Where + " did not answer initialize in time"}
	}
	return fault(err, p.r.opts.Where)
}

// ask makes a request of the bridge's own and waits for the response. Pings are answered, all else waits for the client.
func (p *replay) ask(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, error) {
	id := m.ID()
	if err := p.conn.Send(ctx, m); err != nil {
		return jsonrpc.Message{}, err
	}
	for {
		m, err := p.conn.Recv(ctx)
		switch {
		case err != nil:
			return m, err
		case m.Kind() == jsonrpc.Response && m.ID() == id:
			return m, nil
		case m.Kind() == jsonrpc.Request && m.Method() == "ping":
			if err := p.conn.Send(ctx, jsonrpc.NewResult(m.ID(), nil)); err != nil {
				return m, err
			}
		case len(p.early) < mostEarly:
			p.early = append(p.early, m)
		default:
			p.r.opts.Logger.Warn("message dropped: the server has sent too much before it has initialized", "method", m.Method())
		}
	}
}
