package bridge_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// leaving is a client's Conn that knows when its peer has hung up.
type leaving struct {
	bridge.Conn
	why atomic.Pointer[error]
}

func (l *leaving) Receive(ctx context.Context, sink bridge.Sink) error {
	watch := bridge.NewStallWatch(ctx, l.hungUp)
	defer watch.Stop()
	return l.Conn.Receive(ctx, bridgetest.SinkFunc(func(_ context.Context, m jsonrpc.Message) error { return watch.Send(sink, m) }))
}

func (l *leaving) hungUp() error {
	if why := l.why.Load(); why != nil {
		return *why
	}
	return nil
}

// ST8, ST9: a client that has hung up does not keep its server for as long as that
// reads nothing: for seconds if it is gone, for minutes if it may still read. As long as
// nothing is known of it everything waits.
func TestPumpHangUp(t *testing.T) {
	for _, c := range []struct {
		name     string
		why      error
		least    time.Duration
		most     time.Duration
		answered bool
	}{
		{"gone", net.ErrClosed, 10 * time.Second, 12 * time.Second, false}, // of which one is for what the server is told
		{"may read", io.EOF, 5 * time.Minute, 5*time.Minute + 3*time.Second, true},
		{"is there", nil, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, ours := bridge.Pipe()
				server, theirs := bridge.Pipe()
				l := &leaving{Conn: ours}
				done := make(chan error, 1)
				go func() {
					done <- bridge.Pump(context.Background(), l, server, bridge.PumpOptions{})
				}()
				const n = 30 // a Pipe holds fewer
				for i := range n {
					bridgetest.Must(t, client.Send(t.Context(), parse(t, call(fmt.Sprint(i)))))
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if len(done) > 0 {
					t.Fatalf("it has ended while the client was there: %v", <-done)
				}
				if c.why == nil { // the server was slow, no more
					for i := range n {
						if m, err := bridgetest.Recv(t.Context(), theirs); err != nil || m.ID().String() != fmt.Sprint(i) {
							t.Fatalf("the server received %s, %v", m.Bytes(), err)
						}
					}
					_, _ = client.Close(nil), theirs.Close(nil)
					<-done
					return
				}
				l.why.Store(&c.why)
				began := time.Now()
				received := make(chan int)
				go func() {
					ids := make(map[string]bool)
					for {
						m, err := bridgetest.Recv(t.Context(), client)
						if err != nil {
							break
						}
						if !m.IsError() || ids[m.ID().String()] {
							t.Errorf("received %s", m.Bytes())
						}
						ids[m.ID().String()] = true
					}
					received <- len(ids)
				}()
				if !c.answered {
					_ = client.Close(nil)
				}
				err := <-done
				if took := time.Since(began); err != nil || took < c.least || took > c.most {
					t.Errorf("Pump = %v after %v", err, took)
				}
				_, _, _ = ours.Close(nil), server.Close(nil), theirs.Close(nil)
				if k := <-received; c.answered != (k > 0) {
					t.Errorf("%d answers", k)
				}
			})
		})
	}
}
