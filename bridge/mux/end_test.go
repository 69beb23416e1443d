package mux_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A server that takes long to start holds nobody up whose ctx ends, and its
// calls do not reach the server.
func TestMuxSlowDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := newServers()
		x := newMux(t, mux.Options{Dialer: dialFunc(func(ctx context.Context) (bridge.Conn, error) {
			time.Sleep(10 * time.Second)
			return servers.Dial(ctx)
		})})
		x.servers = servers
		a, b, c := x.dial(), x.dial(), x.dial()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Send(ctx, parse(t, call("1"))); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Send = %v", err)
		}
		b.says(call("1"))
		c.says(call("2"))
		b.says(cancelledNote("1"))
		time.AfterFunc(time.Second, func() { _ = b.Close(nil) })
		time.Sleep(9 * time.Second)
		x.up()
		x.serverGets(call("3"))
		a.gets()
	})
}

// A Mux that is closed in the middle of a start, with calls waiting, ends all.
func TestMuxCloseWhileDialing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{Dialer: dialFunc(func(ctx context.Context) (bridge.Conn, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // until it is stopped
			return nil, ctx.Err()
		})})
		a := x.dial()
		sent := make(chan error)
		go func() { sent <- a.Send(t.Context(), parse(t, call("1"))) }()
		synctest.Wait()
		start := time.Now()
		go x.mux.Close()
		if err := <-sent; err != bridge.ErrClosing {
			t.Errorf("Send = %v", err)
		}
		if err := x.mux.Close(); err != nil || time.Since(start) != time.Second {
			t.Errorf("Close = %v after %v", err, time.Since(start))
		}
	})
}

// stubborn is a server's Conn that fails in the ways that a test wants.
type stubborn struct {
	bridge.Conn
	sendErr  error
	closeErr error
	slow     time.Duration // what Close takes
}

func (s *stubborn) Send(ctx context.Context, m jsonrpc.Message) error {
	if s.sendErr != nil {
		return s.sendErr
	}
	return s.Conn.Send(ctx, m)
}

func (s *stubborn) TrySend(jsonrpc.Message) bool { return false }

func (s *stubborn) Close(reason error) error {
	_ = s.Conn.Close(reason)
	time.Sleep(s.slow)
	return s.closeErr
}

// Close ends all Conns by name and waits for the server, whose error it returns.
func TestMuxClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("would not end")
		servers := newServers()
		x := newMux(t, mux.Options{Dialer: dialFunc(func(ctx context.Context) (bridge.Conn, error) {
			c, _ := servers.Dial(ctx)
			return &stubborn{Conn: c, closeErr: why, slow: time.Second}, nil
		})})
		x.servers = servers
		a := x.dial()
		a.says(call("1"))
		x.up()
		x.serverGets(call("1"))
		start := time.Now()
		if err := x.mux.Close(); err != why || time.Since(start) < time.Second {
			t.Errorf("Close = %v after %v", err, time.Since(start))
		}
		if _, err := bridgetest.Recv(t.Context(), a); err != bridge.ErrClosing {
			t.Errorf("Recv = %v", err)
		}
		if err := a.Send(t.Context(), parse(t, call("2"))); err != bridge.ErrClosing {
			t.Errorf("Send = %v", err)
		}
		if _, err := x.mux.Dial(t.Context()); err != bridge.ErrClosing {
			t.Errorf("Dial = %v", err)
		}
		if err := x.mux.Close(); err != why {
			t.Errorf("Close = %v", err)
		}
	})
}

// A request that the server does not take is answered, a server to which
// nothing can be written is replaced, and the next one gets the request.
func TestMuxServerTakesNoRequest(t *testing.T) {
	const refused = `1 {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server did not take the request: too much","data":{"reason":"server_ended"}}}`
	for _, c := range []struct {
		name string
		err  error
		want []string // what the client gets
		next []string // what the next server gets
	}{{"pipe", io.ErrClosedPipe, nil, []string{call("1"), call("2")}}, {"this one", errors.New("too much"), []string{refused}, nil}} {
		bubble(t, c.name, func(t *testing.T) {
			servers := newServers()
			first := &stubborn{sendErr: c.err, slow: 5 * time.Second}
			x := newMux(t, mux.Options{Dialer: dialFunc(func(ctx context.Context) (bridge.Conn, error) {
				conn, err := servers.Dial(ctx)
				if first.Conn == nil {
					first.Conn = conn
					conn = first
				}
				return conn, err
			})})
			x.servers = servers
			a := x.dial()
			a.says(call("1"))
			a.gets()
			time.Sleep(time.Second)
			a.gets(c.want...)
			a.says(call("2"))
			time.Sleep(7 * time.Second)
			x.up()
			if c.next == nil {
				if n := servers.count(); n != 1 {
					t.Errorf("%d servers, want 1", n)
				}
				return
			}
			x.up()
			x.serverGets(c.next...)
		})
	}
}

// C.7: the error of the server's end reaches the client.
func TestMuxServerEndsWithError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := bridgetest.NewPeer(t, 10)
		x := newMux(t, mux.Options{Dialer: dialFunc(func(context.Context) (bridge.Conn, error) { return server, nil })})
		a := x.dial()
		a.says(call("1"))
		server.Gets(call("1"))
		server.End <- errors.New(`server "x" ended: exit status 3`)
		synctest.Wait()
		a.gets(`1 {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"server \"x\" ended: exit status 3","data":{"reason":"server_ended"}}}`)
		_ = a.Close(nil)
	})
}

// What is in progress when a Mux is closed is cancelled at the server before
// its Conn is closed (LE12, ST11); one that takes nothing is not waited for long.
func TestMuxCloseCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		for _, id := range []string{"5", "6"} {
			a.says(call(id))
		}
		x.up()
		x.serverGets(call("1"), call("2"))
		if err := x.mux.Close(); err != nil {
			t.Error(err)
		}
		got := map[string]bool{}
		for {
			m, err := bridgetest.Recv(t.Context(), x.server)
			if err != nil {
				break
			}
			got[m.Method()+m.CancelledID().String()] = true
		}
		if !got["notifications/cancelled1"] || !got["notifications/cancelled2"] {
			t.Errorf("the server was told %v", got)
		}
	})
}

// A server/discover that its client gives up is not cancelled at the server:
// some take that for the beginning of a legacy session. Its answer is dropped.
func TestMuxDiscoverIsNotCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		a.says(`{"jsonrpc":"2.0","id":5,"method":"server/discover"}`)
		x.up()
		x.serverGets(`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`)
		a.says(cancelledNote("5"))
		x.serverGets()
		x.serverSays(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		a.gets()
		x.drops("answers no request that is in progress")
	})
}
