package metrics

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The numbers that messages change stand side by side in memory, and client_golang gets them when somebody asks. Its own counters and
// histograms are many objects far apart, which processors take from each other all the time: with them, to count the four messages of a
// call costs twice as much (BenchmarkCall).

// messageCount counts the messages of one server, hop, direction and kind, and the bytes of them.
type messageCount struct{ messages, bytes atomic.Uint64 }

// histogram counts durations by how long they were.
type histogram struct {
	bounds  *[boundCount]time.Duration    // the upper bounds of all buckets but the last one, which has none, in order; set before use
	counts  [boundCount + 1]atomic.Uint64 // how many durations fall into each bucket, and not into one before it
	seconds atomic.Uint64                 // the sum of all durations in seconds, as math.Float64bits
}

// boundCount is how many bounds a histogram has.
const boundCount = 14

// observe counts a duration.
func (h *histogram) observe(d time.Duration) {
	i := 0
	for i < len(h.bounds) && d > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	for {
		old := h.seconds.Load()
		if h.seconds.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+d.Seconds())) {
			return
		}
	}
}

// metric returns what has been counted so far. Of a duration that is being counted meanwhile, the sum or the number may be missing.
func (h *histogram) metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(h.bounds))
	var count uint64
	for i, bound := range h.bounds {
		count += h.counts[i].Load()
		buckets[bound.Seconds()] = count
	}
	count += h.counts[len(h.bounds)].Load()
	return prometheus.MustNewConstHistogram(desc, count, math.Float64frombits(h.seconds.Load()), buckets, labels...)
}
