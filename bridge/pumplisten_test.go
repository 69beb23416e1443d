package bridge_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
)

const listenEnds = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`

// ST13: one subscription is cancelled by whoever looks after the bridge: its server is told, its client
// gets its end, and the others go on.
func TestPumpCancelsOneListen(t *testing.T) {
	const listenTwo = `{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen"}`
	bubble(t, "", func(t *testing.T) {
		var calls bridge.PendingCalls
		p := pump(t, bridge.PumpOptions{PendingCalls: &calls})
		p.client.Says(listenOne)
		p.client.Says(listenTwo)
		p.server.Gets(listenOne, listenTwo)
		if n := calls.Cancel(func(c bridge.PendingCall) bool { return c.ID.String() == "1" }); n != 1 {
			t.Errorf("%d subscriptions were cancelled", n)
		}
		p.server.Gets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"cancelled on request"}}`)
		p.client.Gets(listenOneEnd, listenEnds)
		p.server.Says("%s", changed("tools/list_changed", "1", ""))
		p.server.Says("%s", listenOneEnd)
		p.server.Says("%s", changed("tools/list_changed", "2", ""))
		p.client.Gets(changed("tools/list_changed", "2", ""))
		p.server.End <- io.EOF
		<-p.done
	})
}

// ST8, ST13: an open subscription does not hold up the end of a conversation,
// whoever ends it: it is over at the server, and its client gets the result and
// then the cancellation.
func TestPumpEndsListens(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call"}`
	const result = `{"jsonrpc":"2.0","id":2,"result":{}}`
	for _, c := range []struct {
		name string
		end  func(p *pumping)
		told bool // the server is told
	}{
		{"EOF", func(p *pumping) { p.client.End <- io.EOF }, true},
		{"shutdown", func(p *pumping) { p.stop() }, true},
		{"server", func(p *pumping) { p.server.End <- errors.New("exit status 1") }, false},
	} {
		bubble(t, c.name, func(t *testing.T) {
			p := pump(t, bridge.PumpOptions{})
			p.client.Says(listenOne)
			p.server.Gets(listenOne)
			start := time.Now()
			c.end(p)
			<-p.done
			if took := time.Since(start); took != 0 {
				t.Errorf("Pump waited %v", took)
			}
			p.client.Gets(listenOneEnd, listenEnds)
			if c.told {
				p.server.Gets(clientGone)
			}
			p.server.Gets()
		})
		if !c.told {
			continue
		}
		bubble(t, c.name+" with a call", func(t *testing.T) {
			p := pump(t, bridge.PumpOptions{})
			p.client.Says(listenOne)
			p.client.Says(call)
			p.server.Gets(listenOne, call)
			c.end(p)
			p.running(t) // for the call
			p.client.Gets(listenOneEnd, listenEnds)
			p.server.Gets(clientGone)
			p.server.Says("%s", changed("tools/list_changed", "1", ""))
			p.server.Says("%s", listenOneEnd)
			p.server.Says(someNote)
			p.client.Gets(someNote) // and nothing more of the subscription
			p.server.Says(result)
			p.client.Gets(result)
			if err := p.ended(t); err != nil {
				t.Errorf("Pump = %v", err)
			}
		})
	}
	bubble(t, "client gone", func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.client.Says(listenOne)
		p.client.End <- errors.New("reset")
		if err := p.ended(t); err == nil {
			t.Error("no error")
		}
		p.server.Gets(listenOne, clientGone)
		p.client.Gets()
	})
}

// ST13: what the server says about the end of a subscription passes through
// untouched, and then it is over: its id may be used again.
func TestPumpListenEndedByServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.client.Says(listenOne)
		p.server.Says("%s", changed("tools/list_changed", "1", ""))
		p.server.Says(listenOneEnd)
		p.server.Says(listenEnds)
		p.client.Gets(changed("tools/list_changed", "1", ""), listenOneEnd, listenEnds)
		p.client.Says(listenOne)
		p.server.Says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1.0,"reason":"bye"}}`)
		p.client.Gets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"bye"}}`)
		p.client.Says(listenOne)
		p.server.Gets(listenOne, listenOne, listenOne)
		p.client.Says("%s", cancelledNote("1"))
		p.server.Gets(cancelledNote("1"))
		p.client.End <- io.EOF
		if err := p.ended(t); err != nil {
			t.Errorf("Pump = %v", err)
		}
		p.client.Gets()
	})
}

// J8: a subscription has no time-out.
func TestPumpListenHasNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{RequestTimeout: time.Second})
		p.client.Says(listenOne)
		time.Sleep(time.Hour)
		p.server.Gets(listenOne)
		p.client.Gets()
		p.client.End <- io.EOF
		p.ended(t)
	})
}

// C.7: a server Conn that ends because everything does, says so.
func TestPumpServerShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.client.Says(callOne)
		p.server.End <- bridge.ErrClosing
		p.ended(t)
		p.client.Gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the bridge is shutting down or was configured anew","data":{"reason":"shutting_down"}}}`)
	})
}
