package mux_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// deaf is the Conn to a server that reads nothing any more once it is deaf, as one that is about to exit.
type deaf struct {
	bridge.Conn
	isDeaf  atomic.Bool
	writing chan error // not nil: a Send to the deaf server waits, and returns what comes here
}

func (d *deaf) TrySend(m jsonrpc.Message) bool { return !d.isDeaf.Load() && d.Conn.TrySend(m) }

func (d *deaf) Send(ctx context.Context, m jsonrpc.Message) error {
	switch {
	case !d.isDeaf.Load():
		return d.Conn.Send(ctx, m)
	case d.writing != nil:
		return <-d.writing
	}
	return syscall.EPIPE
}

// newDeafMux returns a Mux whose servers become deaf when the test wants. each is called with every one of them.
func newDeafMux(t *testing.T, each func(d *deaf)) (x *muxed, last func() *deaf) {
	x = newMux(t, mux.Options{})
	var now *deaf
	x.servers.wrap = func(c bridge.Conn) bridge.Conn {
		now = &deaf{Conn: c}
		each(now)
		return now
	}
	return x, func() *deaf { return now }
}

const (
	answer1 = `1 {"jsonrpc":"2.0","id":1,"result":{}}`
	ended2  = `2 {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the server ended before it answered","data":{"reason":"server_ended"}}}`
)

// answersOne has the client a ask the server for something, which becomes deaf then.
func (x *muxed) answersOne(a *muxClient, server func() *deaf) {
	x.t.Helper()
	a.says(call("1"))
	x.up()
	x.serverGets(call("1"))
	x.serverSays(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	a.gets(answer1)
	server().isDeaf.Store(true)
}

// ST9: a server that ends has not taken some calls any more. Nobody has seen these: the next server, which is started
// at once, gets them in order, and their clients notice nothing. Those that it had taken are answered with an error.
func TestMuxPassesOnCallsThatNobodyHasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, server := newDeafMux(t, func(*deaf) {})
		a, b, c := x.dial(), x.dial(), x.dial()
		x.answersOne(a, server)
		server().isDeaf.Store(false)
		a.says(call("2")) // the server has taken this one
		server().isDeaf.Store(true)
		const large = `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"text":"`
		text := strings.Repeat("x", 32<<10) + `"}}`
		b.says(call("3"))
		b.says(large + text) // its Send waits with it
		b.says(call("5"))
		c.says(call("6"))
		c.says(cancelledNote("6"))
		if n := x.servers.count(); n != 1 {
			t.Fatalf("%d servers before the first has ended", n)
		}
		_ = x.server.Close(nil)
		x.up()
		if x.waits[0] != 0 {
			t.Errorf("the next server is started after %v", x.waits[0])
		}
		a.gets(ended2)
		x.serverGets(call("3"), call("5"), strings.Replace(large, `"id":4`, `"id":4`, 1)+text)
		for _, id := range []string{"3", "4", "5"} {
			x.serverSays(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
		}
		b.gets(`3 {"jsonrpc":"2.0","id":3,"result":{}}`, `4 {"jsonrpc":"2.0","id":4,"result":{}}`, `5 {"jsonrpc":"2.0","id":5,"result":{}}`)
		a.gets()
		c.gets()
		if l := x.mux.Load(); l.Calls != 0 {
			t.Errorf("%d calls are left", l.Calls)
		}
	})
}

// ST9: a server ends while a call is being written to it. What comes of that write decides: a call that was written is
// answered with an error, and any other is the next server's.
func TestMuxEndsInTheMiddleOfAWrite(t *testing.T) {
	for name, err := range map[string]error{"written": nil, "not written": syscall.EPIPE} {
		for size, text := range map[string]string{"small": "x", "large": strings.Repeat("x", 32<<10)} {
			bubble(t, name+", "+size, func(t *testing.T) {
				writing := make(chan error)
				x, server := newDeafMux(t, func(d *deaf) { d.writing = writing })
				a := x.dial()
				x.answersOne(a, server)
				question := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"text":"` + text + `"}}`
				a.says(question)
				_ = x.server.Close(nil)
				synctest.Wait()
				a.gets() // nobody knows yet
				writing <- err
				synctest.Wait()
				if err == nil {
					a.gets(ended2)
					a.says(call("3"))
					x.up()
					x.serverGets(call("3"))
					return
				}
				x.up()
				x.serverGets(question)
				x.serverSays(`{"jsonrpc":"2.0","id":2,"result":{}}`)
				a.gets(`2 {"jsonrpc":"2.0","id":2,"result":{}}`)
			})
		}
	}
}

// ST9: the same where the server's Conn has taken the call, but has not written it when the server ends.
func TestMuxPassesOnWhatItsConnHasNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, server := newDeafMux(t, func(*deaf) {})
		wrap := x.servers.wrap
		x.servers.wrap = func(c bridge.Conn) bridge.Conn { return translate.Wrap(wrap(c), new(bridgetest.KeepingFilter), nil) }
		a, b := x.dial(), x.dial()
		x.answersOne(a, server)
		server().isDeaf.Store(false)
		a.says(call("2")) // the server has got this one
		x.serverGets(call("2"))
		server().isDeaf.Store(true)
		const question = `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"_meta":{"progressToken":%s}}}`
		b.says(fmt.Sprintf(question, "3", `"p"`))
		_ = x.server.Close(nil)
		x.up()
		a.gets(ended2)
		token := x.serverGetsOne(fmt.Sprintf(question, "3", "$1"))
		x.serverSays(progressOf, token, 1)
		x.serverSays(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		b.gets(`3 `+fmt.Sprintf(progressOf, `"p"`, 1), `3 {"jsonrpc":"2.0","id":3,"result":{}}`)
		x.drops()
	})
}

// ST9: a call is not passed on without end: not to servers that end as soon as they are started, and not while no
// server is started because too many have failed.
func TestMuxPassesOnOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newDeafMux(t, func(d *deaf) { d.isDeaf.Store(true) })
		a := x.dial()
		a.says(call("1"))
		x.up()
		_ = x.server.Close(nil)
		time.Sleep(time.Second) // it has answered nothing, so there is a pause
		a.gets()
		x.up()
		_ = x.server.Close(nil)
		synctest.Wait()
		a.gets(`1 {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server ended before it answered","data":{"reason":"server_ended"}}}`)
		time.Sleep(time.Minute)
		if n := x.servers.count(); n != 2 {
			t.Errorf("%d servers were started", n)
		}
		for range 3 { // and the next call is the fifth failure
			x.servers.fail(errors.New("no"))
			a.says(call("2"))
			time.Sleep(30 * time.Second)
			soon(a)
		}
		x.servers.fail(nil)
		a.says(call("3"))
		x.up()
		_ = x.server.Close(nil)
		synctest.Wait()
		a.gets(`3 {"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the server ended before it answered","data":{"reason":"server_ended"}}}`)
	})
}

// A call that waits for the next server may be cancelled, its client may leave, and the next server may not start.
func TestMuxPassesOnOnlyWhatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, server := newDeafMux(t, func(*deaf) {})
		a, b := x.dial(), x.dial()
		x.answersOne(a, server)
		a.says(call("2"))
		b.says(call("2"))
		x.servers.fail(errors.New("no"))
		_ = x.server.Close(nil)
		synctest.Wait()
		const none = `2 {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the server could not be started; the bridge's log says why","data":{"reason":"server_unavailable"}}}`
		a.gets(none)
		b.gets(none)
		x.servers.fail(nil)
		a.says(call("1"))
		time.Sleep(time.Second)
		x.up()
		x.serverGets(call("4"))
		server().isDeaf.Store(true)
		a.says(call("2"))
		b.says(call("2"))
		_ = x.server.Close(nil) // it has answered nothing, so there is a pause
		synctest.Wait()
		a.gets(`1 {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server ended before it answered","data":{"reason":"server_ended"}}}`)
		a.says(cancelledNote("2"))
		_ = b.Close(nil)
		time.Sleep(time.Minute)
		if n := x.servers.count(); n != 3 {
			t.Errorf("%d servers were started, want 3: nobody wants a fourth", n)
		}
		if l := x.mux.Load(); l.Calls != 0 {
			t.Errorf("%d calls are left", l.Calls)
		}
	})
}

// ST9: a request that only reads, and that a server may have got before it has ended with status 0, is sent again, once;
// also if a filter has answered it already because the server has ended. After a crash it is not: it may be the cause.
func TestMuxSendsReadsAgain(t *testing.T) {
	const list = `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`
	const lost = `{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"it has ended","data":{"reason":"server_ended"}}}`
	for name, again := range map[string]bool{"exits": true, "a filter answers": true, "has answered nothing": false, "crashes": false} {
		bubble(t, name, func(t *testing.T) {
			x := newMux(t, mux.Options{})
			if name == "crashes" {
				x.servers.wrap = func(c bridge.Conn) bridge.Conn { return crashing{c} }
			}
			a := x.dial()
			n := 0
			work := func() {
				a.says(call("1"))
				n++
				x.serverGets(call(fmt.Sprint(n)))
				x.serverSays(`{"jsonrpc":"2.0","id":%d,"result":{}}`, n)
				a.gets(answer1)
			}
			end := func(owed int) {
				if name == "a filter answers" {
					x.serverSays(lost, owed)
				}
				_ = x.server.Close(nil)
				synctest.Wait()
			}
			a.says(fmt.Sprintf(list, 2))
			n++
			x.up()
			x.serverGets(fmt.Sprintf(list, n))
			if name != "has answered nothing" {
				work()
			}
			if end(1); !again {
				if m, ok := soon(a); !ok || !m.IsError() || m.ID().String() != "2" {
					t.Errorf("the client got %s", m.Bytes())
				}
				time.Sleep(time.Minute)
				if n := x.servers.count(); n != 1 {
					t.Errorf("%d servers were started", n)
				}
				return
			}
			a.gets()
			x.up()
			x.serverGets(fmt.Sprintf(list, 1))
			work()
			end(1)
			if m, ok := soon(a); !ok || !m.IsError() || m.ID().String() != "2" {
				t.Errorf("after the second time the client got %s", m.Bytes())
			}
			time.Sleep(time.Minute)
			if n := x.servers.count(); n != 2 {
				t.Errorf("%d servers were started", n)
			}
		})
	}
}

// lingering is the Conn to a server that gets a tools/list, and whose TrySend then takes until released is closed.
type lingering struct {
	bridge.Conn
	wrote, closed, released chan struct{}
}

func (l *lingering) TrySend(m jsonrpc.Message) bool {
	taken := l.Conn.TrySend(m)
	if m.Method() == "tools/list" {
		close(l.wrote)
		<-l.released
	}
	return taken
}

func (l *lingering) Close(reason error) error {
	select {
	case l.closed <- struct{}{}:
	default:
	}
	return l.Conn.Close(reason)
}

// A client that has written a call itself may learn of the server's end late. The next server gets the call all the
// same: it is not started before.
func TestMuxAwaitsWhoStillWrites(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	servers := make(chan bridge.Conn, 2)
	l := &lingering{wrote: make(chan struct{}), closed: make(chan struct{}, 1), released: make(chan struct{})}
	x := mux.New(mux.Options{Dialer: dialFunc(func(context.Context) (bridge.Conn, error) {
		conn, server := bridge.Pipe()
		servers <- server
		if l.Conn == nil {
			l.Conn = conn
			return l, nil
		}
		return conn, nil
	})})
	defer x.Close()
	client, err := x.Dial(ctx)
	bridgetest.Must(t, err)
	other, err := x.Dial(ctx)
	bridgetest.Must(t, err)
	bridgetest.Must(t, client.Send(ctx, bridgetest.Parse(call("1"))))
	server := <-servers
	m, err := bridgetest.Recv(ctx, server)
	bridgetest.Must(t, err)
	bridgetest.Must(t, server.Send(ctx, jsonrpc.NewResult(m.ID(), nil)))
	_, err = bridgetest.Recv(ctx, client)
	bridgetest.Must(t, err)

	go client.Send(ctx, bridgetest.Parse(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`))
	<-l.wrote
	bridgetest.Must(t, server.Close(nil))
	<-l.closed
	go other.Send(ctx, bridgetest.Parse(call("3")))
	server = nil
	select {
	case server = <-servers:
	case <-time.After(50 * time.Millisecond): // so it should be
	}
	close(l.released)
	if server == nil {
		server = <-servers
	}
	var got []string
	for range 2 {
		m, err := bridgetest.Recv(ctx, server)
		if err != nil {
			t.Fatalf("the next server has got %q: %v", got, err)
		}
		got = append(got, m.Method())
	}
}
