package legacyserver

import (
	"slices"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
)

// turnsTest is a turns of its own, without a filter.
type turnsTest struct {
	t      *testing.T
	timers timers
	turns  turns
	now    time.Time
	goneOn []*asker // that have waited, in order
}

func newTurnsTest(t *testing.T) *turnsTest {
	w := &turnsTest{t: t, now: time.Unix(1_800_000_000, 0)}
	w.turns = turns{timers: &w.timers, proceed: func(_ time.Time, a *asker, _ *era.Out) { w.goneOn = append(w.goneOn, a) }}
	return w
}

func (w *turnsTest) asker(tool string) *asker {
	return &asker{tool: w.turns.history.key("tools/call", []byte(tool)), able: true, stage: beginning}
}

// begins checks whether a call has to wait.
func (w *turnsTest) begins(a *asker, waits bool) {
	w.t.Helper()
	if got := w.turns.await(w.now, a); got != waits {
		w.t.Fatalf("the call waits: %t, want %t", got, waits)
	}
}

// ends is a call that was answered.
func (w *turnsTest) ends(a *asker) {
	w.turns.end(w.now, a, &era.Out{})
	w.turns.release(w.now, a, &era.Out{})
}

// asks is a call that asks, of which its client is asked then.
func (w *turnsTest) asks(a *asker, others ...*asker) {
	w.turns.ask(a, others)
	w.turns.release(w.now, a, &era.Out{})
	a.stage = returning
}

func (w *turnsTest) pass(d time.Duration) {
	end := w.now.Add(d)
	for due := w.timers.next(); !due.IsZero() && !due.After(end); due = w.timers.next() {
		w.now = due
		w.timers.due(w.now, &era.Out{})
	}
	w.now = end
}

// wentOn checks which calls have waited and go on now, in order.
func (w *turnsTest) wentOn(want ...*asker) {
	w.t.Helper()
	if !slices.Equal(w.goneOn, want) {
		w.t.Fatalf("%d calls go on, want %d, or others", len(w.goneOn), len(want))
	}
	w.goneOn = nil
}

// Of a tool that has never asked nobody waits, but for its first call.
func TestTurnsOfToolThatNeverAsks(t *testing.T) {
	w := newTurnsTest(t)
	first, second, third := w.asker("quiet"), w.asker("quiet"), w.asker("quiet")
	w.begins(first, false)
	w.begins(second, true)
	w.begins(third, true)
	w.ends(first)
	w.wentOn(second, third)
	w.begins(w.asker("quiet"), false)
	if w.turns.holder != nil {
		t.Error("a call has the turn that does not need it")
	}
}

// Calls of a tool that asks do it one after another, and do not wait for what it
// does when it has asked as often as it does.
func TestTurnsOfToolThatAsks(t *testing.T) {
	w := newTurnsTest(t)
	first := w.asker("asks")
	w.begins(first, false)
	w.asks(first)
	w.begins(first, false) // it may ask again, for all that is known
	w.ends(first)

	second, third, quiet := w.asker("asks"), w.asker("asks"), w.asker("quiet")
	w.begins(second, false)
	w.begins(third, true)
	w.begins(quiet, true)
	w.asks(second)
	w.wentOn(third)
	w.begins(second, false) // with the answer: no more is expected of it
	w.asks(third)
	w.wentOn(quiet)
}

// A turn ends after a while, and so does waiting for one.
func TestTurnsAreShort(t *testing.T) {
	w := newTurnsTest(t)
	unknown, next := w.asker("a"), w.asker("b")
	w.begins(unknown, false)
	w.begins(next, true)
	w.pass(turnUnknown - 1)
	w.wentOn()
	w.pass(1)
	w.wentOn(next)
	w.begins(w.asker("a"), false) // what does not ask for so long does not ask

	w = newTurnsTest(t)
	w.turns.history.expect(w.asker("asks").tool, 1)
	var calls []*asker
	for i := range 5 {
		calls = append(calls, w.asker("asks"))
		w.begins(calls[i], i > 0)
	}
	w.pass(turnKnown)
	w.wentOn(calls[1])
	w.pass(turnKnown)
	w.wentOn(calls[2])
	w.pass(turnKnown)
	if w.goneOn = slices.Compact(w.goneOn); len(w.goneOn) != 2 {
		t.Errorf("after %v, %d calls go on, want all that have waited", waitKnown, len(w.goneOn))
	}
}

// Retries go first, and calls that were given up last.
func TestTurnsOrder(t *testing.T) {
	w := newTurnsTest(t)
	w.turns.history.expect(w.asker("asks").tool, 3)
	holder, gone, fresh, retry := w.asker("asks"), w.asker("asks"), w.asker("asks"), w.asker("asks")
	w.begins(holder, false)
	gone.asked = 1
	if !w.turns.abandon(w.now, gone, true, &era.Out{}) {
		t.Fatal("the answers of a call that was given up do not wait")
	}
	w.begins(fresh, true)
	retry.stage = returning
	w.begins(retry, true)
	w.ends(holder)
	w.wentOn(retry)
	w.ends(retry)
	w.wentOn(fresh)
	w.ends(fresh)
	w.wentOn(gone)
	if !w.turns.ofAbandoned() {
		t.Error("what the server asks now is not of the call that was given up")
	}
	w.pass(turnAbandoned)
	if w.turns.holder != nil || !w.timers.next().IsZero() {
		t.Error("a call that was given up has the turn for ever")
	}
}

// A question that nobody expected makes the tools take turns that it may be of;
// those of them that do not ask are free after a few calls.
func TestTurnsOfSuspects(t *testing.T) {
	w := newTurnsTest(t)
	for _, tool := range []string{"a", "b"} {
		c := w.asker(tool)
		w.begins(c, false)
		w.ends(c)
	}
	a, b := w.asker("a"), w.asker("b")
	w.begins(a, false)
	w.begins(b, false)
	w.asks(b, a) // it was a's, perhaps
	w.ends(a)
	w.ends(b)
	for range suspectFor - 1 {
		c := w.asker("a")
		w.begins(c, false)
		if w.turns.holder != c {
			t.Fatal("a call of a suspect does not take a turn")
		}
		w.ends(c)
	}
	c := w.asker("a")
	w.begins(c, false)
	if w.turns.holder != nil {
		t.Error("a suspect stays one")
	}
}

// What is learned must pay: calls that ask nothing lose nothing, and no question
// reaches the wrong client where each call of a tool asks.
func TestTurnsPay(t *testing.T) {
	for _, l := range loads[:5] {
		none, learned := runLoad(t, l, 10*time.Second, "none"), runLoad(t, l, 10*time.Second, "learned")
		if learned.wrong > 0 {
			t.Errorf("%s: %d of %d questions reach the wrong client", l.name, learned.wrong, learned.questions)
		}
		if l.tools[0].asks == 0 && learned.calls < none.calls*17/20 { // the first call of each tool is waited for
			t.Errorf("%s: %d calls, and %d without turns", l.name, learned.calls, none.calls)
		}
	}
}
