package matrix

import (
	"fmt"
	"testing"
	"time"
)

// A script is what is said in the rows of one table.
type script struct {
	name   string
	steps  []step // the columns; without the first of them no other can work
	pairs  []pair // the rows
	hosted bool   // a host plays the server, and not the steps
	legend string // what stands below the table
}

// A step is one column of a table. It uses the row's main client, which it leaves as it
// was, or clients of its own. It may return a word for the table.
type step struct {
	name string
	run  func(t *testing.T, w *world) string
	// where says why a row does not have the step; nil: every row has it.
	where func(w *world) (not string)
}

// Why a row does not have a step.
const (
	noBridge   = "-"   // it is about the bridge
	notInEra   = "n/a" // the era, or the pair of them, does not have it
	notByWires = "n/w" // the transport does not have it
)

// bridged is where there is a bridge.
func bridged(w *world) string {
	if w.floor {
		return noBridge
	}
	return ""
}

// inMain makes a step of what runs with the row's main client. After a step that failed, the next has
// a new one, so that what it shows is its own.
func inMain[K interface {
	comparable
	settle(testing.TB)
}](run func(*testing.T, K), main func(*world) *K, open func(*world, testing.TB) K) func(*testing.T, *world) string {
	return func(t *testing.T, w *world) string {
		var none K
		k := *main(w)
		if k == none {
			k = open(w, t)
		}
		*main(w) = none
		run(t, k)
		k.settle(t)
		*main(w) = k
		return ""
	}
}

// TestMatrix runs each script for all of its pairs, the floors first.
func TestMatrix(t *testing.T) {
	for _, s := range []script{bytesScript, erasScript} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			b := newTable(s)
			t.Cleanup(func() { b.publish(t) })
			for _, p := range s.pairs {
				b.row(p.String())
				t.Run(p.String(), func(t *testing.T) {
					t.Parallel()
					s.play(t, b, newWorld(t, p, s.hosted))
				})
			}
		})
	}
}

// play runs the steps in one row.
func (s script) play(t *testing.T, b *table, w *world) {
	row := w.pair.String()
	for i, step := range s.steps {
		if step.where != nil {
			if not := step.where(w); not != "" {
				b.set(row, step.name, not)
				continue
			}
		}
		b.set(row, step.name, failed)
		var word string
		began := time.Now()
		switch ok := t.Run(step.name, func(t *testing.T) { word = step.run(t, w) }); {
		case !ok && i == 0:
			return
		case !ok:
			w.abandon()
			continue
		}
		cell := fmt.Sprint(time.Since(began).Milliseconds())
		if word != "" {
			cell += " " + word
		}
		b.set(row, step.name, cell)
	}
}
