package bridge

import (
	"context"
	"errors"
	"sync"
)

// Why a Lobby lets nobody in, beside what its Admit says.
var (
	ErrTooMany = errors.New("too many sessions; try again later")
	ErrClosing = errors.New("the bridge is shutting down or was configured anew")
)

// Excuse returns what clients may be told of an error of Lobby.Enter. What
// Admit's error wraps is for the log.
func Excuse(err error) string {
	if err == ErrTooMany || err == ErrClosing {
		return err.Error()
	}
	return ErrBusy.Error()
}

// Lobby receives the clients of a listening transport: it gives them places,
// counts them, and at the end waits until they have left. Any number of
// goroutines may use it.
type Lobby struct {
	max    int
	admit  Admit
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // guests, and who waits to be one

	mu     sync.Mutex
	here   int // guests that are not gone
	served int // guests that have not left
}

// NewLobby makes a Lobby with max places. Servers of clients that have gone
// take none while they are being stopped, but there are never more than twice
// as many. admit is asked about everybody; nil admits everybody. Close ends
// the Lobby.
func NewLobby(max int, admit Admit) *Lobby {
	l := &Lobby{max: max, admit: admit}
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
func (l *Lobby) Sessions() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.here
}

// Enter gives a client a place. It waits as long as Admit does, but not when
// ctx is done, or the Lobby closed. The error is ErrTooMany, ErrClosing, that
// of ctx, or Admit's.
func (l *Lobby) Enter(ctx context.Context) (*Guest, error) {
	if err := l.begin(); err != nil {
		return nil, err
	}
	leave, err := l.ask(ctx)
	if err == nil {
		if err = l.seat(); err == nil {
			g := &Guest{lobby: l, leave: sync.OnceFunc(leave)}
			g.ctx, g.cancel = context.WithCancel(context.WithValue(l.ctx, placeKey{}, g.leave))
			return g, nil
		}
		leave()
	}
	l.wg.Done()
	return nil, err
}

type placeKey struct{}

// GiveBack gives back what Admit gave to the guest whose Context ctx comes
// from: a Handler does it that needs it no more. The guest stays.
func GiveBack(ctx context.Context) {
	if leave, ok := ctx.Value(placeKey{}).(func()); ok {
		leave()
	}
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

func (l *Lobby) ask(ctx context.Context) (leave func(), err error) {
	if l.admit == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	leave, err = l.admit(ctx)
	switch {
	case err == nil && ctx.Err() != nil: // too late
		leave()
		err = ctx.Err()
	case err == nil:
		return leave, nil
	}
	if l.ctx.Err() != nil {
		err = ErrClosing
	}
	return nil, err
}

func (l *Lobby) seat() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ctx.Err() != nil:
		return ErrClosing
	case l.here >= l.max || l.served >= 2*l.max:
		return ErrTooMany
	}
	l.here++
	l.served++
	return nil
}

// Guest is a client that a Lobby has let in.
type Guest struct {
	lobby  *Lobby
	leave  func()
	ctx    context.Context
	cancel context.CancelFunc
	gone   bool // under lobby.mu
}

// Context is done when the client is gone or the Lobby is closed. It is the
// one for Handler.ServeConn.
func (g *Guest) Context() context.Context { return g.ctx }

// Gone says that the client's session has ended, although its Handler may
// still run. It may be called more than once, by any goroutine.
func (g *Guest) Gone() {
	g.lobby.mu.Lock()
	if !g.gone {
		g.gone = true
		g.lobby.here--
	}
	g.lobby.mu.Unlock()
	g.cancel()
}

// Leave says that the Handler has returned, or will not be called. It is
// called once, and gives back what Admit gave; the client is gone.
func (g *Guest) Leave() {
	g.Gone()
	g.leave()
	g.lobby.mu.Lock()
	g.lobby.served--
	g.lobby.mu.Unlock()
	g.lobby.wg.Done()
}
