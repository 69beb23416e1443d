package trace

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// RingOptions bound a Ring. The zero value works.
type RingOptions struct {
	MaxRecords int // how many lines are kept at most; 0 or below: 8,192
	MaxBytes   int // how many bytes the lines have together at most; 0 or below: 16 MiB
	MaxText    int // how much text of one message is kept at most, in bytes; 0 or below: 64 KiB
}

const (
	DefaultRingMaxRecords = 8192     // the default of RingOptions.MaxRecords
	DefaultRingMaxBytes   = 16 << 20 // the default of RingOptions.MaxBytes
	DefaultRingMaxText    = 64 << 10 // the default of RingOptions.MaxText
)

// segmentSize is how much memory for lines a Ring takes at a time, in bytes.
const segmentSize = 128 << 10

// followPause is how much longer a Follower waits once a line has come, so that a busy Ring need not wake the Follower
// for each line.
const followPause = 10 * time.Millisecond

// Ring is a Sink that keeps the last lines in memory, for those who look at a running bridge. Its memory grows
// up to its bound as it is used. Its methods may be called concurrently.
type Ring struct {
	opts RingOptions // with the defaults set

	mu        sync.Mutex    // guards what follows
	lines     [][]byte      // the line at position p is lines[p % len(lines)]
	first     uint64        // position of the oldest line; next if there are none
	next      uint64        // position of the next line; the first one has 1
	bytes     int           // how long the lines are together
	segment   []byte        // memory that is being filled with copies of lines
	lineAdded chan struct{} // closed when a line is added; nil: no Follower waits
}

// NewRing returns an empty Ring.
func NewRing(o RingOptions) *Ring {
	if o.MaxRecords <= 0 {
		o.MaxRecords = DefaultRingMaxRecords
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultRingMaxBytes
	}
	if o.MaxText <= 0 {
		o.MaxText = DefaultRingMaxText
	}
	return &Ring{opts: o, first: 1, next: 1}
}

// MaxText returns how many bytes of the text of a message the Ring wants in a line; it implements Sink.
func (r *Ring) MaxText() int { return r.opts.MaxText }

// Put adds a line, and drops the oldest ones if there are too many; it implements Sink. In place of a line that is too long for
// the Ring, it adds that of a Gap.
func (r *Ring) Put(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(line) > r.opts.MaxBytes {
		line = Append(nil, &Record{Kind: Gap, Time: time.Now(), Lost: 1})
	}
	if r.lines == nil {
		r.lines = make([][]byte, r.opts.MaxRecords)
	}
	for r.first < r.next && (r.next-r.first >= uint64(len(r.lines)) || r.bytes+len(line) > r.opts.MaxBytes) {
		r.dropOldest()
	}
	r.lines[r.next%uint64(len(r.lines))] = r.copyLine(line)
	r.next++
	r.bytes += len(line)
	if r.lineAdded != nil {
		close(r.lineAdded)
		r.lineAdded = nil
	}
}

// PutGap adds the line of a Gap: n lines are missing there; it implements Sink.
func (r *Ring) PutGap(n uint64) { r.Put(Append(nil, &Record{Kind: Gap, Time: time.Now(), Lost: n})) }

// copyLine copies a line into memory that no Follower has seen. It is called with mu held.
func (r *Ring) copyLine(line []byte) []byte {
	if len(line) > segmentSize/4 {
		return bytes.Clone(line)
	}
	at := len(r.segment)
	if at+len(line) > cap(r.segment) {
		at, r.segment = 0, make([]byte, 0, segmentSize)
	}
	r.segment = append(r.segment, line...)
	return r.segment[at:len(r.segment):len(r.segment)]
}

// dropOldest takes the oldest line out. It is called with mu held.
func (r *Ring) dropOldest() {
	at := r.first % uint64(len(r.lines))
	r.bytes -= len(r.lines[at])
	r.lines[at] = nil
	r.first++
}

// Follower reads a Ring. It must not be used concurrently.
type Follower struct {
	ring *Ring  // the Ring that it reads
	next uint64 // position in the Ring of the line that the Follower has next
}

// Follow returns a Follower that begins with the line at a position, which Follower.Position has returned; 0: with the
// oldest line there is.
func (r *Ring) Follow(from uint64) *Follower {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from == 0 || from > r.next { // a position above r.next is of another Ring
		from = r.first
	}
	return &Follower{r, from}
}

// FollowNew returns a Follower that begins with the next line that comes.
func (r *Ring) FollowNew() *Follower {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &Follower{r, r.next}
}

// Position returns the position, for Ring.Follow, of the line that comes after those that Next or Ready has returned.
func (f *Follower) Position() uint64 { return f.next }

// Next waits until there is a line, and returns at most most lines. If lines
// have been dropped before the Follower has seen them, the line of a Gap comes first. The lines are
// not to be changed, and may be kept; each keeps up to 128 KiB of the Ring's memory. The error is that of ctx.
func (f *Follower) Next(ctx context.Context, most int) ([][]byte, error) {
	for {
		lines, more := f.takeLines(most)
		if more == nil {
			return lines, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		pause := time.NewTimer(followPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		}
	}
}

// Ready returns lines as Next does, but does not wait: there may be none.
func (f *Follower) Ready(most int) [][]byte {
	lines, _ := f.takeLines(most)
	return lines
}

// takeLines returns at most most lines that the Follower has not had, as Next does. If there are none, it returns more, which
// is closed when a line is added.
func (f *Follower) takeLines(most int) (lines [][]byte, more <-chan struct{}) {
	r := f.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.next == r.next {
		if r.lineAdded == nil {
			r.lineAdded = make(chan struct{})
		}
		return nil, r.lineAdded
	}
	if f.next < r.first {
		lines = append(lines, Append(nil, &Record{Kind: Gap, Time: time.Now(), Lost: r.first - f.next}))
		f.next = r.first
	}
	for f.next < r.next && len(lines) < most {
		lines = append(lines, r.lines[f.next%uint64(len(r.lines))])
		f.next++
	}
	return lines, nil
}
