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
	bridge.Conn
	sendErr  error
	closeErr error
	slow     time.Duration // what Close takes
}

func (s *stubborn) Send(ctx context.Context, m jsonrpc.Message) error {
	if s.sendErr != nil {
		return s.sendErr
	}
	return s.Conn.Send(ctx, m)
}

func (s *stubborn) TrySend(jsonrpc.Message) bool { return false }

func (s *stubborn) Close(reason error) error {
	_ = s.Conn.Close(reason)
	time.Sleep(s.slow)
	return s.closeErr
}

// peer is one end of a Pump, played by the test.
type peer struct {
	t    *testing.T
	in   chan string          // what Receive hands on
	end  chan error           // what Receive returns then
	out  chan jsonrpc.Message // what Send took; unbuffered: the test takes it
	gone chan struct{}        // closed: Send fails
	lag  time.Duration        // what Send takes to return when its ctx ends
	busy atomic.Int32         // Sends under way
}

func newPeer(t *testing.T, buffer int) *peer {
	return &peer{t: t, in: make(chan string, 10), end: make(chan error, 1),
		out: make(chan jsonrpc.Message, buffer), gone: make(chan struct{})}
}

func (p *peer) Receive(ctx context.Context, sink bridge.Sink) error {
	for {
		m, err := p.next(ctx)
		if err == nil {
			err = sink.Send(ctx, m)
		}
		if err != nil {
			return err
		}
	}
}

func (p *peer) next(ctx context.Context) (jsonrpc.Message, error) {
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

func (p *peer) TrySend(jsonrpc.Message) bool { return false }

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

func (p *peer) Close(error) error { return nil }

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

// receiver is a Conn whose messages the test takes one by one. From the first Recv on, a
// Receive goes on all the time.
type receiver struct {
	bridge.Conn
	once  sync.Once
	got   chan jsonrpc.Message
	ended chan struct{} // closed when err is set
	err   error
	ctx   context.Context
	stop  context.CancelFunc
}

func receive(c bridge.Conn) *receiver {
	r := &receiver{Conn: c, got: make(chan jsonrpc.Message), ended: make(chan struct{})}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

func (r *receiver) Recv(ctx context.Context) (jsonrpc.Message, error) {
	r.once.Do(func() {
		go func() {
			defer close(r.ended)
			r.err = r.Receive(r.ctx, handing{r.got})
		}()
	})
	select {
	case m := <-r.got:
		return m, nil
	case <-r.ended:
		return jsonrpc.Message{}, r.err
	case <-ctx.Done():
		return jsonrpc.Message{}, ctx.Err()
	}
}

func (r *receiver) Close() error {
	err := r.Conn.Close(nil)
	r.once.Do(func() { close(r.ended) })
	<-r.ended
	r.stop()
	return err
}

// handing is a Sink whose messages somebody has to take.
type handing struct{ got chan<- jsonrpc.Message }

func (h handing) TrySend(jsonrpc.Message) bool { return false }

func (h handing) Send(ctx context.Context, m jsonrpc.Message) error {
	select {
	case h.got <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
