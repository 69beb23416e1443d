package legacyserver

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A question of a server does not say in whose course it comes (B.1). So that it
// can be told, calls which may ask do it one after another: one has the floor,
// from when it is sent until it has asked, and its client is asked, or is over;
// others wait. A call's retry needs the floor again if there is more to come,
// and so do the answers to a call that is given up, which may make it go on.
//
// Which calls may ask is learned: of a tool that never does nobody has to wait,
// and nobody ever waits for long.
const (
	// floorNew is how long a call keeps the floor of which it is not known that
	// it will ask, and how long it waits for it before it goes on without.
	floorNew = time.Second

	// floorKnown and floorWait are the same for a call that will.
	floorKnown = 10 * time.Second
	floorWait  = 30 * time.Second

	// floorGone is how long a call that was given up may still ask.
	floorGone = time.Second

	// habitCalls is how many calls in a row ask for less before that is believed;
	// suspectCalls is the same if it is not certain that it was theirs.
	habitCalls, suspectCalls = 20, 3

	// maxHabits is how many tools, prompts and resources are remembered.
	maxHabits = 1000
)

// floor is whose turn it is to ask.
type floor struct {
	told    bool    // the transport says whose questions are whose: nobody needs the floor
	mute    bool    // it could, but the server has not made use of that
	holder  *call   // nil: nobody has it
	gone    bool    // the holder was given up: what it asks is nobody's question
	late    *timer  // takes it from the holder
	waiting []*call // for the floor, in order; each has an alarm, and no others wait

	habits map[habitKey]habit
	reads  bool         // something is known of one resource: others are taken not to ask
	seed   maphash.Seed // of their keys
}

type habitKey struct {
	method string
	name   uint64 // its hash: clients choose names
}

// habit is how calls of one tool, prompt or resource ask.
type habit struct {
	known     bool // some call is over, or has not asked for a while
	questions int  // so many at most
	certain   int  // so many of them were theirs: others may have been another's
	eager     bool // they ask on before their first question is answered
	named     bool // the transport told whose the last one was: they need no floor
	less      int  // so many calls in a row had fewer
	atMost    int  // none of these had more
}

func (f *Filter) habitKeyOf(c *call) habitKey {
	return habitKey{c.method, maphash.Bytes(f.floor.seed, c.name)}
}

func (f *Filter) habitOf(c *call) habit {
	if f.floor.habits == nil {
		return habit{}
	}
	h, ok := f.floor.habits[f.habitKeyOf(c)]
	if !ok && c.method == "resources/read" {
		h.known = f.floor.reads
	}
	return h
}

func (f *Filter) setHabit(c *call, h habit) {
	l := &f.floor
	if l.habits == nil {
		l.habits, l.seed = make(map[habitKey]habit), maphash.MakeSeed()
	}
	if c.method == "resources/read" {
		l.reads = true
	}
	key := f.habitKeyOf(c)
	if _, known := l.habits[key]; !known && len(l.habits) >= maxHabits {
		victim := key
		for other, h := range l.habits {
			if victim = other; h.questions == 0 {
				break
			}
		}
		delete(l.habits, victim)
	}
	l.habits[key] = h
}

// canAsk reports whether the floor has a meaning for a call.
func (f *Filter) canAsk(c *call) bool {
	return f.asks && !f.floor.told && c.task == nil && era.MayAskForInput(c.method)
}

// mayAsk reports whether more questions are to be expected of a call.
func (f *Filter) mayAsk(c *call) bool {
	if !f.canAsk(c) {
		return false
	}
	h := f.habitOf(c)
	return !h.named && (!h.known || c.asked < h.questions)
}

// willAsk reports whether that is certain.
func (f *Filter) willAsk(c *call) bool { return c.asked < f.habitOf(c).certain }

// awaitFloor reports whether a call has to wait; then it proceeds in time.
func (f *Filter) awaitFloor(now time.Time, c *call) bool {
	switch {
	case !f.mayAsk(c) || f.floor.holder == c:
		return false
	case f.floor.holder == nil:
		f.takeFloor(now, c)
		return false
	}
	f.floor.waiting = slices.Insert(f.floor.waiting, f.placeOf(c), c)
	f.waitUntil(now.Add(floorNew), now.Add(floorWait), c)
	return true
}

// waitUntil lets a call wait until soon, and if it is known to ask by then until last.
func (f *Filter) waitUntil(soon, last time.Time, c *call) {
	c.waits = f.timers.set(soon, func(now time.Time, out *era.Out) {
		if f.willAsk(c) && soon.Before(last) {
			f.waitUntil(last, last, c)
			return
		}
		f.unwait(c)
		f.proceed(now, c, out)
	})
}

// placeOf returns where in the line a call waits: behind those that are like it.
// Retries go first, for somebody has answered, and those that nobody waits for go
// last.
func (f *Filter) placeOf(c *call) int {
	class := func(c *call) int {
		switch {
		case c.givenUp:
			return 2
		case c.atServer.IsZero():
			return 1
		}
		return 0
	}
	mine := class(c)
	i := len(f.floor.waiting)
	for i > 0 && class(f.floor.waiting[i-1]) > mine {
		i--
	}
	return i
}

func (f *Filter) takeFloor(now time.Time, c *call) {
	patience := floorNew
	if f.willAsk(c) {
		patience = floorKnown
	}
	l := &f.floor
	l.holder, l.gone = c, false
	l.late = f.timers.set(now.Add(patience), func(now time.Time, out *era.Out) {
		h := f.habitOf(c)
		h.eager = h.eager && !(c.input != nil && c.input.parked)
		f.setHabit(c, h)
		f.learn(now, c, out) // the next one of its kind need not wait for this
		f.leaveFloor(now, c, out)
	})
}

// leaveFloor is for a call that will not ask, or has taken too long. The next may.
func (f *Filter) leaveFloor(now time.Time, c *call, out *era.Out) {
	l := &f.floor
	if l.holder != c {
		return
	}
	f.timers.stop(l.late)
	l.holder, l.gone, l.late = nil, false, nil
	for l.holder == nil && len(l.waiting) > 0 {
		next := l.waiting[0]
		f.unwait(next)
		if f.mayAsk(next) {
			f.takeFloor(now, next)
		}
		f.proceed(now, next, out)
	}
}

// parkFloor is for a call whose client is asked. Who asks on meanwhile keeps the
// floor.
func (f *Filter) parkFloor(now time.Time, c *call, out *era.Out) {
	if !f.mayAsk(c) || !f.habitOf(c).eager {
		f.leaveFloor(now, c, out)
	}
}

// giveUpFloor is for a call that was given up, and may ask before it knows. It
// reports whether the answers to its questions have to wait until it has the
// floor; then it proceeds in time.
func (f *Filter) giveUpFloor(now time.Time, c *call, out *era.Out) (wait bool) {
	l := &f.floor
	switch {
	case !f.mayAsk(c):
		f.leaveFloor(now, c, out)
		return false
	case l.holder == nil || l.holder == c:
		f.timers.stop(l.late)
		l.holder, l.gone = c, true
		l.late = f.timers.set(now.Add(floorGone), func(now time.Time, out *era.Out) { f.leaveFloor(now, c, out) })
		return false
	}
	return c.input != nil && len(c.input.questions) > 0 && f.awaitFloor(now, c)
}

// unwait takes a call out of those that wait.
func (f *Filter) unwait(c *call) {
	if c.waits == nil {
		return
	}
	f.timers.stop(c.waits)
	c.waits = nil
	w := f.floor.waiting
	if w[0] == c { // as nearly always
		w[0] = nil
		f.floor.waiting = w[1:]
		return
	}
	f.floor.waiting = slices.DeleteFunc(w, func(other *call) bool { return other == c })
}

// answered takes the response to a call that was given up: it asks no more.
func (f *Filter) answered(now time.Time, id jsonrpc.ID, out *era.Out) {
	l := &f.floor
	if l.gone && l.holder.atServer.Equivalent(id) {
		f.leaveFloor(now, l.holder, out)
	}
	if i := slices.IndexFunc(l.waiting, func(c *call) bool { return c.givenUp && c.atServer.Equivalent(id) }); i >= 0 {
		c := l.waiting[i]
		f.unwait(c)
		f.settle(c, out)
	}
}

// returning is how many calls wait with the answers of a retry, and may be parked
// again.
func (f *Filter) returning() (n int) {
	for _, c := range f.floor.waiting {
		if !c.atServer.IsZero() && !c.givenUp {
			n++
		}
	}
	return n
}

// proceed sends what a call has waited with: itself, the answers that its retry
// has brought, or those of a call that was given up.
func (f *Filter) proceed(now time.Time, c *call, out *era.Out) {
	switch {
	case c.givenUp:
		f.settle(c, out)
		if f.floor.holder != c {
			return
		}
		f.giveUpFloor(now, c, out)
		for _, other := range slices.Clone(f.floor.waiting) { // one second is enough for all
			if other.givenUp {
				f.unwait(other)
				f.settle(other, out)
			}
		}
	case c.atServer.IsZero():
		f.send(c, out)
	default:
		f.deliver(now, c, out)
	}
}

// overheard takes note whether the transport has told whose question m is: then
// nobody has to wait. Where it could, but the server has not used it, it tells
// no more than a pipe does.
func (f *Filter) overheard(now time.Time, m jsonrpc.Message, out *era.Out) {
	f.floor.mute = f.floor.mute || m.Related() == jsonrpc.NullID
	_, named := m.During()
	f.floor.told = named && !f.floor.mute
	if f.floor.told && f.floor.holder != nil {
		f.leaveFloor(now, f.floor.holder, out)
	}
}

// hasAsked takes note of a question that is taken to be of the call c: the
// transport has named it, or others are what else it could be of.
func (f *Filter) hasAsked(c *call, named bool, others []*call) {
	c.asked++
	if !f.canAsk(c) {
		return
	}
	h := f.habitOf(c)
	expected := !h.known || c.asked <= h.questions
	if h.questions < c.asked {
		h.questions, h.less, h.atMost = c.asked, 0, 0
	}
	contested := len(others) > 0 || len(c.beside) > 0 // this one, or one before
	if !contested || expected && (c == f.floor.holder || !slices.ContainsFunc(others, f.mayAsk)) {
		h.certain = max(h.certain, c.asked)
	}
	if c.input != nil && c.input.parked {
		h.eager = true
	}
	h.named = named
	f.setHabit(c, h)
	for _, other := range others {
		if !slices.Contains(c.beside, other) {
			c.beside = append(c.beside, other)
		}
	}
	if !expected {
		f.suspect(c.beside)
	}
}

// suspect takes note that one of these calls, it seems, has asked what was taken
// for another's question: next time it is found out.
func (f *Filter) suspect(calls []*call) {
	for _, c := range calls {
		h := f.habitOf(c)
		switch {
		case c.input != nil && f.mayAsk(c):
			h.eager = true // it has not waited for the answer to its first question
		case h.known && h.questions <= c.asked:
			h.questions, h.less, h.atMost = c.asked+1, 0, 0
		}
		f.setHabit(c, h)
	}
}

// learn takes note of how often a call has asked that is over. What only some
// calls ask, or somebody else has asked in truth, is forgotten in time.
func (f *Filter) learn(now time.Time, c *call, out *era.Out) {
	if !f.canAsk(c) {
		return
	}
	h := f.habitOf(c)
	before := h
	least, patience := 0, habitCalls
	if h.questions > h.certain {
		least, patience = h.certain, suspectCalls
	}
	switch {
	case c.asked >= h.questions:
		h.less, h.atMost = 0, 0
	case h.less+1 < patience:
		h.less, h.atMost = h.less+1, max(h.atMost, c.asked)
	default:
		h.questions, h.less, h.atMost = max(h.atMost, c.asked, least), 0, 0
		h.certain = min(h.certain, h.questions)
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
