package observe_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// shown is what WaitingCalls returns, in words.
func shown(all []observe.WaitingCall) (list []string) {
	for _, w := range all {
		text := w.Session.Name + " " + w.Dir.String() + " " + w.Method + " " + w.ID.String()
		if w.Told {
			text += ", told"
		}
		list = append(list, text)
	}
	return list
}

// What came while nobody watched is known to who comes later, on both sides, and its answer names it.
func TestWaiting(t *testing.T) {
	const asked = `{"jsonrpc":"2.0","id":"a","method":"roots/list"}`
	const said = `{"jsonrpc":"2.0","id":"a","result":{}}`
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		var calls bridge.PendingCalls
		o.FollowCalls("files", &calls)
		defer calls.Close()
		client, server := bridgetest.NewPeer(t, 10), bridgetest.NewPeer(t, 10)
		h := o.Serve("files", "http", bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
			s := observe.SessionOf(ctx)
			s.SetServerTransport("stdio")
			return bridge.Pump(ctx, c, s.Conn(server, observe.Upstream), bridge.PumpOptions{PendingCalls: &calls})
		}))
		done := make(chan error, 1)
		go func() { done <- h.ServeConn(t.Context(), client) }()
		client.Says(initialize)
		server.Says(answer)
		client.Says(call)
		server.Says(asked)
		waits := []string{"s1 c2s tools/call 7", `s1 s2c roots/list "a"`}
		if got := shown(o.WaitingCalls("files", &calls)); !slices.Equal(got, waits) {
			t.Errorf("waiting: %q, want %q", got, waits)
		}
		l := &listing{}
		defer o.Watch(l)()
		client.Says(`{"jsonrpc":"2.0","id":8,"method":"ping"}`)
		l.wants(t, `1<0 down c2s {"jsonrpc":"2.0","id":8,"method":"ping"} of ping()`, `2<1 up c2s {"jsonrpc":"2.0","id":8,"method":"ping"} of ping()`)
		waits = []string{"s1 c2s tools/call 7", "s1 c2s ping 8, told", `s1 s2c roots/list "a"`}
		if got := shown(o.WaitingCalls("files", &calls)); !slices.Equal(got, waits) {
			t.Errorf("waiting: %q, want %q", got, waits)
		}
		server.Says(respelled)
		client.Says(said)
		l.wants(t, "3<0 up s2c "+respelled+" of tools/call()", "4<3 down s2c "+result+" of tools/call()",
			"5<0 down c2s "+said+" of roots/list()", "6<5 up c2s "+said+" of roots/list()")
		if got := shown(o.WaitingCalls("files", &calls)); !slices.Equal(got, []string{"s1 c2s ping 8, told"}) {
			t.Errorf("waiting: %q", got)
		}
		server.End <- errors.New("crashed")
		<-done
		if got := o.WaitingCalls("files", &calls); len(got) > 0 {
			t.Errorf("waiting in the end: %q", shown(got))
		}
	})
}

// ends is a Watcher of what WaitingCalls has shown first.
type ends struct {
	listing
	over []observe.WaitingCallEnded
}

func (e *ends) Event(event observe.Event) {
	if over, ok := event.(observe.WaitingCallEnded); ok {
		e.over = append(e.over, over)
	}
}

// A request of 2026-07-28 over HTTP that came while nobody watched keeps the name that it is shown with, and its
// end is told.
func TestWaitingModern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		var calls bridge.PendingCalls
		o.FollowCalls("files", &calls)
		defer calls.Close()
		client, server := bridgetest.NewPeer(t, 10), bridgetest.NewPeer(t, 10)
		h := o.ServeRequests("files", "http", bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
			return bridge.Exchange(ctx, c, server, bridge.PumpOptions{PendingCalls: &calls})
		}))
		done := make(chan error, 1)
		go func() { done <- h.ServeConn(t.Context(), client) }()
		client.Says(call)
		e := new(ends)
		defer o.Watch(e)()
		for range 2 {
			if got := shown(o.WaitingCalls("files", &calls)); !slices.Equal(got, []string{"q1 c2s tools/call 7"}) {
				t.Errorf("waiting: %q", got)
			}
		}
		var named []bool
		calls.Cancel(func(c bridge.PendingCall) bool {
			named = append(named, observe.IsCallOfSession(c, "q1"), observe.IsCallOfSession(c, "q2"))
			return false
		})
		if !slices.Equal(named, []bool{true, false}) {
			t.Errorf("it has the names %v", named)
		}
		server.Says(result)
		bridgetest.Must(t, <-done)
		if len(e.over) != 1 || e.over[0].Session.Name != "q1" || e.over[0].Method != "tools/call" || e.over[0].ID != jsonrpc.IntID(7) {
			t.Errorf("told of the ends %+v", e.over)
		}
	})
}

// losses is a Watcher of requests that will not be answered.
type losses struct {
	listing
	all []observe.Unanswered
}

func (l *losses) Event(event observe.Event) {
	if u, ok := event.(observe.Unanswered); ok {
		l.all = append(l.all, u)
	}
}

// slowConn calls between with each message that has come, before it hands it on.
type slowConn struct {
	bridge.Conn
	between func(m jsonrpc.Message)
}

func (c *slowConn) Receive(ctx context.Context, s bridge.Sink) error {
	return c.Conn.Receive(ctx, slowSink{s, c})
}

type slowSink struct {
	bridge.Sink
	c *slowConn
}

func (s slowSink) TrySend(jsonrpc.Message) bool { return false }

func (s slowSink) Send(ctx context.Context, m jsonrpc.Message) error {
	s.c.between(m)
	return s.Sink.Send(ctx, m)
}

// Who looks while the answer is between the two ends is not told later that there was none.
func TestWaitingAnswerOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		var calls bridge.PendingCalls
		o.FollowCalls("files", &calls)
		defer calls.Close()
		client, server := bridgetest.NewPeer(t, 10), bridgetest.NewPeer(t, 10)
		l := &losses{}
		look := func(m jsonrpc.Message) {
			if m.ID() == jsonrpc.IntID(7) {
				t.Cleanup(o.Watch(l))
				if n := len(o.WaitingCalls("files", &calls)); n != 1 {
					t.Errorf("%d wait", n)
				}
			}
		}
		var s *observe.Session
		var up bridge.Conn
		h := o.Serve("files", "http", bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
			s = observe.SessionOf(ctx)
			s.SetServerTransport("stdio")
			up = s.Conn(server, observe.Upstream)
			return bridge.Pump(ctx, c, &slowConn{up, look}, bridge.PumpOptions{PendingCalls: &calls})
		}))
		done := make(chan error, 1)
		go func() { done <- h.ServeConn(t.Context(), client) }()
		client.Says(initialize)
		server.Says(answer)
		client.Says(call)
		server.Says(result)
		synctest.Wait()
		if n := s.UnansweredCount(observe.Upstream, observe.ToServer); n > 0 {
			t.Errorf("%d requests wait for the server", n)
		}
		server.End <- errors.New("crashed")
		<-done
		bridgetest.Must(t, up.Close(nil))
		if len(l.all) > 0 {
			t.Errorf("no answer to %+v", l.all[0].Call)
		}
	})
}

// askingConn calls before with each message, before it sends it on.
type askingConn struct {
	bridge.Conn
	before func(m jsonrpc.Message)
}

func (c *askingConn) TrySend(jsonrpc.Message) bool { return false }

func (c *askingConn) Send(ctx context.Context, m jsonrpc.Message) error {
	c.before(m)
	return c.Conn.Send(ctx, m)
}

// A request that the Sampler does not want is counted once, and no more when it is answered, also if somebody looks while it
// waits, or while it is between the two ends.
func TestWaitingUnsampled(t *testing.T) {
	for _, early := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var o observe.Observer
			var calls bridge.PendingCalls
			o.FollowCalls("files", &calls)
			defer calls.Close()
			defer o.WatchSamples(&choosy{})()
			client, server := bridgetest.NewPeer(t, 10), bridgetest.NewPeer(t, 10)
			look := func() {
				if n := len(o.WaitingCalls("files", &calls)); n != 1 {
					t.Errorf("%d wait", n)
				}
			}
			var s *observe.Session
			h := o.Serve("files", "http", bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
				s = observe.SessionOf(ctx)
				s.SetServerTransport("stdio")
				return bridge.Pump(ctx, c, &askingConn{s.Conn(server, observe.Upstream), func(m jsonrpc.Message) {
					if early && m.ID() == jsonrpc.IntID(7) {
						look()
					}
				}}, bridge.PumpOptions{PendingCalls: &calls})
			}))
			done := make(chan error, 1)
			go func() { done <- h.ServeConn(t.Context(), client) }()
			waits := func(want int) {
				t.Helper()
				for _, hop := range []observe.Hop{observe.Downstream, observe.Upstream} {
					if n := s.UnansweredCount(hop, observe.ToServer); n != want || s.WaitsForOne(hop, observe.ToServer) != (want == 1) {
						t.Errorf("looked early %t: %d requests wait at %s, want %d", early, n, hop, want)
					}
				}
			}
			client.Says(initialize)
			server.Says(answer)
			client.Says(call)
			waits(1)
			if !early {
				look()
			}
			waits(1)
			client.Says(`{"jsonrpc":"2.0","id":8,"method":"ping"}`)
			waits(2)
			server.Says(result)
			waits(1)
			server.Says(`{"jsonrpc":"2.0","id":8,"result":{}}`)
			waits(0)
			server.End <- errors.New("crashed")
			<-done
		})
	}
}
