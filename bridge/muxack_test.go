package bridge_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
)

func notAcknowledged(id string) string {
	return id + ` {"jsonrpc":"2.0","id":` + id +
		`,"error":{"code":-32603,"message":"the server does not acknowledge subscriptions/listen","data":{"reason":"timeout"}}}`
}

func notAcknowledgedNote(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"it was not acknowledged"}}`
}

// MI21, ST12: a subscription that the server does not acknowledge within ten
// seconds is cancelled there and answered with an error; one that it does stays.
func TestMuxListenIsNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, bridge.MuxOptions{})
		a, b := x.dial(), x.dial()
		a.says(listenCall(`"l"`))
		x.up()
		x.serverGets(listenCall("1"))
		time.Sleep(4 * time.Second)
		b.says(listenCall("7"))
		b.says(listenCall("8"))
		x.serverGets(listenCall("2"), listenCall("3"))
		x.serverSays("%s", ack("3", `{"toolsListChanged":true}`))
		b.gets("8 " + ack("8", `{"toolsListChanged":true}`))
		time.Sleep(5 * time.Second)
		a.gets()
		time.Sleep(time.Second)
		a.gets(notAcknowledged(`"l"`))
		x.serverGets(notAcknowledgedNote("1"))
		b.gets()
		time.Sleep(4 * time.Second)
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

// ST9: the same holds for a subscription that is opened again at the next server.
func TestMuxListenIsNotAcknowledgedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, bridge.MuxOptions{})
		a := x.dial()
		a.says(listenCall("1"))
		x.up()
		x.serverGets(listenCall("1"))
		x.serverSays("%s", ack("1", `{"toolsListChanged":true}`))
		a.gets("1 " + ack("1", `{"toolsListChanged":true}`))
		time.Sleep(time.Hour)
		_ = x.server.Close()
		x.up()
		x.serverGets(listenCall("2"))
		time.Sleep(10 * time.Second)
		a.gets(notAcknowledged("1"))
		x.serverGets(notAcknowledgedNote("2"))
	})
}

// MI21: a server that has to start has more time, until it says something.
func TestMuxListenWhileTheServerStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, bridge.MuxOptions{FirstWait: time.Minute})
		a := x.dial()
		a.says(listenCall("1"))
		x.up()
		x.serverGets(listenCall("1"))
		time.Sleep(time.Minute - time.Second)
		a.gets()
		time.Sleep(time.Second)
		a.gets(notAcknowledged("1"))
		x.serverGets(notAcknowledgedNote("1"))
		x.serverSays("%s", ack("1", `{}`))
		x.drops("belongs to no subscription that is open")
		a.says(listenCall("1"))
		x.serverGets(listenCall("2"))
		time.Sleep(10 * time.Second)
		a.gets(notAcknowledged("1"))
	})
}
