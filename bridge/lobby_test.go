package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/admission"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// There are no more clients than places, and no more servers than twice as many.
func TestLobbyPlaces(t *testing.T) {
	l := bridge.NewLobby(2, nil)
	enter := func(want error) *bridge.Guest {
		t.Helper()
		g, err := l.Enter(t.Context())
		if err != want || (g != nil) != (want == nil) {
			t.Errorf("Enter = %v, %v, want %v", g, err, want)
		}
		return g
	}
	sessions := func(want int) {
		t.Helper()
		if n := l.Sessions(); n != want {
			t.Errorf("%d sessions, want %d", n, want)
		}
	}
	one, two := enter(nil), enter(nil)
	sessions(2)
	enter(bridge.ErrTooMany)
	if one.Context().Err() != nil {
		t.Error("a client that is there is gone")
	}
	one.Gone()
	one.Gone() // it counts once
	sessions(1)
	if one.Context().Err() == nil || two.Context().Err() != nil {
		t.Error("not the client that is gone is gone")
	}
	three := enter(nil)
	three.Gone()
	four := enter(nil)
	four.Gone()
	enter(bridge.ErrTooMany) // the servers of four clients are still there
	one.Leave()
	five := enter(nil)
	sessions(2)
	for _, g := range []*bridge.Guest{two, three, four, five} {
		g.Leave()
	}
	sessions(0)
	l.Close()
	enter(bridge.ErrClosing)
}

// Close tells everybody, and waits until the last one has left.
func TestLobbyClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bridge.NewLobby(2, nil)
		one, _ := l.Enter(t.Context())
		two, _ := l.Enter(t.Context())
		closed := false
		go func() {
			l.Close()
			l.Close()
			closed = true
		}()
		synctest.Wait()
		if l.Context().Err() == nil || one.Context().Err() == nil || two.Context().Err() == nil {
			t.Error("somebody was not told")
		}
		one.Leave()
		two.Gone()
		if synctest.Wait(); closed {
			t.Error("Close has not waited")
		}
		two.Leave()
		if synctest.Wait(); !closed {
			t.Error("Close waits for nobody")
		}
	})
}

// Admit is asked about everybody, and what it gives is given back once: also
// if it comes too late, or there is no place here.
func TestLobbyAdmit(t *testing.T) {
	for name, c := range map[string]struct {
		after   time.Duration // Admit answers, whatever its ctx says
		refuses error
		happens func(l *bridge.Lobby, cancel func())
		want    error
		given   int64
	}{
		"a place":            {given: 1},
		"a wait":             {after: time.Hour, given: 1},
		"none":               {refuses: bridge.ErrBusy, want: bridge.ErrBusy},
		"the client goes":    {after: time.Minute, happens: func(_ *bridge.Lobby, cancel func()) { cancel() }, want: context.Canceled, given: 1},
		"shutdown":           {after: time.Minute, happens: func(l *bridge.Lobby, _ func()) { l.Close() }, want: bridge.ErrClosing, given: 1},
		"shutdown, and none": {after: time.Minute, refuses: bridge.ErrBusy, happens: func(l *bridge.Lobby, _ func()) { l.Close() }, want: bridge.ErrClosing},
		"somebody else has the place": {after: time.Minute, given: 2, want: bridge.ErrTooMany,
			happens: func(l *bridge.Lobby, _ func()) {
				g, err := l.Enter(context.WithValue(context.Background(), quick{}, true))
				if err == nil {
					time.Sleep(time.Hour)
					g.Leave()
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var given, back atomic.Int64
				l := bridge.NewLobby(1, func(ctx context.Context) (func(), error) {
					if ctx.Value(quick{}) == nil {
						time.Sleep(c.after)
					}
					if c.refuses != nil {
						return nil, c.refuses
					}
					given.Add(1)
					return func() { back.Add(1) }, nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var g *bridge.Guest
				err := errors.New("waits")
				go func() { g, err = l.Enter(ctx) }()
				synctest.Wait()
				if c.happens != nil {
					c.happens(l, cancel)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if !errors.Is(err, c.want) {
					t.Errorf("Enter = %v, want %v", err, c.want)
				}
				if err == nil && (given.Load() != 1 || back.Load() != 0) {
					t.Errorf("who is there has %d places, and has given back %d", given.Load(), back.Load())
				}
				if err == nil {
					g.Leave()
				}
				if given.Load() != c.given || back.Load() != c.given {
					t.Errorf("%d places were given, and %d given back; want %d", given.Load(), back.Load(), c.given)
				}
				if n := l.Sessions(); n != 0 {
					t.Errorf("%d sessions", n)
				}
				l.Close()
			})
		})
	}
}

// quick marks the context of who need not wait.
type quick struct{}

// Admit need not wait any longer when its client has gone, or all is over.
func TestLobbyAdmitEnds(t *testing.T) {
	for _, closes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := bridge.NewLobby(1, func(ctx context.Context) (func(), error) {
				<-ctx.Done()
				return nil, fmt.Errorf("secret: %w", bridge.ErrBusy)
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var err error
			go func() { _, err = l.Enter(ctx) }()
			if synctest.Wait(); closes {
				l.Close()
				if synctest.Wait(); err != bridge.ErrClosing {
					t.Errorf("Enter = %v when all is over", err)
				}
				return
			}
			cancel()
			if synctest.Wait(); !errors.Is(err, bridge.ErrBusy) || bridge.Excuse(err) != bridge.ErrBusy.Error() {
				t.Errorf("Enter = %v, excused as %q", err, bridge.Excuse(err))
			}
		})
	}
	for _, err := range []error{bridge.ErrTooMany, bridge.ErrClosing} {
		if bridge.Excuse(err) != err.Error() {
			t.Errorf("%v is excused as %q", err, bridge.Excuse(err))
		}
	}
}

// A client that says nothing has no place of Admit: it is asked when a Handler
// wants one, once, and what it gives is given back with the session at the latest.
func TestTakePlace(t *testing.T) {
	var given, back int
	var why error
	l := bridge.NewLobby(1, func(ctx context.Context) (func(), error) {
		if bridge.Party(ctx) != "ann" || bridge.HolderOf(ctx) == nil {
			t.Errorf("asked for %q, held by %v", bridge.Party(ctx), bridge.HolderOf(ctx))
		}
		if why != nil {
			return nil, why
		}
		given++
		return func() { back++ }, nil
	})
	g, err := l.EnterSilent(bridge.WithParty(t.Context(), "ann"))
	if err != nil || given != 0 {
		t.Fatalf("%v; %d places given", err, given)
	}
	why = bridge.ErrBusy
	if err := bridge.TakePlace(g.Context()); err != why {
		t.Errorf("where there is no place: %v", err)
	}
	why = nil
	for range 2 {
		if err := bridge.TakePlace(g.Context()); err != nil || given != 1 || back != 0 {
			t.Errorf("%v; %d places given, %d back", err, given, back)
		}
	}
	bridge.GiveBack(g.Context())
	bridge.GiveBack(g.Context())
	if back != 1 {
		t.Errorf("%d places given back", back)
	}
	if err := bridge.TakePlace(g.Context()); err != nil || given != 2 {
		t.Errorf("once more: %v, %d given", err, given)
	}
	g.Leave()
	if back != 2 {
		t.Errorf("%d places given back at the end", back)
	}
	if err := bridge.TakePlace(t.Context()); err != nil {
		t.Errorf("for who is nobody's guest: %v", err)
	}
	l.Close()
}

// The end of a session for another party is the end of its Handler's context; who
// has something in progress keeps it, and so does who is not known to have not.
func TestLobbyReclaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bridge.NewLobby(3, nil)
		enter := func(party string) *bridge.Guest {
			t.Helper()
			g, err := l.Enter(bridge.WithParty(t.Context(), party))
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		unknown, silent, busy := enter("ann"), enter("ann"), enter("ann")
		defer bridge.Unused(silent.Context())()
		client, server := bridgetest.Pipe()
		from, to := bridgetest.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- bridge.Pump(busy.Context(), bridgetest.Push(server), bridgetest.Push(from), bridge.PumpOptions{})
		}()
		if err := client.Send(t.Context(), jsonrpc.NewRequest(jsonrpc.IntID(1), "m", nil)); err != nil {
			t.Fatal(err)
		}
		m, err := to.Recv(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		context.AfterFunc(silent.Context(), silent.Leave)
		bob := enter("bob")
		if context.Cause(silent.Context()) != bridge.ErrReclaimed || unknown.Context().Err() != nil || busy.Context().Err() != nil {
			t.Errorf("ended: %v, %v, %v", silent.Context().Err(), unknown.Context().Err(), busy.Context().Err())
		}
		if _, err := l.Enter(bridge.WithParty(t.Context(), "bob")); err != bridge.ErrTooMany {
			t.Errorf("more than its part: %v", err)
		}
		if err := to.Send(t.Context(), jsonrpc.NewResult(m.ID(), nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Recv(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		context.AfterFunc(busy.Context(), busy.Leave)
		carl := enter("carl") // ann has two yet, and one of them has nothing in progress now
		if context.Cause(busy.Context()) != bridge.ErrReclaimed {
			t.Error("a session with nothing in progress stays")
		}
		if err := <-ended; err != nil {
			t.Errorf("the Pump: %v", err)
		}
		for _, g := range []*bridge.Guest{unknown, bob, carl} {
			g.Leave()
		}
		for _, c := range []bridgetest.PullConn{client, server, from, to} {
			_ = c.Close()
		}
		l.Close()
	})
}

// D.3: a session in which the client has cancelled its call was in use until then.
func TestLobbyUseEndsWithCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bridge.NewLobby(1, nil)
		g, err := l.Enter(bridge.WithParty(t.Context(), "ann"))
		if err != nil {
			t.Fatal(err)
		}
		client, server := bridgetest.Pipe()
		from, to := bridgetest.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- bridge.Pump(g.Context(), bridgetest.Push(server), bridgetest.Push(from), bridge.PumpOptions{})
		}()
		for _, m := range []jsonrpc.Message{
			jsonrpc.NewRequest(jsonrpc.IntID(1), "m", nil), jsonrpc.NewNotification("notifications/cancelled", []byte(`{"requestId":1}`)),
		} {
			time.Sleep(time.Hour)
			if err := client.Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if _, err := to.Recv(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if use, since := g.Use(); use != admission.Idle || time.Since(since) > time.Second {
			t.Errorf("use %d for %v", use, time.Since(since))
		}
		g.Leave()
		for _, c := range []bridgetest.PullConn{client, server, from, to} {
			_ = c.Close()
		}
		<-ended
		l.Close()
	})
}
