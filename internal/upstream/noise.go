package upstream

import (
	"sync"
	"time"
)

const (
	// noiseFirstWarnings is how many lines of noise are each worth a warning: banners and the like. After that
	// there is one per noiseInterval, with the number of lines that it stands for, until there was none for
	// noiseResetAfter.
	noiseFirstWarnings = 5
	noiseInterval      = time.Second // after the first warnings about noise: the shortest time from one to the next
	noiseResetAfter    = time.Minute // how long without noise until the first warnings are given again
)

// A noiseLimiter says when to warn of what a server prints between its messages (ST4): one that prints
// without end must not fill the log. The zero value is ready; the methods may be called concurrently.
type noiseLimiter struct {
	mu          sync.Mutex // guards the fields below
	warnings    int        // how many warnings were due since there was no noise for noiseResetAfter
	lastLine    time.Time  // when the last line of noise came
	lastWarning time.Time  // when the last warning was due
	lines       int        // lines of noise since lastWarning, for the next warning to count; the one that was warned of is not among them
	bytes       int        // bytes of these lines
}

// add counts a line of noise of this size, in bytes. due: a warning should be given now, which stands for so
// many lines, and bytes in them. The last lines of a flood are counted by the warning that comes next.
func (n *noiseLimiter) add(now time.Time, size int) (lines, bytes int, due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now.Sub(n.lastLine) >= noiseResetAfter {
		n.warnings = 0
	}
	n.lastLine = now
	n.lines++
	n.bytes += size
	if n.warnings >= noiseFirstWarnings && now.Sub(n.lastWarning) < noiseInterval {
		return 0, 0, false
	}
	lines, bytes = n.lines, n.bytes
	n.warnings++
	n.lastWarning, n.lines, n.bytes = now, 0, 0
	return lines, bytes, true
}
