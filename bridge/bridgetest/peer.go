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

// Peer is a Conn without a transport, whose other end the test plays: it is what a Pump has as a client or a server.
type Peer struct {
	t               *testing.T           // the test, which Gets fails
	In              chan string          // what Receive hands on, as JSON
	End             chan error           // the error that Receive returns once In is empty, from then on
	Out             chan jsonrpc.Message // messages that Send was given; the test takes them
	FailSends       chan struct{}        // closed by the test to have Send fail
	SendLag         time.Duration        // how long Send takes to return after its ctx has ended
	SendsInProgress atomic.Int32         // how many Sends have not returned

	refused jsonrpc.Message // a message that the Sink has refused, which the next Receive begins with
}

// NewPeer returns a Peer. Its Send takes buffer messages before the test has to take them from Out.
func NewPeer(t *testing.T, buffer int) *Peer {
	return &Peer{t: t, In: make(chan string, 10), End: make(chan error, 1),
		Out: make(chan jsonrpc.Message, buffer), FailSends: make(chan struct{})}
}

// Receive implements bridge.Conn: it hands on the messages of In, by Send of sink, and ends with the error of End.
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

// next waits for the next message of In; the error is that of End, or ctx's.
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

// Parse returns the message of a text, and panics if it is none.
func Parse(text string) jsonrpc.Message {
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return m
}

// Send implements bridge.Conn: it waits until the test takes m from Out.
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

// Says has the Peer send a message, given as JSON with a format, to whoever receives from it, and waits until that has
// done with it what it can. It works in a synctest bubble only.
func (p *Peer) Says(format string, args ...any) {
	p.In <- fmt.Sprintf(format, args...)
	synctest.Wait()
}

// Gets takes from Out all that the Peer was sent by now, and fails the test unless it is exactly these messages, given as
// JSON, in this order. It works in a synctest bubble only.
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
