package trace

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// longTextSize is how long a message is, in bytes, that is not looked through in the goroutine that carries it.
const longTextSize = 64 << 10

// What may wait behind a long message, and with it: how many records, and how long their texts are.
const (
	maxBacklog      = 16 << 10
	maxBacklogBytes = 64 << 20
)

// backlog is what the records are made of later: of long messages, and of all that comes until these are done, because
// what is found in them may be in what follows. The zero value works.
type backlog struct {
	isDraining atomic.Bool // changes with mu held: somebody makes records of what waits
	maxBytes   int         // bytes of waiting, at most; 0: maxBacklogBytes

	mu      sync.Mutex
	queue   []pendingRecord
	bytes   int           // of waiting, and of what is being made
	skipped uint64        // how many were left out since the last one of waiting
	drained chan struct{} // closed when nobody is busy any more; nil: nobody was
}

// pendingRecord is what one record is made of.
type pendingRecord struct {
	passed        observe.Passed // a message
	event         observe.Event  // nil: it is a message
	seq           uint64         // of the event
	at            time.Time      // of the event
	sinks         []Sink
	size          int
	skippedBefore uint64 // how many were left out before it

	barrier chan struct{} // to be closed once the records before it are made; nil: it is a record itself
}

// isLong reports whether a text is so long that nobody waits until it is looked through.
func isLong(size int, sinks []Sink) bool { return size > longTextSize && wantsText(sinks) }

// postpone has a record made later, if it is of something long, or others wait. It does not wait.
func (r *Recorder) postpone(l *pendingRecord, long bool) bool {
	if !long && !r.backlog.isDraining.Load() {
		return false
	}
	b := &r.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	busy := b.isDraining.Load()
	if !long && !busy {
		return false
	}
	if busy && (len(b.queue) >= maxBacklog || b.bytes+l.size > cmp.Or(b.maxBytes, maxBacklogBytes)) {
		b.skipped++
		return true
	}
	l.skippedBefore, b.skipped = b.skipped, 0
	b.queue = append(b.queue, *l)
	b.bytes += l.size
	if !busy {
		b.isDraining.Store(true)
		b.drained = make(chan struct{})
		go r.drainBacklog(b.drained)
	}
	return true
}

// drainBacklog makes the records that wait, until there are none.
func (r *Recorder) drainBacklog(done chan<- struct{}) {
	defer close(done)
	var sinks []Sink // of the last record
	for made := 0; ; {
		all, missing, more := r.backlog.take(made)
		if !more {
			return
		}
		skipLines(sinks, missing)
		made = 0
		for i := range all {
			l := &all[i]
			if l.barrier != nil {
				close(l.barrier)
				continue
			}
			sinks = l.sinks
			skipLines(sinks, l.skippedBefore)
			if l.event == nil {
				r.recordMessage(&l.passed, sinks)
			} else {
				r.recordEvent(l.event, l.seq, l.at, sinks)
			}
			made += l.size
			*l = pendingRecord{} // nobody else needs the text
		}
	}
}

// take returns what waits, once records of so many bytes have been made, or else how many were left out. more is
// false if there is nothing.
func (b *backlog) take(made int) (all []pendingRecord, missing uint64, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= made
	if all, b.queue = b.queue, nil; len(all) == 0 {
		missing, b.skipped = b.skipped, 0
	}
	if more = len(all) > 0 || missing > 0; !more {
		b.isDraining.Store(false)
	}
	return all, missing, more
}

// skipLines tells sinks that lines are missing.
func skipLines(sinks []Sink, n uint64) {
	for _, s := range sinks {
		if n > 0 {
			s.Skip(n)
		}
	}
}

// Wait returns when the Sinks have the records of all that was told before.
func (r *Recorder) Wait() {
	r.backlog.mu.Lock()
	done := r.backlog.drained
	r.backlog.mu.Unlock()
	if done != nil {
		<-done
	}
}

// waitForPending returns when the records are made of all that was told before: then it is known what these messages name.
func (r *Recorder) waitForPending() {
	b := &r.backlog
	b.mu.Lock()
	if !b.isDraining.Load() {
		b.mu.Unlock()
		return
	}
	ready := make(chan struct{})
	b.queue = append(b.queue, pendingRecord{barrier: ready})
	b.mu.Unlock()
	<-ready
}

// sizeOf returns how much memory an event may hold, about.
func sizeOf(e observe.Event) int {
	const least = 512
	switch e := e.(type) {
	case observe.Dropped:
		return least + e.Message.Size()
	case observe.Stderr:
		return least + len(e.Line)
	case *observe.Exchange:
		return least + len(e.URL) + headerSize(e.RequestHeader) + headerSize(e.ResponseHeader)
	}
	return least
}

func headerSize(h http.Header) (n int) {
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// Message implements observe.Watcher.
func (r *Recorder) Message(p *observe.Passed) {
	all := r.sinks.Load()
	if all == nil {
		return
	}
	if long := isLong(p.Message.Size(), *all); long || r.backlog.isDraining.Load() {
		if r.postpone(&pendingRecord{passed: *p, sinks: *all, size: p.Message.Size()}, long) {
			return
		}
	}
	r.recordMessage(p, *all)
}

// Event implements observe.Watcher.
func (r *Recorder) Event(e observe.Event) {
	all := r.sinks.Load()
	if all == nil {
		return
	}
	dropped, _ := e.(observe.Dropped)
	if long := isLong(dropped.Message.Size(), *all); long || r.backlog.isDraining.Load() {
		if r.postpone(&pendingRecord{event: e, seq: r.observer.NextSeq(), at: time.Now(), sinks: *all, size: sizeOf(e)}, long) {
			return
		}
	}
	r.recordEvent(e, 0, time.Now(), *all)
}

// recordMessage makes the record of a message.
func (r *Recorder) recordMessage(p *observe.Passed, sinks []Sink) {
	m := makers.Get().(*recordMaker)
	m.message(r.redactor.Load(), p, wantsText(sinks))
	if d := r.textRedactor.Load(); d != nil && m.Body.Text != nil {
		d.Message(m.Body.Text, nil) // for what it learns
	}
	m.putInto(sinks)
	m.release()
}

// recordEvent makes the record of an event, if there is to be one. seq is 0 if it has no number yet.
func (r *Recorder) recordEvent(e observe.Event, seq uint64, at time.Time, sinks []Sink) {
	m := makers.Get().(*recordMaker)
	m.now = at
	if m.event(r.redactor.Load(), e, wantsText(sinks)) {
		if m.Seq = seq; seq == 0 {
			m.Seq = r.observer.NextSeq()
		}
		if m.Time.IsZero() {
			m.Time = at
		}
		m.putInto(sinks)
	}
	m.release()
}

// wantsText reports whether a Sink takes texts of messages.
func wantsText(sinks []Sink) bool {
	return slices.ContainsFunc(sinks, func(s Sink) bool { return s.MaxText() != 0 })
}
