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
)

// exchanging is an Exchange that runs.
type exchanging struct {
	client, server *peer
	stop           context.CancelFunc
	done           chan struct{}
	err            error
	at             time.Time // when it has returned
}

func exchange(t *testing.T, first string, opts bridge.PumpOptions) *exchanging {
	x := &exchanging{client: newPeer(t, 100), server: newPeer(t, 100), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	x.stop = cancel
	x.client.in <- first
	go func() {
		defer close(x.done)
		x.err = bridge.Exchange(ctx, bridgetest.Push(x.client), bridgetest.Push(x.server), opts)
		x.at = time.Now()
	}()
	x.server.gets(first)
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
			x.server.says(progressOne)
			time.Sleep(wait)
			x.server.says(askOne) // ST10
			x.server.gets(askOneNo)
			x.server.says(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			x.server.says(progressOne)
			x.client.gets(progressOne, progressOne)
			x.server.says(`{"jsonrpc":"2.0","id":1.0,"result":{"x":1e400}}`)
			if err := x.ended(t); err != nil {
				t.Errorf("Exchange = %v", err)
			}
			x.client.gets(`{"jsonrpc":"2.0","id":1,"result":{"x":1e400}}`)
			x.server.gets()
		})
	}
}

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
		{"takes nothing", func(x *exchanging) { close(x.client.gone); x.server.says(progressOne) }, false},
	} {
		bubble(t, c.name, func(t *testing.T) {
			x := exchange(t, callOne, bridge.PumpOptions{})
			c.end(x)
			if err := x.ended(t); err != nil {
				t.Errorf("Exchange = %v", err)
			}
			x.server.gets(clientGone)
			x.client.gets()
		})
		bubble(t, "listen "+c.name, func(t *testing.T) {
			x := exchange(t, listenOne, bridge.PumpOptions{})
			c.end(x)
			if err := x.ended(t); err != nil {
				t.Errorf("Exchange = %v", err)
			}
			x.server.gets(clientGone)
			if c.said {
				x.client.gets(listenOneEnd)
			}
			x.client.gets()
		})
	}
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
			x := exchange(t, callOne, bridge.PumpOptions{RequestTimeout: c.timeout})
			for i := 0; i < c.progress; i++ {
				time.Sleep(c.timeout * 3 / 4)
				select {
				case <-x.done:
					i = c.progress
					continue
				default:
				}
				x.server.says(progressOne)
				<-x.client.out
			}
			<-x.done
			if took := x.at.Sub(start); took != c.want {
				t.Errorf("it took %v, want %v", took, c.want)
			}
			x.server.gets(timedOut)
			m := <-x.client.out
			if want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server did not answer within ` + c.text + `","data":{"reason":"timeout"}}}`; string(m.Bytes()) != want {
				t.Errorf("got %s", m.Bytes())
			}
		})
	}
	bubble(t, "listen", func(t *testing.T) {
		x := exchange(t, listenOne, bridge.PumpOptions{RequestTimeout: time.Second})
		time.Sleep(time.Hour)
		x.server.says(listenOneEnd)
		if err := x.ended(t); err != nil {
			t.Errorf("Exchange = %v", err)
		}
		x.client.gets(listenOneEnd)
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
			x.server.end <- c.end
			if err := x.ended(t); !errors.Is(err, c.end) {
				t.Errorf("Exchange = %v", err)
			}
			x.client.gets(c.want)
			x.server.gets()
		})
	}
	bubble(t, "takes no request", func(t *testing.T) {
		client, server := newPeer(t, 1), newPeer(t, 1)
		close(server.gone)
		client.in <- callOne
		if err := bridge.Exchange(t.Context(), bridgetest.Push(client), bridgetest.Push(server), bridge.PumpOptions{}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Exchange = %v", err)
		}
		client.gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server did not take the request: io: read/write on closed pipe","data":{"reason":"server_ended"}}}`)
	})
	bubble(t, "notification", func(t *testing.T) {
		client, server := newPeer(t, 1), newPeer(t, 1)
		client.in <- `{"jsonrpc":"2.0","method":"notifications/vendor"}`
		if err := bridge.Exchange(t.Context(), bridgetest.Push(client), bridgetest.Push(server), bridge.PumpOptions{}); err != nil {
			t.Errorf("Exchange = %v", err)
		}
		server.gets(`{"jsonrpc":"2.0","method":"notifications/vendor"}`)
	})
}

// An Exchange takes no goroutine to listen to its client.
func TestExchangeLeavesTheClientAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := exchange(t, callOne, bridge.PumpOptions{})
		x.client.in <- "never parsed"
		time.Sleep(time.Hour)
		x.server.says(resultOne)
		if err := x.ended(t); err != nil || len(x.client.in) != 1 {
			t.Errorf("Exchange = %v, %d messages unread", err, len(x.client.in))
		}
		x.client.gets(resultOne)
	})
}

// A server that ends, or a time that runs out, within the Grace is answered as ever.
func TestExchangeGraceEnds(t *testing.T) {
	for name, end := range map[string]func(x *exchanging){
		"server":  func(x *exchanging) { x.server.end <- io.EOF },
		"timeout": func(*exchanging) { time.Sleep(3 * time.Second) },
		"gone":    func(x *exchanging) { x.client.end <- io.EOF },
		"cancel":  func(x *exchanging) { x.client.says(someNote); x.client.says("%s", cancelledNote("1.0")) },
	} {
		bubble(t, name, func(t *testing.T) {
			client, server := newPeer(t, 10), newPeer(t, 10)
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan struct{})
			client.in <- callOne
			go func() {
				defer close(done)
				_ = bridge.Exchange(ctx, bridgetest.Push(client), bridgetest.Push(server), bridge.PumpOptions{RequestTimeout: 3 * time.Second})
			}()
			server.gets(callOne)
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
				client.gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server ended before it answered","data":{"reason":"server_ended"}}}`)
			case "timeout":
				client.gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server did not answer within 3s","data":{"reason":"timeout"}}}`)
				server.gets(timedOut)
			case "gone", "cancel":
				client.gets()
				server.gets(clientGone)
			}
		})
	}
}
