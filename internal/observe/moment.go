package observe

import (
	"sync/atomic"
	"time"
)

// moment is when something has passed: nanoseconds since origin. To note it costs a third of time.Now, which asks for the time of
// day, too.
type moment int64

// origin is what moments count from.
var origin = time.Now()

func now() moment { return moment(time.Since(origin)) }

// dated is the time of day at a moment.
type dated struct {
	at   moment
	time time.Time
}

var lastDated atomic.Pointer[dated]

// datedFor is how far from a moment, at most, the time of day was asked for that it is counted from: the clock may be set,
// and the machine may sleep.
const datedFor = moment(time.Second)

// Time returns the time of day.
func (m moment) Time() time.Time {
	d := lastDated.Load()
	if d == nil || m-d.at > datedFor || d.at-m > datedFor {
		t := time.Now()
		d = &dated{moment(t.Sub(origin)), t}
		lastDated.Store(d)
	}
	return d.time.Add(time.Duration(m - d.at))
}

// sub returns how long m is after another moment.
func (m moment) sub(earlier moment) time.Duration { return time.Duration(m - earlier) }

// momentOf returns when it was that time.
func momentOf(t time.Time) moment { return now() - moment(time.Since(t)) }
