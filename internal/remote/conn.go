package remote

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/sessionstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// errClosed is the error of a conn that was closed.
var errClosed = errors.New("remote: the connection is closed")

// conn is a Conn to a server that may speak either of two transports (LE13).
//
// It passes everything on to a Conn of the one that is tried first, its transportConn.
// When that ends because the server speaks another transport, conn goes over
// to a transportConn of the other one and gives it the requests that are still without
// an answer: the client's initialize, in the main. What is sent meanwhile waits.
// If the server does not speak the other one either, the client gets the error
// of the first attempt, with a word on the second, and may initialize again,
// which begins anew.
//
// A server may change in mid-session. Then the transportConn ends when it fails to renew
// the session, and leaves a handoff: the other transportConn begins by renewing that
// session, and goes the same way if it is refused too, so that the transportConns take
// turns, at growing intervals, until one is taken.
//
// Its goroutines are two for each time that it goes over, awaited by Close:
// one closes the transportConn that is left, the other one sends to the new one.
type conn struct {
	dialer    *Dialer            // the Dialer that has made the conn
	ctx       context.Context    // has the values of the ctx of Dial; done when Close begins
	cancel    context.CancelFunc // ends ctx
	wg        sync.WaitGroup     // counts the goroutines
	closeOnce sync.Once          // lets Close do its work once

	mu             sync.Mutex        // guards what follows and is never held while waiting
	closed         bool              // Close has begun
	current        *transportConn    // the one to which messages go now
	openRequests   []*request        // the requests without an answer that the next transportConn would have to be sent again; mostly none
	pendingAnswers []jsonrpc.Message // error responses to requests which both transports have refused, for Receive to hand on
}

// transportConn is a Conn of one transport.
type transportConn struct {
	bridge.Conn
	transport transport     // the transport that it speaks
	ready     chan struct{} // closed when messages other than those that are sent again may be sent
	replaced  chan struct{} // closed when another transportConn has taken its place

	refused            bool // it is over, because the server does not speak its transport; another one takes its place; guarded by mu of conn
	initializeAnswered bool // the server has answered an initialize with a result: over this transport, or, where a session is to be renewed (handoff), over the other one; guarded by mu of conn
}

// request is a request of the client that is not answered yet.
type request struct {
	m    jsonrpc.Message // the request
	sent chan struct{}   // closed when the Send that was called with m returns

	// firstRefusal is why the transportConn that m was sent to first was refused; nil: none was.
	firstRefusal *httpdial.Fault
}

// closedChannel is the request.sent of a request whose Send has returned.
var closedChannel = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// newConn returns a conn to the server of d, with a transportConn of the transport that is tried first. It keeps the values of
// ctx, and not its end.
func newConn(ctx context.Context, d *Dialer) (*conn, error) {
	c := &conn{dialer: d}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	first, err := c.dial(d.firstTransport(), nil)
	if err != nil {
		c.cancel()
		return nil, err
	}
	close(first.ready)
	c.current = first
	return c, nil
}

// dial makes a transportConn for transport t. That takes no time: no Dial waits for the network. The ctx
// of conn tells the transportConn which session it is for, so that its HTTP exchanges are observed.
// handoff is the session to renew, whose initialize was answered long ago; nil: there is none.
func (c *conn) dial(t transport, handoff *sessionstate.Handoff) (*transportConn, error) {
	inner, err := c.dialer.dialerFor(t, true, handoff).Dial(context.WithoutCancel(c.ctx))
	if err != nil {
		return nil, err
	}
	l := &transportConn{transport: t, ready: make(chan struct{}), replaced: make(chan struct{}), initializeAnswered: handoff != nil}
	l.Conn = bridge.Intercept(inner, bridge.Hooks{Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) {
		if m.Kind() == jsonrpc.Response {
			*m = c.checkResponse(l, *m)
		}
		return nil
	}})
	return l, nil
}

// wait waits until ch is closed. The error says that ctx is done (ctx.Err), or that the conn is closed (errClosed).
func (c *conn) wait(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-ch: // mostly so
		return nil
	default:
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return errClosed
	}
}

// Send hands m to the server. While it is being found out which transport the
// server speaks, Send waits, and needs Receive to be called.
func (c *conn) Send(ctx context.Context, m jsonrpc.Message) error {
	var r *request
	for {
		c.mu.Lock()
		l := c.current
		if m.Kind() == jsonrpc.Request && (!l.initializeAnswered || m.Method() == "initialize") {
			r = &request{m: m, sent: make(chan struct{})}
			c.openRequests = append(c.openRequests, r)
		}
		c.mu.Unlock()
		if r != nil {
			return c.sendRequest(ctx, l, r)
		}
		err := c.sendTo(ctx, l, m)
		if err == nil || !c.mustSwitch(ctx, l, err) {
			return err
		}
		if err := c.wait(ctx, l.replaced); err != nil {
			return err
		}
	}
}

// sendRequest sends r, a request that is in openRequests, to l. If l is refused, it returns nil: the next
// transportConn gets the request. After another error, which it returns, r is not in openRequests any more.
func (c *conn) sendRequest(ctx context.Context, l *transportConn, r *request) error {
	defer close(r.sent)
	err := c.sendTo(ctx, l, r.m)
	if err == nil || c.mustSwitch(ctx, l, err) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.openRequests = slices.DeleteFunc(c.openRequests, func(other *request) bool { return other == r })
	return err
}

// sendTo sends m to l, as soon as l is ready.
func (c *conn) sendTo(ctx context.Context, l *transportConn, m jsonrpc.Message) error {
	if err := c.wait(ctx, l.ready); err != nil {
		return err
	}
	return l.Send(ctx, m)
}

// mustSwitch reports whether a Send to l has failed with err because l was refused: then the caller has to
// wait for the next transportConn.
func (c *conn) mustSwitch(ctx context.Context, l *transportConn, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (l.refused || wrongTransportFault(err) != nil) && !c.closed && ctx.Err() == nil
}

// TrySend implements bridge.Conn. It takes only what the next transportConn would not have to be sent
// again if the current one is refused: once initialize was answered, all but another initialize.
func (c *conn) TrySend(m jsonrpc.Message) bool {
	c.mu.Lock()
	l := c.current
	open := l.initializeAnswered && !l.refused && m.Method() != "initialize"
	c.mu.Unlock()
	if !open {
		return false
	}
	select {
	case <-l.ready:
		return l.TrySend(m)
	default:
		return false
	}
}

// Receive hands on what the server sends. It is here that conn goes over to another transportConn: when the
// server has refused the transport of the one before, and all was received that this one had to say. With any
// other error of a transportConn it ends.
func (c *conn) Receive(ctx context.Context, sink bridge.Sink) error {
	for {
		if err := c.deliverAnswers(ctx, sink); err != nil {
			return err
		}
		c.mu.Lock()
		l := c.current
		c.mu.Unlock()
		err := l.Receive(ctx, sink)
		fault := wrongTransportFault(err)
		if fault == nil {
			return err
		}
		c.noteUnsent(unsentOf(err))
		if err := c.switchTransport(ctx, l, fault, handoffOf(err)); err != nil {
			return err
		}
	}
}

// noteUnsent enters requests into openRequests that a transportConn had taken but not sent when it was refused, unless they are
// there: the next transportConn gets them.
func (c *conn) noteUnsent(unsent []jsonrpc.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range unsent {
		if !slices.ContainsFunc(c.openRequests, func(r *request) bool { return r.m.ID() == m.ID() }) {
			c.openRequests = append(c.openRequests, &request{m: m, sent: closedChannel})
		}
	}
}

// deliverAnswers hands pendingAnswers to sink, and takes them out.
func (c *conn) deliverAnswers(ctx context.Context, sink bridge.Sink) error {
	for {
		c.mu.Lock()
		var m jsonrpc.Message
		if len(c.pendingAnswers) > 0 {
			m = c.pendingAnswers[0]
		}
		c.mu.Unlock()
		if m.Kind() == jsonrpc.Invalid {
			return nil
		}
		if err := sink.Send(ctx, m); err != nil {
			return err
		}
		c.mu.Lock()
		c.pendingAnswers = c.pendingAnswers[1:]
		c.mu.Unlock()
	}
}

// switchTransport replaces the current transportConn, old, which the server has refused with the fault, by
// one of the other transport. handoff is the session to renew there; nil: the refusal was not in
// mid-session.
func (c *conn) switchTransport(ctx context.Context, old *transportConn, fault *httpdial.Fault, handoff *sessionstate.Handoff) error {
	if err := c.retire(old); err != nil {
		return err
	}
	for {
		c.mu.Lock()
		open := slices.Clone(c.openRequests)
		c.mu.Unlock()
		for _, r := range open { // which does not take long: the transportConn is being closed
			if err := c.wait(ctx, r.sent); err != nil {
				return err
			}
		}
		next := old.transport.alternative()
		if slices.ContainsFunc(open, func(r *request) bool { return r.firstRefusal != nil }) {
			next = c.dialer.firstTransport() // both were refused: the next initialize begins anew
		}
		if slices.ContainsFunc(open, func(r *request) bool { return r.m.Method() == "initialize" }) {
			handoff = nil // the client begins anew itself
		}
		l, err := c.dial(next, handoff)
		if err != nil {
			return err
		}
		ok, err := c.replaceConn(old, l, open, fault)
		if ok {
			return nil
		}
		_ = l.Close(nil)
		if err != nil {
			return err
		}
		// Another request has come meanwhile, or one was given up.
	}
}

// retire marks a transportConn as refused, and closes it in a goroutine, so that Sends which wait in it return. The error
// says that the conn is closed (errClosed).
func (c *conn) retire(l *transportConn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed
	case !l.refused:
		l.refused = true
		c.wg.Go(func() { _ = l.Close(nil) })
	}
	return nil
}

// replaceConn makes l the current transportConn, in the place of old, which was refused with the fault.
// Of the open requests, those that were refused for the first time are sent to l, the others are answered.
// ok is false if nothing was done: the open requests are others than open by now, or, with errClosed, the conn is closed.
func (c *conn) replaceConn(old, l *transportConn, open []*request, fault *httpdial.Fault) (ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, errClosed
	}
	if !slices.Equal(c.openRequests, open) {
		return false, nil
	}
	c.openRequests = nil
	for _, r := range open {
		if r.firstRefusal != nil {
			c.pendingAnswers = append(c.pendingAnswers, r.bothRefusedResponse(old.transport, fault.Text))
			continue
		}
		r.firstRefusal = fault
		c.openRequests = append(c.openRequests, r)
	}
	again := slices.Clone(c.openRequests)
	c.current = l
	close(old.replaced)
	c.wg.Go(func() { c.resend(l, again) })
	tell := c.dialer.log().Info
	if !l.initializeAnswered { // at the beginning, where the transport that is found is told (found), or an error
		tell = c.dialer.log().Debug
	}
	tell("the server does not speak "+old.transport.String(), "status", fault.Status, "next", l.transport.String())
	return true, nil
}

// resend sends the requests in again to l, and lets other messages pass once an initialize among them is
// on its way: what is needed for its answer must not wait.
func (c *conn) resend(l *transportConn, again []*request) {
	ready := sync.OnceFunc(func() { close(l.ready) })
	defer ready()
	for _, r := range again {
		// If l does not take it, its Receive says so, and why.
		_ = l.Send(c.ctx, r.m)
		if r.m.Method() == "initialize" {
			ready()
		}
	}
}

// checkResponse returns the response m of l as the client gets it, and notes that a request is answered:
// a result of initialize says that the server speaks the transport. An error of l about a request that
// another transport has refused before gets the error of that one, too.
func (c *conn) checkResponse(l *transportConn, m jsonrpc.Message) jsonrpc.Message {
	c.mu.Lock()
	i := slices.IndexFunc(c.openRequests, func(r *request) bool { return r.m.ID().Equivalent(m.ID()) })
	if i < 0 {
		c.mu.Unlock()
		return m
	}
	r := c.openRequests[i]
	c.openRequests = slices.Delete(c.openRequests, i, i+1)
	opened := r.m.Method() == "initialize" && !m.IsError()
	if opened {
		l.initializeAnswered = true
	}
	c.mu.Unlock()
	if opened {
		c.dialer.noteTransport(l.transport)
	}
	if text := c.ownErrorText(m); r.firstRefusal != nil && text != "" {
		return r.bothRefusedResponse(l.transport, text)
	}
	return m
}

// ownErrorText returns the text of an error response that the transportConn itself has made (C.7); "": m
// is the server's. A server that is a bridge, too, makes such errors, but they name another server.
func (c *conn) ownErrorText(m jsonrpc.Message) (text string) {
	if string(m.Lookup("error", "code")) != "-32603" || m.Lookup("error", "data", "reason") == nil {
		return ""
	}
	_ = json.Unmarshal(m.Lookup("error", "message"), &text) // an error that is ours has one
	if u, err := httpdial.ParseURL(c.dialer.URL, "http", "https"); err != nil || !strings.Contains(text, u.Scheme+"://"+u.Host) {
		return ""
	}
	return text
}

// bothRefusedResponse returns the error for a request that both transports have refused: that of the first
// attempt, and what has become of the one over the transport second, as text says. If the first one was
// answered with an error of the server's own, that is the error.
func (r *request) bothRefusedResponse(second transport, text string) jsonrpc.Message {
	f := *r.firstRefusal
	outcome := ": " + text
	if rest, same := cutSameAnswer(f.Text, text); same {
		outcome = ", with the same answer"
		if rest != "" {
			outcome += ". " + rest
		}
	}
	f.Text = httpdial.AppendSentence(f.Text, second.String()+" was tried too"+outcome)
	return f.Response(r.m.ID())
}

// cutSameAnswer returns what the error text second says beyond first, if both begin with the same answer of the server. same is false
// if they do not.
func cutSameAnswer(first, second string) (rest string, same bool) {
	if first == second {
		return "", true
	}
	n := 0
	for n < min(len(first), len(second)) && first[n] == second[n] {
		n++
	}
	_, answer, found := strings.Cut(second[:n], " answered ")
	end := max(strings.LastIndex(answer, ": "), strings.LastIndex(answer, "? ")) // where the words about the answer begin to differ
	if !found || end < 0 {
		return "", false
	}
	return second[n-len(answer)+end+2:], true
}

// Close ends the conversation and returns when everything that the Conn has
// started has ended. The error is that with which the transportConn was closed; of
// further calls it is nil.
func (c *conn) Close(reason error) error {
	var err error
	c.closeOnce.Do(func() {
		c.mu.Lock()
		c.closed = true
		l := c.current
		c.mu.Unlock()
		c.cancel()
		err = l.Close(reason)
		c.wg.Wait()
	})
	return err
}
