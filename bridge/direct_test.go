package bridge_test

import (
	"context"
	"io"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// fed is a Conn whose messages come by Feed.
type fed struct {
	bridge.PullConn
	got    chan jsonrpc.Message
	closed chan struct{}
	ended  chan struct{} // closed when err is set
	err    error
	once   sync.Once
}

func newFed(c bridge.PullConn) *fed {
	f := &fed{PullConn: c, got: make(chan jsonrpc.Message), closed: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		f.err = bridge.Feed(context.Background(), c, func(m jsonrpc.Message) {
			select {
			case f.got <- m:
			case <-f.closed:
			}
		})
	}()
	return f
}

func (f *fed) Recv(ctx context.Context) (m jsonrpc.Message, err error) {
	if err := ctx.Err(); err != nil {
		return m, err
	}
	select {
	case <-f.closed:
		return m, io.ErrClosedPipe
	default:
	}
	select {
	case m = <-f.got:
		return m, nil
	case <-f.ended:
		return m, f.err
	case <-f.closed:
		return m, io.ErrClosedPipe
	case <-ctx.Done():
		return m, ctx.Err()
	}
}

func (f *fed) Close() error {
	f.once.Do(func() { close(f.closed) })
	err := f.PullConn.Close()
	<-f.ended
	return err
}

// polled is a Poller before a Conn that is none.
type polled struct {
	bridge.PullConn
	ended chan struct{}
	room  chan struct{}

	mu    sync.Mutex
	items []jsonrpc.Message
	err   error
	w     *bridge.Waiter // nil: nobody has called Wake
}

var _ bridge.Poller = (*polled)(nil)

func newPolled(c bridge.PullConn) *polled {
	p := &polled{PullConn: c, ended: make(chan struct{}), room: make(chan struct{}, 16)}
	go func() {
		defer close(p.ended)
		for {
			m, err := c.Recv(context.Background())
			if err == nil {
				p.room <- struct{}{}
			}
			p.mu.Lock()
			if p.err = err; err == nil {
				p.items = append(p.items, m)
			}
			w := p.w
			p.mu.Unlock()
			if w != nil {
				w.Arrived()
			}
			if err != nil {
				return
			}
		}
	}()
	return p
}

func (p *polled) Wake(w *bridge.Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.w = w
	w.Signal()
}

func (p *polled) Poll() (m jsonrpc.Message, err error, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.items) == 0 {
		return m, p.err, p.err != nil
	}
	m, p.items = p.items[0], p.items[1:]
	<-p.room
	return m, nil, true
}

func (p *polled) Close() error {
	err := p.PullConn.Close()
	for {
		select {
		case <-p.ended:
			return err
		case <-p.room:
		}
	}
}
