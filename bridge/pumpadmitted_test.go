package bridge_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// offering is a client that offers one message, which is not taken at once, and ends
// before it can offer that again.
type offering struct {
	*bridgetest.Peer
	m    jsonrpc.Message
	gone error // how it ends; nil: as ctx does
}

func (o *offering) Receive(ctx context.Context, sink bridge.Sink) error {
	if sink.TrySend(o.m) {
		return errors.New("taken at once")
	}
	<-ctx.Done()
	if o.gone != nil {
		return o.gone
	}
	return ctx.Err()
}

// A request that the server never had is not waited for when everything stops, nor
// cancelled at the server; a client that is still there is told why there is no answer.
func TestPumpStopsBeforeTheServerTookIt(t *testing.T) {
	shutdown := `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the bridge is shutting down or was configured anew","data":{"reason":"shutting_down"}}}`
	for name, c := range map[string]struct {
		gone error
		want []string
	}{
		"shutdown":    {nil, []string{shutdown}},
		"client gone": {io.ErrUnexpectedEOF, nil},
	} {
		bubble(t, name, func(t *testing.T) {
			client := &offering{bridgetest.NewPeer(t, 10), parse(t, callOne), c.gone}
			server := bridgetest.NewPeer(t, 10)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = bridge.Pump(ctx, client, server, bridge.PumpOptions{})
			}()
			synctest.Wait()
			start := time.Now()
			stop()
			<-done
			if took := time.Since(start); took != 0 {
				t.Errorf("%v were waited for an answer that cannot come", took)
			}
			client.Gets(c.want...)
			server.Gets()
		})
	}
}

// A request that the server did not take until the end of the grace is answered once,
// by the Pump, and not by ByEra as well.
func TestByEraStopAnswersOnce(t *testing.T) {
	for _, both := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			client := bridgetest.NewPeer(t, 10)
			serve := func(takes int) bridge.Handler {
				return bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
					return bridge.Pump(ctx, c, bridgetest.NewPeer(t, takes), bridge.PumpOptions{})
				})
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = bridge.ByEra(serve(0), serve(10)).ServeConn(ctx, client)
			}()
			want := map[jsonrpc.ID]int{jsonrpc.IntID(3): 1}
			if both {
				client.Says(modernOne)
				want[jsonrpc.IntID(1)] = 1
			}
			client.Says(legacyThree)
			stop()
			<-done
			got := map[jsonrpc.ID]int{}
			for len(client.Out) > 0 {
				m := <-client.Out
				got[m.ID()]++
			}
			if !maps.Equal(got, want) {
				t.Errorf("both %v: answers %v, want %v", both, got, want)
			}
		})
	}
}
