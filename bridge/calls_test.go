package bridge_test

import (
	"context"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A call without an answer is told of once after 10 seconds and once after 60, a
// subscription never; what is answered counts no more.
func TestCallsLate(t *testing.T) {
	serve := map[string]func(context.Context, bridge.Conn, bridge.Conn, bridge.PumpOptions) error{"Pump": bridge.Pump, "Exchange": bridge.Exchange}
	for name, serve := range serve {
		bubble(t, name, func(t *testing.T) {
			type late struct {
				method string
				after  time.Duration
			}
			var told []late
			begin := time.Now()
			calls := &bridge.PendingCalls{OnLate: func(c bridge.PendingCall) { told = append(told, late{c.Method, time.Since(begin)}) }}
			ctx, cancel := context.WithCancel(t.Context())
			client, server := bridgetest.NewPeer(t, 10), bridgetest.NewPeer(t, 10)
			done := make(chan error, 1)
			go func() { done <- serve(ctx, client, server, bridge.PumpOptions{PendingCalls: calls, ShutdownGrace: -1}) }()
			client.Says(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
			if name == "Pump" {
				client.Says(`{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{}}`)
			}
			if n, since := calls.CountAndOldest(); n != 1 || !since.Equal(begin) {
				t.Errorf("%d calls since %v, want 1 since the begin", n, since)
			}
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			if len(told) != 2 || told[0] != (late{"tools/call", 10 * time.Second}) || told[1] != (late{"tools/call", time.Minute}) {
				t.Errorf("told of %v", told)
			}
			server.Says(`{"jsonrpc":"2.0","id":1,"result":{}}`)
			if n, since := calls.CountAndOldest(); n != 0 || !since.IsZero() {
				t.Errorf("%d calls since %v, want none", n, since)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			calls.Close()
		})
	}
}

// Close waits for nobody who is late, and nobody is told afterwards.
func TestCallsClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := &bridge.PendingCalls{OnLate: func(bridge.PendingCall) { t.Error("told after Close") }}
		client, server := bridgetest.NewPeer(t, 10), bridgetest.NewPeer(t, 10)
		done := make(chan error, 1)
		go func() { done <- bridge.Pump(t.Context(), client, server, bridge.PumpOptions{PendingCalls: calls}) }()
		client.Says(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
		calls.Close()
		time.Sleep(time.Minute)
		server.End <- io.EOF
		<-done
	})
}

// Visit shows what waits, on both sides, and what lasts. Who has noted something is told of the end, which comes
// before the answer is passed on.
func TestCallsLook(t *testing.T) {
	type seen struct {
		method, id string
		byServer   bool
		note       any
	}
	serve := map[string]func(context.Context, bridge.Conn, bridge.Conn, bridge.PumpOptions) error{"Pump": bridge.Pump, "Exchange": bridge.Exchange}
	for name, serve := range serve {
		bubble(t, name, func(t *testing.T) {
			client, server := bridgetest.NewPeer(t, 10), bridgetest.NewPeer(t, 10)
			var ended []any
			calls := &bridge.PendingCalls{OnNotedEnd: func(c bridge.PendingCall) {
				ended = append(ended, c.Note)
				if len(client.Out) > 0 {
					t.Error("the answer was passed on before")
				}
			}}
			defer calls.Close()
			look := func(note any) (all []seen) {
				calls.Visit(func(c bridge.PendingCall) any {
					all = append(all, seen{c.Method, c.ID.String(), c.ByServer, c.Note})
					return note
				})
				return all
			}
			done := make(chan error, 1)
			go func() {
				done <- serve(t.Context(), client, server, bridge.PumpOptions{PendingCalls: calls, DrainTimeout: -1})
			}()
			client.Says(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`)
			want := []seen{{"tools/call", "1", false, nil}}
			if name == "Pump" {
				client.Says(`{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{}}`)
				server.Says(`{"jsonrpc":"2.0","id":"a","method":"roots/list"}`)
				client.Gets(`{"jsonrpc":"2.0","id":"a","method":"roots/list"}`)
				want = append(want, seen{"subscriptions/listen", "2", false, nil}, seen{"roots/list", `"a"`, true, nil})
			}
			if got := look("noted"); !slices.Equal(got, want) {
				t.Errorf("waiting: %v, want %v", got, want)
			}
			if got := look(nil); got[0].note != "noted" {
				t.Errorf("the note is %v", got[0].note)
			}
			if n, _ := calls.CountAndOldest(); n != 1 {
				t.Errorf("%d calls in progress", n)
			}
			server.Says(`{"jsonrpc":"2.0","id":1,"result":{}}`)
			client.Gets(`{"jsonrpc":"2.0","id":1,"result":{}}`)
			if len(ended) != 1 {
				t.Errorf("told of %d ends", len(ended))
			}
			client.End <- io.EOF
			<-done
			if len(ended) != len(want) || len(look(nil)) > 0 {
				t.Errorf("told of %d ends, want %d; %v wait", len(ended), len(want), look(nil))
			}
		})
	}
}
