package metrics

import (
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A duration counts in the buckets whose bound it does not exceed, and one beyond all bounds in none but the total.
func TestHistogram(t *testing.T) {
	m := New(Options{})
	for _, d := range []time.Duration{0, 10 * time.Microsecond, 10*time.Microsecond + 1, time.Second, time.Hour} {
		m.overhead[observe.ToServer-1].observe(d)
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[float64]uint64{0.00001: 2, 0.00002: 3, 0.5: 3, 1: 4}
	for _, f := range families {
		if f.GetName() != "mcp_bridge_overhead_seconds" {
			continue
		}
		h := f.Metric[0].Histogram // sorted by label: c2s
		for _, b := range h.Bucket {
			if n, ok := want[b.GetUpperBound()]; ok && n != b.GetCumulativeCount() {
				t.Errorf("%d durations up to %v s, want %d", b.GetCumulativeCount(), b.GetUpperBound(), n)
			}
			delete(want, b.GetUpperBound())
		}
		if h.GetSampleCount() != 5 || h.GetSampleSum() != 3601.000020001 {
			t.Errorf("%d durations, %v s", h.GetSampleCount(), h.GetSampleSum())
		}
	}
	if len(want) > 0 {
		t.Errorf("no buckets for %v", want)
	}
}

// Every kind of message has its place.
func TestMessageKinds(t *testing.T) {
	var s serverMetrics
	for kind := range s.messages[0][0] {
		if name := kindName(jsonrpc.Kind(kind)); (name == otherLabel) != (kind == 0) {
			t.Errorf("kind %d is %s", kind, name)
		}
	}
	if kindName(messageKinds) != otherLabel {
		t.Error("there are more kinds")
	}
}
