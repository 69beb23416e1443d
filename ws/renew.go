package ws

import (
	"context"
	"errors"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// renewOptions tune a renewer.
type renewOptions struct {
	Where       string // the server, for texts
	NoRenew     bool
	TellRenewed bool
	Logger      hclog.Logger
}

// renewer is the Conn that Client.Dial returns: a session with a server over
// one connection after the other. It knows nothing of WebSockets. One goroutine,
// the keeper, makes the connections and reads them; it runs from the first
// message on for as long as there is, or should be, a connection.
type renewer struct {
	open  func(ctx context.Context) (bridge.PullConn, error) // makes a connection; see fault
	clean func()                                             // called at the end of Close
	opts  renewOptions

	ctx    context.Context // done when Close begins
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once

	in    chan jsonrpc.Message // for Recv, by the keeper; unbuffered: each connection has a queue
	own   chan jsonrpc.Message // for Recv, by Send: errors of the bridge's own
	ended chan struct{}        // closed when Recv is to end with ErrSessionLost
	kick  chan struct{}        // ends the keeper's pause

	mu sync.Mutex // guards st and is never held while waiting
	st renewState
}

// ownQueue is how many errors of the bridge's own may wait for Recv.
const ownQueue = 64

var errDuplicate = errors.New("ws: a request with this id is already in progress")

func newRenewer(open func(ctx context.Context) (bridge.PullConn, error), clean func(), opts renewOptions) *renewer {
	r := &renewer{
		open: open, clean: clean, opts: opts,
		in: make(chan jsonrpc.Message), own: make(chan jsonrpc.Message, ownQueue), ended: make(chan struct{}), kick: make(chan struct{}, 1),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.st.calls = make(map[jsonrpc.ID]jsonrpc.Message)
	return r
}

// Recv implements bridge.PullConn.
func (r *renewer) Recv(ctx context.Context) (jsonrpc.Message, error) {
	if err := r.over(ctx); err != nil {
		return jsonrpc.Message{}, err
	}
	select {
	case m := <-r.in:
		return m, nil
	case m := <-r.own:
		return m, nil
	case <-ctx.Done():
		return jsonrpc.Message{}, ctx.Err()
	case <-r.ctx.Done():
		return jsonrpc.Message{}, errClosed
	case <-r.ended: // and with it the keeper
	}
	select {
	case m := <-r.own:
		return m, nil
	default:
		return jsonrpc.Message{}, ErrSessionLost
	}
}

// over returns why nothing may begin any more.
func (r *renewer) over(ctx context.Context) error {
	if r.ctx.Err() != nil {
		return errClosed
	}
	return ctx.Err()
}

// push hands a message to Recv, by way of to.
func (r *renewer) push(ctx context.Context, to chan<- jsonrpc.Message, m jsonrpc.Message) error {
	select {
	case to <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.ctx.Done():
		return errClosed
	}
}

// Send implements bridge.PullConn. It waits while a connection is being made, but
// for no more than one attempt.
func (r *renewer) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() == jsonrpc.Invalid {
		return errNoMessage
	}
	for {
		if err := r.over(ctx); err != nil {
			return err
		}
		e := r.enter(m)
		switch {
		case e.wait != nil:
			f, err := r.await(ctx, e.wait)
			if err != nil {
				return err
			}
			if f != nil {
				return r.refuse(ctx, m, f)
			}
		case e.link != nil:
			return r.sendOver(ctx, e.link, e.msg)
		case e.fault != nil:
			return r.refuse(ctx, m, e.fault)
		case e.drop != "":
			r.opts.Logger.Debug("message dropped: "+e.drop, "method", m.Method())
			return nil
		default:
			return e.err
		}
	}
}

// await returns how an attempt to connect has ended.
func (r *renewer) await(ctx context.Context, a *attempt) (*httpdial.Fault, error) {
	select {
	case <-a.done:
		return a.fault, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.ctx.Done():
		return nil, errClosed
	}
}

// refuse answers a request that there is no connection for.
func (r *renewer) refuse(ctx context.Context, m jsonrpc.Message, f *httpdial.Fault) error {
	if m.Kind() != jsonrpc.Request {
		r.opts.Logger.Debug("message dropped: there is no connection", "method", m.Method())
		return nil
	}
	r.opts.Logger.Debug("request refused", "method", m.Method(), "reason", f.Reason)
	return r.push(ctx, r.own, f.Response(m.ID()))
}

// sendOver sends over a connection. If that is lost, the keeper deals with it,
// and answers what is in the books.
func (r *renewer) sendOver(ctx context.Context, l *link, m jsonrpc.Message) error {
	err := l.conn.Send(ctx, m)
	switch {
	case err == nil:
		return nil
	case r.ctx.Err() != nil:
		return errClosed
	case ctx.Err() != nil:
		r.forget(m) // it was not sent
		return ctx.Err()
	}
	if m.Kind() != jsonrpc.Request {
		r.opts.Logger.Debug("message dropped: the connection was lost", "method", m.Method())
	}
	return nil
}

// Close implements bridge.PullConn. What was sent is delivered before, what is in
// progress gets no answer.
func (r *renewer) Close() error {
	r.once.Do(func() {
		r.mu.Lock()
		r.st.closed = true
		r.cancel()
		r.mu.Unlock()
		r.wg.Wait()
		r.clean()
	})
	return nil
}

// fault returns err, in which open and the Conns it makes say what is wrong.
func fault(err error, where string) *httpdial.Fault {
	var f *httpdial.Fault
	if errors.As(err, &f) {
		return f
	}
	return &httpdial.Fault{Reason: httpdial.ReasonBroken, Transient: true, Text: "the connection to " + where + " has ended: " + err.Error()}
}
