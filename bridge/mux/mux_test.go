package mux_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// servers is a Dialer of servers that the test plays, one after the other.
type servers struct {
	next  chan bridge.Conn // the test's end of each
	wrap  func(bridge.Conn) bridge.Conn
	mu    sync.Mutex
	err   error // what Dial returns instead
	dials int
}

func newServers() *servers { return &servers{next: make(chan bridge.Conn, 100)} }

func (d *servers) Dial(ctx context.Context) (bridge.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dials++
	if d.err != nil {
		return nil, d.err
	}
	ours, theirs := bridge.Pipe()
	d.next <- theirs
	if d.wrap != nil {
		ours = d.wrap(ours)
	}
	return ours, nil
}

func (d *servers) fail(err error) {
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
}

func (d *servers) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dials
}

// muxed is a Mux whose server the test plays.
type muxed struct {
	t       *testing.T
	mux     *mux.Mux
	servers *servers
	server  bridge.Conn

	mu      sync.Mutex
	dropped []string
	waits   []time.Duration
}

func newMux(t *testing.T, o mux.Options) *muxed {
	x := &muxed{t: t, servers: newServers()}
	if o.Dialer == nil {
		o.Dialer = x.servers
	}
	o.Dropped = func(_ jsonrpc.Message, reason string) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.dropped = append(x.dropped, reason)
	}
	o.OnNoServer = func(_ error, wait time.Duration) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.waits = append(x.waits, wait)
	}
	x.mux = mux.New(o)
	t.Cleanup(func() { _ = x.mux.Close() })
	return x
}

func (x *muxed) dial(principal ...string) *muxClient {
	x.t.Helper()
	c, err := x.mux.Dial(identity.WithPrincipal(x.t.Context(), strings.Join(principal, "")))
	bridgetest.Must(x.t, err)
	return &muxClient{x.t, c}
}

// up wants a server to have been started.
func (x *muxed) up() {
	x.t.Helper()
	synctest.Wait()
	select {
	case x.server = <-x.servers.next:
	default:
		x.t.Fatal("no server was started")
	}
}

func parse(t *testing.T, text string) jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

// soon returns what comes without any time passing.
func soon(c bridge.Conn) (jsonrpc.Message, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	m, err := bridgetest.Recv(ctx, c)
	return m, err == nil
}

func (x *muxed) serverSays(format string, args ...any) {
	x.t.Helper()
	bridgetest.Must(x.t, x.server.Send(x.t.Context(), parse(x.t, fmt.Sprintf(format, args...))))
	synctest.Wait()
}

func (x *muxed) drops(want ...string) {
	x.t.Helper()
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	if fmt.Sprint(x.dropped) != fmt.Sprint(want) {
		x.t.Errorf("dropped %q, want %q", x.dropped, want)
	}
	x.dropped = nil
}

type muxClient struct {
	t *testing.T
	bridge.Conn
}

// says sends, in a goroutine where that waits for a server.
func (c *muxClient) says(text string) {
	c.t.Helper()
	m := parse(c.t, text)
	go func() {
		if err := c.Send(c.t.Context(), m); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			c.t.Errorf("Send = %v", err)
		}
	}()
	synctest.Wait()
}

// gets wants exactly these messages to have come, each with Related in front
// and a blank.
func (c *muxClient) gets(want ...string) {
	c.t.Helper()
	for _, w := range want {
		m, ok := soon(c)
		if got := m.Related().String() + " " + string(m.Bytes()); !ok || got != w {
			c.t.Errorf("the client got %v %s, want %s", ok, got, w)
		}
	}
	if m, ok := soon(c); ok {
		c.t.Errorf("the client got %s, want nothing more", m.Bytes())
	}
}

// D.2, J2: equal ids and tokens of several clients do not meet, and each
// gets its own back as it has spelled them.
func TestMuxIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a, b := x.dial(), x.dial()
		a.says(`{"jsonrpc":"2.0", "id":1e0,"method":"tools/call","params":{"_meta":{"progressToken":1.0},"x":1e400}}`)
		x.up()
		b.says(`{"jsonrpc":"2.0","id":1e0,"method":"tools/call","params":{"_meta":{"progressToken":1.0}}}`)
		ta := x.serverGetsOne(`{"jsonrpc":"2.0", "id":1,"method":"tools/call","params":{"_meta":{"progressToken":$1},"x":1e400}}`)
		tb := x.serverGetsOne(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"_meta":{"progressToken":$1}}}`)
		if ta == tb {
			t.Errorf("both tokens are %s", ta)
		}
		x.serverSays(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, tb)
		x.serverSays(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":2}}`, ta)
		x.serverSays(`{"jsonrpc":"2.0","id":2.0,"result":{"b":9007199254740993}}`)
		x.serverSays(`{"result":{"a":1},"id":1,"jsonrpc":"2.0"}`)
		a.gets(`1e0 {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1.0,"progress":2}}`,
			`1e0 {"result":{"a":1},"id":1e0,"jsonrpc":"2.0"}`)
		b.gets(`1e0 {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1.0,"progress":1}}`,
			`1e0 {"jsonrpc":"2.0","id":1e0,"result":{"b":9007199254740993}}`)
		x.drops()
		// J13, J12
		x.serverSays(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":3}}`, ta)
		x.serverSays(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		x.serverSays(`{"jsonrpc":"2.0","id":"2","result":{}}`)
		a.gets()
		b.gets()
		x.drops("progress of no request that is in progress", "answers no request that is in progress", "answers no request that is in progress")
	})
}

// serverGetsOne wants this message to be the next for the server.
func (x *muxed) serverGetsOne(want string) (token string) {
	x.t.Helper()
	m, ok := soon(x.server)
	token = m.ProgressToken().String()
	if got := string(m.Bytes()); !ok || got != strings.ReplaceAll(want, "$1", token) {
		x.t.Errorf("the server got %s, want %s", got, want)
	}
	return token
}

// serverGets wants exactly these messages to have reached the server.
func (x *muxed) serverGets(want ...string) {
	x.t.Helper()
	for _, w := range want {
		x.serverGetsOne(w)
	}
	if m, ok := soon(x.server); ok {
		x.t.Errorf("the server got %s, want nothing more", m.Bytes())
	}
}

func call(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call"}` }

func cancelledNote(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

// D.2, ST11, J12: a client cancels its own calls only, by the server's id, and
// then hears nothing more of them, not even what has come before and lies
// there unread; it may use the id again.
func TestMuxCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a, b := x.dial(), x.dial()
		a.says(call("7"))
		x.up()
		b.says(call("8"))
		x.serverGets(call("1"), call("2"))
		b.says(cancelledNote("7"))
		b.says(cancelledNote("1")) // the server's id of a's call
		x.serverGets()
		x.drops("cancels no request that is in progress", "cancels no request that is in progress")
		x.serverSays(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		a.gets(`7 {"jsonrpc":"2.0","id":7,"result":{}}`)

		b.says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8.0,"RequestID":1,"reason":"\u0061","_meta":{"a":1}}}`)
		x.serverGets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"\u0061","_meta":{"a":1}}}`)
		x.serverSays(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		b.gets()
		x.drops("answers no request that is in progress")

		b.says(call(`"x"`))
		x.serverGets(call("3"))
		x.serverSays(`{"jsonrpc":"2.0","id":3,"result":{"old":true}}`)
		b.says(cancelledNote(`"x"`)) // too late for the server
		x.serverGets()
		b.says(call(`"x"`))
		x.serverSays(`{"jsonrpc":"2.0","id":4,"result":{"new":true}}`)
		b.gets(`"x" {"jsonrpc":"2.0","id":"x","result":{"new":true}}`)
	})
}

// J12: progress that has come but was not read is about the cancelled call no more.
func TestMuxCancelTakesBackWhatIsUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		a.says(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"p"}}}`)
		x.up()
		token := x.serverGetsOne(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":$1}}}`)
		x.serverSays(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, token)
		a.says(cancelledNote("1"))
		a.gets()
	})
}

// D.2: what a client that leaves still waits for is cancelled, and what has not
// reached the server yet does not.
func TestMuxClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a, b := x.dial(), x.dial()
		if l := x.mux.Load(); l.Conns != 2 || l.Calls != 0 || !l.IdleSince.IsZero() {
			t.Errorf("Load = %+v", l)
		}
		a.says(call("7"))
		x.up()
		a.says(`{"jsonrpc":"2.0","id":8,"method":"subscriptions/listen"}`)
		b.says(call("7"))
		x.serverGets(call("1"), `{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen"}`, call("3"))
		if l := x.mux.Load(); l.Conns != 2 || l.Calls != 2 || l.Listens != 1 {
			t.Errorf("Load = %+v", l)
		}
		_ = a.Close(nil)
		synctest.Wait()
		got := map[string]bool{}
		for range 2 {
			m, _ := soon(x.server)
			got[m.CancelledID().String()] = m.Method() == "notifications/cancelled"
		}
		if !got["1"] || !got["2"] {
			t.Errorf("cancelled: %v, want 1 and 2", got)
		}
		x.serverSays(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		x.serverSays(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		b.gets(`7 {"jsonrpc":"2.0","id":7,"result":{}}`)
		x.serverGets()
		_ = b.Close(nil)
		if l := x.mux.Load(); l.Conns != 0 || l.Calls != 0 || l.Listens != 0 || !l.IdleSince.Equal(time.Now()) {
			t.Errorf("Load = %+v", l)
		}
	})
}

// J3, D.2, and messages that two servers could read differently: a client could
// cancel another's call, or answer it, at one that takes "Method" for "method".
func TestMuxRefuses(t *testing.T) {
	const inUse = `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"a request with this id is already in progress"}}`
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		a.says(call("1"))
		x.up()
		a.says(call("1"))
		a.gets("1 " + inUse)
		a.says(`{"jsonrpc":"2.0","id":2,"ID":1,"method":"tools/call"}`)
		a.gets(`2 {"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"a key of the message differs from \"id\" by upper and lower case only"}}`)
		a.says(`{"jsonrpc":"2.0","id":3,"method":"tools/call","Result":{}}`)
		a.gets(`3 {"jsonrpc":"2.0","id":3,"error":{"code":-32600,"message":"a key of the message differs from \"result\" by upper and lower case only"}}`)
		for _, key := range []string{`"Method":"notifications/cancelled"`, `"ID":1`, `"Params":{"requestId":1}`, `"\u004dethod":"notifications/cancelled"`} {
			a.says(`{"jsonrpc":"2.0","method":"notifications/vendor","params":{"requestId":1},` + key + `}`)
		}
		x.serverGets(call("1"))
		x.drops(`a key differs from "method" by upper and lower case only`, `a key differs from "id" by upper and lower case only`,
			`a key differs from "params" by upper and lower case only`, `a key differs from "method" by upper and lower case only`)
		x.serverSays(`{"jsonrpc":"2.0","id":1,"result":{}}`) // the first was not disturbed
		a.gets(`1 {"jsonrpc":"2.0","id":1,"result":{}}`)
	})
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a, b := x.dial(), x.dial()
		a.says(call("0"))
		x.up()
		go func() { // it takes everything and answers nothing
			for {
				if _, err := bridgetest.Recv(t.Context(), x.server); err != nil {
					return
				}
			}
		}()
		for i := 1; i < 1000; i++ {
			a.says(call(fmt.Sprint(i)))
		}
		a.gets()
		a.says(call("1000"))
		a.gets(`1000 {"jsonrpc":"2.0","id":1000,"error":{"code":-32603,"message":"too many requests wait for an answer"}}`)
		b.says(call("1"))
		x.serverSays(`{"jsonrpc":"2.0","id":1001,"result":{}}`)
		b.gets(`1 {"jsonrpc":"2.0","id":1,"result":{}}`)
		a.says(cancelledNote("5"))
		a.says(call("1000"))
		a.gets()
	})
}

// D.2: of what the server takes no client gets so much that others get nothing.
// What one gives up is another's at once.
func TestMuxShares(t *testing.T) {
	const busy = `{"code":-32603,"message":"too many requests wait for an answer","data":{"reason":"busy"}}`
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{MaxCalls: 8})
		// fill has clients, in turn, call for as long as they may.
		fill := func(from int, clients ...*muxClient) (n int) {
			for i := from; ; i++ {
				c := clients[i%len(clients)]
				if i%2 == 0 {
					c.says(call(fmt.Sprint(i)))
				} else {
					c.says(listenCall(fmt.Sprint(i)))
				}
				if m, ok := soon(c); ok {
					if got := string(m.Lookup("error")); got != busy {
						t.Fatalf("got %s", m.Bytes())
					}
					return n
				}
				n++
			}
		}
		p1, p2, q, anybody := x.dial("p"), x.dial("p"), x.dial("q"), x.dial()
		p1.says(call("0"))
		x.up()
		if n := fill(1, p1, p2); n != 3 {
			t.Errorf("the first got %d more, want 3", n)
		}
		if n := fill(100, q); n != 2 {
			t.Errorf("the second got %d, want 2", n)
		}
		if n := fill(200, anybody); n != 1 {
			t.Errorf("the third got %d, want 1", n)
		}
		if n := fill(300, x.dial()); n != 1 {
			t.Errorf("the fourth got %d, want 1", n)
		}
		if n := fill(400, x.dial()); n != 0 {
			t.Errorf("the fifth got %d, want 0", n)
		}
		_ = p1.Close(nil)
		_ = p2.Close(nil)
		synctest.Wait()
		if n := fill(500, anybody); n != 2 {
			t.Errorf("then the third got %d more, want 2", n)
		}
		if n := fill(600, x.dial("p")); n != 1 {
			t.Errorf("then the first got %d, want 1", n)
		}
	})
}

// J12: a server that guesses the id of a call which it has not got yet, they
// count up, answers nothing by that.
func TestMuxGuessedID(t *testing.T) {
	lost := `{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"no","data":{"reason":"connection_lost"}}}`
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		const calls = 40
		a.says(call("1"))
		x.up()
		for i := 2; i <= calls; i++ { // more than fit in between, and the server reads none
			a.says(call(fmt.Sprint(i)))
		}
		x.serverSays(lost, calls)
		a.gets()
		x.drops("answers no request that is in progress")
		for i := 1; i <= calls; i++ {
			x.serverGetsOne(call(fmt.Sprint(i)))
			synctest.Wait()
		}
		x.serverGets()
		x.serverSays(lost, calls)
		if m, ok := soon(a); !ok || m.ID().String() != fmt.Sprint(calls) {
			t.Errorf("got %s", m.Bytes())
		}
	})
}

// ST10: a server of 2026-07-28 has nothing to ask its clients. What it asks all the
// same is answered in their place, so that it does not wait, and no client hears of it.
func TestMuxAnswersTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		a.says(call("1"))
		x.up()
		x.serverGets(call("1"))
		x.serverSays(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		x.serverGets(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		x.serverSays(`{"jsonrpc":"2.0","id":"\u0061","method":"roots/list"}`)
		x.serverGets(`{"jsonrpc":"2.0","id":"\u0061","error":{"code":-32601,"message":"there is no method roots/list in 2026-07-28"}}`)
		a.gets()
		x.drops("a server of 2026-07-28 makes no requests: it is answered so")

		a.says(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		a.says(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
		x.serverGets()
		x.drops("a server of 2026-07-28 makes no requests", "a client of 2026-07-28 makes no progress")
		a.says(`{"jsonrpc":"2.0","method":"notifications/vendor"}`)
		x.serverGets(`{"jsonrpc":"2.0","method":"notifications/vendor"}`)
		x.serverSays(`{"jsonrpc":"2.0","id":1,"result":{"x":1}}`)
		a.gets(`1 {"jsonrpc":"2.0","id":1,"result":{"x":1}}`)
	})
}

// ST10: a server that asks and asks, and takes no answer, costs bounded memory.
func TestMuxAnswersBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		a.says(call("1"))
		x.up()
		x.serverGets(call("1"))
		const asked = 5000
		for range asked {
			x.serverSays(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		}
		answers := 0
		for {
			if _, ok := soon(x.server); !ok {
				break
			}
			answers++
		}
		x.mu.Lock()
		dropped := len(x.dropped)
		x.mu.Unlock()
		if answers+dropped != asked || answers > 2000 {
			t.Errorf("of %d questions %d were answered, and %d dropped with a word", asked, answers, dropped)
		}
	})
}

// B.1, D.2: what does not say whose it is goes to the only call that it can be
// about, and otherwise to nobody. A server may log for a call that wants none.
func TestMuxAttribution(t *testing.T) {
	const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
	const nobody = "cannot be attributed to a request in progress"
	logCall := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/logLevel":"info"}}}`
	}
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a, b, other := x.dial("p"), x.dial("p"), x.dial("q")
		a.says(call("1"))
		x.up()
		x.serverSays(log)
		a.gets()
		x.drops(nobody)
		b.says(logCall("1"))
		x.serverSays(log) // of which of the two?
		a.gets()
		b.gets()
		x.drops(nobody)

		// The transport says it.
		_ = x.server.Send(t.Context(), parse(t, log).WithRelated(jsonrpc.IntID(2)))
		_ = x.server.Send(t.Context(), parse(t, log).WithRelated(jsonrpc.IntID(9)))
		_ = x.server.Send(t.Context(), parse(t, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`).WithRelated(jsonrpc.NullID))
		synctest.Wait()
		a.gets()
		b.gets("1 " + log)
		x.drops(nobody, nobody)

		// After a cancellation the last words may be about what was cancelled,
		// whether that wanted log messages or not.
		a.says(cancelledNote("1"))
		x.serverSays(log)
		b.gets("1 " + log) // of the same principal
		x.serverSays(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		b.gets(`1 {"jsonrpc":"2.0","id":1,"result":{}}`)
		other.says(logCall("1"))
		x.serverSays(log)
		other.gets()
		x.drops(nobody)
		time.Sleep(5*time.Second + 1)
		x.serverSays(log)
		other.gets("1 " + log)

		// No log message is about a subscription, nor about one that was cancelled.
		a.says(`{"jsonrpc":"2.0","id":"k","method":"subscriptions/listen"}`)
		a.says(cancelledNote(`"k"`))
		a.says(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen"}`)
		x.serverSays(log)
		other.gets("1 " + log)
		x.serverSays(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		other.gets(`1 {"jsonrpc":"2.0","id":1,"result":{}}`)
		b.says(logCall("2"))
		x.serverSays(log)
		b.gets("2 " + log)
		a.gets()
		x.drops()
	})
}

// D.2: a client that does not read is ended with a named error; others go on,
// and the server does not wait for anybody.
func TestMuxSlowClient(t *testing.T) {
	progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"%s"}}`
	for _, c := range []struct {
		name  string
		opts  mux.Options
		fits  int
		bytes int
	}{
		{"count", mux.Options{MaxUnread: 10}, 10, 0},
		{"default", mux.Options{}, 16, 1<<20 - 200},
		{"bytes", mux.Options{MaxUnreadBytes: 1000}, 2, 300},
		{"one always fits", mux.Options{MaxUnreadBytes: 1000}, 1, 10_000},
	} {
		bubble(t, c.name, func(t *testing.T) {
			x := newMux(t, c.opts)
			slow, b := x.dial(), x.dial()
			slow.says(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":1}}}`)
			x.up()
			b.says(call("1"))
			token := x.serverGetsOne(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":$1}}}`)
			x.serverGets(call("2"))
			for i := range c.fits {
				x.serverSays(progress, token, i, strings.Repeat("x", c.bytes))
			}
			x.drops()
			x.serverSays(progress, token, c.fits, strings.Repeat("x", c.bytes))
			time.Sleep(50 * time.Millisecond) // it could be about to read
			x.serverGets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"the client has gone"}}`)
			if _, err := bridgetest.Recv(t.Context(), slow); err != bridge.ErrSlow {
				t.Errorf("Recv = %v", err)
			}
			if err := slow.Send(t.Context(), parse(t, call("2"))); err != bridge.ErrSlow {
				t.Errorf("Send = %v", err)
			}
			x.serverSays(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			b.gets(`1 {"jsonrpc":"2.0","id":1,"result":{}}`)
		})
	}
}

// D.2: a client that reads is waited for when its queue is full, and so loses
// nothing of a burst; one that only seems to is not.
func TestMuxBurst(t *testing.T) {
	progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`
	for name, pause := range map[string]time.Duration{"reads": 100 * time.Microsecond, "dawdles": time.Millisecond} {
		bubble(t, name, func(t *testing.T) {
			x := newMux(t, mux.Options{MaxUnread: 1000})
			a := x.dial()
			a.says(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":1}}}`)
			x.up()
			token := x.serverGetsOne(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":$1}}}`)
			const n = 5000
			go func() {
				for i := range n {
					if x.server.Send(t.Context(), parse(t, fmt.Sprintf(progress, token, i))) != nil {
						return
					}
				}
				_ = x.server.Send(t.Context(), parse(t, `{"jsonrpc":"2.0","id":1,"result":{}}`))
			}()
			got := 0
			var err error
			for {
				var m jsonrpc.Message
				if m, err = bridgetest.Recv(t.Context(), a); err != nil || m.Kind() == jsonrpc.Response {
					break
				}
				if want := fmt.Sprintf(progress, "1", got); string(m.Bytes()) != want {
					t.Fatalf("got %s, want %s", m.Bytes(), want)
				}
				got++
				time.Sleep(pause)
			}
			if reads := name == "reads"; reads && (err != nil || got != n) || !reads && err != bridge.ErrSlow {
				t.Errorf("%d of %d have come, and then %v", got, n, err)
			}
		})
	}
}

// D.2: a client that has little to read, and reads it, is not too slow for what
// does not fit behind that.
func TestMuxLargeBehindSmall(t *testing.T) {
	for name, large := range map[string]string{
		"notification": `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":2,"message":"%s"}}`,
		"answer":       `{"jsonrpc":"2.0","id":1,"result":{"progressToken":%s,"message":"%s"}}`,
	} {
		bubble(t, name, func(t *testing.T) {
			x := newMux(t, mux.Options{MaxUnreadBytes: 1000})
			a, token := x.progressing()
			x.serverSays(progressOf, token, 1)
			x.serverSays(large, token, strings.Repeat("x", 950))
			time.Sleep(40 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for i, size := range []int{0, 950} {
				if m, err := bridgetest.Recv(ctx, a); err != nil || m.Size() < size {
					t.Errorf("%d: %.99s, %v", i, m.Bytes(), err)
				}
			}
		})
	}
}

// D.2: but one that reads a little now and then holds nobody up for long.
func TestMuxLargeBehindMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{MaxUnreadBytes: 100_000})
		a, token := x.progressing()
		const n = 350
		for i := range n {
			x.serverSays(progressOf, token, i)
		}
		reads := make(chan error, 1)
		go func() {
			for {
				if _, err := bridgetest.Recv(t.Context(), a); err != nil {
					reads <- err
					return
				}
				time.Sleep(40 * time.Millisecond)
			}
		}()
		began := time.Now()
		x.serverSays(`{"jsonrpc":"2.0","id":1,"result":{"x":"%s"}}`, strings.Repeat("x", 99_000))
		if err := <-reads; err != bridge.ErrSlow || time.Since(began) > 400*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// progressOf is progress of a call, by token and number.
const progressOf = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`

// progressing returns a client whose call is in progress, and the call's token at the server.
func (x *muxed) progressing() (c *muxClient, token string) {
	x.t.Helper()
	c = x.dial()
	c.says(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":1}}}`)
	x.up()
	return c, x.serverGetsOne(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":$1}}}`)
}

// A client may leave while the server takes nothing; nobody's message is cut off.
func TestMuxServerTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a, b := x.dial(), x.dial()
		a.says(call("0"))
		x.up()
		for i := 1; i < 40; i++ {
			a.says(call(fmt.Sprint(i)))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Send(ctx, parse(t, call("1"))); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Send = %v", err)
		}
		if l := x.mux.Load(); l.Calls != 40 {
			t.Errorf("Load = %+v", l)
		}
		_ = a.Close(nil)
		synctest.Wait()
		seen := map[string]int{}
		for m, ok := soon(x.server); ok; m, ok = soon(x.server) {
			if m.Method() == "notifications/cancelled" {
				seen[m.CancelledID().String()]--
			} else {
				seen[m.ID().String()]++
			}
		}
		for id, n := range seen {
			if n != 0 {
				t.Errorf("call %s reached the server and was not cancelled", id)
			}
		}
		if len(seen) > 20 {
			t.Errorf("%d calls reached the server that nobody waited for", len(seen))
		}
	})
}

// D.2: a Pump whose client is stuck ends by name, though it is waiting for the
// client; also with a filter in between.
func TestMuxSlowClientOfPump(t *testing.T) {
	for name, wrap := range map[string]func(bridge.Conn) bridge.Conn{
		"mux":        func(c bridge.Conn) bridge.Conn { return c },
		"translated": func(c bridge.Conn) bridge.Conn { return translate.Wrap(c, bridgetest.PassingFilter{}, nil) },
	} {
		bubble(t, name, func(t *testing.T) {
			x := newMux(t, mux.Options{MaxUnread: 50})
			conn := wrap(x.dial().Conn)
			client := bridgetest.NewPeer(t, 0) // which takes nothing
			done := make(chan error)
			go func() { done <- bridge.Pump(t.Context(), client, conn, bridge.PumpOptions{}) }()
			client.Says(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":1}}}`)
			x.up()
			token := x.serverGetsOne(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":$1}}}`)
			for i := range 100 {
				x.serverSays(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, i)
			}
			if err := <-done; err != bridge.ErrSlow {
				t.Errorf("Pump = %v", err)
			}
			_ = conn.Close(nil)
		})
	}
}

// MI14, MI18, D.2: what comes in the course of one request says nothing about
// another, and a request hears only what it has asked for.
func TestMuxStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a, b := x.dial("p"), x.dial("q")
		a.says(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":1,"io.modelcontextprotocol/logLevel":"warning"}}}`)
		x.up()
		token := x.serverGetsOne(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":$1,"io.modelcontextprotocol/logLevel":"warning"}}}`)
		b.says(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}`)
		during := func(id int64, text string) {
			t.Helper()
			bridgetest.Must(t, x.server.Send(t.Context(), parse(t, text).WithRelated(jsonrpc.IntID(id))))
			synctest.Wait()
		}
		progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":1}}`
		during(2, progress)
		x.drops("progress of no request that is in progress")
		during(1, progress)
		a.gets(`1 {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
		change := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`
		during(1, change)
		x.drops("belongs to no subscription that is open")
		during(1, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		x.drops("cancels no subscription that is open")
		b.gets()
		during(2, change)
		b.gets(`"l" {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`)
		log := func(level string) string {
			return `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + level + `","data":1}}`
		}
		during(1, log("info"))
		x.drops("a log message that its request has not asked for")
		during(1, log("error"))
		a.gets("1 " + log("error"))

		// MI21: a subscription hears what it has asked for, under its id.
		for _, other := range []string{
			log("error"),
			`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}`,
		} {
			during(2, other)
			x.drops("its subscription has not asked for it")
		}
		b.gets()
		during(2, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":1}}`)
		b.gets(`"l" {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":1,"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`)
		during(2, `{"jsonrpc":"2.0","id":2,"result":{"x":1}}`)
		b.gets(`"l" {"jsonrpc":"2.0","id":"l","result":{"x":1,"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`,
			`"l" {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}`)
	})
}
