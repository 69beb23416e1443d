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
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// pumping is a Pump that runs.
type pumping struct {
	client, server *bridgetest.Peer
	stop           context.CancelFunc
	done           chan struct{}
	err            error
	mu             sync.Mutex
	dropped        []string
}

// pump starts a Pump whose ends take what they are sent.
func pump(t *testing.T, opts bridge.PumpOptions) *pumping { return pumpBuffered(t, opts, 100, 100) }

func pumpBuffered(t *testing.T, opts bridge.PumpOptions, client, server int) *pumping {
	p := &pumping{client: bridgetest.NewPeer(t, client), server: bridgetest.NewPeer(t, server), done: make(chan struct{})}
	opts.Dropped = func(m jsonrpc.Message, reason string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.dropped = append(p.dropped, reason)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = cancel
	go func() {
		defer close(p.done)
		p.err = bridge.Pump(ctx, p.client, p.server, opts)
	}()
	return p
}

// ended wants the Pump to have returned.
func (p *pumping) ended(t *testing.T) error {
	t.Helper()
	synctest.Wait()
	select {
	case <-p.done:
		return p.err
	default:
		t.Fatal("Pump still runs")
		return nil
	}
}

func (p *pumping) running(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case <-p.done:
		t.Fatalf("Pump has returned: %v", p.err)
	default:
	}
}

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

const (
	callOne   = `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`
	resultOne = `{"jsonrpc":"2.0","id":1,"result":{}}`
	askOne    = `{"jsonrpc":"2.0","id":"s1","method":"roots/list"}`
)

// J5: what goes in comes out, byte for byte and in order, both ways.
func TestPumpCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		call := `{"params":{"z":9007199254740993,"a":1.0,"e":1e400,"s":"\u00e9\/ ` + "\u200d\u00a0" + `"}, "unknown":[] ,"id":9007199254740993,"method":"x/y","jsonrpc":"2.0"}`
		note := `{"jsonrpc":"2.0","method":"notifications/unknown"}`
		p.client.Says("%s", call)
		p.client.Says("%s", note)
		p.server.Gets(call, note)
		result := `{"result":{"b":1.0,"a":[1e400]},"id":9007199254740993,"jsonrpc":"2.0"}`
		p.server.Says("%s", note)
		p.server.Says("%s", result)
		p.client.Gets(note, result)
		p.client.End <- io.EOF
		if err := p.ended(t); err != nil {
			t.Errorf("Pump = %v", err)
		}
	})
}

// ST8: after the client's EOF the answers that are owed still arrive.
func TestPumpDrainsAfterEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan [2]int, 2)
		p := pump(t, bridge.PumpOptions{OnClientEOF: func(owed, untaken int) { told <- [2]int{owed, untaken} }})
		p.client.Says(callOne)
		p.client.Says(`{"jsonrpc":"2.0","id":"1","method":"tools/call"}`)
		p.client.End <- io.EOF
		p.running(t)
		if len(told) > 0 {
			t.Errorf("told at once what is owed: %v", <-told)
		}
		time.Sleep(bridge.DefaultDrainTimeout - time.Second)
		if got := <-told; got != [2]int{2, 0} || len(told) > 0 {
			t.Errorf("told %v of what is owed, and untaken", got)
		}
		p.server.Says(resultOne)
		p.running(t) // "1" is not 1
		p.server.Says(`{"jsonrpc":"2.0","method":"notifications/message"}`)
		p.server.Says(`{"jsonrpc":"2.0","id":"1","result":{}}`)
		if err := p.ended(t); err != nil {
			t.Errorf("Pump = %v", err)
		}
		p.client.Gets(resultOne, `{"jsonrpc":"2.0","method":"notifications/message"}`, `{"jsonrpc":"2.0","id":"1","result":{}}`)
	})
}

// J3: a request whose id is in use is refused, and the end of the client's input, or of ctx, right
// behind it does not take the answer from the request that has the id.
func TestPumpRefusedIDAtTheEnd(t *testing.T) {
	const refusal = `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"a request with this id is already in progress"}}`
	for name, end := range map[string]func(p *pumping){
		"end of input": func(p *pumping) { p.client.End <- io.EOF },
		"ctx":          func(p *pumping) { p.stop() },
	} {
		bubble(t, name, func(t *testing.T) {
			p := pump(t, bridge.PumpOptions{})
			p.client.Says(callOne)
			p.client.Says(callOne)
			end(p)
			p.running(t)
			p.server.Says(resultOne)
			if err := p.ended(t); err != nil {
				t.Errorf("Pump = %v", err)
			}
			p.server.Gets(callOne)
			p.client.Gets(refusal, resultOne)
		})
	}
}

// The answer counts as given only when the client has taken it.
func TestPumpDrainWaitsForASlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan [2]int, 2)
		p := pumpBuffered(t, bridge.PumpOptions{OnClientEOF: func(owed, untaken int) { told <- [2]int{owed, untaken} }}, 0, 10)
		p.client.Says(callOne)
		p.client.End <- io.EOF
		p.server.Says(resultOne)
		p.running(t)
		time.Sleep(20 * time.Second)
		p.running(t)
		if got := <-told; got != [2]int{0, 1} || len(told) > 0 {
			t.Errorf("told %v of what is owed, and untaken", got)
		}
		p.client.Gets(resultOne)
		if err := p.ended(t); err != nil {
			t.Errorf("Pump = %v", err)
		}
	})
}

// After EOF a server that never answers is given up; the client is told, the
// server too.
func TestPumpDrainIsBounded(t *testing.T) {
	const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"the client has gone"}}`
	const sorry = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the bridge is shutting down or was configured anew","data":{"reason":"shutting_down"}}}`
	for _, c := range []struct {
		name  string
		drain time.Duration
		want  time.Duration
	}{{"default", 0, bridge.DefaultDrainTimeout}, {"option", 3 * time.Second, 3 * time.Second}, {"none", -1, 0}} {
		bubble(t, c.name, func(t *testing.T) {
			p := pump(t, bridge.PumpOptions{DrainTimeout: c.drain})
			p.client.Says(callOne)
			start := time.Now()
			p.client.End <- io.EOF
			<-p.done
			if took := time.Since(start); took != c.want {
				t.Errorf("Pump waited %v, want %v", took, c.want)
			}
			if p.err != nil {
				t.Errorf("Pump = %v", p.err)
			}
			p.server.Gets(callOne, cancelled)
			p.client.Gets(sorry)
		})
	}
}

// J11: initialize is not cancelled, not even on the way out.
func TestPumpNeverCancelsInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize"}`
		p.client.Says(initialize)
		p.client.Says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
		p.server.Gets(initialize)
		p.client.End <- io.ErrUnexpectedEOF
		if err := p.ended(t); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Pump = %v, want the client's error", err)
		}
		p.server.Gets()
	})
}

// When ctx is done nothing more is taken from the client, and what is owed is
// waited for: until it is answered, or for ShutdownGrace.
func TestPumpStops(t *testing.T) {
	bubble(t, "answered", func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.client.Says(callOne)
		p.server.Gets(callOne)
		p.stop()
		p.running(t)
		p.client.Says(`{"jsonrpc":"2.0","id":2,"method":"tools/call"}`)
		time.Sleep(time.Second)
		p.running(t)
		p.server.Says(resultOne)
		if err := p.ended(t); err != nil {
			t.Errorf("Pump = %v", err)
		}
		p.client.Gets(resultOne)
		p.server.Gets()
	})
	bubble(t, "nothing owed", func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.stop()
		if err := p.ended(t); err != nil {
			t.Errorf("Pump = %v", err)
		}
	})
	for _, c := range []struct{ grace, want time.Duration }{{0, bridge.DefaultShutdownGrace}, {time.Minute, time.Minute}, {-1, 0}} {
		bubble(t, fmt.Sprint("grace ", c.grace), func(t *testing.T) {
			p := pump(t, bridge.PumpOptions{ShutdownGrace: c.grace})
			p.client.Says(callOne)
			synctest.Wait()
			start := time.Now()
			p.stop()
			<-p.done
			if took := time.Since(start); took != c.want || p.err != nil {
				t.Errorf("Pump = %v after %v, want nil after %v", p.err, took, c.want)
			}
			p.client.Gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the bridge is shutting down or was configured anew","data":{"reason":"shutting_down"}}}`)
		})
	}
	bubble(t, "while it drains after EOF", func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{DrainTimeout: time.Hour, ShutdownGrace: time.Second})
		p.client.Says(callOne)
		p.client.End <- io.EOF
		p.running(t)
		p.stop()
		start := time.Now()
		<-p.done
		if took := time.Since(start); took != time.Second {
			t.Errorf("the drain went on for %v after ctx was done, want the grace", took)
		}
	})
}

// A server that takes nothing, or a client that takes nothing, must not keep a
// Pump from stopping.
func TestPumpStopsWhenStuck(t *testing.T) {
	bubble(t, "server", func(t *testing.T) {
		p := pumpBuffered(t, bridge.PumpOptions{}, 10, 0)
		p.client.Says(callOne)
		p.client.Says(`{"jsonrpc":"2.0","id":2,"method":"tools/call"}`)
		p.server.Says(askOne)
		synctest.Wait()
		start := time.Now()
		p.stop()
		<-p.done
		if took := time.Since(start); took > bridge.DefaultShutdownGrace+5*time.Second {
			t.Errorf("Pump took %v to stop", took)
		}
		p.client.Gets(askOne, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the bridge is shutting down or was configured anew","data":{"reason":"shutting_down"}}}`)
	})
	bubble(t, "client", func(t *testing.T) {
		p := pumpBuffered(t, bridge.PumpOptions{}, 0, 10)
		p.client.Says(callOne)
		p.client.Says(`{"jsonrpc":"2.0","id":2,"method":"tools/call"}`)
		p.server.Says(resultOne)
		synctest.Wait()
		start := time.Now()
		p.stop()
		<-p.done
		if took := time.Since(start); took > bridge.DefaultShutdownGrace+5*time.Second {
			t.Errorf("Pump took %v to stop", took)
		}
	})
	bubble(t, "many questions of a server that takes nothing", func(t *testing.T) {
		p := pumpBuffered(t, bridge.PumpOptions{}, 100, 0)
		for i := range 50 {
			p.server.Says(`{"jsonrpc":"2.0","id":%d,"method":"roots/list"}`, i)
		}
		p.client.Says(callOne) // stuck
		start := time.Now()
		p.client.End <- io.ErrUnexpectedEOF // not seen: Send is blocked
		p.stop()
		<-p.done
		if took := time.Since(start); took > bridge.DefaultShutdownGrace+5*time.Second {
			t.Errorf("Pump took %v to stop", took)
		}
	})
}

// When the server ends, everything it owes is answered with what became of it.
func TestPumpServerEnds(t *testing.T) {
	died := errors.New("exit status 3; last stderr: out of cheese")
	for _, c := range []struct {
		name string
		err  error
		text string
	}{
		{"error", died, died.Error()},
		{"EOF", io.EOF, "the server ended before it answered"},
	} {
		bubble(t, c.name, func(t *testing.T) {
			p := pump(t, bridge.PumpOptions{})
			p.client.Says(callOne)
			p.server.Gets(callOne)
			p.server.Says(`{"jsonrpc":"2.0","method":"notifications/message"}`)
			p.server.End <- c.err
			err := p.ended(t)
			if err == nil || (c.err != io.EOF && !errors.Is(err, c.err)) {
				t.Errorf("Pump = %v", err)
			}
			p.client.Gets(`{"jsonrpc":"2.0","method":"notifications/message"}`,
				`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"`+c.text+`","data":{"reason":"server_ended"}}}`)
		})
	}
	// The client's EOF must not cut off the errors that are on their way.
	bubble(t, "after the client's EOF", func(t *testing.T) {
		p := pumpBuffered(t, bridge.PumpOptions{}, 0, 10)
		for i := range 5 {
			p.client.Says(`{"jsonrpc":"2.0","id":%d,"method":"tools/call"}`, i)
		}
		p.client.End <- io.EOF
		synctest.Wait()
		p.server.End <- died
		p.running(t)
		for i := range 5 {
			time.Sleep(time.Second)
			select {
			case m := <-p.client.Out:
				if !m.IsError() || !strings.Contains(string(m.Bytes()), "out of cheese") {
					t.Errorf("got %s", m.Bytes())
				}
			default:
				t.Fatalf("%d of 5 errors arrived", i)
			}
			synctest.Wait()
		}
		if err := p.ended(t); !errors.Is(err, died) {
			t.Errorf("Pump = %v", err)
		}
	})
	// What the client says once it knows is left for others to answer.
	bubble(t, "nothing more is taken", func(t *testing.T) {
		p := pumpBuffered(t, bridge.PumpOptions{}, 0, 10)
		p.client.Says(callOne)
		p.server.End <- died
		synctest.Wait()
		p.client.Says(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		if m := <-p.client.Out; m.ID().String() != "1" {
			t.Errorf("got %s", m.Bytes())
		}
		p.ended(t)
		if len(p.client.In) != 1 {
			t.Error("a request was taken after the server had ended")
		}
	})
	bubble(t, "while it takes nothing", func(t *testing.T) {
		p := pumpBuffered(t, bridge.PumpOptions{}, 10, 0)
		p.client.Says(callOne)
		synctest.Wait()
		p.server.End <- died
		if err := p.ended(t); !errors.Is(err, died) {
			t.Errorf("Pump = %v", err)
		}
		p.client.Gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"` + died.Error() + `","data":{"reason":"server_ended"}}}`)
	})
	bubble(t, "stdin first", func(t *testing.T) { // a child that dies closes stdin before its end is seen
		p := pump(t, bridge.PumpOptions{})
		close(p.server.FailSends)
		p.client.Says(callOne)
		p.running(t)
		time.Sleep(time.Millisecond)
		p.server.End <- died
		if err := p.ended(t); !errors.Is(err, died) {
			t.Errorf("Pump = %v", err)
		}
		p.client.Gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"` + died.Error() + `","data":{"reason":"server_ended"}}}`)
	})
	bubble(t, "stdin only", func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		close(p.server.FailSends)
		p.client.Says(callOne)
		time.Sleep(5 * time.Second)
		p.client.Gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server did not take the request: io: read/write on closed pipe","data":{"reason":"server_ended"}}}`)
		p.client.End <- io.EOF
		p.ended(t)
	})
}

// A server that ends with its last answer, after the client's EOF, is no failure: which of the
// two ends was seen first is chance.
func TestPumpBothEnd(t *testing.T) {
	for _, end := range []error{io.EOF, errors.New("exit status 3")} {
		bubble(t, end.Error(), func(t *testing.T) {
			client := bridgetest.NewPeer(t, 1)
			server := endsWithAnswer{bridgetest.NewPeer(t, 1), make(chan struct{}), end}
			done := make(chan error, 1)
			go func() { done <- bridge.Pump(t.Context(), client, server, bridge.PumpOptions{}) }()
			client.Says(callOne)
			client.End <- io.EOF
			synctest.Wait()
			close(server.answers)
			if err := <-done; err != nil {
				t.Errorf("Pump = %v", err)
			}
			client.Gets(resultOne)
		})
	}
}

// A notification that is being written when the conversation ends is not broken off; but a client
// that takes nothing is not waited for for long.
func TestPumpEndsDuringWrite(t *testing.T) {
	for _, takes := range []bool{true, false} {
		bubble(t, fmt.Sprintf("takes %t", takes), func(t *testing.T) {
			client, server := bridgetest.NewPeer(t, 10), bridgetest.NewPeer(t, 10)
			slow := slowToTake{client, make(chan struct{})}
			done := make(chan error, 1)
			go func() { done <- bridge.Pump(t.Context(), slow, server, bridge.PumpOptions{}) }()
			client.Says(callOne)
			synctest.Wait()
			server.Says(resultOne)
			server.Says(vendorNote)
			synctest.Wait() // the notification is being written
			began := time.Now()
			client.End <- io.EOF
			synctest.Wait()
			if takes {
				close(slow.takes)
			}
			if err := <-done; err != nil {
				t.Errorf("Pump = %v", err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the end took %v", took)
			}
			if takes {
				client.Gets(resultOne, vendorNote)
			} else {
				client.Gets(resultOne)
			}
		})
	}
}

const vendorNote = `{"jsonrpc":"2.0","method":"notifications/vendor"}`

// slowToTake takes notifications when takes is closed.
type slowToTake struct {
	*bridgetest.Peer
	takes chan struct{}
}

func (c slowToTake) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() == jsonrpc.Notification {
		select {
		case <-c.takes:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c.Peer.Send(ctx, m)
}

func (c slowToTake) TrySend(jsonrpc.Message) bool { return false }

// endsWithAnswer answers a call when answers is closed, and ends at once.
type endsWithAnswer struct {
	bridge.Conn
	answers chan struct{}
	end     error
}

func (c endsWithAnswer) Receive(ctx context.Context, sink bridge.Sink) error {
	<-c.answers
	m, err := jsonrpc.Parse([]byte(resultOne))
	if err == nil {
		err = sink.Send(ctx, m)
	}
	if err != nil {
		return err
	}
	return c.end
}

// When the client is gone, the server is told to stop working for it (LI23).
func TestPumpClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.client.Says(`{"jsonrpc":"2.0","id":"a\"b","method":"tools/call"}`)
		p.server.Says(askOne)
		synctest.Wait()
		p.client.End <- io.ErrUnexpectedEOF
		if err := p.ended(t); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Pump = %v, want the client's error", err)
		}
		p.server.Gets(`{"jsonrpc":"2.0","id":"a\"b","method":"tools/call"}`,
			`{"jsonrpc":"2.0","id":"s1","error":{"code":-32603,"message":"the other side has gone"}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a\"b","reason":"the client has gone"}}`)
		p.client.Gets(askOne)
	})
}

// A transport that knows that its client has gone ends ctx and Receive: this is
// no graceful stop, nobody waits for answers any more.
func TestPumpClientGoneAndStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.client.Says(callOne)
		p.server.Gets(callOne)
		p.client.End <- io.ErrUnexpectedEOF
		p.stop()
		synctest.Wait()
		if err := p.ended(t); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Pump = %v", err)
		}
		p.server.Gets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"the client has gone"}}`)
	})
}

// The server's requests are answered for a client that says no more.
func TestPumpRefusesServerRequestsAfterEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.client.Says(callOne)
		p.server.Says(askOne)
		synctest.Wait()
		p.client.End <- io.EOF
		p.server.Gets(callOne, `{"jsonrpc":"2.0","id":"s1","error":{"code":-32603,"message":"the other side has gone"}}`)
		p.server.Says(`{"jsonrpc":"2.0","id":"s2","method":"sampling/createMessage"}`)
		p.server.Gets(`{"jsonrpc":"2.0","id":"s2","error":{"code":-32603,"message":"the other side has gone"}}`)
		p.client.Gets(askOne)
		p.server.Says(resultOne)
		if err := p.ended(t); err != nil {
			t.Errorf("Pump = %v", err)
		}
		p.client.Gets(resultOne)
	})
}

// J3: a second request with an id in progress is refused and does not disturb
// the first; J2: once answered, a sloppy client may use the id again.
func TestPumpDuplicateIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.client.Says(callOne)
		p.client.Says(callOne)
		p.server.Gets(callOne)
		const inUse = `"message":"a request with this id is already in progress"}}`
		p.client.Gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,` + inUse)
		p.server.Says(resultOne)
		p.client.Gets(resultOne)
		p.client.Says(callOne)
		p.server.Gets(callOne)
		// The server's ids are another space, and have the same rule.
		p.server.Says(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		p.server.Says(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		p.client.Gets(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		p.server.Gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,` + inUse)
		p.client.Says(resultOne)
		p.server.Gets(resultOne)
		p.server.Says(resultOne)
		p.client.Gets(resultOne)
		p.client.End <- io.EOF
		p.ended(t)
	})
}

// J2: ids are the client's own, each reaches the server once and unchanged.
func TestPumpManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		p := pump(t, bridge.PumpOptions{})
		go func() {
			for i := range n {
				p.client.In <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)
			}
		}()
		seen := make(map[jsonrpc.ID]bool)
		for range n {
			m := <-p.server.Out
			if seen[m.ID()] {
				t.Fatalf("id %v came twice", m.ID())
			}
			seen[m.ID()] = true
			p.server.In <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID())
			if got := <-p.client.Out; got.ID() != m.ID() {
				t.Fatalf("the answer to %v has id %v", m.ID(), got.ID())
			}
		}
		p.client.End <- io.EOF
		if err := p.ended(t); err != nil {
			t.Error(err)
		}
	})
}

// A peer that decodes and encodes ids may spell them otherwise; who asked gets
// its own spelling. An id that several could mean finds none (J12).
func TestPumpRestoresSpelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.client.Says(`{"jsonrpc":"2.0","id":"\u0061","method":"ping"}`)
		p.client.Says(`{"jsonrpc":"2.0","id":1.0,"method":"ping"}`)
		p.client.Says(`{"jsonrpc":"2.0","id":"1","method":"ping"}`)
		p.server.Says(`{"jsonrpc":"2.0","id":1e0,"method":"ping"}`)
		synctest.Wait()
		p.server.Says(`{"jsonrpc":"2.0","id":"a","result":{"id":"a"}}`)
		p.server.Says(resultOne)
		p.server.Says(resultOne) // answered already
		p.client.Gets(`{"jsonrpc":"2.0","id":1e0,"method":"ping"}`,
			`{"jsonrpc":"2.0","id":"\u0061","result":{"id":"a"}}`, `{"jsonrpc":"2.0","id":1.0,"result":{}}`)
		p.client.Says(resultOne)
		synctest.Wait()
		for range 3 {
			<-p.server.Out
		}
		p.server.Gets(`{"jsonrpc":"2.0","id":1e0,"result":{}}`)

		p.client.Says(`{"jsonrpc":"2.0","id":2.0,"method":"ping"}`)
		p.client.Says(`{"jsonrpc":"2.0","id":2.00,"method":"ping"}`)
		synctest.Wait()
		p.server.Says(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		p.client.Gets()
		p.server.Says(`{"jsonrpc":"2.0","id":2.00,"result":{}}`)
		p.server.Says(`{"jsonrpc":"2.0","id":2,"result":{}}`) // now only one is meant
		p.client.Gets(`{"jsonrpc":"2.0","id":2.00,"result":{}}`, `{"jsonrpc":"2.0","id":2.0,"result":{}}`)
		p.stop()
		<-p.done
	})
}

// So may progress tokens and the ids in cancellations be spelled otherwise.
func TestPumpRestoresTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{RequestTimeout: 10 * time.Second})
		const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s}}`
		const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`
		const call = `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"_meta":{"progressToken":%s}}}`
		both := func(from, to *bridgetest.Peer) {
			t.Helper()
			from.Says(call, `7`, `"a/b"`)
			from.Says(call, `8`, `1`)
			<-to.Out
			<-to.Out
			time.Sleep(6 * time.Second)
			to.Says(progress, `"a\/b"`)
			to.Says(progress, `1.0`)
			to.Says(progress, `"other"`) // nobody's (J13)
			from.Gets(fmt.Sprintf(progress, `"a/b"`), fmt.Sprintf(progress, `1`))
			time.Sleep(6 * time.Second) // the progress has counted (J8)
			from.Gets()
			from.Says(cancel, `7.0`)
			from.Says(cancel, `8`)
			to.Gets(fmt.Sprintf(cancel, `7`), fmt.Sprintf(cancel, `8`))
			to.Says(progress, `"a\/b"`) // nobody's any more (J12)
			from.Gets()
		}
		both(p.client, p.server)
		both(p.server, p.client)
		p.client.End <- io.EOF
		if err := p.ended(t); err != nil {
			t.Error(err)
		}
	})
}

// J12: cancellations of nothing go nowhere, late answers to what was cancelled
// neither, and the server's own cancellations end its requests.
func TestPumpCancellations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"x"}}`
		p.client.Says(cancel)
		p.client.Says(`{"jsonrpc":"2.0","method":"notifications/cancelled"}`)
		p.client.Says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`)
		p.server.Gets()
		p.client.Says(callOne)
		p.client.Says(cancel)
		p.client.Says(cancel)
		p.server.Gets(callOne, cancel)
		p.server.Says(resultOne)
		p.client.Gets()
		p.server.Says(askOne)
		p.server.Says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s1"}}`)
		p.client.Gets(askOne, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s1"}}`)
		p.client.Says(`{"jsonrpc":"2.0","id":"s1","result":{}}`)
		p.server.Gets()
		p.client.End <- io.EOF
		if err := p.ended(t); err != nil { // what was cancelled is not owed
			t.Error(err)
		}
		if len(p.dropped) != 6 {
			t.Errorf("%d messages were reported as dropped, want 6: %q", len(p.dropped), p.dropped)
		}
	})
}

// J13: progress ends with the response, except that of a task, whose token
// stays valid. One of two requests with the same token goes on.
func TestPumpLateProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s}}`
		const result = `{"jsonrpc":"2.0","id":%s,"result":{}}`
		both := func(from, to *bridgetest.Peer) {
			t.Helper()
			from.Says(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"t"}}}`)
			from.Says(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"task":{},"_meta":{"progressToken":"task"}}}`)
			from.Says(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"_meta":{"progressToken":0}}}`)
			from.Says(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"_meta":{"progressToken":0}}}`)
			for range 4 {
				<-to.Out
			}
			for _, id := range []string{"1", "2", "4"} {
				to.Says(result, id)
				from.Gets(fmt.Sprintf(result, id))
			}
			to.Says(progress, `"t"`)
			to.Says(progress, `"task"`)
			to.Says(progress, `0`)
			to.Says(progress, `1.5`) // no token
			to.Says(progress, `null`)
			from.Gets(fmt.Sprintf(progress, `"task"`), fmt.Sprintf(progress, `0`))
			to.Says(result, "3")
			from.Gets(fmt.Sprintf(result, "3"))
			to.Says(progress, `0`)
			from.Gets()
		}
		both(p.client, p.server)
		both(p.server, p.client)
		p.client.End <- io.EOF
		if err := p.ended(t); err != nil {
			t.Error(err)
		}
	})
}

// A response that answers nothing is dropped, on both sides.
func TestPumpStrayResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.server.Says(resultOne)
		p.server.Says(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`)
		p.server.Says(`{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error"}}`)
		p.client.Says(resultOne)
		p.client.Gets()
		p.server.Gets()
		// And such a thing does not make a drain end too early.
		p.client.Says(callOne)
		p.client.End <- io.EOF
		synctest.Wait()
		p.server.Says(`{"jsonrpc":"2.0","id":7,"result":{}}`)
		p.running(t)
		p.server.Says(resultOne)
		p.ended(t)
		p.client.Gets(resultOne)
	})
}

// J8: a silent server is cancelled and the client gets an error; progress
// starts the time anew.
func TestPumpRequestTimeout(t *testing.T) {
	const timedOut = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server did not answer within 10s","data":{"reason":"timeout"}}}`
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"t"}}}`
	bubble(t, "silent", func(t *testing.T) {
		var told []bridge.PendingCall
		began := time.Now()
		p := pump(t, bridge.PumpOptions{RequestTimeout: 10 * time.Second, TimedOut: func(c bridge.PendingCall) { told = append(told, c) }})
		p.client.Says(call)
		p.server.Gets(call)
		time.Sleep(9 * time.Second)
		p.server.Says(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}`)
		p.server.Says(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"u","progress":1}}`)
		synctest.Wait()
		<-p.client.Out
		time.Sleep(10*time.Second - 1)
		p.client.Gets()
		time.Sleep(time.Nanosecond)
		p.client.Gets(timedOut)
		p.server.Gets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"timed out"}}`)
		p.server.Says(resultOne)
		p.client.Gets()
		p.client.End <- io.EOF
		if err := p.ended(t); err != nil {
			t.Error(err)
		}
		if len(told) != 1 || told[0].Method != "tools/call" || told[0].ID.String() != "1" || !told[0].Since.Equal(began) || told[0].Ctx == nil {
			t.Errorf("TimedOut was told of %+v", told)
		}
	})
	bubble(t, "progress without end", func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{RequestTimeout: 10 * time.Second})
		p.client.Says(call)
		p.server.Gets(call)
		const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}`
		for range 14 {
			time.Sleep(7 * time.Second)
			p.server.Says(progress)
			p.client.Gets(progress)
		}
		time.Sleep(2*time.Second - 1)
		p.client.Gets()
		time.Sleep(time.Nanosecond)
		p.client.Gets(strings.Replace(timedOut, "10s", "1m40s", 1))
		p.client.End <- io.EOF
		p.ended(t)
	})
	bubble(t, "answered", func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{RequestTimeout: 10 * time.Second})
		p.client.Says(call)
		time.Sleep(9 * time.Second)
		p.server.Says(resultOne)
		p.client.Gets(resultOne)
		p.client.Says(call) // the same id again: the old time-out is not its own
		time.Sleep(9 * time.Second)
		p.client.Gets()
		time.Sleep(time.Second)
		p.client.Gets(timedOut)
		p.client.End <- io.EOF
		p.ended(t)
	})
	bubble(t, "initialize is not cancelled", func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{RequestTimeout: 10 * time.Second})
		const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize"}`
		p.client.Says(initialize)
		time.Sleep(10 * time.Second)
		p.client.Gets(timedOut)
		p.server.Gets(initialize)
		p.client.End <- io.EOF
		p.ended(t)
	})
	// The answer of the time-out is owed like any other: EOF does not cut it off.
	bubble(t, "drain", func(t *testing.T) {
		p := pumpBuffered(t, bridge.PumpOptions{RequestTimeout: 10 * time.Second}, 0, 0)
		p.client.Says(call)
		synctest.Wait()
		<-p.server.Out
		p.client.End <- io.EOF
		time.Sleep(15 * time.Second)
		p.running(t)
		p.client.Gets(timedOut)
		p.ended(t)
	})
	// A time-out that has begun when everything ends does not outlive Pump.
	bubble(t, "end", func(t *testing.T) {
		p := pumpBuffered(t, bridge.PumpOptions{RequestTimeout: 10 * time.Second}, 0, 0)
		p.client.Says(call)
		synctest.Wait()
		<-p.server.Out
		time.Sleep(15 * time.Second)
		p.client.SendLag = time.Second
		p.server.End <- io.EOF
		synctest.Wait()
		p.stop()
		<-p.done
		if n := p.client.SendsInProgress.Load(); n > 0 {
			t.Errorf("%d Sends go on after Pump has returned", n)
		}
	})
}

// A client that answers none of the server's requests does not make the books
// grow for ever; its silence is the server's to know.
func TestPumpUnansweredServerRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		refused := 0
		for i := 0; refused == 0 && i < 20_000; i++ {
			p.server.In <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)
			select {
			case <-p.client.Out:
			case m := <-p.server.Out:
				if !m.IsError() {
					t.Fatalf("got %s", m.Bytes())
				}
				refused++
			}
		}
		if refused == 0 {
			t.Error("20,000 requests wait for an answer")
		}
		p.client.Says(`{"jsonrpc":"2.0","id":5,"result":{}}`)
		p.server.Gets(`{"jsonrpc":"2.0","id":5,"result":{}}`)
		p.server.Says(`{"jsonrpc":"2.0","id":"more","method":"ping"}`)
		p.client.Gets(`{"jsonrpc":"2.0","id":"more","method":"ping"}`)
		p.server.End <- io.EOF
		p.ended(t)
	})
}

// A server request that cannot be handed to the client is answered, not lost.
func TestPumpClientDoesNotTakeRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		close(p.client.FailSends)
		p.server.Says(askOne)
		p.server.Gets(`{"jsonrpc":"2.0","id":"s1","error":{"code":-32603,"message":"the client did not take the request"}}`)
		p.ended(t) // who takes nothing is gone, whatever may still come from it
	})
}

// A client that takes nothing more is gone: after its end of input nobody
// waits for what it is owed, but the server learns that it may stop.
func TestPumpClientTakesNothing(t *testing.T) {
	note := `{"jsonrpc":"2.0","method":"notifications/message"}`
	bubble(t, "while it may still send", func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.client.Says(callOne)
		p.server.Gets(callOne)
		close(p.client.FailSends)
		p.server.Says("%s", note)
		if err := p.ended(t); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Pump = %v", err)
		}
		p.server.Gets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"the client has gone"}}`)
	})
	bubble(t, "after its end of input", func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{DrainTimeout: time.Hour})
		p.client.Says(callOne)
		p.client.End <- io.EOF
		p.running(t)
		close(p.client.FailSends)
		p.server.Says("%s", note)
		p.ended(t)
	})
}

// When there is no server every request is answered; why stays in the error.
func TestServeWithoutServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := errors.New("fork/exec /opt/secret/server: no such file")
		h := bridge.Serve(dialFunc(func(context.Context) (bridge.Conn, error) { return nil, missing }), bridge.PumpOptions{})
		client := bridgetest.NewPeer(t, 10)
		done := make(chan error, 1)
		go func() { done <- h.ServeConn(t.Context(), client) }()
		client.Says(callOne)
		client.Says(`{"jsonrpc":"2.0","method":"notifications/x"}`)
		client.Says(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		synctest.Wait()
		for range 2 {
			if m := <-client.Out; !m.IsError() || strings.Contains(string(m.Bytes()), "secret") {
				t.Errorf("got %s", m.Bytes())
			}
		}
		client.End <- io.EOF
		if err := <-done; !errors.Is(err, missing) {
			t.Errorf("ServeConn = %v", err)
		}
	})
}

// Serve closes both sides, the client first: nobody waits for a slow stop.
func TestServeClosesBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, ours := bridge.Pipe()
		theirs, server := bridge.Pipe()
		h := bridge.Serve(dialFunc(func(context.Context) (bridge.Conn, error) { return slowClose{theirs}, nil }), bridge.PumpOptions{})
		done := make(chan error, 1)
		go func() { done <- h.ServeConn(t.Context(), ours) }()
		bridgetest.Must(t, server.Close(nil))
		start := time.Now()
		if _, err := bridgetest.Recv(t.Context(), client); err != io.EOF {
			t.Errorf("Recv = %v, want io.EOF", err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("the client waited %v for the server's stop", took)
		}
		if err := <-done; err == nil {
			t.Error("ServeConn = nil, although the server ended by itself")
		}
		client.Close(nil)
	})
}

type slowClose struct{ bridge.Conn }

func (s slowClose) Close(reason error) error {
	time.Sleep(time.Minute)
	return s.Conn.Close(reason)
}

// Neither may a server that answers nothing.
func TestPumpUnansweredRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		taken, refused := 0, jsonrpc.Message{}
		for refused.Kind() == jsonrpc.Invalid && taken < 20_000 {
			p.client.In <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, taken)
			select {
			case <-p.server.Out:
				taken++
			case refused = <-p.client.Out:
			}
		}
		if taken < 10_000 || !refused.IsError() || string(refused.Lookup("error", "code")) != "-32603" {
			t.Errorf("after %d requests: %s", taken, refused.Bytes())
		}
		p.server.Says(`{"jsonrpc":"2.0","id":0,"result":{}}`)
		<-p.client.Out
		p.client.In <- `{"jsonrpc":"2.0","id":"again","method":"ping"}`
		if m := <-p.server.Out; m.ID().String() != `"again"` {
			t.Errorf("the server got %s", m.Bytes())
		}
		p.server.End <- io.EOF
		for range taken {
			<-p.client.Out
		}
		p.ended(t)
	})
}
