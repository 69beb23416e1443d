package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The numbers that messages change are atomic integers that stand side by side, and client_golang gets them when somebody asks. Its own
// counters and histograms lie apart in memory and share it between processors: four messages of a call then cost twice as much.

// messageCount counts the messages of one server, hop, direction and kind.
type messageCount struct{ messages, bytes atomic.Uint64 }

// histogram counts durations by how long they were.
type histogram struct {
	bounds []time.Duration // the upper bounds of all buckets but the last one, which has none; at most maxBounds
	sum    atomic.Int64    // of all durations, in nanoseconds
	counts [maxBounds + 1]atomic.Uint64
}

// maxBounds is how many bounds a histogram may have.
const maxBounds = 14

// observe counts a duration.
func (h *histogram) observe(d time.Duration) {
	i := 0
	for i < len(h.bounds) && d > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
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
	return prometheus.MustNewConstHistogram(desc, count, time.Duration(h.sum.Load()).Seconds(), buckets, labels...)
}
