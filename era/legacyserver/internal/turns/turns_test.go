package turns

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/timers"
)

// turnsTest is a turns of its own, without a filter.
type turnsTest struct {
	t      *testing.T
	timers timers.Timers
	turns  Turns[*int]
	now    time.Time
	goneOn []*Asker[*int] // that have waited, in order
}

func newTurnsTest(t *testing.T) *turnsTest {
	w := &turnsTest{t: t, now: time.Unix(1_800_000_000, 0)}
	w.turns = New(&w.timers, func(_ time.Time, a *Asker[*int], _ *era.Out) { w.goneOn = append(w.goneOn, a) })
	return w
}

func (w *turnsTest) asker(tool string) *Asker[*int] {
	return &Asker[*int]{tool: w.turns.history.toolKeyOf("tools/call", []byte(tool)), mayAsk: true, Priority: Beginning}
}

// begins checks whether a call has to wait.
func (w *turnsTest) begins(a *Asker[*int], waits bool) {
	w.t.Helper()
	if got := w.turns.MustWait(w.now, a); got != waits {
		w.t.Fatalf("the call waits: %t, want %t", got, waits)
	}
}

// ends is a call that was answered.
func (w *turnsTest) ends(a *Asker[*int]) {
	w.turns.End(w.now, a, &era.Out{})
	w.turns.Release(w.now, a, &era.Out{})
}

// asks is a call that asks, of which its client is asked then.
func (w *turnsTest) asks(a *Asker[*int], others ...*Asker[*int]) {
	w.turns.RecordInputRequest(a, others)
	w.turns.Release(w.now, a, &era.Out{})
	a.Priority = Returning
}

func (w *turnsTest) pass(d time.Duration) {
	end := w.now.Add(d)
	for due := w.timers.Next(); !due.IsZero() && !due.After(end); due = w.timers.Next() {
		w.now = due
		w.timers.FireDue(w.now, &era.Out{})
	}
	w.now = end
}

// wentOn checks which calls have waited and go on now, in order.
func (w *turnsTest) wentOn(want ...*Asker[*int]) {
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
	for range sureAfterCalls {
		first := w.asker("asks")
		w.begins(first, false)
		w.asks(first)
		w.begins(first, false) // it may ask again, for all that is known
		if w.turns.holder != first {
			t.Fatal("a call does not take a turn that may ask again")
		}
		w.ends(first)
	}

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

// D.2: that a call has asked once, and the next one too, does not say that no call asks twice. While that
// is not known, another call waits until one is over: the second request could be taken for its own.
func TestTurnsOfToolThatAsksMore(t *testing.T) {
	w := newTurnsTest(t)
	for range 2 {
		c := w.asker("varies")
		w.begins(c, false)
		w.asks(c)
		w.begins(c, false)
		w.ends(c)
	}
	more, other := w.asker("varies"), w.asker("varies")
	w.begins(more, false)
	w.asks(more)
	w.begins(more, false) // with the answer
	w.begins(other, true)
	w.asks(more) // once more
	w.wentOn(other)
	if w.turns.holder != other {
		t.Error("who has waited does not have the turn")
	}
}

// A turn ends after a while, and so does waiting for one.
func TestTurnsAreShort(t *testing.T) {
	w := newTurnsTest(t)
	unknown, next := w.asker("a"), w.asker("b")
	w.begins(unknown, false)
	w.begins(next, true)
	w.pass(turnTimeoutUnknown - 1)
	w.wentOn()
	w.pass(1)
	w.wentOn(next)
	w.begins(w.asker("a"), false) // what does not ask for so long does not ask

	w = newTurnsTest(t)
	w.turns.history.raiseExpected(w.asker("asks").tool, 1)
	var calls []*Asker[*int]
	for i := range 5 {
		calls = append(calls, w.asker("asks"))
		w.begins(calls[i], i > 0)
	}
	w.pass(turnTimeoutKnown)
	w.wentOn(calls[1])
	w.pass(turnTimeoutKnown)
	w.wentOn(calls[2])
	w.pass(turnTimeoutKnown)
	if w.goneOn = slices.Compact(w.goneOn); len(w.goneOn) != 2 {
		t.Errorf("after %v, %d calls go on, want all that have waited", waitTimeoutKnown, len(w.goneOn))
	}
}

// Retries go first, and calls that were given up last.
func TestTurnsOrder(t *testing.T) {
	w := newTurnsTest(t)
	w.turns.history.raiseExpected(w.asker("asks").tool, 3)
	holder, gone, fresh, retry := w.asker("asks"), w.asker("asks"), w.asker("asks"), w.asker("asks")
	w.begins(holder, false)
	gone.inputRequests = 1
	if !w.turns.Abandon(w.now, gone, true, &era.Out{}) {
		t.Fatal("the answers of a call that was given up do not wait")
	}
	w.begins(fresh, true)
	retry.Priority = Returning
	w.begins(retry, true)
	w.ends(holder)
	w.wentOn(retry)
	w.ends(retry)
	w.wentOn(fresh)
	w.ends(fresh)
	w.wentOn(gone)
	if !w.turns.IsAbandoned() {
		t.Error("what the server asks now is not of the call that was given up")
	}
	w.pass(turnTimeoutAbandoned)
	if w.turns.holder != nil || !w.timers.Next().IsZero() {
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
	for range forgetSuspectAfterCalls - 1 {
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

// D.2: clients choose the names of what they call; however many that are, it stays
// known which tools ask.
func TestHistoryIsBounded(t *testing.T) {
	var h askHistory
	key := func(name string) toolKey { return h.toolKeyOf("tools/call", []byte(name)) }
	h.raiseExpected(key(`"asks"`), 1)
	h.record(key(`"asks"`), 1)
	for i := range 3 * maxTools {
		h.record(key(fmt.Sprintf(`"%d"`, i)), 0)
	}
	if n := len(h.tools); n != maxTools {
		t.Errorf("%d tools are remembered, want %d", n, maxTools)
	}
	if h.historyOf(key(`"asks"`)).expectedRequests != 1 {
		t.Error("it was forgotten which tool asks")
	}
	if !h.historyOf(key(fmt.Sprintf(`"%d"`, 3*maxTools-1))).hasEndedCall {
		t.Error("nothing was learned of the last tool")
	}
}
