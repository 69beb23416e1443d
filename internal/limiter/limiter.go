// Package limiter shares out a number of places among parties (docs/rules.md,
// D.3): sessions, processes, whatever there may be so many of. As long as there are free ones
// anybody may take them. When there are none, who has fewest is served first,
// and who has most gives up what it does not use.
package limiter

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Why there is no place.
var (
	// ErrFull says that no place is free or can be reclaimed now, and that the party may not wait for
	// one: the queue is full, or the wait is 0 or less. It also ends the wait of a caller whose room in
	// the queue another party gets.
	ErrFull = errors.New("there is no place, and no room to wait for one")

	// ErrLate says that no place came within the wait.
	ErrLate = errors.New("no place was given back in time")
)

// Use says in what use a place is.
type Use int

// The values of Use.
const (
	Busy   Use = iota // something is in progress in the place: it is not taken away
	Idle              // a client has the place, and nothing is in progress: another party with fewer places may get it
	Spare             // no client has the place: it is kept for the next one, and may be taken for anybody
	Ending            // the holder is being closed already: the place comes back soon without Reclaim
)

// A Holder is what has a place and can be told to give it up. Its methods may be called
// concurrently, hold no lock of a Limiter's caller for long, and do not wait.
type Holder interface {
	// Use returns in what use the place is, and since when, unless it is Busy.
	Use() (use Use, since time.Time)

	// Reclaim ends what has the place, which gives it back then, now or soon.
	// It does nothing and returns false if that is neither Idle nor Spare by now.
	Reclaim() bool
}

// Options tune a Limiter. The zero value has no bound.
type Options struct {
	Max   int // how many places there are; 0 or less: no bound
	Queue int // how many callers of all parties together may wait for a place; 0 or less: none. Beside them, a caller may wait whose party has, with this caller, no more places and waiters than an equal part of Max
}

const (
	// settleTime is how long a place must have been out of use before it is taken where the parties have nearly
	// the same: an Idle one from a party with one place, for a party with none; a Spare one for another party
	// that has an equal part already. Two that share what is too little for both must not take it from each
	// other all the time.
	settleTime = 5 * time.Second

	// reclaimInterval is how often those who wait look for places that have become Idle or Spare.
	reclaimInterval = 100 * time.Millisecond
)

// Limiter bounds how many places are taken at a time, and counts them by party.
// Any number of goroutines may use it. It starts nothing.
//
//   - A free place goes to whoever asks.
//   - One that is given back goes to the waiting party that holds fewest; among
//     equals they take turns, and each party's own are served in order.
//   - When the queue is full, a party with fewer in it puts in one more, and the
//     newest of the party with most is refused.
//   - A party that has less than an equal part of the places (Max divided by the
//     parties that hold or wait) may wait in any case, and whoever has at least two
//     more than it gives up what has been Idle for longest. If the one that waits has
//     none, any party gives up what has been Idle for settleTime. A Spare place is given
//     up first of all for the party that holds it, then for one with less than an equal
//     part, and after settleTime for everybody.
type Limiter struct {
	mu              sync.Mutex          // guards all fields, and those of its parties, waiters and places
	opts            Options             // the Options as New got them; Resize changes Max
	places          map[*Place]struct{} // the places that are taken
	parties         map[string]*party   // the parties that hold places or wait, by name
	waiting         int                 // how many callers wait for a place, of all parties together
	reclaimedPlaces int                 // how many places were reclaimed and are not given back yet
	grants          uint64              // how many places have been given so far; the number for party.lastGrant
	arrivals        uint64              // how many callers have begun to wait so far; the number for waiter.order
	lastReclaimLook time.Time           // when reclaim was called last, by any of the callers who wait
}

// A party is a user or a client by whose name places are counted and shared out.
type party struct {
	name            string    // the party's name, as Acquire was told it
	held            int       // how many places it has
	reclaimedPlaces int       // how many of its places were reclaimed and are not given back yet
	waiting         []*waiter // its waiters, the one that came first in front
	lastGrant       uint64    // the value of Limiter.grants when it last got a place; 0: it got none
	forecast        forecast  // used while Limiter.choosePlaces runs, which sets it anew; else it means nothing
}

// A waiter is one call of Acquire that waits. All is guarded by Limiter.mu, until ready is closed.
type waiter struct {
	party          *party        // the party for which it waits
	holder         Holder        // what will hold the place
	order          uint64        // its number among all that have ever waited; the lower one came first
	hasPlaceComing bool          // a place that is to be given back is meant for it, as choosePlaces has found last
	ready          chan struct{} // closed when there is a place, or an error
	place          *Place        // the place that it got; nil: none yet, or err says why
	err            error         // why no place came; nil beside a place, and as long as it waits
}

// A Place is one place that a party has taken.
type Place struct {
	limiter   *Limiter // the Limiter to which the place is given back
	party     *party   // the party that has the place
	holder    Holder   // what has the place, and may be told to give it up; nil: the place is always Busy
	reclaimed bool     // its holder was told to give it up; under limiter.mu
	released  bool     // it was given back; under limiter.mu
}

// New returns a Limiter of which no place is taken.
func New(o Options) *Limiter {
	return &Limiter{opts: o, places: make(map[*Place]struct{}), parties: make(map[string]*party)}
}

// Acquire takes a place for a party. If none is free, it waits for one if the party may, for the time wait at most; 0 or less: it does not
// wait. holder is told (Reclaim) when another caller is to have the place; nil: the place is not given up before Release. The error is
// ErrFull, ErrLate or that of ctx.
func (l *Limiter) Acquire(ctx context.Context, partyName string, holder Holder, wait time.Duration) (*Place, error) {
	l.mu.Lock()
	p := l.parties[partyName]
	if p == nil {
		p = &party{name: partyName}
		l.parties[partyName] = p
	}
	if l.hasFreePlace() && l.waiting == 0 {
		defer l.mu.Unlock()
		return l.newPlace(p, holder), nil
	}
	may := wait > 0 && l.makeQueueRoom(p)
	l.arrivals++
	w := &waiter{party: p, holder: holder, order: l.arrivals, ready: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	l.waiting++
	l.mu.Unlock()
	l.reclaim()
	l.mu.Lock()
	if w.place == nil && w.err == nil && (wait <= 0 || !may && !w.hasPlaceComing) {
		l.remove(w)
		w.err = ErrFull
	}
	done := w.place != nil || w.err != nil
	l.mu.Unlock()
	if done {
		return w.place, w.err
	}
	return l.await(ctx, w, wait)
}

// Resize changes the number of places to max; 0 or less: no bound. Those who have a place keep it, also if
// more than max are taken; if there are more places now, those who wait get them.
func (l *Limiter) Resize(max int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opts.Max = max
	l.grant()
}

// Taken returns how many places are taken.
func (l *Limiter) Taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.places)
}

// Release gives the place back. Only the first call does anything, and of a nil
// Place none.
func (p *Place) Release() {
	if p == nil {
		return
	}
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.released {
		return
	}
	p.released = true
	p.undoReclaim()
	delete(l.places, p)
	p.party.held--
	l.grant()
	l.forget(p.party)
}

// undoReclaim counts the place as not reclaimed any more, if it was. The caller holds l.mu.
func (p *Place) undoReclaim() {
	if p.reclaimed {
		p.reclaimed = false
		p.party.reclaimedPlaces--
		p.limiter.reclaimedPlaces--
	}
}

// hasFreePlace reports whether a place is free. The caller holds mu.
func (l *Limiter) hasFreePlace() bool { return l.opts.Max <= 0 || len(l.places) < l.opts.Max }

// newPlace gives a party a place that is free, of which h is the holder. The caller holds mu.
func (l *Limiter) newPlace(p *party, h Holder) *Place {
	place := &Place{limiter: l, party: p, holder: h}
	l.places[place] = struct{}{}
	l.grants++
	p.held++
	p.lastGrant = l.grants
	return place
}

// grant gives the free places to those who wait: first to the party that holds fewest. The caller
// holds mu.
func (l *Limiter) grant() {
	for l.waiting > 0 && l.hasFreePlace() {
		var next *party
		for _, p := range l.parties {
			if len(p.waiting) > 0 && (next == nil || p.isBefore(next, p.held, next.held)) {
				next = p
			}
		}
		w := next.waiting[0]
		w.place = l.newPlace(next, w.holder)
		l.remove(w)
		close(w.ready)
	}
}

// isBefore reports whether p gets the next place before other. Both wait; held and otherHeld are
// how many places they count as having. Of equals, the one whose last grant is longer ago is first.
func (p *party) isBefore(other *party, held, otherHeld int) bool {
	switch {
	case held != otherHeld:
		return held < otherHeld
	case p.lastGrant != other.lastGrant:
		return p.lastGrant < other.lastGrant
	}
	return p.waiting[0].order < other.waiting[0].order
}

// makeQueueRoom reports whether one more of p may wait. To make room, it may refuse (ErrFull) the
// newest waiter of another party. The caller holds mu.
func (l *Limiter) makeQueueRoom(p *party) bool {
	if l.waiting < l.opts.Queue || (p.held+len(p.waiting)+1)*len(l.parties) <= l.opts.Max {
		return true
	}
	var longest *party
	for _, o := range l.parties {
		if o != p && len(o.waiting) > 0 && (longest == nil || len(o.waiting) > len(longest.waiting) ||
			len(o.waiting) == len(longest.waiting) && o.held > longest.held) {
			longest = o
		}
	}
	if l.opts.Queue <= 0 || longest == nil {
		return false
	}
	gap := len(longest.waiting) - len(p.waiting)
	if gap < 2 && !(gap == 1 && longest.held > p.held) {
		return false
	}
	newest := longest.waiting[len(longest.waiting)-1]
	l.remove(newest)
	newest.err = ErrFull
	close(newest.ready)
	return true
}

// remove takes a waiter out of the queue, and forgets its party if that neither holds a place nor
// waits. The caller holds mu.
func (l *Limiter) remove(w *waiter) {
	p := w.party
	for i, o := range p.waiting {
		if o == w {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			l.waiting--
			break
		}
	}
	l.forget(p)
}

// forget deletes a party from parties if it neither holds a place nor waits. The caller holds mu.
func (l *Limiter) forget(p *party) {
	if p.held == 0 && len(p.waiting) == 0 && l.parties[p.name] == p {
		delete(l.parties, p.name)
	}
}

// await waits until w has a place, the time wait has passed (ErrLate), ctx is done, or w was refused
// (ErrFull). Meanwhile it looks for places to reclaim. It is called without mu.
func (l *Limiter) await(ctx context.Context, w *waiter, wait time.Duration) (*Place, error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	ticker := time.NewTicker(reclaimInterval)
	defer ticker.Stop()
	for {
		var waitErr error
		select {
		case <-w.ready:
			return w.place, w.err
		case now := <-ticker.C:
			l.mu.Lock()
			due := now.Sub(l.lastReclaimLook) >= reclaimInterval/2 // one who waits looks for all
			l.mu.Unlock()
			if due {
				l.reclaim()
			}
			continue
		case <-timeout.C:
			waitErr = ErrLate
		case <-ctx.Done():
			waitErr = ctx.Err()
		}
		l.mu.Lock()
		if w.place == nil && w.err == nil {
			l.remove(w)
			w.err = waitErr
		}
		l.mu.Unlock()
		if w.place != nil && waitErr != ErrLate { // it has come at this very moment
			w.place.Release()
			return nil, waitErr
		}
		return w.place, w.err
	}
}
