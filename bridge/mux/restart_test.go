package mux_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
)

// ST9: a server that answers and then ends in an orderly way is no failure: it is
// started at once for whoever wants it, however often. One that has not answered
// all is, and so is one that has answered nothing.
func TestMuxServerPerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		n := 0
		ask := func() {
			t.Helper()
			n++
			a.says(call("1"))
			x.up()
			x.serverGets(call(fmt.Sprint(n)))
		}
		answered := `1 {"jsonrpc":"2.0","id":1,"result":{}}`
		for range 10 {
			ask()
			x.serverSays(`{"jsonrpc":"2.0","id":%d,"result":{}}`, n)
			a.gets(answered)
			_ = x.server.Close(nil)
			synctest.Wait()
			if wait := x.waits[n-1]; wait != 0 {
				t.Fatalf("after call %d: the next attempt is due in %v", n, wait)
			}
		}
		ask()
		a.says(call("2"))
		n++
		x.serverGets(call(fmt.Sprint(n)))
		x.serverSays(`{"jsonrpc":"2.0","id":%d,"result":{}}`, n-1)
		a.gets(answered)
		_ = x.server.Close(nil) // it owes the other one, which came when it was about to go
		synctest.Wait()
		if wait := x.waits[10]; wait != 0 {
			t.Errorf("after a call without an answer: the next attempt is due in %v", wait)
		}
		if m, ok := soon(a); !ok || !m.IsError() {
			t.Errorf("got %s", m.Bytes())
		}
		const lost = `{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"it has ended","data":{"reason":"server_ended"}}}`
		ask()
		x.serverSays(`{"jsonrpc":"2.0","id":%d,"result":{}}`, n)
		a.gets(answered)
		a.says(call("1"))
		n++
		x.serverGets(call(fmt.Sprint(n)))
		x.serverSays(lost, n) // the same, if a filter says it
		a.gets()              // before the server has ended it would call the same one again
		_ = x.server.Close(nil)
		if m, ok := soon(a); !ok || !m.IsError() {
			t.Errorf("got %s", m.Bytes())
		}
		synctest.Wait()
		if wait := x.waits[11]; wait != 0 {
			t.Errorf("after a call that a filter has answered: the next attempt is due in %v", wait)
		}
		ask()
		x.serverSays(lost, n)
		time.Sleep(50 * time.Millisecond) // perhaps another server has ended, behind this one
		if m, ok := soon(a); !ok || !m.IsError() {
			t.Errorf("got %s", m.Bytes())
		}
		_ = x.server.Close(nil) // it has answered nothing
		synctest.Wait()
		if wait := x.waits[12]; wait < 300*time.Millisecond {
			t.Errorf("after an answer in its place: the next attempt is due in %v", wait)
		}
	})
}

// crashing is a server's Conn that does not end by its own choice.
type crashing struct{ bridge.Conn }

func (c crashing) Receive(ctx context.Context, sink bridge.Sink) error {
	_ = c.Conn.Receive(ctx, sink)
	return errors.New("killed")
}

// ST9: a server that answers calls between its crashes is started again after a pause of at most two
// seconds, however often it crashes; one that answers none in between is waited for longer and longer.
func TestMuxCrashesBetweenAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		x.servers.wrap = func(c bridge.Conn) bridge.Conn { return crashing{c} }
		a := x.dial()
		n := 0
		crash := func() {
			t.Helper()
			_ = x.server.Close(nil)
			if m, ok := soon(a); !ok || !m.IsError() {
				t.Fatalf("got %s", m.Bytes())
			}
			synctest.Wait()
		}
		ask := func() {
			t.Helper()
			n++
			a.says(call("1"))
		}
		for i := range 12 {
			ask()
			time.Sleep(2 * time.Second)
			x.up()
			x.serverGets(call(fmt.Sprint(n)))
			x.serverSays(`{"jsonrpc":"2.0","id":%d,"result":{}}`, n)
			a.gets(`1 {"jsonrpc":"2.0","id":1,"result":{}}`)
			ask()
			x.serverGets(call(fmt.Sprint(n)))
			crash()
			longest := min(500*time.Millisecond<<i, 2*time.Second)
			if wait := x.waits[i]; wait < longest*6/10 || wait > longest {
				t.Errorf("crash %d: the next attempt is due in %v, want %v", i, wait, longest)
			}
		}
		ask()
		time.Sleep(2 * time.Second)
		x.up()
		x.serverGets(call(fmt.Sprint(n)))
		crash()
		if wait := x.waits[12]; wait < 2500*time.Millisecond {
			t.Errorf("after one that has answered nothing the next attempt is due in %v", wait)
		}
	})
}
