package bridge_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc/burst"
)

// exchanging is an Exchange that runs.
type exchanging struct {
	client, server *bridgetest.Peer
	stop           context.CancelFunc
	done           chan struct{}
	err            error
	at             time.Time // when it has returned
}

func exchange(t *testing.T, first string, opts bridge.PumpOptions) *exchanging {
	x := &exchanging{client: bridgetest.NewPeer(t, 100), server: bridgetest.NewPeer(t, 100), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	x.stop = cancel
	x.client.In <- first
	go func() {
		defer close(x.done)
		x.err = bridge.Exchange(ctx, x.client, x.server, opts)
		x.at = time.Now()
	}()
	x.server.Gets(first)
	return x
}

func (x *exchanging) ended(t *testing.T) error {
	t.Helper()
	synctest.Wait()
	select {
	case <-x.done:
		return x.err
	default:
		t.Fatal("Exchange still runs")
		return nil
	}
}

const (
	progressOne  = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`
	clientGone   = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"the client has gone"}}`
	askOneNo     = `{"jsonrpc":"2.0","id":"s1","error":{"code":-32601,"message":"there is no method roots/list in 2026-07-28"}}`
	timedOut     = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"timed out"}}`
	listenOne    = `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`
	listenOneEnd = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`
)

func TestExchange(t *testing.T) {
	for name, wait := range map[string]time.Duration{"quick": 0, "slow": time.Hour} {
		bubble(t, name, func(t *testing.T) {
			x := exchange(t, callOne, bridge.PumpOptions{})
			x.server.Says(progressOne)
			time.Sleep(wait)
			x.server.Says(askOne) // ST10
			x.server.Gets(askOneNo)
			x.server.Says(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			x.server.Says(progressOne)
			x.client.Gets(progressOne, progressOne)
			x.server.Says(`{"jsonrpc":"2.0","id":1.0,"result":{"x":1e400}}`)
			if err := x.ended(t); err != nil {
				t.Errorf("Exchange = %v", err)
			}
			x.client.Gets(`{"jsonrpc":"2.0","id":1,"result":{"x":1e400}}`)
			x.server.Gets()
		})
	}
}

// The answer does not wait for the end of its Burst: before that, the server's Conn is closed, which may take long.
func TestExchangeAnswersAtOnce(t *testing.T) {
	near, far := bridge.Pipe()
	client := &lateClient{Peer: bridgetest.NewPeer(t, 1)}
	client.In <- callOne
	done := make(chan error)
	go func() { done <- bridge.Exchange(t.Context(), client, near, bridge.PumpOptions{}) }()
	if _, err := bridgetest.Recv(t.Context(), far); err != nil {
		t.Fatal(err)
	}
	var b burst.Burst
	b.Begin()
	for answer := bridgetest.Parse(`{"jsonrpc":"2.0","id":1,"result":{}}`); !far.TrySend(answer.WithBurst(&b)); {
		t.Error("the answer is not taken")
	}
	bridgetest.Must(t, <-done)
	if client.kept || client.taken != 1 {
		t.Errorf("%d answers were taken; one may be kept back: %v", client.taken, client.kept)
	}
}

// lateClient is a client that looks whether it may keep a message back.
type lateClient struct {
	*bridgetest.Peer
	taken int
	kept  bool
}

func (c *lateClient) TrySend(m jsonrpc.Message) bool {
	c.taken++
	c.kept = m.Burst().Keep(c)
	return true
}

func (c *lateClient) WriteKept() {}

// The end of the client's connection cancels the request, and nothing more is
// said to the client but the end of a subscription.
func TestExchangeCancels(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(x *exchanging)
		said bool // the client may still want to know
	}{
		{"ctx", func(x *exchanging) { x.stop() }, true},
		{"ctx later", func(x *exchanging) { time.Sleep(time.Minute); x.stop() }, true},
		{"takes nothing", func(x *exchanging) { close(x.client.FailSends); x.server.Says(progressOne) }, false},
	} {
		bubble(t, c.name, func(t *testing.T) {
			x := exchange(t, callOne, bridge.PumpOptions{})
			c.end(x)
			if err := x.ended(t); err != nil {
				t.Errorf("Exchange = %v", err)
			}
			x.server.Gets(clientGone)
			x.client.Gets()
		})
		bubble(t, "listen "+c.name, func(t *testing.T) {
			x := exchange(t, listenOne, bridge.PumpOptions{})
			c.end(x)
			if err := x.ended(t); err != nil {
				t.Errorf("Exchange = %v", err)
			}
			x.server.Gets(clientGone)
			if c.said {
				x.client.Gets(listenOneEnd)
			}
			x.client.Gets()
		})
	}
}

// A call that is cancelled by whoever looks after the bridge is answered with an error, once, and the
// server is told.
func TestExchangeCancelledOnRequest(t *testing.T) {
	const told = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"cancelled on request"}}`
	const okOne = `{"jsonrpc":"2.0","id":1,"result":{}}`
	const refused = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the call was cancelled by whoever looks after the bridge","data":{"reason":"cancelled"}}}`
	all := func(bridge.PendingCall) bool { return true }
	for name, timeout := range map[string]time.Duration{"without a time-out": 0, "with one": time.Minute} {
		bubble(t, name, func(t *testing.T) {
			var calls bridge.PendingCalls
			x := exchange(t, callOne, bridge.PumpOptions{PendingCalls: &calls, RequestTimeout: timeout})
			x.server.Says(progressOne)
			x.client.Gets(progressOne)
			if n := calls.Cancel(all); n != 1 {
				t.Errorf("%d calls were cancelled", n)
			}
			x.server.End <- io.ErrClosedPipe // as that of a Conn that is closed
			if err := x.ended(t); err != nil {
				t.Errorf("Exchange = %v", err)
			}
			x.server.Gets(told)
			x.client.Gets(refused)
			if n := calls.Cancel(all); n != 0 {
				t.Errorf("%d calls were cancelled again", n)
			}
		})
	}
	bubble(t, "a subscription", func(t *testing.T) {
		var calls bridge.PendingCalls
		x := exchange(t, listenOne, bridge.PumpOptions{PendingCalls: &calls})
		if n := calls.Cancel(all); n != 1 {
			t.Errorf("%d subscriptions were cancelled", n)
		}
		x.server.End <- io.ErrClosedPipe
		if err := x.ended(t); err != nil {
			t.Errorf("Exchange = %v", err)
		}
		x.server.Gets(told)
		x.client.Gets(listenOneEnd)
	})
	bubble(t, "answered meanwhile", func(t *testing.T) {
		for range 100 {
			var calls bridge.PendingCalls
			x := exchange(t, callOne, bridge.PumpOptions{PendingCalls: &calls})
			n := make(chan int)
			go func() { n <- calls.Cancel(all) }()
			x.server.In <- okOne
			cancelled := <-n == 1
			x.server.End <- io.ErrClosedPipe
			_ = x.ended(t)
			if cancelled {
				x.client.Gets(refused)
				x.server.Gets(told)
			} else {
				x.client.Gets(okOne)
				x.server.Gets()
			}
		}
	})
}

// A request that the server did not take is settled with the error that says so: it cannot be cancelled
// while the client takes that.
func TestExchangeNotTaken(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		var calls bridge.PendingCalls
		client, server := bridgetest.NewPeer(t, 0), bridgetest.NewPeer(t, 0)
		close(server.FailSends)
		client.In <- callOne
		done := make(chan error, 1)
		go func() { done <- bridge.Exchange(t.Context(), client, server, bridge.PumpOptions{PendingCalls: &calls}) }()
		synctest.Wait()
		if n := calls.Cancel(func(bridge.PendingCall) bool { return true }); n != 0 {
			t.Errorf("%d calls were cancelled", n)
		}
		client.Gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server did not take the request: io: read/write on closed pipe","data":{"reason":"server_ended"}}}`)
		if err := <-done; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Exchange = %v", err)
		}
	})
}

// J8: the time-out, which progress puts off, but not for ever; a subscription
// has none.
func TestExchangeTimeout(t *testing.T) {
	for _, c := range []struct {
		timeout  time.Duration
		progress int // every three quarters of it
		want     time.Duration
		text     string
	}{
		{100 * time.Millisecond, 0, 100 * time.Millisecond, "100ms"},
		{4 * time.Second, 0, 4 * time.Second, "4s"},
		{4 * time.Second, 3, 13 * time.Second, "4s"},
		{100 * time.Millisecond, 4, 400 * time.Millisecond, "100ms"},
		{4 * time.Second, 1000, 40 * time.Second, "40s"},
	} {
		bubble(t, c.text, func(t *testing.T) {
			start := time.Now()
			var told bridge.PendingCall
			x := exchange(t, callOne, bridge.PumpOptions{RequestTimeout: c.timeout, TimedOut: func(c bridge.PendingCall) { told = c }})
			for i := 0; i < c.progress; i++ {
				time.Sleep(c.timeout * 3 / 4)
				select {
				case <-x.done:
					i = c.progress
					continue
				default:
				}
				x.server.Says(progressOne)
				<-x.client.Out
			}
			<-x.done
			if took := x.at.Sub(start); took != c.want {
				t.Errorf("it took %v, want %v", took, c.want)
			}
			if told.Method != "tools/call" || told.ID.String() != "1" || !told.Since.Equal(start) {
				t.Errorf("TimedOut was told of %+v", told)
			}
			x.server.Gets(timedOut)
			m := <-x.client.Out
			if want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server did not answer within ` + c.text + `","data":{"reason":"timeout"}}}`; string(m.Bytes()) != want {
				t.Errorf("got %s", m.Bytes())
			}
		})
	}
	bubble(t, "listen", func(t *testing.T) {
		x := exchange(t, listenOne, bridge.PumpOptions{RequestTimeout: time.Second})
		time.Sleep(time.Hour)
		x.server.Says(listenOneEnd)
		if err := x.ended(t); err != nil {
			t.Errorf("Exchange = %v", err)
		}
		x.client.Gets(listenOneEnd)
	})
}

// C.7: the server's end is an answer.
func TestExchangeServerEnds(t *testing.T) {
	for _, c := range []struct {
		name, asked, want string
		end               error
	}{
		{"EOF", callOne, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server ended before it answered","data":{"reason":"server_ended"}}}`, io.EOF},
		{"error", callOne, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"exit status 1","data":{"reason":"server_ended"}}}`, errors.New("exit status 1")},
		{"shutdown", callOne, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the bridge is shutting down or was configured anew","data":{"reason":"shutting_down"}}}`, bridge.ErrClosing},
		{"listen", listenOne, listenOneEnd, errors.New("exit status 1")},
	} {
		bubble(t, c.name, func(t *testing.T) {
			x := exchange(t, c.asked, bridge.PumpOptions{})
			x.server.End <- c.end
			if err := x.ended(t); !errors.Is(err, c.end) {
				t.Errorf("Exchange = %v", err)
			}
			x.client.Gets(c.want)
			x.server.Gets()
		})
	}
	bubble(t, "takes no request", func(t *testing.T) {
		client, server := bridgetest.NewPeer(t, 1), bridgetest.NewPeer(t, 1)
		close(server.FailSends)
		client.In <- callOne
		if err := bridge.Exchange(t.Context(), client, server, bridge.PumpOptions{}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Exchange = %v", err)
		}
		client.Gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server did not take the request: io: read/write on closed pipe","data":{"reason":"server_ended"}}}`)
	})
	bubble(t, "notification", func(t *testing.T) {
		client, server := bridgetest.NewPeer(t, 1), bridgetest.NewPeer(t, 1)
		client.In <- `{"jsonrpc":"2.0","method":"notifications/vendor"}`
		if err := bridge.Exchange(t.Context(), client, server, bridge.PumpOptions{}); err != nil {
			t.Errorf("Exchange = %v", err)
		}
		server.Gets(`{"jsonrpc":"2.0","method":"notifications/vendor"}`)
	})
}

// An Exchange takes no goroutine to listen to its client.
func TestExchangeLeavesTheClientAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := exchange(t, callOne, bridge.PumpOptions{})
		x.client.In <- "never parsed"
		time.Sleep(time.Hour)
		x.server.Says(resultOne)
		if err := x.ended(t); err != nil || len(x.client.In) != 1 {
			t.Errorf("Exchange = %v, %d messages unread", err, len(x.client.In))
		}
		x.client.Gets(resultOne)
	})
}

// A server that ends, or a time that runs out, within the ShutdownGrace is answered as ever.
func TestExchangeGraceEnds(t *testing.T) {
	for name, end := range map[string]func(x *exchanging){
		"server":  func(x *exchanging) { x.server.End <- io.EOF },
		"timeout": func(*exchanging) { time.Sleep(3 * time.Second) },
		"gone":    func(x *exchanging) { x.client.End <- io.EOF },
		"cancel":  func(x *exchanging) { x.client.Says(someNote); x.client.Says("%s", cancelledNote("1.0")) },
	} {
		bubble(t, name, func(t *testing.T) {
			client, server := bridgetest.NewPeer(t, 10), bridgetest.NewPeer(t, 10)
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan struct{})
			client.In <- callOne
			go func() {
				defer close(done)
				_ = bridge.Exchange(ctx, client, server, bridge.PumpOptions{RequestTimeout: 3 * time.Second})
			}()
			server.Gets(callOne)
			cancel(bridge.ErrClosing)
			synctest.Wait()
			end(&exchanging{client: client, server: server})
			synctest.Wait()
			select {
			case <-done:
			default:
				t.Fatal("Exchange still runs")
			}
			switch name {
			case "server":
				client.Gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server ended before it answered","data":{"reason":"server_ended"}}}`)
			case "timeout":
				client.Gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server did not answer within 3s","data":{"reason":"timeout"}}}`)
				server.Gets(timedOut)
			case "gone", "cancel":
				client.Gets()
				server.Gets(clientGone)
			}
		})
	}
}
