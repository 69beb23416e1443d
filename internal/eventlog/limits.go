package eventlog

import (
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// eventLimiter says which events get a line of their own: of each kind the first few. The others
// are counted, and told of together.
type eventLimiter[K comparable] struct {
	inFirstPeriod, perPeriod int // how many in the first period of a kind, and in each that follows at once
	period                   time.Duration
	report                   func(kind K, n int, last observe.Event) // is called by a goroutine of the limiter, or by close

	periodTimers sync.WaitGroup // those that run, or are to

	mu     sync.Mutex
	kinds  map[K]*kindState
	closed bool
}

// kindState is what is known of the events of one kind.
type kindState struct {
	allowedLeft     int // how many more get a line in this period
	suppressedCount int // how many got none in this period
	lastSuppressed  observe.Event
	periodTimer     *time.Timer // ends the period
}

func newEventLimiter[K comparable](inFirstPeriod, perPeriod int, period time.Duration, report func(K, int, observe.Event)) *eventLimiter[K] {
	return &eventLimiter[K]{inFirstPeriod: inFirstPeriod, perPeriod: perPeriod, period: period, report: report, kinds: make(map[K]*kindState)}
}

// allow reports whether an event gets a line.
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

// startPeriod begins a period; the lock is held.
func (l *eventLimiter[K]) startPeriod(of K, k *kindState) {
	l.periodTimers.Add(1)
	k.periodTimer = time.AfterFunc(l.period, func() {
		defer l.periodTimers.Done()
		l.endPeriod(of, k)
	})
}

// endPeriod ends a period.
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

// endKind tells of what was held back of a kind of which no more comes.
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

// close tells of all that was held back. When it returns nothing is told any more.
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
