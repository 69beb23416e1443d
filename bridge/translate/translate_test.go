package translate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// script is a Filter that says what the test wants it to.
type script struct {
	bridgetest.PassingFilter
	start      func(out *era.Out)
	fromClient func(m jsonrpc.Message, out *era.Out)
	fromServer func(m jsonrpc.Message, out *era.Out)
	due        time.Time
	tick       func(now time.Time, out *era.Out)
	ended      func(err error, out *era.Out)
	ends       int
}

func (s *script) Start(_ time.Time, out *era.Out) {
	if s.start != nil {
		s.start(out)
	}
}

func (s *script) FromClient(now time.Time, m jsonrpc.Message, out *era.Out) {
	if s.fromClient == nil {
		s.PassingFilter.FromClient(now, m, out)
		return
	}
	s.fromClient(m, out)
}

func (s *script) FromServer(now time.Time, m jsonrpc.Message, out *era.Out) {
	if s.fromServer == nil {
		s.PassingFilter.FromServer(now, m, out)
		return
	}
	s.fromServer(m, out)
}

func (s *script) Due() time.Time                   { return s.due }
func (s *script) Tick(now time.Time, out *era.Out) { s.tick(now, out) }
func (s *script) ServerEnded(_ time.Time, err error, _ []jsonrpc.ID, out *era.Out) {
	s.ends++
	if s.ended != nil {
		s.ended(err, out)
	}
}

func vendor(n int) jsonrpc.Message {
	return jsonrpc.NewNotification("notifications/vendor", fmt.Appendf(nil, `{"n":%d}`, n))
}

func wantVendor(t *testing.T, c bridge.Conn, n int) {
	t.Helper()
	m, err := bridgetest.Recv(t.Context(), c)
	if want := string(new(vendor(n)).Bytes()); err != nil || string(m.Bytes()) != want {
		t.Fatalf("got %s, %v; want %s", m.Bytes(), err, want)
	}
}

func newTranslated(t *testing.T, f era.Filter) (client *receiver, server bridge.Conn) {
	ours, theirs := bridge.Pipe()
	client, server = receive(translate.Wrap(ours, f, nil)), theirs
	t.Cleanup(func() { _ = client.Close(nil) })
	return client, server
}

// What the filter says at the start, and answers itself.
func TestTranslateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := newTranslated(t, &script{
			start: func(out *era.Out) { out.Server(vendor(1)); out.Client(vendor(2)) },
			fromClient: func(m jsonrpc.Message, out *era.Out) {
				out.Client(vendor(3))
				out.Server(vendor(4))
				out.Server(vendor(5))
			},
			fromServer: func(_ jsonrpc.Message, out *era.Out) { out.Server(vendor(6)); out.Client(vendor(7)) },
		})
		wantVendor(t, server, 1)
		wantVendor(t, client, 2)
		bridgetest.Must(t, client.Send(t.Context(), vendor(0)))
		wantVendor(t, client, 3)
		wantVendor(t, server, 4)
		wantVendor(t, server, 5)
		bridgetest.Must(t, server.Send(t.Context(), vendor(0)))
		wantVendor(t, server, 6)
		wantVendor(t, client, 7)
	})
}

// Tick is called when it is due, also when that becomes earlier or later, and
// what it says goes out although nothing else happens.
func TestTranslateTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var ticks []time.Duration
		f := &script{}
		f.tick = func(now time.Time, out *era.Out) {
			ticks = append(ticks, now.Sub(start))
			out.Server(vendor(len(ticks)))
			out.Client(vendor(-len(ticks)))
			f.due = time.Time{}
			if len(ticks) >= 3 {
				f.due = now // for ever in the past
			}
		}
		f.fromClient = func(m jsonrpc.Message, out *era.Out) {
			var after int
			_, _ = fmt.Sscan(string(m.Lookup("params", "n")), &after)
			f.due = start.Add(time.Duration(after) * time.Second)
		}
		client, server := newTranslated(t, f)
		set := func(after int) {
			bridgetest.Must(t, client.Send(t.Context(), vendor(after)))
		}
		set(100)
		set(5) // earlier
		time.Sleep(6 * time.Second)
		set(20)
		set(30) // later
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if len(ticks) != 2 || ticks[0] != 5*time.Second || ticks[1] != 30*time.Second {
			t.Errorf("ticks at %v", ticks)
		}
		wantVendor(t, server, 1)
		wantVendor(t, client, -1)
		wantVendor(t, server, 2)
		wantVendor(t, client, -2)
		set(1) // in the past: at once
		wantVendor(t, server, 3)
		time.Sleep(5*time.Millisecond + time.Microsecond)
		synctest.Wait()
		if len(ticks) < 5 || len(ticks) > 10 {
			t.Errorf("%d ticks: a filter that is always due must not take the whole processor", len(ticks))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		client, _ := newTranslated(t, &script{due: start.Add(time.Hour)})
		_ = client.Close(nil)
		if took := time.Since(start); took != 0 {
			t.Errorf("Close took %v", took)
		}
	})
}

// ServerEnded's messages come after all that came before, and before the error.
func TestTranslateServerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("exit status 1")
		server := bridgetest.NewPeer(t, 10)
		f := &script{ended: func(err error, out *era.Out) {
			if err != why {
				t.Errorf("ServerEnded(%v)", err)
			}
			out.Client(vendor(2))
			out.Server(vendor(3)) // which nobody takes
		}}
		client := receive(translate.Wrap(server, f, nil))
		server.Says("%s", new(vendor(1)).Bytes())
		server.End <- why
		synctest.Wait()
		wantVendor(t, client, 1)
		wantVendor(t, client, 2)
		for range 2 {
			if _, err := bridgetest.Recv(t.Context(), client); err != why {
				t.Errorf("Recv = %v", err)
			}
		}
		if err := client.Send(t.Context(), vendor(4)); !errors.Is(err, why) {
			t.Errorf("Send = %v", err)
		}
		server.Gets()
		if err := client.Close(nil); err != nil || f.ends != 1 {
			t.Errorf("Close = %v, ended %d times", err, f.ends)
		}
	})
}

// A server that reads nothing until its own output is taken does not stop.
func TestTranslateDoesNotLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{}
		f.fromServer = func(m jsonrpc.Message, out *era.Out) { out.Server(m) } // a ping, say
		client, server := newTranslated(t, f)
		go bridgetest.Recv(t.Context(), client) // nothing comes
		const n = 900
		for i := range n {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := server.Send(ctx, vendor(i))
			cancel()
			if err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		synctest.Wait()
		sent := make(chan error, 1)
		go func() { sent <- client.Send(t.Context(), vendor(n)) }()
		synctest.Wait()
		for i := range n + 1 { // in order
			wantVendor(t, server, i)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

// C.1, D11: a server that asks faster than it takes answers, but does take them, is only slowed down.
func TestTranslateSlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{}
		f.fromServer = func(m jsonrpc.Message, out *era.Out) { out.Server(m) } // a ping, say
		client, server := newTranslated(t, f)
		go bridgetest.Recv(t.Context(), client) // nothing comes
		const n = 3000
		asked := make(chan error, 1)
		go func() {
			for i := range n {
				if err := server.Send(t.Context(), vendor(i)); err != nil {
					asked <- err
					return
				}
			}
			asked <- nil
		}()
		for i := range n {
			time.Sleep(time.Millisecond)
			wantVendor(t, server, i)
		}
		if err := <-asked; err != nil {
			t.Error(err)
		}
	})
}

// One that goes on asking and takes no answer is given up.
func TestTranslateStalledServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{}
		f.fromServer = func(m jsonrpc.Message, out *era.Out) { out.Server(m) }
		f.ended = func(_ error, out *era.Out) { out.Client(vendor(-1)) }
		client, server := newTranslated(t, f)
		last := make(chan jsonrpc.Message, 1)
		go func() {
			m, _ := bridgetest.Recv(t.Context(), client)
			last <- m
		}()
		var err error
		n := 0
		for ; err == nil && n < 5000; n++ {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err = server.Send(ctx, vendor(n))
			cancel()
		}
		if err == nil || n < 1000 || n > 1100 {
			t.Errorf("it was read %d messages long", n)
		}
		if m := <-last; string(m.Bytes()) != string(new(vendor(-1)).Bytes()) {
			t.Errorf("its last words: %s", m.Bytes())
		}
		if _, err := bridgetest.Recv(t.Context(), client); err == nil || err == io.EOF {
			t.Errorf("Recv = %v", err)
		}
	})
}

// One that has left as much as it may is given up as soon, if all else that it says needs no answer.
func TestTranslateStalledNotifies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{}
		began := time.Now()
		f.fromServer = func(m jsonrpc.Message, out *era.Out) {
			if time.Since(began) < time.Second { // until it has to wait
				out.Server(m)
			}
		}
		f.ended = func(_ error, out *era.Out) { out.Client(vendor(-1)) }
		client, server := newTranslated(t, f)
		last := make(chan error, 1)
		go func() {
			_, err := bridgetest.Recv(t.Context(), client)
			last <- err
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		for n := 0; ctx.Err() == nil && n < 1200; n++ {
			_ = server.Send(ctx, vendor(n)) // nobody reads any more, at last
		}
		select {
		case err := <-last:
			bridgetest.Must(t, err) // what ended says
		default:
			t.Errorf("it goes on after %v", time.Since(began))
		}
	})
}

// A server is not stalled because much was held back for it while it started, not
// even if it says something before it has taken all of that.
func TestTranslateLetsGo(t *testing.T) {
	const held = 10_000
	synctest.Test(t, func(t *testing.T) {
		f := &script{}
		f.fromServer = func(m jsonrpc.Message, out *era.Out) {
			if string(m.Lookup("params", "n")) != "-1" {
				out.Client(m)
				return
			}
			for i := range held {
				out.Server(vendor(i))
			}
		}
		client, server := newTranslated(t, f)
		for _, n := range []int{-1, 1, 2} {
			bridgetest.Must(t, server.Send(t.Context(), vendor(n)))
			synctest.Wait()
		}
		wantVendor(t, client, 1)
		wantVendor(t, client, 2)
		for i := range held {
			wantVendor(t, server, i)
		}
	})
}

// What the filter has taken gets to the server, although the Send that
// brought it has been given up; so the filter's books are right. Send says so:
// a message that is offered again because of an error does not come twice.
func TestTranslateSendGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := newTranslated(t, bridgetest.PassingFilter{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n := 0
		for ; client.Send(ctx, vendor(n)) == nil; n++ {
		}
		if n == 0 || ctx.Err() == nil {
			t.Fatalf("sent %d", n)
		}
		other := make(chan error, 1)
		go func() {
			other <- errors.Join(client.Send(t.Context(), vendor(n)), client.Send(t.Context(), vendor(n+1)))
		}()
		synctest.Wait()
		for i := range n + 2 {
			wantVendor(t, server, i)
		}
		if err := <-other; err != nil {
			t.Error(err)
		}
	})
}

// A client that reads nothing makes the server wait, and in the end itself.
func TestTranslateBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &script{fromClient: func(m jsonrpc.Message, out *era.Out) { out.Client(m) }}
		client, server := newTranslated(t, f)
		bridgetest.Must(t, server.Send(t.Context(), vendor(-3)))
		wantVendor(t, client, -3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n := 0
		for ; server.Send(ctx, vendor(n)) == nil; n++ {
		}
		if n > 100 {
			t.Errorf("%d messages were taken that nobody reads", n)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := client.Send(ctx, vendor(-1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Send = %v", err)
		}
		for i := range n {
			wantVendor(t, client, i)
		}
		if err := client.Send(t.Context(), vendor(-2)); err != nil {
			t.Error(err)
		}
		wantVendor(t, client, -2)
	})
}

// The error of the server's Send is that of the Send it belongs to.
func TestTranslateSendError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("too much")
		ours, theirs := bridge.Pipe()
		server := theirs
		client := receive(translate.Wrap(&stubborn{Conn: ours, sendErr: why}, bridgetest.PassingFilter{}, nil))
		if err := client.Send(t.Context(), vendor(1)); err != why {
			t.Errorf("Send = %v", err)
		}
		if err := server.Send(t.Context(), vendor(2)); err != nil {
			t.Error(err)
		}
		wantVendor(t, client, 2)
		if err := client.Close(nil); err != nil {
			t.Error(err)
		}
	})
}

// A request that the filter has kept back, and the server then does not take,
// is answered all the same: this is the server's end.
func TestTranslateLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("nobody reads this")
		server, theirs := bridge.Pipe()
		far := theirs
		f := &script{
			fromClient: func(jsonrpc.Message, *era.Out) {},
			fromServer: func(_ jsonrpc.Message, out *era.Out) {
				out.Server(jsonrpc.NewRequest(jsonrpc.IntID(1), "vendor", nil))
			},
			ended: func(err error, out *era.Out) {
				if !errors.Is(err, refused) {
					t.Errorf("the server has ended: %v", err)
				}
				out.Client(vendor(8))
			},
		}
		client := receive(translate.Wrap(&stubborn{Conn: server, sendErr: refused}, f, nil))
		bridgetest.Must(t, client.Send(t.Context(), vendor(1)))
		bridgetest.Must(t, far.Send(t.Context(), vendor(2)))
		wantVendor(t, client, 8)
		if _, err := bridgetest.Recv(t.Context(), client); !errors.Is(err, refused) {
			t.Errorf("Recv = %v", err)
		}
		if err := client.Close(nil); err != nil {
			t.Error(err)
		}
		if f.ends != 1 {
			t.Errorf("the server has ended %d times", f.ends)
		}
	})
}

// hesitant is a server's Conn that takes nothing: it waits for its first Send to be given
// up, and fails from then on.
type hesitant struct {
	bridge.Conn
	given atomic.Bool
	err   error
}

func (h *hesitant) Send(ctx context.Context, _ jsonrpc.Message) error {
	if !h.given.Swap(true) {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.err
}

func (h *hesitant) TrySend(jsonrpc.Message) bool { return false }

// A request whose Send was given up counts as taken: it is answered if the server does not
// take it afterwards.
func TestTranslateSendGivenUpIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("nobody reads this")
		server, theirs := bridge.Pipe()
		defer theirs.Close(nil)
		f := &script{
			fromClient: func(m jsonrpc.Message, out *era.Out) { out.Server(m) },
			ended:      func(_ error, out *era.Out) { out.Client(vendor(8)) },
		}
		client := receive(translate.Wrap(&hesitant{Conn: server, err: refused}, f, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := client.Send(ctx, jsonrpc.NewRequest(jsonrpc.IntID(1), "vendor", nil)); err != nil {
			t.Errorf("Send = %v", err)
		}
		wantVendor(t, client, 8)
		if _, err := bridgetest.Recv(t.Context(), client); !errors.Is(err, refused) {
			t.Errorf("Recv = %v", err)
		}
		_ = client.Close(nil)
	})
}
