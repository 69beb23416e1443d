package limiter

import (
	"container/heap"
	"slices"
	"time"
)

// candidate is a place that could be reclaimed.
type candidate struct {
	place *Place
	use   Use
	since time.Time
}

// reclaim has places given up for those who wait and are to have more, one for
// each at most. It is called without mu: holders may need locks of their own.
func (l *Limiter) reclaim() {
	l.mu.Lock()
	l.lastReclaimLook = time.Now()
	var all []candidate
	if l.waiting > l.leaving {
		all = make([]candidate, 0, len(l.places))
		for place := range l.places {
			if place.holder != nil && !place.reclaimed {
				all = append(all, candidate{place: place})
			}
		}
	}
	l.mu.Unlock()
	out, ending := all[:0], 0
	for _, c := range all {
		switch c.use, c.since = c.place.holder.Use(); c.use {
		case Idle, Spare:
			out = append(out, c)
		case Ending:
			ending++
		}
	}
	l.mu.Lock()
	chosen := l.choose(out, ending, time.Now())
	l.mu.Unlock()
	for _, place := range chosen {
		if !place.holder.Reclaim() {
			l.mu.Lock()
			place.keep()
			l.mu.Unlock()
		}
	}
}

// forecast is what a party has once all that was reclaimed has gone to who is to
// have it, and who of it waits for more.
type forecast struct {
	held    int
	waiting int
	at      int // in the queue; -1: it is not there
}

// queue has the parties that wait for more, as a heap: who is served first is the
// first. It is used under the Limiter's mu.
type queue []*party

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].isBefore(q[j], q[i].forecast.held, q[j].forecast.held)
}
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].forecast.at, q[j].forecast.at = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) { *q = append(*q, x.(*party)) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	p.forecast.at = -1
	*q = (*q)[:last]
	return p
}

// choose returns the places that are to be given up, marked as reclaimed, and
// marks those who wait for whom there will be one. ending is how many come back
// by themselves. The caller holds mu.
func (l *Limiter) choose(out []candidate, ending int, now time.Time) (chosen []*Place) {
	slices.SortFunc(out, func(a, b candidate) int { return a.since.Compare(b.since) })
	next := make(queue, 0, len(l.parties))
	for _, p := range l.parties {
		p.forecast = forecast{p.held - p.leaving, len(p.waiting), -1}
		for _, w := range p.waiting {
			w.covered = false
		}
		if len(p.waiting) > 0 {
			p.forecast.at = len(next)
			next = append(next, p)
		}
	}
	heap.Init(&next)
	for back := l.leaving + ending; len(next) > 0; back-- {
		p := next[0]
		if back <= 0 {
			i := l.bestCandidates(out, p, now)
			if i < 0 {
				break // nor is there one of another party for those behind p, who hold as many or more
			}
			from := l.reclaimPlace(&out[i])
			chosen = append(chosen, from)
			if from.party.forecast.at >= 0 {
				heap.Fix(&next, from.party.forecast.at)
			}
		}
		p.coverNext()
		if p.forecast.waiting > 0 {
			heap.Fix(&next, p.forecast.at)
		} else {
			heap.Remove(&next, p.forecast.at)
		}
	}
	for i := range out {
		if c := &out[i]; c.free() && c.use == Spare && c.place.party.forecast.waiting > 0 {
			chosen = append(chosen, l.reclaimPlace(c))
			c.place.party.coverNext()
		}
	}
	return chosen
}

// free reports whether a candidate can still be reclaimed. The caller holds mu.
func (c *candidate) free() bool { return !c.place.released && !c.place.reclaimed }

// reclaimPlace has a place reclaimed. The caller holds mu.
func (l *Limiter) reclaimPlace(c *candidate) *Place {
	c.place.reclaimed = true
	c.place.party.leaving++
	c.place.party.forecast.held--
	l.leaving++
	return c.place
}

// coverNext says that the next of a party's who wait gets a place. The caller holds mu.
func (p *party) coverNext() {
	p.waiting[len(p.waiting)-p.forecast.waiting].covered = true
	p.forecast.held++
	p.forecast.waiting--
}

// bestCandidates returns which of the places that are out of use, of which those that have been so
// for longest come first, is given up for p, -1 if none is: a spare one of its own, one of
// another party, or one whose client has to begin anew, in this order; of those that of who
// holds most, and then the first. The caller holds mu.
func (l *Limiter) bestCandidates(out []candidate, p *party, now time.Time) int {
	best, rank := -1, 0
	mine := p.forecast.held
	for i := range out {
		c := &out[i]
		if !c.free() {
			continue
		}
		from := c.place.party
		long := now.Sub(c.since) >= settled
		r := 0
		switch {
		case from == p && c.use == Spare:
			r = 3
		case from == p:
		case c.use == Spare && (mine*len(l.parties) < l.opts.Max || long):
			r = 2
		case c.use == Idle && (from.forecast.held >= mine+2 || mine == 0 && long):
			r = 1
		}
		if r > rank || r > 0 && r == rank && from.forecast.held > out[best].place.party.forecast.held {
			best, rank = i, r
		}
	}
	return best
}
