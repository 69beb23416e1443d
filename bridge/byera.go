package bridge

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/say"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ByEra returns a Handler for connections that may carry both eras (ST14,
// WS4): each request goes to the Handler of its own era, which for one without
// a modern claim is legacy. A Handler is started by the first message for it,
// and closes the client only when the other has done so, too. When one returns
// although the client has not ended, the other is told to stop.
//
// A cancellation goes where its request is; responses, and notifications
// without a claim, go to legacy if that runs, else to modern.
func ByEra(legacy, modern Handler) Handler {
	return HandlerFunc(func(ctx context.Context, conn Conn) error {
		client := Pull(conn)
		s := &split{client: client, parent: ctx, reading: make(chan struct{}, 1)}
		s.ctx, s.cancel = context.WithCancel(ctx)
		defer s.cancel()
		s.from, _ = client.(Offerer)
		for i, h := range []Handler{legacy, modern} {
			over, leave := context.WithCancel(context.Background())
			defer leave()
			half := &s.halves[i]
			half.split, half.handler, half.over, half.leaves = s, h, over, leave
			half.filled, half.room = make(chan struct{}, 1), make(chan struct{}, 1)
		}
		m, err := client.Recv(ctx)
		if err != nil {
			if over(err) {
				return nil
			}
			return err
		}
		s.mu.Lock()
		h := s.route(m)
		h.started = true
		h.early = append(h.early, m)
		s.mu.Unlock()
		err = h.run()
		s.wg.Wait()
		return errors.Join(err, s.otherErr)
	})
}

const (
	legacyHalf = iota
	modernHalf
)

// maxEarly is how many messages of one era wait for their Handler before the
// other era's have to wait, too.
const maxEarly = 16

// split shares one client's Conn between two Handlers. Whoever waits in Recv
// and has the turn reads the client, and puts aside what is for the other. As long
// as there is one, which mostly stays so, the turn is always its own.
type split struct {
	client  PullConn
	from    Offerer         // client; nil: it is none
	parent  context.Context // ServeConn's
	ctx     context.Context // the Handlers'
	cancel  context.CancelFunc
	reading chan struct{}  // holds one element while somebody reads the client, unless a half is straight
	wg      sync.WaitGroup // the Handler that was started second
	both    atomic.Bool    // both have been started; set under mu, by who reads

	mu       sync.Mutex
	halves   [2]half
	first    *half
	asked    map[jsonrpc.ID]*half // requests in progress since then
	ended    error                // what the client's Recv has ended with
	why      error                // the first reason to close the client
	otherErr error                // of the Handler that was started second
}

// half is the client's Conn as the Handler of one era sees it.
type half struct {
	*split
	handler Handler
	filled  chan struct{}   // holds one element when something was put into early
	room    chan struct{}   // holds one element when something was taken
	over    context.Context // done when it is closed, or its Handler has returned
	leaves  context.CancelFunc
	closed  atomic.Bool // set under split.mu

	// straight says that nothing stands between the client and h, as long as it is
	// alone: nothing waits in early or back, and nothing has ended. It and what
	// follows belong to who receives.
	straight bool
	take     Taker // of the Offer that is going on
	alone    Taker // take for messages that are for h while it is alone; nil: not needed yet

	started bool              // under split.mu, as all below
	early   []jsonrpc.Message // what has started it, and what the other half has read
	back    []jsonrpc.Message // was received and given back
}

// run serves the client, and tells the other half when it is over.
func (h *half) run() error {
	err := h.handler.ServeConn(h.ctx, Push(h))
	h.leave(nil)
	return err
}

// leave says that the half takes nothing any more. It reports whether the
// other one does not either.
func (h *half) leave(why error) (last bool) {
	h.mu.Lock()
	unheard := slices.Concat(h.back, h.early)
	h.closed.Store(true)
	h.early, h.back = nil, nil
	h.leaves()
	if h.why == nil {
		h.why = why
	}
	last = h.leaveOther()
	h.mu.Unlock()
	for _, m := range unheard {
		h.refuse(m)
	}
	return last
}

// leaveOther lets the other half end, too, unless it is about to, and reports
// whether there is nothing to end. It is called with mu held.
func (h *half) leaveOther() (last bool) {
	for i := range h.halves {
		if o := &h.halves[i]; o.started && !o.closed.Load() {
			if !errors.Is(h.ended, io.EOF) {
				h.cancel()
			}
			return false
		}
	}
	return true
}

// refuse answers a request of which the Handler has returned.
func (h *half) refuse(m jsonrpc.Message) {
	if m.Kind() != jsonrpc.Request {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), say.MaxWait)
	defer cancel()
	text, data := errShut.Error(), say.ServerEnded
	if h.parent.Err() != nil {
		text, data = ErrClosing.Error(), say.ShuttingDown
	}
	_ = h.client.Send(ctx, jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError, text, data))
}

// route returns the half that a message is for. It is called with mu held, or by who
// reads, as long as there is one half.
func (s *split) route(m jsonrpc.Message) *half {
	legacy, modern := &s.halves[legacyHalf], &s.halves[modernHalf]
	switch {
	case m.Kind() != jsonrpc.Response && len(m.Meta()) > 0 && era.Meta{Version: m.Lookup("params", "_meta", era.KeyVersion)}.Claims():
		return modern
	case m.Kind() == jsonrpc.Request:
		return legacy
	case m.Method() == say.Cancelled && s.both.Load():
		if _, h, ok := jsonrpc.Find(s.asked, m.RequestID()); ok {
			return h
		}
		return s.first
	case legacy.started:
		return legacy
	}
	return modern
}

// note keeps track of where requests are, once both halves run. It is called
// with mu held.
func (s *split) note(m jsonrpc.Message, h *half) {
	switch {
	case !s.both.Load():
	case m.Kind() == jsonrpc.Request:
		s.asked[m.ID()] = h
	case m.Method() == say.Cancelled:
		id, _, _ := jsonrpc.Find(s.asked, m.RequestID())
		delete(s.asked, id)
	}
}

// Recv implements Conn.
func (h *half) Recv(ctx context.Context) (jsonrpc.Message, error) { return h.Offer(ctx, nil) }

// Offer is what Offer says, as long as there is one half only.
func (h *half) Offer(ctx context.Context, take Taker) (jsonrpc.Message, error) {
	for {
		if h.straight && !h.both.Load() && !h.closed.Load() { // mostly so
			var m jsonrpc.Message
			var err error
			if take == nil || h.from == nil {
				m, err = h.client.Recv(ctx)
			} else {
				m, err = h.from.Offer(ctx, h.ifAlone(take))
			}
			if err != nil || h.route(m) != h { // nobody else reads, or starts the other
				var mine bool
				mine, err = h.received(ctx, m, err)
				if !mine && err == nil {
					continue
				}
			}
			return m, err
		}
		if m, err := h.waiting(ctx); err != errNothing {
			return m, err
		}
		if ctx.Err() != nil {
			// The client may have something better to say: the end of a session
			// ends its context, too.
			select {
			case h.reading <- struct{}{}:
			default:
				return jsonrpc.Message{}, ctx.Err()
			}
		} else {
			select {
			case h.reading <- struct{}{}:
			case <-h.filled: // between our look and our wait
				continue
			case <-ctx.Done():
				continue
			case <-h.over.Done():
				continue
			}
		}
		m, mine, err := h.read(ctx, take)
		<-h.reading
		if mine || err != nil {
			return m, err
		}
	}
}

// waiting returns what has been read for h already, or why nothing will come.
func (h *half) waiting(ctx context.Context) (m jsonrpc.Message, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed.Load():
		return m, io.ErrClosedPipe
	case len(h.back) > 0:
		m, h.back = h.back[0], h.back[1:]
		return m, nil
	case ctx.Err() != nil && (h.ended == nil || len(h.early) > 0):
		return m, errNothing
	case len(h.early) > 0:
		m, h.early = h.early[0], h.early[1:]
		signal(h.room)
		return m, nil
	case h.ended != nil:
		return m, h.ended
	}
	return m, errNothing
}

// ifAlone returns take for messages that are for h, while the other half has not
// been started. Who has the turn to read calls it.
func (h *half) ifAlone(take Taker) Taker {
	if take == nil {
		return nil
	}
	h.take = take
	if h.alone == nil {
		h.alone = func(m jsonrpc.Message, mayWait bool) (took, more bool) {
			if h.both.Load() || h.closed.Load() || h.route(m) != h {
				return false, true
			}
			return h.take(m, mayWait)
		}
	}
	return h.alone
}

// read takes one message from the client that take does not take; mine says that
// it is for h.
func (h *half) read(ctx context.Context, take Taker) (m jsonrpc.Message, mine bool, err error) {
	if m, err := h.waiting(ctx); err != errNothing {
		return m, err == nil, err
	}
	h.straight = ctx.Err() == nil
	if h.both.Load() { // then closing h does not close the client
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(h.over, cancel)()
	}
	m, err = Offer(ctx, h.client, h.ifAlone(take))
	mine, err = h.received(ctx, m, err)
	return m, mine, err
}

// received deals with what Offer of the client has returned; mine says that it is for h.
func (h *half) received(ctx context.Context, m jsonrpc.Message, err error) (mine bool, _ error) {
	if err == ErrEnough {
		return true, err
	}
	h.mu.Lock()
	if err != nil {
		defer h.mu.Unlock()
		h.straight = false
		if h.closed.Load() {
			return false, io.ErrClosedPipe
		}
		if ctx.Err() == nil {
			h.ended = err
			for i := range h.halves {
				signal(h.halves[i].filled)
			}
		}
		return false, err
	}
	to := h.route(m)
	h.note(m, to)
	if to == h {
		h.mu.Unlock()
		return true, nil
	}
	return false, h.divert(ctx, to, m)
}

// divert puts a message aside for the other half. It is called with mu held,
// and gives it back: not before m is there for a half that has just been started.
func (h *half) divert(ctx context.Context, to *half, m jsonrpc.Message) error {
	if !to.started {
		to.started, h.first = true, h
		h.asked = make(map[jsonrpc.ID]*half)
		h.both.Store(true)
		h.note(m, to)
		h.wg.Go(func() {
			err := to.run()
			h.mu.Lock()
			h.otherErr = err
			h.mu.Unlock()
		})
	}
	for waited := ctx.Err(); waited == nil && !to.closed.Load() && len(to.early) >= maxEarly; waited = ctx.Err() {
		h.mu.Unlock()
		select {
		case <-to.room:
		case <-to.over.Done():
		case <-ctx.Done(): // one too many, but it must not be lost
		}
		h.mu.Lock()
	}
	closed := to.closed.Load()
	if !closed {
		to.early = append(to.early, m)
		signal(to.filled)
	}
	h.mu.Unlock()
	if closed {
		to.refuse(m)
	}
	return nil
}

// Send implements Conn.
func (h *half) Send(ctx context.Context, m jsonrpc.Message) error {
	if h.closed.Load() {
		return io.ErrClosedPipe
	}
	if h.both.Load() && m.Kind() == jsonrpc.Response {
		h.mu.Lock()
		delete(h.asked, m.ID())
		h.mu.Unlock()
	}
	return h.client.Send(ctx, m)
}

// Unread is what Unread says.
func (h *half) Unread(early ...jsonrpc.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.back, h.straight = slices.Concat(early, h.back), false
}

// TrySender is what TrySender says.
func (h *half) TrySender() func(jsonrpc.Message) bool {
	try := TrySender(h.client)
	if try == nil {
		return nil
	}
	return func(m jsonrpc.Message) bool {
		return !h.closed.Load() && !h.both.Load() && try(m) // else there is more to do
	}
}

// HungUp passes on what the client's Conn knows.
func (h *half) HungUp() func() error { return HungUp(h.client) }

// SendsItself passes on what the client's Conn says.
func (h *half) SendsItself() bool { return SendsItself(h.client) }

// Close implements Conn. The client is closed when no half needs it any more.
func (h *half) Close() error { return h.CloseFor(nil) }

// CloseFor passes on why the Conn is closed, to one that can say it.
func (h *half) CloseFor(err error) error {
	if !h.leave(err) {
		return nil
	}
	h.mu.Lock()
	why := h.why
	h.mu.Unlock()
	return closeFor(h.client, why)
}

var errNothing = errors.New("nothing has come")
