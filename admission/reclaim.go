package admission

import "time"

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
	l.looked = time.Now()
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

// share is what a party has once all that was reclaimed has gone to who is to
// have it, and who of it waits for more.
type share struct {
	held    int
	waiting int
}

// choose returns the places that are to be given up, marked as reclaimed, and
// marks those who wait for whom there will be one. ending is how many come back
// by themselves. The caller holds mu.
func (l *Limiter) choose(out []candidate, ending int, now time.Time) (chosen []*Place) {
	shares := make(map[*party]*share, len(l.parties))
	for _, p := range l.parties {
		shares[p] = &share{p.held - p.leaving, len(p.waiting)}
		for _, w := range p.waiting {
			w.covered = false
		}
	}
	back := l.leaving + ending
	for {
		var next *party
		for p, s := range shares {
			if s.waiting > 0 && (next == nil || p.isBefore(next, s.held, shares[next].held)) {
				next = p
			}
		}
		if next == nil {
			return chosen
		}
		s := shares[next]
		if back > 0 {
			back--
		} else {
			i := l.best(out, shares, next, now)
			if i < 0 {
				s.waiting = 0
				continue
			}
			place := out[i].place
			out[i].place = nil
			shares[place.party].held--
			place.reclaimed = true
			place.party.leaving++
			l.leaving++
			chosen = append(chosen, place)
		}
		next.waiting[len(next.waiting)-s.waiting].covered = true
		s.held++
		s.waiting--
	}
}

// best returns which of the places that are out of use is given up for p, -1 if
// none is: a spare one of its own, one of another party, or one whose client has
// to begin anew, in this order; of those that of who holds most, and then the one
// that has been out of use for longest. The caller holds mu.
func (l *Limiter) best(out []candidate, shares map[*party]*share, p *party, now time.Time) int {
	best, rank := -1, 0
	mine := shares[p].held
	for i, c := range out {
		if c.place == nil || c.place.released || c.place.reclaimed {
			continue
		}
		from := c.place.party
		theirs := shares[from].held
		long := now.Sub(c.since) >= settled
		r := 0
		switch {
		case from == p && c.use == Spare:
			r = 3
		case from == p:
		case c.use == Spare && (mine*len(l.parties) < l.opts.Max || long):
			r = 2
		case c.use == Idle && (theirs >= mine+2 || mine == 0 && long):
			r = 1
		}
		if r == 0 || r < rank {
			continue
		}
		if best >= 0 && r == rank {
			top := shares[out[best].place.party].held
			if theirs < top || theirs == top && !c.since.Before(out[best].since) {
				continue
			}
		}
		best, rank = i, r
	}
	return best
}
