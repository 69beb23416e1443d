package mux_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
)

func notAcknowledged(id string) string {
	return id + ` {"jsonrpc":"2.0","id":` + id +
		`,"error":{"code":-32603,"message":"the server does not acknowledge subscriptions/listen","data":{"reason":"timeout"}}}`
}

func notAcknowledgedNote(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"it was not acknowledged"}}`
}

// listening returns the first client of a Mux, who has a subscription under id at
// its first server.
func (x *muxed) listening(id string) *muxClient {
	x.t.Helper()
	c := x.dial()
	c.says(listenCall(id))
	x.up()
	x.serverGets(listenCall("1"))
	x.serverSays("%s", ack("1", `{"toolsListChanged":true}`))
	c.gets(id + " " + ack(id, `{"toolsListChanged":true}`))
	return c
}

// MI21, ST12: a subscription that the server does not acknowledge within a
// minute is cancelled there and answered with an error; one that it does stays.
func TestMuxListenIsNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a, b := x.dial(), x.dial()
		a.says(listenCall(`"l"`))
		x.up()
		x.serverGets(listenCall("1"))
		time.Sleep(50 * time.Second)
		b.says(listenCall("7"))
		b.says(listenCall("8"))
		x.serverGets(listenCall("2"), listenCall("3"))
		x.serverSays("%s", ack("3", `{"toolsListChanged":true}`))
		b.gets("8 " + ack("8", `{"toolsListChanged":true}`))
		time.Sleep(9 * time.Second)
		a.gets()
		time.Sleep(time.Second)
		a.gets(notAcknowledged(`"l"`))
		x.serverGets(notAcknowledgedNote("1"))
		b.gets()
		time.Sleep(50 * time.Second)
		b.gets(notAcknowledged("7"))
		x.serverGets(notAcknowledgedNote("2"))

		x.serverSays("%s", ack("1", `{"toolsListChanged":true}`)) // too late
		x.drops("belongs to no subscription that is open")
		time.Sleep(time.Hour)
		x.serverSays("%s", changed("tools/list_changed", "3", ""))
		b.gets("8 " + changed("tools/list_changed", "8", ""))
		if l := x.mux.Load(); l.Listens != 1 {
			t.Errorf("Load = %+v", l)
		}
		a.says(listenCall(`"l"`)) // it may ask again
		x.serverGets(listenCall("4"))
		x.serverSays("%s", ack("4", `{"toolsListChanged":true}`))
		a.gets(`"l" ` + ack(`"l"`, `{"toolsListChanged":true}`))
	})
}

// MI21, ST9: one that the server has acknowledged before is sent again, for its
// client has it.
func TestMuxListenIsNotAcknowledgedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.listening("1")
		time.Sleep(time.Hour)
		_ = x.server.Close(nil)
		x.up()
		x.serverGets(listenCall("2"))
		time.Sleep(time.Minute)
		x.serverGets(notAcknowledgedNote("2"))
		time.Sleep(mux.DefaultBackoff)
		x.serverGets(listenCall("3"))
		a.gets()
		x.serverSays("%s", ack("3", `{"toolsListChanged":true}`))
		a.gets("1 " + changed("tools/list_changed", "1", ""))
	})
}

// MI21: the client is told also if the server takes nothing any more.
func TestMuxListenToFrozenServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		a.says(listenCall("9"))
		x.up()
		x.serverGets(listenCall("1"))
		for i := range 200 { // the writer waits with one of these
			a.says(call(fmt.Sprint(i + 100)))
		}
		time.Sleep(time.Minute)
		a.gets(notAcknowledged("9"))
		_ = x.server.Close(nil)
		_ = a.Close(nil)
		synctest.Wait() // until nobody waits in Send
	})
}

// ST9: a server that answers, and ends in an orderly way, may do so with each call;
// but subscriptions do not make it start again and again, nor does a client that
// calls whenever it is told of a change.
func TestMuxOrderlyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.listening("9")
		began, wait := time.Now(), mux.DefaultBackoff
		n := 1
		answer := func() {
			n++
			x.serverGets(call(fmt.Sprint(n)))
			x.serverSays(`{"jsonrpc":"2.0","id":%d,"result":{}}`, n)
			a.gets(`1 {"jsonrpc":"2.0","id":1,"result":{}}`)
		}
		a.says(call("1"))
		answer()
		_ = x.server.Close(nil)
		synctest.Wait()
		for range 5 {
			a.says(call("1")) // starts one at once, which is all that it gets
			x.up()
			answer()
			n++ // the subscription
			_ = x.server.Close(nil)
			synctest.Wait()
		}
		if took := time.Since(began); took > time.Millisecond {
			t.Errorf("five calls took %v", took)
		}
		for range 5 { // of these there were six already
			wait *= 2
		}
		time.Sleep(min(wait, mux.DefaultMaxBackoff) - time.Millisecond)
		synctest.Wait()
		if len(x.servers.next) > 0 {
			t.Error("it was started for a subscription alone, too soon")
		}
		time.Sleep(time.Millisecond)
		x.up()
		n++
		x.serverGets(listenCall(fmt.Sprint(n)))
		x.serverSays("%s", ack(fmt.Sprint(n), `{"toolsListChanged":true}`))
		a.gets("9 " + changed("tools/list_changed", "9", ""))
	})
}
