package bridge_test

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
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// servers is a Dialer of servers that the test plays, one after the other.
type servers struct {
	next  chan bridge.Conn // the test's end of each
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
	mux     *bridge.Mux
	servers *servers
	server  bridge.Conn

	mu      sync.Mutex
	dropped []string
	waits   []time.Duration
}

func newMux(t *testing.T, o bridge.MuxOptions) *muxed {
	x := &muxed{t: t, servers: newServers()}
	if o.Dialer == nil {
		o.Dialer = x.servers
	}
	o.Dropped = func(_ jsonrpc.Message, reason string) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.dropped = append(x.dropped, reason)
	}
	o.Restarting = func(_ error, wait time.Duration) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.waits = append(x.waits, wait)
	}
	x.mux = bridge.NewMux(o)
	t.Cleanup(func() { _ = x.mux.Close() })
	return x
}

func (x *muxed) dial(principal ...string) *muxClient {
	x.t.Helper()
	c, err := x.mux.Dial(bridge.WithPrincipal(x.t.Context(), strings.Join(principal, "")))
	if err != nil {
		x.t.Fatal(err)
	}
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
	m, err := c.Recv(ctx)
	return m, err == nil
}

func (x *muxed) serverSays(format string, args ...any) {
	x.t.Helper()
	if err := x.server.Send(x.t.Context(), parse(x.t, fmt.Sprintf(format, args...))); err != nil {
		x.t.Fatal(err)
	}
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
func (c *muxClient) says(format string, args ...any) {
	c.t.Helper()
	m := parse(c.t, fmt.Sprintf(format, args...))
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

// D1, D2, J2: equal ids and tokens of several clients do not meet, and each
// gets its own back as it has spelled them.
func TestMuxIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, bridge.MuxOptions{})
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
