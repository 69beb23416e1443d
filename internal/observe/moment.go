package observe

import (
	"sync/atomic"
	"time"
)

// moment is when something has passed: nanoseconds since momentZero. To note a moment costs a third of time.Now, which also asks
// for the time of day.
type moment int64

// momentZero is what moments count from.
var momentZero = time.Now()

// now returns the present moment.
func now() moment { return moment(time.Since(momentZero)) }

// datedMoment is the time of day at a moment.
type datedMoment struct {
	at   moment    // when it was
	time time.Time // the time of day at that moment
}

// lastDated is when the time of day was asked for last; nil: never.
var lastDated atomic.Pointer[datedMoment]

// maxDatedAge is how far lastDated may be from a moment whose time of day is counted from it. Beyond that the clock is asked
// again: it may have been set, and the machine may have slept.
const maxDatedAge = moment(time.Second)

// Time returns the time of day at the moment.
func (m moment) Time() time.Time {
	d := lastDated.Load()
	if d == nil || m-d.at > maxDatedAge || d.at-m > maxDatedAge {
		t := time.Now()
		d = &datedMoment{moment(t.Sub(momentZero)), t}
		lastDated.Store(d)
	}
	return d.time.Add(time.Duration(m - d.at))
}

// sub returns how long m is after another moment.
func (m moment) sub(earlier moment) time.Duration { return time.Duration(m - earlier) }

// momentOf returns the moment of a time.
func momentOf(t time.Time) moment { return now() - moment(time.Since(t)) }
