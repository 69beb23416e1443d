package mux_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
)

func listenCall(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}`
}

func ack(id, honoured string) string {
	return `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` +
		id + `},"notifications":` + honoured + `}}`
}

func changed(what, id, more string) string {
	return `{"jsonrpc":"2.0","method":"notifications/` + what + `","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}` + more + `}}`
}

func listenResult(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`
}

// ST12, D.2: each subscription gets what is its own, under the id that its
// client has given it, value and type.
func TestMuxListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a, b := x.dial(), x.dial()
		resources := func(id string) string {
			return `{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["a:/b"]}}}`
		}
		a.says(resources(`"listen:1"`))
		x.up()
		b.says(listenCall("1"))
		b.says(listenCall("2.0"))
		x.serverGets(resources("1"), listenCall("2"), listenCall("3"))
		x.serverSays("%s", ack("3", `{"toolsListChanged":true}`))
		x.serverSays("%s", ack("1", `{}`))
		x.serverSays("%s", ack("2.0", `{}`))
		x.serverSays("%s", changed("tools/list_changed", "3", ""))
		x.serverSays(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:\/b","_meta":{"x":1e400 , "io.modelcontextprotocol/subscriptionId" : 1}}, "extra":1}`)
		a.gets(`"listen:1" `+ack(`"listen:1"`, `{}`),
			`"listen:1" {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:\/b","_meta":{"x":1e400 , "io.modelcontextprotocol/subscriptionId" : "listen:1"}}, "extra":1}`)
		b.gets("2.0 "+ack("2.0", `{"toolsListChanged":true}`), "1 "+ack("1", `{}`), "2.0 "+changed("tools/list_changed", "2.0", ""))
		x.drops()

		x.serverSays("%s", changed("tools/list_changed", "9", ""))
		x.serverSays("%s", changed("tools/list_changed", `"1"`, ""))
		x.serverSays(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		b.says(cancelledNote("1"))
		x.serverGets(cancelledNote("2"))
		x.serverSays("%s", changed("tools/list_changed", "2", ""))
		a.gets()
		b.gets()
		x.drops("belongs to no subscription that is open", "belongs to no subscription that is open",
			"cannot be attributed to a request in progress", "belongs to no subscription that is open")
	})
}

// A subscription id that names a call is of no use.
func TestMuxSubscriptionIsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		a.says(call("5"))
		x.up()
		x.serverGets(call("1"))
		x.serverSays("%s", changed("tools/list_changed", "1", ""))
		x.serverSays("%s", cancelledNote("1"))
		a.gets()
		x.drops("belongs to no subscription that is open", "cancels no subscription that is open")
		x.serverSays(`{"jsonrpc":"2.0","id":1,"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`)
		a.gets(`5 {"jsonrpc":"2.0","id":5,"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`)
	})
}

// ST13: however the server ends a subscription, its client gets the result and
// then the cancellation; of an error, the error.
func TestMuxListenEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		says []string
		gets []string
	}{
		{"result", []string{`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1,"v":1.0}}}`},
			[]string{`{"jsonrpc":"2.0","id":"l","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"l","v":1.0}}}`, cancelledNote(`"l"`)}},
		{"result and cancelled", []string{listenResult("1"), cancelledNote("1")}, []string{listenResult(`"l"`), cancelledNote(`"l"`)}},
		{"cancelled", []string{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"bye"}}`, listenResult("1")},
			[]string{listenResult(`"l"`), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l","reason":"bye"}}`}},
		{"error", []string{`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`},
			[]string{`{"jsonrpc":"2.0","id":"l","error":{"code":-32602,"message":"no"}}`}},
	} {
		bubble(t, c.name, func(t *testing.T) {
			x := newMux(t, mux.Options{})
			a := x.dial()
			a.says(listenCall(`"l"`))
			x.up()
			x.serverGets(listenCall("1"))
			for _, text := range c.says {
				x.serverSays("%s", text)
			}
			for i, text := range c.gets {
				c.gets[i] = `"l" ` + text
			}
			a.gets(c.gets...)
			if l := x.mux.Load(); l.Listens != 0 {
				t.Errorf("Load = %+v", l)
			}
			x.serverGets()
		})
	}
}

// ST9: after the end of the server, open subscriptions are opened again; their
// clients do not notice, but for being told that all may have changed.
func TestMuxListensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a, b := x.dial(), x.dial()
		a.says(listenCall(`"l"`))
		x.up()
		x.serverGets(listenCall("1"))
		x.serverSays("%s", ack("1", `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":false,"resourceSubscriptions":["a:\u0062","c"]}`))
		a.gets(`"l" ` + ack(`"l"`, `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":false,"resourceSubscriptions":["a:\u0062","c"]}`))
		time.Sleep(2 * time.Minute)
		b.says(listenCall("7"))
		b.says(call("8"))
		x.serverGets(listenCall("2"), call("3"))
		old := x.server
		_ = old.Close(nil)
		x.up() // at once, and by itself
		b.gets(`8 {"jsonrpc":"2.0","id":8,"error":{"code":-32603,"message":"the server ended before it answered","data":{"reason":"server_ended"}}}`)
		a.gets()
		first, _ := soon(x.server)
		second, _ := soon(x.server)
		ids := map[string]bool{first.ID().String(): true, second.ID().String(): true}
		if first.Method() != "subscriptions/listen" || second.Method() != "subscriptions/listen" || !ids["4"] || !ids["5"] {
			t.Fatalf("the new server got %s and %s", first.Bytes(), second.Bytes())
		}
		// The one that was never acknowledged is a's or b's; both tell.
		x.serverSays("%s", ack("4", `{"toolsListChanged":true}`))
		x.serverSays("%s", ack("5", `{"toolsListChanged":true}`))
		a.gets(`"l" `+changed("tools/list_changed", `"l"`, ""), `"l" `+changed("prompts/list_changed", `"l"`, ""),
			`"l" `+changed("resources/updated", `"l"`, `,"uri":"a:\u0062"`), `"l" `+changed("resources/updated", `"l"`, `,"uri":"c"`))
		b.gets("7 " + ack("7", `{"toolsListChanged":true}`))

		_ = b.Close(nil) // after which the new server's one goes on
		_ = a.Close(nil)
		cancelled := map[string]bool{}
		for range 2 {
			m, _ := soon(x.server)
			cancelled[m.CancelledID().String()] = true
		}
		if !cancelled["4"] || !cancelled["5"] {
			t.Errorf("cancelled: %v", cancelled)
		}
	})
}

// Without subscriptions a server that has ended is not started again before
// somebody wants something of it.
func TestMuxRestartsOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		a.says(call("1"))
		x.up()
		time.Sleep(time.Hour)
		_ = x.server.Close(nil)
		synctest.Wait()
		a.gets(`1 {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server ended before it answered","data":{"reason":"server_ended"}}}`)
		time.Sleep(time.Hour)
		if n := x.servers.count(); n != 1 {
			t.Errorf("%d servers were started", n)
		}
		a.says(call("1"))
		x.up()
		x.serverGets(call("2"))
	})
}

// ST9: the first restart of a server that has lived is immediate, further ones
// take longer and longer; after five failures nobody waits for one, until the
// next attempt; a server that lives a minute is a good one again.
func TestMuxCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		want := 500 * time.Millisecond
		for i := range 5 {
			a.says(call("1"))
			if i > 0 {
				a.gets() // it waits
				if n := x.servers.count(); n != i {
					t.Fatalf("%d servers were started, want %d", n, i)
				}
				time.Sleep(want / 2)
			}
			x.up()
			x.serverGets(call([]string{"1", "2", "3", "4", "5"}[i]))
			_ = x.server.Close(nil)
			synctest.Wait()
			if m, ok := soon(a); !ok || !m.IsError() {
				t.Fatalf("got %s", m.Bytes())
			}
			wait := x.waits[i]
			if wait > want || wait < want*3/4-1 {
				t.Errorf("failure %d: the next attempt is due in %v, want about %v", i, wait, want)
			}
			want *= 2
		}
		a.says(call("6"))
		a.gets(`6 {"jsonrpc":"2.0","id":6,"error":{"code":-32603,"message":"the server has failed 5 times in a row; it is tried again in ` +
			x.waits[4].Round(time.Second).String() + `","data":{"reason":"server_unavailable"}}}`)
		a.says(`{"jsonrpc":"2.0","method":"notifications/vendor"}`)
		x.drops("there is no server")
		time.Sleep(8 * time.Second)
		if n := x.servers.count(); n != 5 {
			t.Errorf("%d servers were started, and nobody wanted one", n)
		}
		a.says(call("7"))
		x.up()
		time.Sleep(time.Minute)
		_ = x.server.Close(nil)
		synctest.Wait()
		if x.waits[5] != 0 {
			t.Errorf("after a good one: %v", x.waits[5])
		}
		a.says(call("8"))
		x.up()
		if m, ok := soon(a); !ok || !m.IsError() {
			t.Errorf("got %s", m.Bytes())
		}
	})
}

// The waits are bounded, and failures of long ago do not count.
func TestMuxBackoffIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{Backoff: time.Second, MaxBackoff: 3 * time.Second})
		a := x.dial()
		a.says(listenCall("1"))
		x.up()
		x.serverSays("%s", ack("1", `{}`))
		x.servers.fail(errors.New("no"))
		time.Sleep(time.Hour)
		_ = x.server.Close(nil)
		time.Sleep(time.Minute)
		x.mu.Lock()
		defer x.mu.Unlock()
		if len(x.waits) < 20 || len(x.waits) > 28 { // 60 s / (9/4..3) s
			t.Errorf("%d attempts in a minute", len(x.waits))
		}
		for i, wait := range x.waits[4:] {
			if wait > 3*time.Second || wait < 2*time.Second {
				t.Errorf("attempt %d: %v", i+4, wait)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		x.servers.fail(errors.New("no"))
		a := x.dial()
		for range 10 {
			a.says(call("1"))
			if m, ok := soon(a); !ok || !m.IsError() {
				t.Errorf("got %s", m.Bytes())
			}
			time.Sleep(2 * time.Minute)
		}
		for _, wait := range x.waits {
			if wait > 500*time.Millisecond {
				t.Errorf("waits %v", x.waits)
				break
			}
		}
	})
}

type public struct{ error }

func (public) PublicError() string { return "for everybody" }

// C.7: whoever waits for a server that cannot be had is told so, and no more
// than is fit for clients; that all places are taken is no failure of it.
func TestMuxNoServer(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want string
		busy bool // which is no failure: the next call tries again at once
	}{
		{"any", errors.New("/secret"), `"message":"the server could not be started; the bridge's log says why","data":{"reason":"server_unavailable"}`, false},
		{"public", public{io.EOF}, `"message":"for everybody","data":{"reason":"server_unavailable"}`, false},
		{"busy", bridge.ErrBusy, `"message":"too many clients; try again later","data":{"reason":"busy"}`, true},
	} {
		bubble(t, c.name, func(t *testing.T) {
			x := newMux(t, mux.Options{})
			x.servers.fail(c.err)
			a := x.dial()
			want := `1 {"jsonrpc":"2.0","id":1,"error":{"code":-32603,` + c.want + `}}`
			a.says(call("1"))
			a.gets(want)
			for range 10 {
				a.says(call("1"))
				if c.busy {
					a.gets(want)
				}
				if n := x.servers.count(); n != 1 && !c.busy {
					t.Fatalf("%d attempts without a pause", n)
				}
				if !c.busy {
					time.Sleep(time.Second)
					a.gets(want)
					break
				}
			}
			x.servers.fail(nil)
			time.Sleep(time.Second)
			a.says(call("3"))
			x.up()
		})
	}
}

// With no place for the server, open subscriptions go on trying, but not without pause.
func TestMuxBusyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		a.says(listenCall("1"))
		x.up()
		x.serverSays("%s", ack("1", `{}`))
		a.gets("1 " + ack("1", `{}`))
		time.Sleep(time.Hour)
		x.servers.fail(bridge.ErrBusy)
		_ = x.server.Close(nil)
		time.Sleep(10*time.Second + 1)
		if n := x.servers.count(); n < 10 || n > 22 {
			t.Errorf("%d attempts in 10 s", n)
		}
		x.servers.fail(nil)
		time.Sleep(time.Second)
		x.up()
		x.serverGets(listenCall("2"))
		a.gets()
	})
}

// C.2, J2: a subscription whose own connection is lost, while the server lives,
// is opened again under another id, at longer and longer intervals while that
// is fruitless; its client learns that something may have changed. One that was
// refused, or is not acknowledged yet, is over.
func TestMuxListenLost(t *testing.T) {
	lost := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":"lost","data":{"reason":"connection_lost"}}}`
	}
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{Backoff: time.Second, MaxBackoff: 3 * time.Second})
		a, b := x.dial(), x.dial()
		a.says(listenCall(`"l"`))
		x.up()
		x.serverGets(listenCall("1"))
		x.serverSays("%s", ack("1", `{"toolsListChanged":true}`))
		a.gets(`"l" ` + ack(`"l"`, `{"toolsListChanged":true}`))
		time.Sleep(time.Minute)
		b.says(listenCall("7"))
		x.serverGets(listenCall("2"))
		x.serverSays("%s", lost("2"))
		b.gets(`7 ` + lost("7"))

		x.serverSays("%s", lost("1"))
		for i, wait := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
			time.Sleep(wait - time.Millisecond)
			x.serverGets()
			time.Sleep(time.Millisecond)
			id := string(rune('3' + i))
			x.serverGets(listenCall(id))
			if i < 3 {
				x.serverSays("%s", lost(id))
			}
		}
		a.gets()
		x.serverSays("%s", ack("6", `{"toolsListChanged":true}`))
		a.gets(`"l" ` + changed("tools/list_changed", `"l"`, ""))

		x.serverSays("%s", lost("6"))
		a.says(cancelledNote(`"l"`))
		time.Sleep(time.Minute)
		x.serverGets()
		x.drops()
	})
}
