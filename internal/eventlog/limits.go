package eventlog

import (
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// eventLimiter says which events get a line of their own: of each kind the first few in a period. The others
// are counted, and told of together.
type eventLimiter[K comparable] struct {
	inFirstPeriod, perPeriod int                                     // how many events of a kind get a line in its first period, and in each that follows without a break
	period                   time.Duration                           // how long a period is; the first one of a kind begins with its first event
	report                   func(kind K, n int, last observe.Event) // tells of n events without a line; called by a timer's goroutine, endKind or close

	periodTimers sync.WaitGroup // timers whose functions run, or are to run

	mu     sync.Mutex       // guards kinds with all in it, and closed
	kinds  map[K]*kindState // the kinds of which a period runs
	closed bool             // no new kind begins
}

// kindState is the current period of the events of one kind.
type kindState struct {
	allowedLeft     int           // how many more get a line in this period
	suppressedCount int           // how many got none in this period
	lastSuppressed  observe.Event // the last event that got none in this period
	periodTimer     *time.Timer   // ends the period
}

// newEventLimiter returns a limiter that gives of each kind inFirstPeriod events a line of their own in its first period, and perPeriod in
// each that follows without a break. report tells of n events of a kind that got none; last is the last one of these.
func newEventLimiter[K comparable](inFirstPeriod, perPeriod int, period time.Duration, report func(K, int, observe.Event)) *eventLimiter[K] {
	return &eventLimiter[K]{inFirstPeriod: inFirstPeriod, perPeriod: perPeriod, period: period, report: report, kinds: make(map[K]*kindState)}
}

// allow reports whether an event of a kind gets a line. If not, it is counted, unless the limiter is closed.
func (l *eventLimiter[K]) allow(of K, e observe.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[of]
	if k == nil {
		if l.closed {
			return false
		}
		k = &kindState{allowedLeft: l.inFirstPeriod}
		l.kinds[of] = k
		l.startPeriod(of, k)
	}
	if k.allowedLeft > 0 {
		k.allowedLeft--
		return true
	}
	k.suppressedCount++
	k.lastSuppressed = e
	return false
}

// startPeriod begins a period of a kind. It is called with mu held.
func (l *eventLimiter[K]) startPeriod(of K, k *kindState) {
	l.periodTimers.Add(1)
	k.periodTimer = time.AfterFunc(l.period, func() {
		defer l.periodTimers.Done()
		l.endPeriod(of, k)
	})
}

// endPeriod ends a period of a kind, and reports what got no line. Another period follows if there was any.
func (l *eventLimiter[K]) endPeriod(of K, k *kindState) {
	l.mu.Lock()
	if l.kinds[of] != k {
		l.mu.Unlock()
		return
	}
	n, last := k.suppressedCount, k.lastSuppressed
	k.allowedLeft, k.suppressedCount, k.lastSuppressed = l.perPeriod, 0, nil
	if n == 0 || l.closed {
		delete(l.kinds, of)
	} else {
		l.startPeriod(of, k)
	}
	l.mu.Unlock()
	if n > 0 {
		l.report(of, n, last)
	}
}

// endKind reports what got no line of a kind of which no more comes, and forgets the kind.
func (l *eventLimiter[K]) endKind(of K) {
	l.mu.Lock()
	k := l.kinds[of]
	delete(l.kinds, of)
	l.mu.Unlock()
	if k == nil {
		return
	}
	if k.periodTimer.Stop() {
		l.periodTimers.Done()
	}
	if k.suppressedCount > 0 {
		l.report(of, k.suppressedCount, k.lastSuppressed)
	}
}

// close reports all that got no line, and ends the limiter: no event gets a line any more. When it returns, report is called no more.
func (l *eventLimiter[K]) close() {
	l.mu.Lock()
	l.closed = true
	all := make([]K, 0, len(l.kinds))
	for of := range l.kinds {
		all = append(all, of)
	}
	l.mu.Unlock()
	for _, of := range all {
		l.endKind(of)
	}
	l.periodTimers.Wait()
}
