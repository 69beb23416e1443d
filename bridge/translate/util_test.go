package translate_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// passing is a Filter that changes nothing.
type passing struct{}

func (passing) Start(time.Time, *era.Out)                               {}
func (passing) FromClient(_ time.Time, m jsonrpc.Message, out *era.Out) { out.Server(m) }
func (passing) FromServer(_ time.Time, m jsonrpc.Message, out *era.Out) { out.Client(m) }
func (passing) Due() time.Time                                          { return time.Time{} }
func (passing) Tick(time.Time, *era.Out)                                {}
func (passing) ServerEnded(now time.Time, err error, out *era.Out)      {}

// stubborn is a server's Conn that fails in the ways that a test wants.
type stubborn struct {
	bridge.PullConn
	sendErr  error
	closeErr error
	slow     time.Duration // what Close takes
}

func (s *stubborn) Send(ctx context.Context, m jsonrpc.Message) error {
	if s.sendErr != nil {
		return s.sendErr
	}
	return s.PullConn.Send(ctx, m)
}

func (s *stubborn) Close() error {
	_ = s.PullConn.Close()
	time.Sleep(s.slow)
	return s.closeErr
}

// peer is one end of a Pump, played by the test.
type peer struct {
	t    *testing.T
	in   chan string          // what Recv gives
	end  chan error           // what Recv returns then
	out  chan jsonrpc.Message // what Send took; unbuffered: the test takes it
	gone chan struct{}        // closed: Send fails
	lag  time.Duration        // what Send takes to return when its ctx ends
	busy atomic.Int32         // Sends under way
}

func newPeer(t *testing.T, buffer int) *peer {
	return &peer{t: t, in: make(chan string, 10), end: make(chan error, 1),
		out: make(chan jsonrpc.Message, buffer), gone: make(chan struct{})}
}

func (p *peer) Recv(ctx context.Context) (jsonrpc.Message, error) {
	select { // in order: what was said before the end comes before it
	case text := <-p.in:
		return p.parse(text), nil
	default:
	}
	select {
	case text := <-p.in:
		return p.parse(text), nil
	case err := <-p.end:
		p.end <- err // for good
		return jsonrpc.Message{}, err
	case <-ctx.Done():
		return jsonrpc.Message{}, ctx.Err()
	}
}

func (p *peer) parse(text string) jsonrpc.Message {
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return m
}

func (p *peer) Send(ctx context.Context, m jsonrpc.Message) error {
	p.busy.Add(1)
	defer p.busy.Add(-1)
	select {
	case <-p.gone:
		return io.ErrClosedPipe
	default:
	}
	select {
	case p.out <- m:
		return nil
	case <-p.gone:
		return io.ErrClosedPipe
	case <-ctx.Done():
		time.Sleep(p.lag)
		return ctx.Err()
	}
}

func (p *peer) Close() error { return nil }

// says lets the Pump receive a message, and do with it what it can.
func (p *peer) says(format string, args ...any) {
	p.in <- fmt.Sprintf(format, args...)
	synctest.Wait()
}

// gets wants exactly these messages, and no others, to have come by now.
func (p *peer) gets(want ...string) {
	p.t.Helper()
	synctest.Wait()
	for _, w := range want {
		select {
		case m := <-p.out:
			if got := string(m.Bytes()); got != w {
				p.t.Errorf("got %s, want %s", got, w)
			}
		default:
			p.t.Errorf("nothing came, want %s", w)
		}
		synctest.Wait()
	}
	select {
	case m := <-p.out:
		p.t.Errorf("got %s, want nothing more", m.Bytes())
	default:
	}
}

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
