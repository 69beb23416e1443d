package matrix

import (
	"fmt"
	"testing"
	"time"
)

// A step is one column of the matrix. It uses the scene's main session, which
// it leaves as it was, or sessions of its own. It may return a word for the table.
type step struct {
	name string
	run  func(t *testing.T, s *scene) string
	// bridged says that the step is about the bridge, and has no floor.
	bridged bool
}

// steps is the script.
var steps = []step{
	{name: "initialize", run: stepInitialize},
	{name: "pages", run: inMain(stepPages)},
	{name: "progress", run: inMain(stepProgress)},
	{name: "stray", run: inMain(stepStray), bridged: true},
	{name: "log", run: inMain(stepLog)},
	{name: "elicit", run: inMain(stepElicit)},
	{name: "sample", run: inMain(stepSample)},
	{name: "roots", run: inMain(stepRoots)},
	{name: "subscribe", run: inMain(stepSubscribe)},
	{name: "changed", run: inMain(stepChanged)},
	{name: "cancel", run: inMain(stepCancel), bridged: true},
	{name: "late", run: inMain(stepLate), bridged: true},
	{name: "ids", run: inMain(stepIDs)},
	{name: "bytes", run: inMain(stepBytes)},
	{name: "unknown", run: inMain(stepUnknown)},
	{name: "ping", run: inMain(stepPing)},
	{name: "1MiB", run: inMain(stepBig)},
	{name: "errors", run: inMain(stepErrors)},
	{name: "50calls", run: inMain(stepConcurrent)},
	{name: "2clients", run: stepTwoClients},
	{name: "batch", run: stepBatch, bridged: true},
	{name: "hangup", run: stepHangUp},
	{name: "hangup+call", run: stepHangUpInCall, bridged: true},
	{name: "vanish", run: stepVanish, bridged: true},
	{name: "restart", run: stepRestart, bridged: true},
	{name: "sigterm", run: stepTerminate, bridged: true},
	{name: "leftovers", run: stepLeftovers, bridged: true},
}

// inMain runs a step in the main session. After one that failed, the next has
// a new one, so that what it shows is its own.
func inMain(run func(t *testing.T, k *talk)) func(*testing.T, *scene) string {
	return func(t *testing.T, s *scene) string {
		if s.main == nil {
			s.main = s.open(t, revision)
		}
		k := s.main
		s.main = nil
		run(t, k)
		k.settle(t)
		s.main = k
		return ""
	}
}

// TestMatrix runs the script for every pair of transports, and before it for
// each transport without a bridge.
func TestMatrix(t *testing.T) {
	var names []string
	for _, step := range steps {
		names = append(names, step.name)
	}
	b := newTable(names, "Milliseconds; \"-\" is what needs a bridge; \"renews\" and \"ends\" is what a session did after its server had restarted.\n")
	defer b.publish(t)
	t.Run("pair", func(t *testing.T) {
		for _, egress := range egresses {
			runPair(t, b, egress, egress, true)
		}
		for _, ingress := range ingresses {
			for _, egress := range egresses {
				runPair(t, b, ingress, egress, false)
			}
		}
	})
}

func runPair(t *testing.T, b *table, ingress, egress string, floor bool) {
	row := ingress + " > " + egress
	if floor {
		row = "floor " + egress
	}
	b.row(row)
	t.Run(row, func(t *testing.T) {
		t.Parallel()
		s := newScene(t, ingress, egress, floor)
		for _, step := range steps {
			if floor && step.bridged {
				b.set(row, step.name, "-")
				continue
			}
			b.set(row, step.name, failed)
			var word string
			began := time.Now()
			ok := t.Run(step.name, func(t *testing.T) { word = step.run(t, s) })
			if !ok && step.name == "initialize" {
				return // nothing else can work
			}
			if !ok {
				s.abandon()
			}
			if ok {
				b.set(row, step.name, fmt.Sprint(time.Since(began).Milliseconds()))
			}
			if ok && word != "" {
				b.set(row, step.name, fmt.Sprintf("%d %s", time.Since(began).Milliseconds(), word))
			}
		}
	})
}
