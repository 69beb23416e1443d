package mux_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
)

const (
	callOne      = `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`
	listenOne    = `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`
	listenOneEnd = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`
)

// A request whose client has gone before it is sent is sent to nobody, also where
// the server would take it at once; nor while everything shuts down.
func TestExchangeTooLate(t *testing.T) {
	for _, cause := range []error{nil, bridge.ErrClosing} {
		synctest.Test(t, func(t *testing.T) {
			x := newMux(t, mux.Options{})
			first := x.dial()
			first.says(call("1"))
			x.up()
			x.serverGets(call("1"))
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			client := bridgetest.NewPeer(t, 1)
			client.In <- callOne
			began := time.Now()
			if err := bridge.Exchange(ctx, client, x.dial().Conn, bridge.PumpOptions{ShutdownGrace: 5 * time.Second}); err != nil {
				t.Errorf("%v: Exchange = %v", cause, err)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("%v: it took %v", cause, took)
			}
			x.serverGets()
		})
	}
}

// J8: the time-out, the end of the client and a shutdown hold for a request that
// the server does not take, too; no ShutdownGrace is spent on that.
func TestExchangeNotTaken(t *testing.T) {
	for _, c := range []struct {
		name, asked string
		end         func(cancel context.CancelCauseFunc)
		took        time.Duration
		want        []string
	}{
		{"timeout", callOne, func(context.CancelCauseFunc) {}, 2 * time.Second,
			[]string{`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server did not answer within 2s","data":{"reason":"timeout"}}}`}},
		{"shutdown", callOne, func(cancel context.CancelCauseFunc) { cancel(bridge.ErrClosing) }, 0,
			[]string{`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the bridge is shutting down or was configured anew","data":{"reason":"shutting_down"}}}`}},
		{"gone", callOne, func(cancel context.CancelCauseFunc) { cancel(nil) }, 0, nil},
		{"listen shutdown", listenOne, func(cancel context.CancelCauseFunc) { time.Sleep(time.Hour); cancel(bridge.ErrClosing) }, time.Hour, []string{listenOneEnd}},
	} {
		bubble(t, c.name, func(t *testing.T) {
			mux := mux.New(mux.Options{Dialer: dialFunc(func(ctx context.Context) (bridge.Conn, error) {
				<-ctx.Done() // it never starts
				return nil, ctx.Err()
			})})
			server, err := mux.Dial(t.Context())
			bridgetest.Must(t, err)
			client := bridgetest.NewPeer(t, 10)
			client.In <- c.asked
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			start := time.Now()
			done := make(chan error, 1)
			go func() {
				done <- bridge.Exchange(ctx, client, server, bridge.PumpOptions{RequestTimeout: 2 * time.Second})
			}()
			synctest.Wait()
			c.end(cancel)
			if err := <-done; err != nil || time.Since(start) != c.took {
				t.Errorf("Exchange = %v after %v, want nil after %v", err, time.Since(start), c.took)
			}
			client.Gets(c.want...)
			if l := mux.Load(); l.Calls+l.Listens != 0 {
				t.Errorf("in progress: %+v", l)
			}
			_ = mux.Close()
		})
	}
}
