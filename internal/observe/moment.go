package observe

import (
	"sync/atomic"
	"time"
)

// moment is when something has passed: nanoseconds since origin. To note it costs a third of time.Now, which asks for the time of
// day, too.
type moment int64

// momentZero is what moments count from.
var momentZero = time.Now()

func now() moment { return moment(time.Since(momentZero)) }

// datedMoment is the time of day at a moment.
type datedMoment struct {
	at   moment
	time time.Time
}

var lastDated atomic.Pointer[datedMoment]

// maxDatedAge is how far from a moment, at most, the time of day was asked for that it is counted from: the clock may be set,
// and the machine may sleep.
const maxDatedAge = moment(time.Second)

// Time returns the time of day.
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

// momentOf returns when it was that time.
func momentOf(t time.Time) moment { return now() - moment(time.Since(t)) }
