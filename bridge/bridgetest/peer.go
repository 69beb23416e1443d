package bridgetest

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Peer is a Conn: one end of a Pump, played by the test.
type Peer struct {
	t               *testing.T
	In              chan string          // what Receive hands on
	End             chan error           // what Receive returns once In is empty
	Out             chan jsonrpc.Message // what Send took; unbuffered: the test takes it
	FailSends       chan struct{}        // the test closes it: Send fails
	SendLag         time.Duration        // how long Send goes on after its ctx has ended
	SendsInProgress atomic.Int32         // Sends under way

	refused jsonrpc.Message // by a Sink; what Receive hands on first
}

// NewPeer returns a Peer that takes so many messages before the test does.
func NewPeer(t *testing.T, buffer int) *Peer {
	return &Peer{t: t, In: make(chan string, 10), End: make(chan error, 1),
		Out: make(chan jsonrpc.Message, buffer), FailSends: make(chan struct{})}
}

// Receive implements bridge.Conn.
func (p *Peer) Receive(ctx context.Context, sink bridge.Sink) error {
	for {
		m := p.refused
		if m.Kind() == jsonrpc.Invalid {
			var err error
			if m, err = p.next(ctx); err != nil {
				return err
			}
		}
		if err := sink.Send(ctx, m); err != nil {
			p.refused = m
			return err
		}
		p.refused = jsonrpc.Message{}
	}
}

func (p *Peer) next(ctx context.Context) (jsonrpc.Message, error) {
	select { // in order: what was said before the end comes before it
	case text := <-p.In:
		return Parse(text), nil
	default:
	}
	select {
	case text := <-p.In:
		return Parse(text), nil
	case err := <-p.End:
		p.End <- err // for good
		return jsonrpc.Message{}, err
	case <-ctx.Done():
		return jsonrpc.Message{}, ctx.Err()
	}
}

// TrySend implements bridge.Conn: it takes nothing.
func (p *Peer) TrySend(jsonrpc.Message) bool { return false }

// Parse returns the message of that text, which must be one.
func Parse(text string) jsonrpc.Message {
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return m
}

// Send implements bridge.Conn.
func (p *Peer) Send(ctx context.Context, m jsonrpc.Message) error {
	p.SendsInProgress.Add(1)
	defer p.SendsInProgress.Add(-1)
	select {
	case <-p.FailSends:
		return io.ErrClosedPipe
	default:
	}
	select {
	case p.Out <- m:
		return nil
	case <-p.FailSends:
		return io.ErrClosedPipe
	case <-ctx.Done():
		time.Sleep(p.SendLag)
		return ctx.Err()
	}
}

// Close implements bridge.Conn: it does nothing.
func (p *Peer) Close(error) error { return nil }

// Says lets whoever receives have a message, in a synctest bubble, and do with it what it can.
func (p *Peer) Says(format string, args ...any) {
	p.In <- fmt.Sprintf(format, args...)
	synctest.Wait()
}

// Gets wants exactly these messages, and no others, to have come by now.
func (p *Peer) Gets(want ...string) {
	p.t.Helper()
	synctest.Wait()
	for _, w := range want {
		select {
		case m := <-p.Out:
			if got := string(m.Bytes()); got != w {
				p.t.Errorf("got %s, want %s", got, w)
			}
		default:
			p.t.Errorf("nothing came, want %s", w)
		}
		synctest.Wait()
	}
	select {
	case m := <-p.Out:
		p.t.Errorf("got %s, want nothing more", m.Bytes())
	default:
	}
}
