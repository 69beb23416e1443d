package mux_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
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

// taker is a Conn from which the test takes one message after the other, each by a Receive
// of its own. What it has not asked for yet stays with the Conn.
type taker struct{ conn bridge.Conn }

func (c taker) Recv(ctx context.Context) (jsonrpc.Message, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &single{stop: stop}
	if err := c.conn.Receive(ctx, s); !s.got {
		return jsonrpc.Message{}, err
	}
	return s.m, nil
}

func (c taker) Send(ctx context.Context, m jsonrpc.Message) error { return c.conn.Send(ctx, m) }

func (c taker) Close() error { return c.conn.Close(nil) }

// taking is taker for the Conn of a Mux.
func taking(c bridge.Conn, err error) (taker, error) { return taker{c}, err }

// single is a Sink that takes one message.
type single struct {
	stop context.CancelFunc
	got  bool
	m    jsonrpc.Message
}

func (s *single) TrySend(m jsonrpc.Message) bool {
	if s.got {
		return false
	}
	s.got, s.m = true, m
	s.stop()
	return true
}

func (s *single) Send(ctx context.Context, m jsonrpc.Message) error {
	if !s.TrySend(m) {
		return errors.New("one is enough")
	}
	return nil
}
