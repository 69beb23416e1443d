package era

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A question of a server does not say in whose course it comes (B.1). So that it
// can be told, calls which may ask do it one after another: one has the floor,
// from when it is sent until it has asked, and its client is asked, or is over;
// others wait. A call's retry needs the floor again if there is more to come.
//
// Which calls may ask is learned: of a tool that never does nobody has to wait,
// and nobody ever waits for long.
const (
	// floorNew is how long a call of which nothing is known keeps the floor.
	floorNew = time.Second

	// floorKnown is the same for a call of a tool that is known to ask.
	floorKnown = 10 * time.Second

	// floorWait is how long a call waits for the floor before it goes on without.
	floorWait = 10 * time.Second

	// floorCancelled is how long a call that was cancelled may still ask.
	floorCancelled = 500 * time.Millisecond

	// habitCalls is how many calls in a row ask for less before that is believed.
	habitCalls = 20

	// maxHabits is how many tools are remembered.
	maxHabits = 1000

	// maxHabitName is how long their names may be, in bytes.
	maxHabitName = 256
)

// floor is whose turn it is to ask.
type floor struct {
	told    bool          // the transport says whose questions are whose: nobody needs the floor
	holder  *serverCall   // nil: nobody has it
	gone    bool          // the holder was cancelled
	late    *alarm        // takes it from the holder
	waiting []*serverCall // for the floor, in order; each has an alarm
	habits  map[habitKey]habit
}

type habitKey struct{ method, name string }

// habit is how often calls of one tool or prompt ask. All resources are one.
type habit struct {
	known     bool // some call is over
	questions int  // so many at most
	less      int  // so many calls in a row had less than that
	mostOfs   int  // so many had the one of these that had most
}

func (f *LegacyServerFilter) habitOf(c *serverCall) habit {
	return f.floor.habits[habitKey{c.method, string(c.name)}] // makes no copy of the name
}

func (f *LegacyServerFilter) setHabit(c *serverCall, h habit) {
	if len(c.name) > maxHabitName {
		return
	}
	if f.floor.habits == nil || len(f.floor.habits) >= maxHabits {
		f.floor.habits = make(map[habitKey]habit)
	}
	f.floor.habits[habitKey{c.method, string(c.name)}] = h
}

// mayAsk reports whether a call has questions that its client has not seen.
func (f *LegacyServerFilter) mayAsk(c *serverCall) bool {
	if f.floor.told || !f.asks || c.task != nil || !MayAskForInput(c.method) {
		return false
	}
	h := f.habitOf(c)
	return !h.known || c.asked < h.questions
}

// awaitFloor reports whether a call has to wait; then it goes on in time.
func (f *LegacyServerFilter) awaitFloor(now time.Time, c *serverCall) bool {
	switch {
	case !f.mayAsk(c):
		return false
	case f.floor.holder == nil:
		f.takeFloor(now, c)
		return false
	}
	f.floor.waiting = append(f.floor.waiting, c)
	c.waits = f.alarms.set(now.Add(floorWait), func(now time.Time, out *Out) {
		f.unwait(c)
		f.proceed(now, c, out)
	})
	return true
}

func (f *LegacyServerFilter) takeFloor(now time.Time, c *serverCall) {
	l := &f.floor
	l.holder, l.gone = c, false
	patience := floorNew
	if f.habitOf(c).questions > 0 {
		patience = floorKnown
	}
	l.late = f.alarms.set(now.Add(patience), func(now time.Time, out *Out) { f.leaveFloor(now, c, out) })
}

// leaveFloor is for a call that will not ask, or has taken too long. The next may.
func (f *LegacyServerFilter) leaveFloor(now time.Time, c *serverCall, out *Out) {
	l := &f.floor
	if l.holder != c {
		return
	}
	f.alarms.stop(l.late)
	l.holder, l.late = nil, nil
	for l.holder == nil && len(l.waiting) > 0 {
		next := l.waiting[0]
		f.unwait(next)
		if f.mayAsk(next) {
			f.takeFloor(now, next)
		}
		f.proceed(now, next, out)
	}
}

// cancelFloor is for a call that was cancelled. What the server asks before it
// knows is nobody's question.
func (f *LegacyServerFilter) cancelFloor(now time.Time, c *serverCall) {
	l := &f.floor
	if l.holder != c {
		return
	}
	f.alarms.stop(l.late)
	l.gone = true
	l.late = f.alarms.set(now.Add(floorCancelled), func(now time.Time, out *Out) { f.leaveFloor(now, c, out) })
}

// unwait takes a call out of those that wait.
func (f *LegacyServerFilter) unwait(c *serverCall) {
	if c.waits == nil {
		return
	}
	f.alarms.stop(c.waits)
	c.waits = nil
	w := f.floor.waiting
	if w[0] == c { // as nearly always
		w[0] = nil
		f.floor.waiting = w[1:]
		return
	}
	f.floor.waiting = slices.DeleteFunc(w, func(other *serverCall) bool { return other == c })
}

// proceed sends a call that has waited, or the answers that its retry has brought.
func (f *LegacyServerFilter) proceed(now time.Time, c *serverCall, out *Out) {
	if c.atServer.IsZero() {
		f.send(c, out)
		return
	}
	f.deliver(now, c, out)
}

// overheard takes note that the transport tells whose each message is: then
// nobody has to wait.
func (f *LegacyServerFilter) overheard(now time.Time, m jsonrpc.Message, out *Out) {
	if f.floor.told || m.Related().IsZero() {
		return
	}
	f.floor.told = true
	if f.floor.holder != nil {
		f.leaveFloor(now, f.floor.holder, out)
	}
}

// hasAsked takes note of a question in the course of a call.
func (f *LegacyServerFilter) hasAsked(now time.Time, c *serverCall, out *Out) {
	c.asked++
	f.expect(c, c.asked)
	if !f.mayAsk(c) {
		f.leaveFloor(now, c, out)
	}
}

// expect takes note that calls like this one ask as many questions as that.
func (f *LegacyServerFilter) expect(c *serverCall, questions int) {
	if h := f.habitOf(c); h.questions < questions {
		h.questions, h.less, h.mostOfs = questions, 0, 0
		f.setHabit(c, h)
	}
}

// learn takes note of how often a call has asked that is over. What only some
// calls ask, or somebody else has asked in truth, is forgotten in time.
func (f *LegacyServerFilter) learn(now time.Time, c *serverCall, out *Out) {
	if !f.asks || c.task != nil || !MayAskForInput(c.method) {
		return
	}
	h := f.habitOf(c)
	before := h
	switch {
	case c.asked >= h.questions:
		h.less, h.mostOfs = 0, 0
	case h.less+1 < habitCalls:
		h.less, h.mostOfs = h.less+1, max(h.mostOfs, c.asked)
	default:
		h.questions, h.less, h.mostOfs = max(h.mostOfs, c.asked), 0, 0
	}
	h.known = true
	if h == before {
		return
	}
	f.setHabit(c, h)
	if before.known && before.questions == h.questions {
		return
	}
	for _, w := range slices.Clone(f.floor.waiting) { // some wait for nothing now
		if w.waits != nil && !f.mayAsk(w) {
			f.unwait(w)
			f.proceed(now, w, out)
		}
	}
}
