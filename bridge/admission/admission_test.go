package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/internal/limiter"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// There are no more clients than places, and no more servers than twice as many.
func TestPlaces(t *testing.T) {
	l := admission.New(2, nil)
	acquire := func(want error) *admission.Slot {
		t.Helper()
		g, err := l.Acquire(t.Context())
		if err != want || (g != nil) != (want == nil) {
			t.Errorf("Acquire = %v, %v, want %v", g, err, want)
		}
		return g
	}
	sessions := func(want int) {
		t.Helper()
		if n := l.Sessions(); n != want {
			t.Errorf("%d sessions, want %d", n, want)
		}
	}
	one, two := acquire(nil), acquire(nil)
	sessions(2)
	acquire(admission.ErrTooManySessions)
	if one.Context().Err() != nil {
		t.Error("a client that is there is gone")
	}
	one.ClientGone()
	one.ClientGone() // it counts once
	sessions(1)
	if one.Context().Err() == nil || two.Context().Err() != nil {
		t.Error("not the client that is gone is gone")
	}
	three := acquire(nil)
	three.ClientGone()
	four := acquire(nil)
	four.ClientGone()
	acquire(admission.ErrTooManySessions) // the servers of four clients are still there
	one.Release()
	five := acquire(nil)
	sessions(2)
	for _, g := range []*admission.Slot{two, three, four, five} {
		g.Release()
	}
	sessions(0)
	l.Close()
	acquire(bridge.ErrClosing)
}

// Close tells everybody, and waits until the last one has left.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := admission.New(2, nil)
		one, _ := l.Acquire(t.Context())
		two, _ := l.Acquire(t.Context())
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
		one.Release()
		two.ClientGone()
		if synctest.Wait(); closed {
			t.Error("Close has not waited")
		}
		two.Release()
		if synctest.Wait(); !closed {
			t.Error("Close waits for nobody")
		}
	})
}

// AcquirePlaceFunc is asked about everybody, and what it gives is given back once: also
// if it comes too late, or there is no place here.
func TestAcquirePlaceFunc(t *testing.T) {
	for name, c := range map[string]struct {
		after   time.Duration // AcquirePlaceFunc answers, whatever its ctx says
		refuses error
		happens func(l *admission.Controller, cancel func())
		want    error
		given   int64
	}{
		"a place":            {given: 1},
		"a wait":             {after: time.Hour, given: 1},
		"none":               {refuses: bridge.ErrBusy, want: bridge.ErrBusy},
		"the client goes":    {after: time.Minute, happens: func(_ *admission.Controller, cancel func()) { cancel() }, want: context.Canceled, given: 1},
		"shutdown":           {after: time.Minute, happens: func(l *admission.Controller, _ func()) { l.Close() }, want: bridge.ErrClosing, given: 1},
		"shutdown, and none": {after: time.Minute, refuses: bridge.ErrBusy, happens: func(l *admission.Controller, _ func()) { l.Close() }, want: bridge.ErrClosing},
		"somebody else has the place": {after: time.Minute, given: 2, want: admission.ErrTooManySessions,
			happens: func(l *admission.Controller, _ func()) {
				g, err := l.Acquire(context.WithValue(context.Background(), quick{}, true))
				if err == nil {
					time.Sleep(time.Hour)
					g.Release()
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var given, back atomic.Int64
				l := admission.New(1, func(ctx context.Context) (func(), error) {
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
				var g *admission.Slot
				err := errors.New("waits")
				go func() { g, err = l.Acquire(ctx) }()
				synctest.Wait()
				if c.happens != nil {
					c.happens(l, cancel)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if !errors.Is(err, c.want) {
					t.Errorf("Acquire = %v, want %v", err, c.want)
				}
				if err == nil && (given.Load() != 1 || back.Load() != 0) {
					t.Errorf("who is there has %d places, and has given back %d", given.Load(), back.Load())
				}
				if err == nil {
					g.Release()
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

// AcquirePlaceFunc need not wait any longer when its client has gone, or all is over.
func TestAdmitEnds(t *testing.T) {
	for _, closes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := admission.New(1, func(ctx context.Context) (func(), error) {
				<-ctx.Done()
				return nil, fmt.Errorf("secret: %w", bridge.ErrBusy)
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var err error
			go func() { _, err = l.Acquire(ctx) }()
			if synctest.Wait(); closes {
				l.Close()
				if synctest.Wait(); err != bridge.ErrClosing {
					t.Errorf("Acquire = %v when all is over", err)
				}
				return
			}
			cancel()
			if synctest.Wait(); !errors.Is(err, bridge.ErrBusy) || admission.PublicReason(err) != bridge.ErrBusy.Error() {
				t.Errorf("Acquire = %v, excused as %q", err, admission.PublicReason(err))
			}
		})
	}
	for _, err := range []error{admission.ErrTooManySessions, bridge.ErrClosing} {
		if admission.PublicReason(err) != err.Error() {
			t.Errorf("%v is excused as %q", err, admission.PublicReason(err))
		}
	}
}

// A client that says nothing has no place of AcquirePlaceFunc: it is asked when a Handler
// wants one, once, and what it gives is given back with the session at the latest.
func TestTakePlace(t *testing.T) {
	var given, back int
	var why error
	l := admission.New(1, func(ctx context.Context) (func(), error) {
		if identity.Party(ctx) != "ann" || admission.HolderOf(ctx) == nil {
			t.Errorf("asked for %q, held by %v", identity.Party(ctx), admission.HolderOf(ctx))
		}
		if why != nil {
			return nil, why
		}
		given++
		return func() { back++ }, nil
	})
	g, err := l.AcquireLazily(identity.WithParty(t.Context(), "ann"))
	if err != nil || given != 0 {
		t.Fatalf("%v; %d places given", err, given)
	}
	why = bridge.ErrBusy
	if err := admission.AcquireProcessPlace(g.Context()); err != why {
		t.Errorf("where there is no place: %v", err)
	}
	why = nil
	for range 2 {
		if err := admission.AcquireProcessPlace(g.Context()); err != nil || given != 1 || back != 0 {
			t.Errorf("%v; %d places given, %d back", err, given, back)
		}
	}
	admission.ReleaseProcessPlace(g.Context())
	admission.ReleaseProcessPlace(g.Context())
	if back != 1 {
		t.Errorf("%d places given back", back)
	}
	if err := admission.AcquireProcessPlace(g.Context()); err != nil || given != 2 {
		t.Errorf("once more: %v, %d given", err, given)
	}
	g.Release()
	if back != 2 {
		t.Errorf("%d places given back at the end", back)
	}
	if err := admission.AcquireProcessPlace(t.Context()); err != nil {
		t.Errorf("for who is nobody's slot: %v", err)
	}
	l.Close()
}

// The end of a session for another party is the end of its Handler's context; who
// has something in progress keeps it, and so does who is not known to have not.
func TestReclaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := admission.New(3, nil)
		acquire := func(party string) *admission.Slot {
			t.Helper()
			g, err := l.Acquire(identity.WithParty(t.Context(), party))
			bridgetest.Must(t, err)
			return g
		}
		unknown, silent, busy := acquire("ann"), acquire("ann"), acquire("ann")
		defer admission.MarkUnused(silent.Context())()
		client, server := bridge.Pipe()
		from, to := bridge.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- bridge.Pump(busy.Context(), server, from, bridge.PumpOptions{})
		}()
		bridgetest.Must(t, client.Send(t.Context(), jsonrpc.NewRequest(jsonrpc.IntID(1), "m", nil)))
		m, err := bridgetest.Recv(t.Context(), to)
		bridgetest.Must(t, err)
		context.AfterFunc(silent.Context(), silent.Release)
		bob := acquire("bob")
		if context.Cause(silent.Context()) != bridge.ErrReclaimed || unknown.Context().Err() != nil || busy.Context().Err() != nil {
			t.Errorf("ended: %v, %v, %v", silent.Context().Err(), unknown.Context().Err(), busy.Context().Err())
		}
		if _, err := l.Acquire(identity.WithParty(t.Context(), "bob")); err != admission.ErrTooManySessions {
			t.Errorf("more than its part: %v", err)
		}
		bridgetest.Must(t, to.Send(t.Context(), jsonrpc.NewResult(m.ID(), nil)))
		if _, err := bridgetest.Recv(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		context.AfterFunc(busy.Context(), busy.Release)
		carl := acquire("carl") // ann has two yet, and one of them has nothing in progress now
		if context.Cause(busy.Context()) != bridge.ErrReclaimed {
			t.Error("a session with nothing in progress stays")
		}
		if err := <-ended; err != nil {
			t.Errorf("the Pump: %v", err)
		}
		for _, g := range []*admission.Slot{unknown, bob, carl} {
			g.Release()
		}
		for _, c := range []bridge.Conn{client, server, from, to} {
			_ = c.Close(nil)
		}
		l.Close()
	})
}

// D.3: a session in which the client has cancelled its call was in use until then.
func TestUseEndsWithCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := admission.New(1, nil)
		g, err := l.Acquire(identity.WithParty(t.Context(), "ann"))
		bridgetest.Must(t, err)
		client, server := bridge.Pipe()
		from, to := bridge.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- bridge.Pump(g.Context(), server, from, bridge.PumpOptions{})
		}()
		for _, m := range []jsonrpc.Message{
			jsonrpc.NewRequest(jsonrpc.IntID(1), "m", nil), jsonrpc.NewNotification("notifications/cancelled", []byte(`{"requestId":1}`)),
		} {
			time.Sleep(time.Hour)
			bridgetest.Must(t, client.Send(t.Context(), m))
			if _, err := bridgetest.Recv(t.Context(), to); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if use, since := g.Use(); use != limiter.Idle || time.Since(since) > time.Second {
			t.Errorf("use %d for %v", use, time.Since(since))
		}
		g.Release()
		for _, c := range []bridge.Conn{client, server, from, to} {
			_ = c.Close(nil)
		}
		<-ended
		l.Close()
	})
}
