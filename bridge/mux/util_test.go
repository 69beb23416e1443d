package mux_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
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

// pulling is bridgetest.Pull for what a Dialer returns.
func pulling(c bridge.Conn, err error) (*bridgetest.Puller, error) {
	return bridgetest.Pull(c), err
}
