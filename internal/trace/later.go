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

// longTextSize is the size in bytes above which the goroutine that carries a message does not look through it for secrets:
// drainBacklog does.
const longTextSize = 64 << 10

const (
	maxBacklog      = 16 << 10 // how many records may wait to be made
	maxBacklogBytes = 64 << 20 // how many bytes waiting records may hold together (pendingRecord.size): mostly texts, with their copies that lack secrets
)

// maxUncounted is how many records must wait before the size of clients' headers counts for maxBacklogBytes: to measure headers
// costs more than all else of adding an exchange. A request has 64 KiB of headers at most, so those of maxUncounted hold no
// more than maxBacklogBytes.
const maxUncounted = maxBacklogBytes / (64 << 10)

// To make many records in a row costs half of what it costs to make each between other work, and whoever makes them takes the CPU
// from the calls each time that he begins. What batchSize records are made of, about 1 KB each, stays in the second cache of a CPU
// until they are made.
const (
	recordDelay = 10 * time.Millisecond // how long drainBacklog waits for further records, unless batchSize of them wait
	batchSize   = 256                   // how many waiting records are made without waiting for more
)

const (
	minSpareRecords = 1024 // giveBack always keeps a queue with room for up to so many records
	maxSpareRecords = 4096 // giveBack never keeps a queue with room for more records
)

// backlog is what waits to be made records of, by a goroutine that ends when nothing is left. Most messages have been
// looked through for secrets before they are added. Long ones have not, nor what comes before those have been looked through:
// what is found in a long one may be in what follows. The zero value works.
type backlog struct {
	maxBytes int          // how large bytes may be; 0: maxBacklogBytes
	unseen   atomic.Int64 // how many messages wait that nobody has looked through for secrets

	_ observe.CacheLinePad // what follows changes with every record, and what is above seldom

	mu       sync.Mutex      // guards the fields below, but for maker, which needs no lock
	queue    []pendingRecord // what waits, the oldest first
	spare    []pendingRecord // memory for the next queue, empty; nil: there is none
	bytes    int             // sum of pendingRecord.size in queue, and of the records that are being made
	skipped  uint64          // how many records were left out, because there was no room, since the last one of queue was added
	draining bool            // drainBacklog runs
	drained  chan struct{}   // closed when the latest drainBacklog has returned; nil: it never ran
	flush    chan struct{}   // holds one element when the records should be made at once; nil: drainBacklog never ran

	_ observe.CacheLinePad // another processor may add records while drainBacklog makes some

	maker recordMaker // what drainBacklog makes the records with; nobody else uses it, so it needs no lock
}

// pendingRecord is what one record is made of.
type pendingRecord struct {
	passed        observe.Passed // the message that the record is about, if event and between are nil
	findings      *findings      // what was found in the message; nil: nobody has looked through it for secrets
	event         observe.Event  // the event that the record is about; nil: it is about passed, or between is set
	seq           uint64         // number of the record of an event
	at            time.Time      // when the event was told; zero: a message or an Exchange, which have their own time
	sinks         *[]Sink        // those that get the line; nil: between is set
	size          int            // how much it adds to backlog.bytes
	unseen        bool           // it counts in backlog.unseen: a message that nobody has looked through for secrets
	skippedBefore uint64         // how many records were left out just before it, because there was no room

	between func() // what Recorder.RunBetween runs; nil: this is a record
}

// reserve adds an empty pendingRecord to the backlog, which the caller fills; nil: there is no room. size is how many bytes it
// may hold. unseen: it is a message that nobody has looked through. The caller holds mu of the backlog until it has filled all: a
// record is built in place, because to copy it costs as much.
func (r *Recorder) reserve(size int, unseen bool) *pendingRecord {
	b := &r.backlog
	n := len(b.queue)
	if b.draining && (n >= maxBacklog || b.bytes+size > cmp.Or(b.maxBytes, maxBacklogBytes)) {
		b.skipped++
		return nil
	}
	b.queue = slices.Grow(b.queue, 1)[:n+1]
	l := &b.queue[n]
	l.size, l.unseen, l.skippedBefore = size, unseen, b.skipped
	b.skipped = 0
	b.bytes += size
	if unseen {
		b.unseen.Add(1)
	}
	if n+1 == batchSize {
		wake(b.flush)
	}
	if !b.draining {
		b.draining, b.drained = true, make(chan struct{})
		if b.flush == nil {
			b.flush = make(chan struct{}, 1)
		}
		go r.drainBacklog(b.drained, b.flush)
	}
	return l
}

// drainBacklog makes the records that wait, in batches, until none wait, and then closes done. An element in flush ends the
// wait for a full batch. It is the goroutine that reserve starts.
func (r *Recorder) drainBacklog(done chan<- struct{}, flush <-chan struct{}) {
	defer close(done)
	sinks := new([]Sink) // of the last record
	pause := time.NewTimer(recordDelay)
	defer pause.Stop()
	for made := 0; ; {
		if !r.backlog.isBatch() {
			pause.Reset(recordDelay)
			select {
			case <-pause.C:
			case <-flush:
			}
		}
		all, missing, more := r.backlog.take(made)
		if !more {
			return // somebody else may have the maker by now
		}
		skipLines(*sinks, missing)
		made = 0
		for i := range all {
			l := &all[i]
			if l.between == nil {
				sinks = l.sinks
			}
			skipLines(*sinks, l.skippedBefore)
			if l.between != nil {
				l.between()
			} else {
				r.record(l)
				made += l.size
			}
			*l = pendingRecord{} // nobody else needs the text
		}
		r.backlog.giveBack(all)
	}
}

// record makes the record of l and gives its line to the Sinks. Some events have no record.
func (r *Recorder) record(l *pendingRecord) {
	d, m, text := r.redactor.Load(), &r.backlog.maker, wantsText(*l.sinks)
	is := true
	if l.event == nil {
		if l.findings == nil && text {
			l.findings = r.findSecrets(&l.passed)
		}
		m.makeMessage(d, &l.passed, l.findings)
	} else {
		m.now = l.at
		if is = m.makeEvent(d, l.event, text); is {
			m.Seq = l.seq
			if m.Time.IsZero() {
				m.Time = l.at
			}
		}
	}
	if is {
		m.putInto(*l.sinks)
	}
	m.reset()
	if l.unseen {
		r.backlog.unseen.Add(-1)
	}
}

// isBatch reports whether batchSize records wait.
func (b *backlog) isBatch() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) >= batchSize
}

// giveBack keeps all, which take has returned, as memory for another queue, unless little of that memory was used: it has grown
// when there was more.
func (b *backlog) giveBack(all []pendingRecord) {
	if cap(all) <= max(minSpareRecords, min(16*len(all), maxSpareRecords)) {
		b.mu.Lock()
		b.spare = all[:0]
		b.mu.Unlock()
	}
}

// take returns all records that wait. If none wait, missing is how many were left out since the last one. made is the size of
// the records that were made since the last take. more: one of the two is there; otherwise drainBacklog ends.
func (b *backlog) take(made int) (all []pendingRecord, missing uint64, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= made
	if all, b.queue, b.spare = b.queue, b.spare, nil; len(all) == 0 {
		missing, b.skipped = b.skipped, 0
	}
	b.draining = len(all) > 0 || missing > 0
	return all, missing, b.draining
}

// skipLines tells sinks that n lines are missing; 0: it tells nothing.
func skipLines(sinks []Sink, n uint64) {
	for _, s := range sinks {
		if n > 0 {
			s.PutGap(n)
		}
	}
}

// Wait returns when the Sinks have the records of all that was told before. If there are no Sinks, the goroutine that made the
// records has ended then, too.
func (r *Recorder) Wait() {
	r.RunBetween(func() {})
	if r.sinks.Load() != nil { // it may go on for long
		return
	}
	b := &r.backlog
	b.mu.Lock()
	done := b.drained
	if done != nil {
		wake(b.flush)
	}
	b.mu.Unlock()
	if done != nil {
		<-done
	}
}

// RunBetween runs f, in this goroutine or another, when the Sinks have the records of all that was told before, and none of what
// is told later. It returns when f has; later is the time from which on things count as told later. f must neither wait nor use
// the Recorder.
func (r *Recorder) RunBetween(f func()) (later time.Time) {
	b := &r.backlog
	b.mu.Lock()
	later = time.Now()
	if !b.draining {
		f() // with mu held, so that nothing comes in between
		b.mu.Unlock()
		return later
	}
	done := make(chan struct{})
	b.queue = append(b.queue, pendingRecord{between: func() { f(); close(done) }, skippedBefore: b.skipped})
	b.skipped = 0
	wake(b.flush)
	b.mu.Unlock()
	<-done
	return later
}

// sizeOf returns about how much memory an event may hold, without the headers of a client.
func sizeOf(e observe.Event) int {
	const least = 512
	switch e := e.(type) {
	case observe.Dropped:
		return least + e.Message.Size()
	case observe.Stderr:
		return least + len(e.Line)
	case observe.Refused:
		return least + len(e.Method) + len(e.Path)
	case *observe.Exchange:
		if e.Hop == observe.Upstream { // the headers of the bridge itself are not long
			return least + len(e.URL) + headerSize(e.ResponseHeader)
		}
		return least + len(e.URL)
	}
	return least
}

// headerSize returns the length of all names and values in h.
func headerSize(h http.Header) (n int) {
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// Message takes a message that has passed, for a record; it implements observe.Watcher.
func (r *Recorder) Message(p *observe.Passed) {
	sinks := r.sinks.Load()
	if sinks == nil {
		return
	}
	b := &r.backlog
	size, unseen := p.Message.Size(), false
	var found *findings
	switch {
	case !wantsText(*sinks):
	case size > longTextSize || b.unseen.Load() > 0:
		unseen = true
	default:
		found = r.findSecrets(p)
		size += len(found.cleanText)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := r.reserve(size, unseen); l != nil {
		l.passed, l.findings, l.sinks = *p, found, sinks
		if p.Seq == 0 { // it was on its way when the Recorder began to watch
			l.passed.Seq = r.observer.NextSeq()
		}
	}
}

// Event takes an event, for a record; it implements observe.Watcher.
func (r *Recorder) Event(e observe.Event) {
	sinks := r.sinks.Load()
	if sinks == nil {
		return
	}
	b := &r.backlog
	seq, size := r.observer.NextSeq(), sizeOf(e)
	var at time.Time
	x, timed := e.(*observe.Exchange)
	if !timed {
		at = time.Now()
	}
	_, unseen := e.(observe.Dropped)
	b.mu.Lock()
	defer b.mu.Unlock()
	if timed && len(b.queue) >= maxUncounted && x.Hop == observe.Downstream {
		size += headerSize(x.RequestHeader)
	}
	if l := r.reserve(size, unseen); l != nil {
		l.event, l.seq, l.at, l.sinks = e, seq, at, sinks
	}
}

// wantsText reports whether one of the Sinks wants texts of messages.
func wantsText(sinks []Sink) bool {
	return slices.ContainsFunc(sinks, func(s Sink) bool { return s.MaxText() != 0 })
}
