package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/streamclient"
)

// fakeLeg is a Conn that takes initialize and holds up all else, until it is
// closed; and then its Receive says that the server speaks another transport, or
// when it is refused.
type fakeLeg struct {
	held    chan struct{} // an element for each message that is held up
	refused chan struct{}
	closed  chan struct{}
	once    sync.Once
}

func newFakeLeg() *fakeLeg {
	return &fakeLeg{held: make(chan struct{}, 100), refused: make(chan struct{}), closed: make(chan struct{})}
}

var errRefused = &streamclient.WrongTransportError{Fault: &httpdial.Fault{Reason: httpdial.ReasonHTTPStatus, Status: 405, Text: "405"}}

func (f *fakeLeg) Receive(ctx context.Context, _ bridge.Sink) error {
	select {
	case <-f.refused:
	case <-f.closed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return errRefused
}

func (f *fakeLeg) TrySend(jsonrpc.Message) bool { return false }

func (f *fakeLeg) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Method() == "initialize" {
		return nil
	}
	f.held <- struct{}{}
	select {
	case <-f.closed:
		return errors.New("closed")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakeLeg) Close(error) error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

type dialFunc func(context.Context) (bridge.Conn, error)

func (f dialFunc) Dial(ctx context.Context) (bridge.Conn, error) { return f(ctx) }

// What a refused transportConn holds up goes to the next one, once; what its sender has
// given up does not; and the transportConn is closed.
func TestHeldUpMessagesMoveOn(t *testing.T) {
	first := newFakeLeg()
	near, far := bridge.Pipe()
	defer far.Close(nil)
	d := &Dialer{URL: "http://h/", dialersForTest: func(t transport) bridge.Dialer {
		return dialFunc(func(context.Context) (bridge.Conn, error) {
			if t == streamableHTTP {
				return first, nil
			}
			return near, nil
		})
	}}
	c := dial(t, d)
	c.send(initializeText)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() { c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i+1)) })
		wg.Go(func() { c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/n%d"}`, i)) })
	}
	ctx, giveUp := context.WithCancel(t.Context())
	var given sync.WaitGroup
	for _, text := range []string{`{"jsonrpc":"2.0","id":99,"method":"ping"}`, `{"jsonrpc":"2.0","method":"notifications/given-up"}`} {
		given.Go(func() {
			if err := c.conn.Send(ctx, msg(text)); !errors.Is(err, context.Canceled) {
				t.Errorf("Send that was given up: %v", err)
			}
		})
	}
	for range 12 {
		<-first.held
	}
	giveUp()
	given.Wait()
	close(first.refused)
	answer := make(chan jsonrpc.Message, 1)
	go func() { answer <- c.recv() }()
	got := map[string]int{}
	for i := range 11 {
		m, err := bridgetest.Recv(t.Context(), far)
		bridgetest.Must(t, err)
		if i == 0 && m.Method() != "initialize" {
			t.Errorf("%s came before initialize", m.Bytes())
		}
		got[string(m.Bytes())]++
	}
	wg.Wait()
	if len(got) != 11 {
		t.Errorf("the second leg received %v", got)
	}
	bridgetest.Must(t, far.Send(t.Context(), jsonrpc.NewResult(jsonrpc.IntID(0), nil)))
	if m := <-answer; m.IsError() {
		t.Errorf("received %s", m.Bytes())
	}
	<-first.closed
	c.conn.Close(nil)
	if m, err := bridgetest.Recv(t.Context(), far); err != io.EOF {
		t.Errorf("then the second leg received %s, %v", m.Bytes(), err)
	}
}

// A transportConn that is refused just when the Conn is closed has no successor that
// nobody closes.
func TestNoLegAfterClose(t *testing.T) {
	var mu sync.Mutex
	var legs []*fakeLeg
	d := &Dialer{URL: "http://h/", dialersForTest: func(transport) bridge.Dialer {
		return dialFunc(func(context.Context) (bridge.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			legs = append(legs, newFakeLeg())
			return legs[len(legs)-1], nil
		})
	}}
	c := dial(t, d)
	c.send(initializeText)
	c.conn.Close(nil)
	if m, err := bridgetest.Recv(t.Context(), c.conn); !errors.Is(err, errClosed) {
		t.Errorf("Recv = %s, %v", m.Bytes(), err)
	}
	for i, l := range legs {
		select {
		case <-l.closed:
		default:
			t.Errorf("leg %d is left open", i)
		}
	}
}
