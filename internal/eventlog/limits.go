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
	report                   func(kind K, n int, last observe.Event) // is called by a goroutine of the limiter, or of end

	waits sync.WaitGroup

	mu     sync.Mutex
	kinds  map[K]*kind
	closed bool
}

// kind is what is known of the events of one kind.
type kind struct {
	allowed    int // that get a line in this period
	suppressed int // that got none
	last       observe.Event
	timer      *time.Timer // ends the period
}

func newEventLimiter[K comparable](first, again int, every time.Duration, more func(K, int, observe.Event)) *eventLimiter[K] {
	return &eventLimiter[K]{inFirstPeriod: first, perPeriod: again, period: every, report: more, kinds: make(map[K]*kind)}
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
		k = &kind{allowed: l.inFirstPeriod}
		l.kinds[of] = k
		l.wait(of, k)
	}
	if k.allowed > 0 {
		k.allowed--
		return true
	}
	k.suppressed++
	k.last = e
	return false
}

// wait begins a period; the lock is held.
func (l *eventLimiter[K]) wait(of K, k *kind) {
	l.waits.Add(1)
	k.timer = time.AfterFunc(l.period, func() {
		defer l.waits.Done()
		l.endPeriod(of, k)
	})
}

// endPeriod ends a period.
func (l *eventLimiter[K]) endPeriod(of K, k *kind) {
	l.mu.Lock()
	if l.kinds[of] != k {
		l.mu.Unlock()
		return
	}
	n, last := k.suppressed, k.last
	k.allowed, k.suppressed, k.last = l.perPeriod, 0, nil
	if n == 0 || l.closed {
		delete(l.kinds, of)
	} else {
		l.wait(of, k)
	}
	l.mu.Unlock()
	if n > 0 {
		l.report(of, n, last)
	}
}

// end tells of what was held back of a kind of which no more comes.
func (l *eventLimiter[K]) end(of K) {
	l.mu.Lock()
	k := l.kinds[of]
	delete(l.kinds, of)
	l.mu.Unlock()
	if k == nil {
		return
	}
	if k.timer.Stop() {
		l.waits.Done()
	}
	if k.suppressed > 0 {
		l.report(of, k.suppressed, k.last)
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
		l.end(of)
	}
	l.waits.Wait()
}
