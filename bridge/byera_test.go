package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// reasoned is a client's Conn that is closed for a reason.
type reasoned struct {
	*bridgetest.Peer
	mu     sync.Mutex
	closed []string
}

func (r *reasoned) Close(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = append(r.closed, fmt.Sprint(err))
	return nil
}

func (r *reasoned) closedFor(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if fmt.Sprint(r.closed) != fmt.Sprint(want) {
		t.Errorf("closed for %q, want %q", r.closed, want)
	}
}

// played is a Handler that the test plays.
type played struct {
	conn  bridge.Conn
	ctx   context.Context
	calls chan struct{}
	leave chan error
}

func newPlayed() *played {
	return &played{calls: make(chan struct{}, 10), leave: make(chan error, 1)}
}

func (p *played) ServeConn(ctx context.Context, client bridge.Conn) error {
	p.conn, p.ctx = client, ctx
	p.calls <- struct{}{}
	return <-p.leave
}

// gets wants this message to come next.
func (p *played) gets(t *testing.T, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	m, err := bridgetest.Recv(ctx, p.conn)
	if err != nil || string(m.Bytes()) != want {
		t.Errorf("got %s, %v; want %s", m.Bytes(), err, want)
	}
}

// started waits until it was called.
func (p *played) started(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case <-p.calls:
	default:
		t.Fatal("the Handler was not started")
	}
}

type byEra struct {
	client         *reasoned
	legacy, modern *played
	done           chan struct{}
	stop           context.CancelFunc
	err            error
}

func serveByEra(t *testing.T, says ...string) *byEra {
	b := &byEra{client: &reasoned{Peer: bridgetest.NewPeer(t, 100)}, legacy: newPlayed(), modern: newPlayed(), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	b.stop = cancel
	for _, text := range says {
		b.client.In <- text
	}
	go func() {
		defer close(b.done)
		b.err = bridge.ByEra(b.legacy, b.modern).ServeConn(ctx, b.client)
	}()
	return b
}

const (
	initializeZero = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`
	modernOne      = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	modernTwo      = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01"}}}`
	legacyThree    = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}}}`
	someNote       = `{"jsonrpc":"2.0","method":"notifications/vendor"}`
)

// ST14: each request is served in its own era, on one connection.
func TestByEra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serveByEra(t, initializeZero, modernOne, callOne, modernTwo)
		b.legacy.started(t)
		b.legacy.gets(t, initializeZero)
		b.legacy.gets(t, callOne) // whose id is in use, which is not ours to judge
		b.modern.started(t)
		b.modern.gets(t, modernOne)
		b.modern.gets(t, modernTwo)
		for i, h := range []*played{b.legacy, b.modern} {
			if err := h.conn.Send(t.Context(), jsonrpc.NewResult(jsonrpc.IntID(int64(i)), nil)); err != nil {
				t.Error(err)
			}
		}
		b.client.Gets(`{"jsonrpc":"2.0","id":0,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		// Both see the client's end, and what they do then is their own.
		b.client.End <- io.EOF
		for _, h := range []*played{b.legacy, b.modern} {
			if _, err := bridgetest.Recv(t.Context(), h.conn); err != io.EOF {
				t.Errorf("Recv = %v", err)
			}
		}
		b.legacy.leave <- nil
		synctest.Wait()
		if b.modern.ctx.Err() != nil {
			t.Error("the other was stopped while it drains")
		}
		b.modern.leave <- errors.New("m")
		<-b.done
		if b.err == nil || b.err.Error() != "m" {
			t.Errorf("ServeConn = %v", b.err)
		}
		b.client.closedFor(t)
	})
}

// A connection of one era starts one Handler only, and is its own.
func TestByEraAlone(t *testing.T) {
	for name, first := range map[string]string{"legacy": initializeZero, "modern": modernOne, "modern, by a notification": someNote} {
		bubble(t, name, func(t *testing.T) {
			b := serveByEra(t, first)
			h, other := b.legacy, b.modern
			if name != "legacy" {
				h, other = other, h
			}
			h.started(t)
			h.gets(t, first)
			for _, text := range []string{someNote, cancelledNote("0"), resultOne} {
				b.client.In <- text
				h.gets(t, text)
			}
			got := make(chan error)
			go func() { _, err := bridgetest.Recv(t.Context(), h.conn); got <- err }()
			synctest.Wait()
			b.client.End <- io.EOF
			if err := <-got; err != io.EOF {
				t.Errorf("Recv = %v", err)
			}
			_ = h.conn.Close(io.EOF)
			b.client.closedFor(t, "EOF")
			if err := h.conn.Send(t.Context(), parse(t, someNote)); err == nil {
				t.Error("Send after Close gave no error")
			}
			h.leave <- nil
			<-b.done
			if len(other.calls) > 0 {
				t.Error("the other Handler was started")
			}
		})
	}
	bubble(t, "nothing", func(t *testing.T) {
		b := serveByEra(t)
		b.client.End <- io.EOF
		<-b.done
		if b.err != nil {
			t.Errorf("ServeConn = %v", b.err)
		}
	})
	bubble(t, "gone", func(t *testing.T) {
		b := serveByEra(t)
		b.client.End <- errors.New("gone")
		<-b.done
		if b.err == nil {
			t.Error("no error")
		}
	})
}

// A cancellation goes where its request is, the rest to the legacy side.
func TestByEraRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serveByEra(t, modernOne, someNote, legacyThree)
		b.modern.started(t)
		b.modern.gets(t, modernOne)
		b.modern.gets(t, someNote) // legacy does not run yet
		recv(t, b.modern)
		b.legacy.started(t)
		b.legacy.gets(t, legacyThree)
		for _, c := range []struct {
			text string
			to   *played
		}{
			{modernTwo, b.modern}, {cancelledNote("3"), b.legacy}, {cancelledNote("2.0"), b.modern}, {cancelledNote("1"), b.modern},
			{someNote, b.legacy}, {resultOne, b.legacy},
			{`{"jsonrpc":"2.0","method":"notifications/vendor","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, b.modern},
		} {
			b.client.In <- c.text
			other := b.legacy
			if c.to == b.legacy {
				other = b.modern
			}
			recv(t, other)
			c.to.gets(t, c.text)
		}
		// One that a side has read itself.
		b.client.In <- initializeZero
		b.legacy.gets(t, initializeZero)
		b.client.In <- cancelledNote("0")
		recv(t, b.modern)
		b.legacy.gets(t, cancelledNote("0"))
		b.legacy.leave <- nil
		b.modern.leave <- nil
		<-b.done
	})
}

// recv lets a Handler read without getting anything.
func recv(t *testing.T, p *played) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if m, err := bridgetest.Recv(ctx, p.conn); err == nil {
		t.Errorf("got %s", m.Bytes())
	}
}

// When one Handler is done although the client is there, the connection is
// over: the other is told, and the client closed for the first one's reason.
func TestByEraOneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serveByEra(t, initializeZero, modernOne, modernTwo)
		b.legacy.started(t)
		b.legacy.gets(t, initializeZero)
		recv(t, b.legacy)
		b.modern.started(t)
		b.modern.gets(t, modernOne)
		b.modern.gets(t, modernTwo)
		waiting := make(chan error)
		go func() { _, err := bridgetest.Recv(t.Context(), b.legacy.conn); waiting <- err }()
		synctest.Wait()
		_ = b.legacy.conn.Close(errors.New("the server has ended"))
		if err := <-waiting; err != io.ErrClosedPipe {
			t.Errorf("Recv = %v", err)
		}
		if b.modern.ctx.Err() == nil {
			t.Error("the other was not stopped")
		}
		b.client.closedFor(t)
		// What comes for the closed side is answered, by whoever reads it.
		b.client.In <- legacyThree
		recv(t, b.modern)
		b.client.Gets(`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the other side has gone","data":{"reason":"server_ended"}}}`)
		if err := b.modern.conn.Send(t.Context(), parse(t, resultOne)); err != nil {
			t.Error(err)
		}
		b.client.Gets(resultOne)
		_ = b.modern.conn.Close(nil)
		b.client.closedFor(t, "the server has ended")
		b.legacy.leave <- errors.New("l")
		b.modern.leave <- nil
		<-b.done
		if b.err == nil || b.err.Error() != "l" {
			t.Errorf("ServeConn = %v", b.err)
		}
	})
}

// What waits for a Handler that returns is answered.
func TestByEraEarlyAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serveByEra(t, modernOne, initializeZero, legacyThree)
		b.modern.started(t)
		b.modern.gets(t, modernOne)
		recv(t, b.modern)
		b.legacy.started(t)
		b.legacy.leave <- nil
		b.client.Gets(`{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"the other side has gone","data":{"reason":"server_ended"}}}`,
			`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the other side has gone","data":{"reason":"server_ended"}}}`)
		b.modern.leave <- nil
		<-b.done
	})
}

// A Handler that does not read holds up the other only after a number of
// messages, and loses none.
func TestByEraBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serveByEra(t, initializeZero, modernOne)
		b.legacy.started(t)
		b.legacy.gets(t, initializeZero)
		recv(t, b.legacy)
		b.modern.started(t)
		b.modern.gets(t, modernOne)
		const n = 40
		go func() {
			for i := range n {
				b.client.In <- fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/vendor","params":{"n":%d}}`, i)
			}
		}()
		for range 5 {
			recv(t, b.modern) // gives up in the middle of waiting, too
		}
		waiting, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { _, err := bridgetest.Recv(waiting, b.modern.conn); done <- err }()
		synctest.Wait()
		for i := range n {
			b.legacy.gets(t, string(new(vendor(i)).Bytes()))
		}
		stop()
		if err := <-done; err != context.Canceled {
			t.Errorf("Recv = %v", err)
		}
		b.legacy.leave <- nil
		b.modern.leave <- nil
		<-b.done
	})
}

// Two Pumps on one connection, which end with it.
func TestByEraServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		echoing := dialFunc(func(context.Context) (bridge.Conn, error) {
			ours, theirs := bridge.Pipe()
			go echo(theirs, nil)
			return ours, nil
		})
		h := bridge.Serve(echoing, bridge.PumpOptions{})
		ours, client := bridge.Pipe()
		done := make(chan error)
		go func() { done <- bridge.ByEra(h, h).ServeConn(t.Context(), ours) }()
		const n = 100
		for i := range n {
			text := modernOne
			if i%2 == 0 {
				text = legacyThree
			}
			bridgetest.Must(t, client.Send(t.Context(), parse(t, text).WithID(jsonrpc.IntID(int64(i)))))
			if m, err := bridgetest.Recv(t.Context(), client); err != nil || m.ID() != jsonrpc.IntID(int64(i)) {
				t.Fatalf("got %s, %v", m.Bytes(), err)
			}
		}
		_ = client.Close(nil)
		if err := <-done; err != nil {
			t.Errorf("ServeConn = %v", err)
		}
	})
}

// leaver is a client's Conn whose Receive knows better than its ctx why it ends.
type leaver struct{ bridge.Conn }

var errLeft = errors.New("the client has vanished")

func (l leaver) Receive(ctx context.Context, sink bridge.Sink) error {
	err := l.Conn.Receive(ctx, sink)
	if ctx.Err() != nil {
		err = errLeft
	}
	return err
}

// Listening transports end a session's context when its client goes, and Receive
// says why: a Handler must hear that, for a shutdown is something else.
func TestByEraTellsWhy(t *testing.T) {
	for _, busy := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			client, ours := bridge.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			var why error
			h := bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
				if _, err := bridgetest.Recv(ctx, c); err != nil {
					t.Error(err)
				}
				if busy {
					<-ctx.Done()
				}
				why = c.Receive(ctx, stuck{})
				return nil
			})
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = bridge.ByEra(h, h).ServeConn(ctx, leaver{ours})
			}()
			bridgetest.Must(t, client.Send(ctx, parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize"}`)))
			synctest.Wait()
			cancel()
			<-done
			if why != errLeft {
				t.Errorf("busy %v: Recv = %v", busy, why)
			}
			_ = client.Close(nil)
		})
	}
}

// givingBack looks at a client's first message, as those do who decide by it.
func givingBack(h bridge.Handler) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		if _, err := bridge.First(ctx, client); err != nil {
			return err
		}
		return h.ServeConn(ctx, client)
	})
}

// The first request of a client is answered once, and with the reason, also when
// the server has ended before it was handed on.
func TestByEraServerEndsAtOnce(t *testing.T) {
	ended := errors.New("the server has ended: exit status 7")
	for name, first := range map[string]string{"legacy": initializeZero, "modern": modernOne} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				synctest.Test(t, func(t *testing.T) {
					h := givingBack(bridge.Serve(dialFunc(func(context.Context) (bridge.Conn, error) {
						server := bridgetest.NewPeer(t, 1)
						server.End <- ended
						return server, nil
					}), bridge.PumpOptions{}))
					client, ours := bridge.Pipe()
					bridgetest.Must(t, client.Send(t.Context(), parse(t, first)))
					_ = bridge.ByEra(h, h).ServeConn(t.Context(), ours)
					_ = ours.Close(nil)
					m, err := bridgetest.Recv(t.Context(), client)
					if text, _ := jsonrpc.Text(m.Lookup("error", "message")); err != nil || text != ended.Error() {
						t.Fatalf("received %s, %v", m.Bytes(), err)
					}
					if m, err := bridgetest.Recv(t.Context(), client); err != io.EOF {
						t.Fatalf("then %s, %v", m.Bytes(), err)
					}
				})
			}
		})
	}
}

// A request that has come before its session was stopped is served, or refused if
// there is no server for it any more.
func TestByEraStoppedWhileItBegins(t *testing.T) {
	for name, want := range map[string]string{
		"served":  `{"jsonrpc":"2.0","id":0,"result":{}}`,
		"refused": `{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"the server could not be started; the bridge's log says why","data":{"reason":"server_unavailable"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				synctest.Test(t, func(t *testing.T) {
					ctx, stop := context.WithCancel(t.Context())
					ours, theirs := bridge.Pipe()
					h := givingBack(bridge.Serve(dialFunc(func(ctx context.Context) (bridge.Conn, error) {
						stop()
						if name == "refused" {
							return nil, ctx.Err()
						}
						return ours, nil
					}), bridge.PumpOptions{ShutdownGrace: time.Minute}))
					client, served := bridge.Pipe()
					bridgetest.Must(t, client.Send(t.Context(), parse(t, initializeZero)))
					go func() {
						if m, err := bridgetest.Recv(context.Background(), theirs); err == nil {
							_ = theirs.Send(context.Background(), jsonrpc.NewResult(m.ID(), nil))
						}
					}()
					_ = bridge.ByEra(h, h).ServeConn(ctx, served)
					_, _ = ours.Close(nil), theirs.Close(nil)
					_ = served.Close(nil)
					if m, err := bridgetest.Recv(t.Context(), client); err != nil || string(m.Bytes()) != want {
						t.Fatalf("received %s, %v", m.Bytes(), err)
					}
				})
			}
		})
	}
}

// ST14: where the other era's first message comes in somebody else's goroutine, it
// is not lost and does not change places, nor do those around it.
func TestByEraOffered(t *testing.T) {
	const n = 60
	for at := range n {
		synctest.Test(t, func(t *testing.T) {
			far, ours := bridge.Pipe()
			client := far
			echo := givingBack(bridge.Serve(dialFunc(func(context.Context) (bridge.Conn, error) {
				server, theirs := bridge.Pipe()
				go func() {
					defer theirs.Close(nil)
					for {
						m, err := bridgetest.Recv(context.Background(), theirs)
						if err != nil || theirs.Send(context.Background(), jsonrpc.NewResult(m.ID(), m.Params())) != nil {
							return
						}
					}
				}()
				return server, nil
			}), bridge.PumpOptions{}))
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = bridge.ByEra(echo, echo).ServeConn(context.Background(), ours)
			}()
			const modern = `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`
			params := func(i int) string { // one era until at, then both in turn
				if i < at || i%2 == 0 {
					return `{}`
				}
				return modern
			}
			go func() {
				for i := range n {
					text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, i, params(i))
					if err := client.Send(context.Background(), parse(t, text)); err != nil {
						t.Error(err)
					}
				}
			}()
			last := map[string]int{`{}`: -1, modern: -1}
			for range n {
				m, err := bridgetest.Recv(context.Background(), client)
				bridgetest.Must(t, err)
				i, _ := strconv.Atoi(m.ID().String())
				if got := string(m.Result()); got != params(i) || i <= last[got] {
					t.Errorf("with the other era from %d on: %d after %d: %s", at, i, last[got], got)
				}
				last[string(m.Result())] = i
			}
			_ = client.Close(nil)
			<-done
		})
	}
}
