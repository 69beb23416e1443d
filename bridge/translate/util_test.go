package translate_test

import (
	"context"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

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

// receiver is a Conn whose messages the test takes one by one. From the first Receive on, one of
// what it wraps goes on all the time.
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

func (r *receiver) Receive(ctx context.Context, sink bridge.Sink) error {
	r.once.Do(func() {
		go func() {
			defer close(r.ended)
			r.err = r.Conn.Receive(r.ctx, handing{r.got})
		}()
	})
	for ctx.Err() == nil {
		select {
		case m := <-r.got:
			if err := sink.Send(ctx, m); err != nil {
				return err
			}
		case <-r.ended:
			return r.err
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func (r *receiver) Close(reason error) error {
	err := r.Conn.Close(reason)
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
