package observe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// listing is a Watcher that lists what it is told.
type listing struct {
	mu    sync.Mutex
	lines []string
	nth   map[uint64]int // messages by Seq, which has holes
}

func (l *listing) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *listing) Message(p *observe.Passed) {
	l.mu.Lock()
	if l.nth == nil {
		l.nth = map[uint64]int{}
	}
	if p.Seq != 0 {
		l.nth[p.Seq] = len(l.nth) + 1
	}
	seq, cause := l.nth[p.Seq], l.nth[p.CauseSeq]
	l.mu.Unlock()
	text := fmt.Sprintf("%d<%d %s %s %s", seq, cause, p.Hop, p.Dir, p.Message.Bytes())
	if p.Call != nil {
		text += " of " + p.Call.Method + "(" + p.Call.Name + ")"
	}
	l.add("%s", text)
}

func (l *listing) Event(e observe.Event) {
	switch e := e.(type) {
	case observe.SessionOpened:
		l.add("opened %s by %s %s, %s", e.Session.Transport, e.Session.Client().Name, e.Session.Client().Version, e.Session.Revision())
	case observe.SessionEnded:
		l.add("ended: %v, %d calls", e.Err, e.Calls)
	}
}

func (l *listing) wants(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.lines, want) {
		t.Errorf("told\n%q\nwant\n%q", l.lines, want)
	}
	l.lines = nil
}

const (
	initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"inspector","version":"2.1"}}}`
	answer     = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`
	call       = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add"}}`
	respelled  = `{"jsonrpc":"2.0","id":7.0,"result":{}}`
	result     = `{"jsonrpc":"2.0","id":7,"result":{}}`
)

// serving runs a Pump whose both ends are observed.
func serving(t *testing.T, o *observe.Observer) (client, server *bridgetest.Peer, end func(error)) {
	client, server = bridgetest.NewPeer(t, 10), bridgetest.NewPeer(t, 10)
	h := o.Serve("files", "http", bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		up := observe.SessionOf(ctx).Conn(server, observe.Upstream)
		defer up.Close(nil)
		return bridge.Pump(ctx, c, up, bridge.PumpOptions{})
	}))
	done := make(chan error, 1)
	go func() { done <- h.ServeConn(t.Context(), client) }()
	return client, server, func(err error) {
		server.End <- err
		<-done
	}
}

// Each message is told at both ends, with what it was made of, and with its request.
func TestPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		l := &listing{}
		stop := o.Watch(l)
		client, server, end := serving(t, &o)
		client.Says(initialize)
		server.Says(answer)
		l.wants(t, "1<0 down c2s "+initialize+" of initialize()", "2<1 up c2s "+initialize+" of initialize()",
			"3<0 up s2c "+answer+" of initialize()", "opened http by inspector 2.1, 2025-11-25", "4<3 down s2c "+answer+" of initialize()")
		client.Says(call)
		server.Says(respelled)
		l.wants(t, "5<0 down c2s "+call+" of tools/call(add)", "6<5 up c2s "+call+" of tools/call(add)",
			"7<0 up s2c "+respelled+" of tools/call(add)", "8<7 down s2c "+result+" of tools/call(add)")
		stop()
		client.Says(`{"jsonrpc":"2.0","method":"notifications/x"}`)
		l.wants(t)
		end(errors.New("crashed"))
		l.wants(t)
	})
}

// Who watches events only is told of sessions; the messages are not looked at once the
// client has said who it is.
func TestEventsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		l := &listing{}
		o.WatchEvents(l)
		client, server, end := serving(t, &o)
		client.Says(initialize)
		server.Says(answer)
		client.Says(call)
		l.wants(t, "opened http by inspector 2.1, 2025-11-25")
		end(errors.New("crashed"))
		l.wants(t, "ended: crashed, 2 calls")
		if o.IsWatched() {
			t.Error("nobody watches messages")
		}
	})
}

// An observed Conn is a Conn, with a Watcher and without one.
func TestContract(t *testing.T) {
	for name, watch := range map[string]func(*observe.Observer){
		"nobody":   func(*observe.Observer) {},
		"somebody": func(o *observe.Observer) { o.Watch(&listing{}) },
		"sampler":  func(o *observe.Observer) { o.WatchSamples(&choosy{}) },
		"both":     func(o *observe.Observer) { o.Watch(&listing{}); o.WatchSamples(&choosy{}) },
	} {
		t.Run(name, func(t *testing.T) {
			bridgetest.TestConn(t, func(*testing.T) (a, b bridge.Conn, stop func()) {
				var o observe.Observer
				watch(&o)
				a, b = bridge.Pipe()
				return o.OpenSession("x", "http").Conn(a, observe.Downstream), b, func() {}
			}, bridgetest.Options{})
		})
	}
}

// While nobody watches nothing is allocated.
func TestOffAllocatesNothing(t *testing.T) {
	var o observe.Observer
	c := o.OpenUnannounced("x", "http").Conn(taker{}, observe.Downstream)
	m := jsonrpc.NewNotification("notifications/x", nil)
	if n := testing.AllocsPerRun(100, func() { c.TrySend(m) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

type taker struct{ bridge.Conn }

func (taker) TrySend(jsonrpc.Message) bool { return true }
