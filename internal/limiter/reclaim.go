package limiter

import (
	"container/heap"
	"slices"
	"time"
)

// A candidate is a place whose holder could give it up.
type candidate struct {
	place *Place    // the place itself
	use   Use       // Idle or Spare, as the holder said when it was asked
	since time.Time // since when the place has been in that use
}

// reclaim has places given up for those who wait and are to have more, one for
// each at most. It is called without mu: holders may need locks of their own.
func (l *Limiter) reclaim() {
	l.mu.Lock()
	l.lastReclaimLook = time.Now()
	var all []candidate
	if l.waiting > l.reclaimedPlaces {
		all = make([]candidate, 0, len(l.places))
		for place := range l.places {
			if place.holder != nil && !place.reclaimed {
				all = append(all, candidate{place: place})
			}
		}
	}
	l.mu.Unlock()
	candidates, ending := all[:0], 0
	for _, c := range all {
		switch c.use, c.since = c.place.holder.Use(); c.use {
		case Idle, Spare:
			candidates = append(candidates, c)
		case Ending:
			ending++
		}
	}
	l.mu.Lock()
	chosen := l.choosePlaces(candidates, ending, time.Now())
	l.mu.Unlock()
	for _, place := range chosen {
		if !place.holder.Reclaim() {
			l.mu.Lock()
			place.undoReclaim()
			l.mu.Unlock()
		}
	}
}

// A forecast is what a party will have once all reclaimed places have gone to the waiters who are
// to have them.
type forecast struct {
	held       int // how many places the party will have
	waiting    int // how many of the party's waiters will still be without a place
	queueIndex int // the party's index in the partyHeap; -1: it is not in there
}

// A partyHeap has the parties with waiters for whom no place is coming yet, as a heap
// (container/heap): the party that is served next is the first. It is used under the Limiter's mu.
type partyHeap []*party

// Len implements heap.Interface: it returns how many parties are in it.
func (q partyHeap) Len() int { return len(q) }

// Less implements heap.Interface: the party that is served before the other one is less.
func (q partyHeap) Less(i, j int) bool {
	return q[i].isBefore(q[j], q[i].forecast.held, q[j].forecast.held)
}

// Swap implements heap.Interface: it swaps two parties, with their queueIndex.
func (q partyHeap) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].forecast.queueIndex, q[j].forecast.queueIndex = i, j
}

// Push implements heap.Interface: it appends a party.
func (q *partyHeap) Push(x any) { *q = append(*q, x.(*party)) }

// Pop implements heap.Interface: it removes the last party and returns it.
func (q *partyHeap) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	p.forecast.queueIndex = -1
	*q = (*q)[:last]
	return p
}

// choosePlaces returns the places of candidates that are to be given up, marked as reclaimed, and marks the waiters for
// whom a place is coming. ending is how many places, beside those that were reclaimed before, come back without being
// reclaimed. The caller holds mu.
func (l *Limiter) choosePlaces(candidates []candidate, ending int, now time.Time) (chosen []*Place) {
	slices.SortFunc(candidates, func(a, b candidate) int { return a.since.Compare(b.since) })
	waitingParties := make(partyHeap, 0, len(l.parties))
	for _, p := range l.parties {
		p.forecast = forecast{p.held - p.reclaimedPlaces, len(p.waiting), -1}
		for _, w := range p.waiting {
			w.hasPlaceComing = false
		}
		if len(p.waiting) > 0 {
			p.forecast.queueIndex = len(waitingParties)
			waitingParties = append(waitingParties, p)
		}
	}
	heap.Init(&waitingParties)
	for comingBack := l.reclaimedPlaces + ending; len(waitingParties) > 0; comingBack-- {
		p := waitingParties[0]
		if comingBack <= 0 {
			i := l.bestCandidate(candidates, p, now)
			if i < 0 {
				break // nor is there one of another party for those behind p, who hold as many or more
			}
			from := l.markReclaimed(&candidates[i])
			chosen = append(chosen, from)
			if from.party.forecast.queueIndex >= 0 {
				heap.Fix(&waitingParties, from.party.forecast.queueIndex)
			}
		}
		p.promiseNext()
		if p.forecast.waiting > 0 {
			heap.Fix(&waitingParties, p.forecast.queueIndex)
		} else {
			heap.Remove(&waitingParties, p.forecast.queueIndex)
		}
	}
	for i := range candidates {
		if c := &candidates[i]; c.isStillHeld() && c.use == Spare && c.place.party.forecast.waiting > 0 {
			chosen = append(chosen, l.markReclaimed(c))
			c.place.party.promiseNext()
		}
	}
	return chosen
}

// isStillHeld reports whether the candidate's place was neither given back nor reclaimed since it
// was listed. The caller holds mu.
func (c *candidate) isStillHeld() bool { return !c.place.released && !c.place.reclaimed }

// markReclaimed counts the place of a candidate as reclaimed, and returns it; its holder is not
// told yet. The caller holds mu.
func (l *Limiter) markReclaimed(c *candidate) *Place {
	c.place.reclaimed = true
	c.place.party.reclaimedPlaces++
	c.place.party.forecast.held--
	l.reclaimedPlaces++
	return c.place
}

// promiseNext notes in the waiter, and in the forecast, that a place is coming for the first waiter of the party to whom
// none was promised. There must be one (forecast.waiting). The caller holds mu.
func (p *party) promiseNext() {
	p.waiting[len(p.waiting)-p.forecast.waiting].hasPlaceComing = true
	p.forecast.held++
	p.forecast.waiting--
}

// bestCandidate returns the index of the candidate that is given up for p; -1: none is. A spare
// place of p itself is best; then a spare one of another party, if p has less than an equal part or
// the place has been spare for settleTime; then an idle one, whose client has to begin anew, of a
// party that has at least two places more than p, or, after settleTime, of any party if p has none.
// Of several, it is one of the party that holds most; of these the first, which has been out of use
// for longest. The caller holds mu.
func (l *Limiter) bestCandidate(candidates []candidate, p *party, now time.Time) int {
	best, bestRank := -1, 0
	held := p.forecast.held
	for i := range candidates {
		c := &candidates[i]
		if !c.isStillHeld() {
			continue
		}
		owner := c.place.party
		isSettled := now.Sub(c.since) >= settleTime
		candidateRank := 0
		switch {
		case owner == p && c.use == Spare:
			candidateRank = 3
		case owner == p:
		case c.use == Spare && (held*len(l.parties) < l.opts.Max || isSettled):
			candidateRank = 2
		case c.use == Idle && (owner.forecast.held >= held+2 || held == 0 && isSettled):
			candidateRank = 1
		}
		if candidateRank > bestRank || candidateRank > 0 && candidateRank == bestRank && owner.forecast.held > candidates[best].place.party.forecast.held {
			best, bestRank = i, candidateRank
		}
	}
	return best
}
