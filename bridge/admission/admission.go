// Package admission decides which clients a listening transport lets in: a Controller has the
// places of the transport, a Slot is one of them, and an AcquirePlaceFunc is asked for what the
// server takes beside. Places are shared out among parties (see identity.Party).
package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/internal/limiter"
)

// ErrTooManySessions is the error of Controller.Acquire and AcquireLazily when all places are taken, and none has become
// free for the client.
var ErrTooManySessions = errors.New("too many sessions (--max-sessions); try again later")

// PublicReason returns the text that clients may be told of err, an error of Controller.Acquire: that of
// ErrTooManySessions, of bridge.ErrClosing, or for all else of bridge.ErrBusy. What an AcquirePlaceFunc's error adds to
// that is for the log.
func PublicReason(err error) string {
	if err == ErrTooManySessions || err == ownmsg.ErrClosing {
		return err.Error()
	}
	return ownmsg.ErrBusy.Error()
}

// placeTimeout is how long a client waits for each of its two places in a Controller (present and unreleased), if its
// party has less than an equal part of the places. Others are refused at once.
const placeTimeout = 10 * time.Second

// Controller receives the clients of a listening transport: it gives them places,
// counts them, by party, and at the end waits until they have left. Any number
// of goroutines may use it.
//
// When all places are taken and a client of a party comes that has less than an
// equal part of them, a party that has at least two more gives up an idle session. If
// the client's party has none, any other gives one up that has been idle for 5 seconds.
// Of several it is the party with most, and the session that has been idle for longest:
// its Slot's Context ends with bridge.ErrReclaimed.
type Controller struct {
	acquireProcessPlace AcquirePlaceFunc   // asked for what a server process takes; nil: everybody has that
	ctx                 context.Context    // done at Close; the contexts of the Slots are below it
	cancel              context.CancelFunc // ends ctx: Close was called
	wg                  sync.WaitGroup     // waits for the clients that have a Slot, and for calls of Acquire
	present             *limiter.Limiter   // the places of clients that are not gone
	unreleased          *limiter.Limiter   // the places of all Slots that are not released: their clients may be gone, but not their Handlers

	mu sync.Mutex // makes joinWaitGroup's check of ctx and its wg.Add one step for Close
}

// New makes a Controller with max places; 0 or less: any number. A client that has gone gives its place back, although
// its Handler may still stop a server; but never are there more than twice max Slots. acquireProcessPlace is asked for
// each client of Acquire, and for one of AcquireLazily once AcquireProcessPlace is called; nil admits everybody. Close
// ends the Controller.
func New(max int, acquireProcessPlace AcquirePlaceFunc) *Controller {
	l := &Controller{acquireProcessPlace: acquireProcessPlace}
	l.present = limiter.New(limiter.Options{Max: max})
	l.unreleased = limiter.New(limiter.Options{Max: 2 * max})
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Context returns a context that is done when the Controller is closed: sessions are to end then.
func (l *Controller) Context() context.Context { return l.ctx }

// Close lets nobody in any more, ends the Slots' contexts, and returns when all Slots are released. It may be called
// more than once.
func (l *Controller) Close() {
	l.mu.Lock()
	l.cancel()
	l.mu.Unlock()
	l.wg.Wait()
}

// Sessions returns how many clients have a Slot and are not gone.
func (l *Controller) Sessions() int { return l.present.Taken() }

// Acquire gives a client a Slot: it asks AcquirePlaceFunc, for as long as that takes, and then takes the Controller's
// own two places, for each of which it waits for placeTimeout at most. The client counts for the Party of ctx.
// Acquire gives up when ctx is done, or the Controller closed. The error is ErrTooManySessions, bridge.ErrClosing,
// that of ctx, or AcquirePlaceFunc's.
func (l *Controller) Acquire(ctx context.Context) (*Slot, error) { return l.acquire(ctx, true) }

// AcquireLazily gives a Slot, as Acquire does, to a client that has not said anything yet: the Controller's places are
// taken, but AcquirePlaceFunc is not asked before AcquireProcessPlace is called with the Slot's Context.
func (l *Controller) AcquireLazily(ctx context.Context) (*Slot, error) { return l.acquire(ctx, false) }

// acquire gives a client a Slot. withProcessPlace: AcquirePlaceFunc is asked first, as Acquire does; without, it is
// asked later, as for AcquireLazily.
func (l *Controller) acquire(ctx context.Context, withProcessPlace bool) (*Slot, error) {
	if err := l.joinWaitGroup(); err != nil {
		return nil, err
	}
	g := &Slot{control: l}
	g.ctx, g.cancel = context.WithCancelCause(identity.WithParty(WithHolder(l.ctx, g), identity.Party(ctx)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	var err error
	if withProcessPlace {
		err = g.acquireProcessPlace(ctx)
	}
	if err == nil {
		if err = g.acquireClientPlaces(ctx); err == nil {
			return g, nil
		}
		g.releaseProcessPlace()
	}
	if l.ctx.Err() != nil {
		err = ownmsg.ErrClosing
	}
	g.cancel(nil)
	l.wg.Done()
	return nil, err
}

// joinWaitGroup makes Close wait until the caller calls wg.Done. The error says that the Controller is closed.
func (l *Controller) joinWaitGroup() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return ownmsg.ErrClosing
	}
	l.wg.Add(1)
	return nil
}

// Slot is a client that a Controller has let in: it has a place until ClientGone, and may have a Handler until Release.
// It is the Holder of its places.
type Slot struct {
	control *Controller             // the Controller that the Slot is of
	ctx     context.Context         // the context that Context returns
	cancel  context.CancelCauseFunc // ends ctx; the cause is bridge.ErrReclaimed, or none
	// its places in the Limiters Controller.present and Controller.unreleased
	present, unreleased *limiter.Place

	mu          sync.Mutex               // guards leave and busyReports
	leave       func()                   // gives back what AcquirePlaceFunc gave; nil: the Slot has nothing of it
	busyReports map[*busyReport]struct{} // the reports of those that serve the client, one of each (ReportBusy)
}

// busyReport is how one of those that serve a Slot's client tells whether it is busy.
type busyReport struct {
	inProgress func() (busy bool, since time.Time) // says whether anything is in progress, and if not, since when
}

// acquireClientPlaces takes the Controller's own places for the Slot.
func (g *Slot) acquireClientPlaces(ctx context.Context) error {
	party := identity.Party(g.ctx)
	var err error
	if g.unreleased, err = g.control.unreleased.Acquire(ctx, party, nil, placeTimeout); err == nil {
		if g.present, err = g.control.present.Acquire(ctx, party, g, placeTimeout); err == nil {
			if err = g.control.ctx.Err(); err == nil {
				return nil
			}
			g.present.Release()
		}
		g.unreleased.Release()
	}
	if errors.Is(err, limiter.ErrFull) || errors.Is(err, limiter.ErrLate) {
		return ErrTooManySessions
	}
	return err
}

// acquireProcessPlace asks AcquirePlaceFunc for the Slot, unless it has what that gives already.
func (g *Slot) acquireProcessPlace(ctx context.Context) error {
	g.mu.Lock()
	has := g.leave != nil
	g.mu.Unlock()
	if has || g.control.acquireProcessPlace == nil {
		return nil
	}
	leave, err := g.control.acquireProcessPlace(WithHolder(ctx, g))
	if err == nil && ctx.Err() != nil { // too late
		leave()
		err = ctx.Err()
	}
	if err != nil {
		if g.control.ctx.Err() != nil {
			err = ownmsg.ErrClosing
		}
		return err
	}
	g.mu.Lock()
	g.leave = sync.OnceFunc(leave)
	g.mu.Unlock()
	return nil
}

// releaseProcessPlace gives back what AcquirePlaceFunc has given the Slot, if anything.
func (g *Slot) releaseProcessPlace() {
	g.mu.Lock()
	leave := g.leave
	g.leave = nil
	g.mu.Unlock()
	if leave != nil {
		leave()
	}
}

// Context returns the ctx for Handler.ServeConn. It is done when the client is gone, its place was reclaimed (the
// cause is bridge.ErrReclaimed then) or the Controller is closed.
func (g *Slot) Context() context.Context { return g.ctx }

// ClientGone says that the client's session has ended, although its Handler may still run: it gives the client's place
// back and ends Context. It may be called more than once, by any goroutine.
func (g *Slot) ClientGone() {
	g.cancel(nil)
	g.present.Release()
}

// Release gives back all that the Slot has: the Handler has returned, or will not be called. It is called once. It
// includes ClientGone.
func (g *Slot) Release() {
	g.ClientGone()
	g.releaseProcessPlace()
	g.unreleased.Release()
	g.control.wg.Done()
}

// Use implements Holder: the Slot is Ending once Context is done; else it is Idle if all of busyReports say so, since the
// latest time that they name, and Busy if one does not say so, or if there are none.
func (g *Slot) Use() (use Use, since time.Time) {
	if g.ctx.Err() != nil {
		return limiter.Ending, since
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	use = limiter.Busy // nobody serves it yet, or any more
	for u := range g.busyReports {
		busy, quiet := u.inProgress()
		if busy {
			return limiter.Busy, quiet
		}
		if use = limiter.Idle; quiet.After(since) {
			since = quiet
		}
	}
	return use, since
}

// Reclaim implements Holder: it ends Context with bridge.ErrReclaimed if the Slot is idle. The session ends as it does
// when everything shuts down, so that a call that begins just now is answered.
func (g *Slot) Reclaim() bool {
	if use, _ := g.Use(); use != limiter.Idle {
		return false
	}
	g.cancel(ownmsg.ErrReclaimed)
	return true
}

// ReportBusy has the Slot whose Context ctx comes from ask inProgress, until stop is called, whether the caller has
// anything in progress for the client, and if not, since when. The Slot is busy if one of those that serve it says so.
// inProgress must not wait. ok is false if ctx has no Slot.
func ReportBusy(ctx context.Context, inProgress func() (busy bool, since time.Time)) (stop func(), ok bool) {
	g, ok := HolderOf(ctx).(*Slot)
	if !ok {
		return func() {}, false
	}
	u := &busyReport{inProgress}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busyReports == nil {
		g.busyReports = make(map[*busyReport]struct{})
	}
	g.busyReports[u] = struct{}{}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.busyReports, u)
	}, true
}

// MarkUnused says that the caller, who serves the client of ctx, has nothing in progress for it from now until stop is
// called: its place may be given to another. A Pump says by itself what it has in progress.
func MarkUnused(ctx context.Context) (stop func()) {
	since := time.Now()
	stop, _ = ReportBusy(ctx, func() (bool, time.Time) { return false, since })
	return stop
}
