package bridge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/say"
	"github.com/mcp-bridge/mcp-bridge/internal/admission"
)

// Why a Lobby lets nobody in, beside what its Admit says.
var (
	ErrTooMany = errors.New("too many sessions (--max-sessions); try again later")
	ErrClosing = say.ErrClosing
)

// ErrReclaimed is the cause of the end of a Guest's Context whose place another
// party is to have: the session was idle, and its party holds more of them.
var ErrReclaimed = say.ErrReclaimed

// Excuse returns what clients may be told of an error of Lobby.Enter. What
// Admit's error wraps is for the log.
func Excuse(err error) string {
	if err == ErrTooMany || err == ErrClosing {
		return err.Error()
	}
	return ErrBusy.Error()
}

// placeWait is how long a client waits for a place in a Lobby, if its party has
// less than an equal part of them. Others are refused at once.
const placeWait = 10 * time.Second

// Lobby receives the clients of a listening transport: it gives them places,
// counts them, by party, and at the end waits until they have left. Any number
// of goroutines may use it.
//
// When all places are taken and a client of a party comes that has less than an
// equal part of them, the party with most gives up the session that has been idle
// for longest (see admission.Limiter): its Guest's Context ends with ErrReclaimed.
type Lobby struct {
	admit  Admit
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup     // guests, and who waits to be one
	here   *admission.Limiter // guests that are not gone
	served *admission.Limiter // guests that have not left

	mu sync.Mutex // Close comes between no begin and its wg.Add
}

// NewLobby makes a Lobby with max places. Servers of clients that have gone
// take none while they are being stopped, but there are never more than twice
// as many. admit is asked about everybody; nil admits everybody. Close ends
// the Lobby.
func NewLobby(max int, admit Admit) *Lobby {
	l := &Lobby{admit: admit}
	l.here = admission.New(admission.Options{Max: max, Wait: placeWait})
	l.served = admission.New(admission.Options{Max: 2 * max, Wait: placeWait})
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Context is done when the Lobby is closed: sessions drain.
func (l *Lobby) Context() context.Context { return l.ctx }

// Close lets nobody in any more, and returns when everybody has left. It may
// be called more than once.
func (l *Lobby) Close() {
	l.mu.Lock()
	l.cancel()
	l.mu.Unlock()
	l.wg.Wait()
}

// Sessions returns how many guests there are that are not gone.
func (l *Lobby) Sessions() int { return l.here.Taken() }

// Enter gives a client a place, and has that of Admit for it first. It counts
// for the Party of ctx. It waits as long as Admit does, but not when ctx is done,
// or the Lobby closed. The error is ErrTooMany, ErrClosing, that of ctx, or
// Admit's.
func (l *Lobby) Enter(ctx context.Context) (*Guest, error) { return l.enter(ctx, true) }

// EnterSilent is Enter for a client who has not said anything yet: Admit is not
// asked before TakePlace is called.
func (l *Lobby) EnterSilent(ctx context.Context) (*Guest, error) { return l.enter(ctx, false) }

func (l *Lobby) enter(ctx context.Context, now bool) (*Guest, error) {
	if err := l.begin(); err != nil {
		return nil, err
	}
	g := &Guest{lobby: l}
	g.ctx, g.cancel = context.WithCancelCause(WithParty(WithHolder(l.ctx, g), Party(ctx)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	var err error
	if now {
		err = g.take(ctx)
	}
	if err == nil {
		if err = g.takeOwn(ctx); err == nil {
			return g, nil
		}
		g.giveBack()
	}
	if l.ctx.Err() != nil {
		err = ErrClosing
	}
	g.cancel(nil)
	l.wg.Done()
	return nil, err
}

// begin makes Close wait for the caller.
func (l *Lobby) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return ErrClosing
	}
	l.wg.Add(1)
	return nil
}

// Guest is a client that a Lobby has let in. It is the admission.Holder of its
// places.
type Guest struct {
	lobby        *Lobby
	ctx          context.Context
	cancel       context.CancelCauseFunc
	here, served *admission.Place

	mu    sync.Mutex
	leave func()            // gives back what Admit gave; nil: it has not
	uses  map[*use]struct{} // by what serves it
}

// use is what one who serves a Guest knows of whether it is in use.
type use struct {
	inProgress func() (busy bool, since time.Time)
}

// takeOwn takes the Lobby's own places.
func (g *Guest) takeOwn(ctx context.Context) error {
	party := Party(g.ctx)
	var err error
	if g.served, err = g.lobby.served.Acquire(ctx, party, nil); err == nil {
		if g.here, err = g.lobby.here.Acquire(ctx, party, g); err == nil {
			if err = g.lobby.ctx.Err(); err == nil {
				return nil
			}
			g.here.Release()
		}
		g.served.Release()
	}
	if errors.Is(err, admission.ErrFull) || errors.Is(err, admission.ErrLate) {
		return ErrTooMany
	}
	return err
}

// take asks Admit, unless it has given a place already.
func (g *Guest) take(ctx context.Context) error {
	g.mu.Lock()
	has := g.leave != nil
	g.mu.Unlock()
	if has || g.lobby.admit == nil {
		return nil
	}
	leave, err := g.lobby.admit(WithHolder(ctx, g))
	if err == nil && ctx.Err() != nil { // too late
		leave()
		err = ctx.Err()
	}
	if err != nil {
		if g.lobby.ctx.Err() != nil {
			err = ErrClosing
		}
		return err
	}
	g.mu.Lock()
	g.leave = sync.OnceFunc(leave)
	g.mu.Unlock()
	return nil
}

func (g *Guest) giveBack() {
	g.mu.Lock()
	leave := g.leave
	g.leave = nil
	g.mu.Unlock()
	if leave != nil {
		leave()
	}
}

// Context is done when the client is gone, its place is another's (the cause is
// ErrReclaimed then) or the Lobby is closed. It is the one for Handler.ServeConn.
func (g *Guest) Context() context.Context { return g.ctx }

// Gone says that the client's session has ended, although its Handler may
// still run. It may be called more than once, by any goroutine.
func (g *Guest) Gone() {
	g.cancel(nil)
	g.here.Release()
}

// Leave says that the Handler has returned, or will not be called. It is
// called once, and gives back what Admit gave; the client is gone.
func (g *Guest) Leave() {
	g.Gone()
	g.giveBack()
	g.served.Release()
	g.lobby.wg.Done()
}

// Use implements admission.Holder.
func (g *Guest) Use() (use admission.Use, since time.Time) {
	if g.ctx.Err() != nil {
		return admission.Ending, since
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	use = admission.Busy // nobody serves it yet, or any more
	for u := range g.uses {
		busy, quiet := u.inProgress()
		if busy {
			return admission.Busy, quiet
		}
		if use = admission.Idle; quiet.After(since) {
			since = quiet
		}
	}
	return use, since
}

// Reclaim implements admission.Holder: the session ends as it does when all
// shut down, so that a call that begins just now is answered.
func (g *Guest) Reclaim() bool {
	if use, _ := g.Use(); use != admission.Idle {
		return false
	}
	g.cancel(ErrReclaimed)
	return true
}

// InUse says what somebody who serves the Guest of ctx has in progress, and since
// when it is quiet if that is nothing, until stop is called. inProgress must not
// wait. It reports whether there is a Guest. A session is in use if one says so.
func InUse(ctx context.Context, inProgress func() (busy bool, since time.Time)) (stop func(), ok bool) {
	g, ok := HolderOf(ctx).(*Guest)
	if !ok {
		return func() {}, false
	}
	u := &use{inProgress}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.uses == nil {
		g.uses = make(map[*use]struct{})
	}
	g.uses[u] = struct{}{}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.uses, u)
	}, true
}

// Unused says that who serves the client of ctx has nothing in progress for it,
// from now until stop is called: its place may be given to another. A Pump says
// by itself what it has in progress.
func Unused(ctx context.Context) (stop func()) {
	since := time.Now()
	stop, _ = InUse(ctx, func() (bool, time.Time) { return false, since })
	return stop
}
