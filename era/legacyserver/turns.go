package legacyserver

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
)

// A legacy server does not say during which call it asks a client something (B.1).
// So that the bridge can tell, calls that may ask take turns at it: one call has
// the turn, from when it is sent until it has asked or is answered, and the
// others wait. A question is then of the call that has the turn. A call that has
// got its answers takes a turn again, if more questions of it are expected.
//
// Which calls may ask is learned (askHistory), for most tools never do, and their
// calls shall not wait for each other. Nobody waits for long: a turn ends after a
// while, and so does waiting for one. Questions that come out of turn may be
// taken for those of another call.
const (
	// turnUnknown is how long a call keeps its turn, and how long a call waits for
	// one, if it is not known to ask.
	turnUnknown = time.Second

	// turnKnown and waitKnown are the same for a call that is known to ask.
	turnKnown = 10 * time.Second
	waitKnown = 30 * time.Second

	// turnAbandoned is how long a call that was given up may still ask.
	turnAbandoned = time.Second
)

// turns is whose turn it is to ask. Its methods call proceed, for a call that has
// waited, and for no other reason.
type turns struct {
	timers  *timers
	proceed func(now time.Time, a *asker, out *era.Out)

	related   bool     // the server's transport relates questions to calls
	unrelated bool     // the server has asked something that its transport did not relate to a call
	holder    *asker   // has the turn; nil: no call has
	late      *timer   // ends the turn
	waiting   []*asker // in order; there are none without a holder
	history   askHistory
}

// asker is what turns know of a call.
type asker struct {
	call  *call
	tool  toolKey
	able  bool // the server may ask the client something during the call
	stage askerStage
	asked int    // how many questions there have been
	waits *timer // it waits for a turn until then; nil: it does not wait
	ended bool   // its history was recorded
}

// askerStage is what a call does when it has its turn. Those of a higher stage
// wait behind those of a lower one.
type askerStage int

const (
	returning askerStage = iota // gives the server the answers of its client
	beginning                   // is sent to the server
	abandoned                   // its questions are answered for a client that has gone
)

// needless reports whether no call has to take turns: the transport has related
// each question to its call.
func (t *turns) needless() bool { return t.related && !t.unrelated }

// mayAsk reports whether more questions of a call are expected, or can be.
func (t *turns) mayAsk(a *asker) bool {
	if !a.able || t.needless() {
		return false
	}
	h := t.history.of(a.tool)
	return !h.complete || a.asked < h.questions
}

// willAsk reports whether the call is known to ask more.
func (t *turns) willAsk(a *asker) bool { return a.asked < t.history.of(a.tool).questions }

// await gives a call the turn, if it needs one. True: another call has it, and
// proceed is called in time.
func (t *turns) await(now time.Time, a *asker) bool {
	switch {
	case !t.mayAsk(a) || t.holder == a:
		return false
	case t.holder == nil:
		t.take(now, a)
		return false
	}
	at := len(t.waiting)
	for at > 0 && t.waiting[at-1].stage > a.stage {
		at--
	}
	t.waiting = slices.Insert(t.waiting, at, a)
	t.waitUntil(now.Add(turnUnknown), now.Add(waitKnown), a)
	return true
}

// waitUntil lets a call wait until soon; a call that is by then known to ask waits
// until last.
func (t *turns) waitUntil(soon, last time.Time, a *asker) {
	a.waits = t.timers.set(soon, func(now time.Time, out *era.Out) {
		if soon.Before(last) && t.willAsk(a) {
			t.waitUntil(last, last, a)
			return
		}
		t.unwait(a)
		t.proceed(now, a, out)
	})
}

// unwait takes a call out of those that wait.
func (t *turns) unwait(a *asker) {
	if a.waits == nil {
		return
	}
	t.timers.stop(a.waits)
	a.waits = nil
	if w := t.waiting; w[0] == a { // as nearly always
		w[0] = nil
		t.waiting = w[1:]
		return
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(other *asker) bool { return other == a })
}

// take gives a call the turn.
func (t *turns) take(now time.Time, a *asker) {
	patience := turnUnknown
	switch {
	case a.stage == abandoned:
		patience = turnAbandoned
	case t.willAsk(a):
		patience = turnKnown
	}
	t.timers.stop(t.late)
	t.holder = a
	t.late = t.timers.set(now.Add(patience), func(now time.Time, out *era.Out) {
		if a.stage != abandoned {
			t.end(now, a, out) // so that the next call of the tool need not wait for this one
		}
		t.release(now, a, out)
	})
}

// release ends the turn of a call, if it has it: the call has asked or is over.
// The next call may.
func (t *turns) release(now time.Time, a *asker, out *era.Out) {
	if t.holder != a {
		return
	}
	t.timers.stop(t.late)
	t.holder, t.late = nil, nil
	for t.holder == nil && len(t.waiting) > 0 {
		next := t.waiting[0]
		t.unwait(next)
		if t.mayAsk(next) {
			t.take(now, next)
		}
		t.proceed(now, next, out)
		if t.holder == next && next.stage == abandoned {
			t.joinAbandoned(now, out)
		}
	}
}

// joinAbandoned lets all calls that were given up go on at once: what any of them
// asks in this turn is answered the same way.
func (t *turns) joinAbandoned(now time.Time, out *era.Out) {
	for _, a := range slices.Clone(t.waiting) {
		if a.stage == abandoned {
			t.unwait(a)
			t.proceed(now, a, out)
		}
	}
}

// abandon is for a call that was given up at the server. It may ask before it
// knows, and answers to its questions may make it ask on: so it takes a turn, in
// which all questions are its own. answers is whether it has such answers. True:
// they have to wait, and proceed is called in time.
func (t *turns) abandon(now time.Time, a *asker, answers bool, out *era.Out) (wait bool) {
	a.stage = abandoned
	switch {
	case !t.mayAsk(a):
		t.release(now, a, out)
		return false
	case t.holder == nil || t.holder == a:
		t.take(now, a)
		return false
	}
	return answers && t.await(now, a)
}

// ofAbandoned reports whether what the server asks now is of a call that was given
// up, and so of nobody.
func (t *turns) ofAbandoned() bool { return t.holder != nil && t.holder.stage == abandoned }

// findAbandoned returns the call for which is reports true, of those that were
// given up and have a turn or wait for one; nil if there is none.
func (t *turns) findAbandoned(is func(a *asker) bool) *asker {
	if t.ofAbandoned() && is(t.holder) {
		return t.holder
	}
	for _, a := range t.waiting {
		if a.stage == abandoned && is(a) {
			return a
		}
	}
	return nil
}

// finish is for a call that was given up and is answered all the same: it does
// not ask any more.
func (t *turns) finish(now time.Time, a *asker, out *era.Out) {
	if a.waits != nil {
		t.unwait(a)
		t.proceed(now, a, out)
		return
	}
	t.release(now, a, out)
}

// returning is how many calls wait with the answers of their clients.
func (t *turns) returning() (n int) {
	for _, a := range t.waiting {
		if a.stage == returning {
			n++
		}
	}
	return n
}

// heard takes note of whether the transport has related a question to a call.
// Where it could and has not, it tells no more than a pipe does.
func (t *turns) heard(now time.Time, related, standalone bool, out *era.Out) {
	t.unrelated = t.unrelated || standalone
	t.related = related
	if t.needless() && t.holder != nil {
		t.release(now, t.holder, out)
	}
}

// ask takes note of a question that is taken to be of the call a. Others are the
// calls that it could be of as well.
func (t *turns) ask(a *asker, others []*asker) {
	a.asked++
	if !a.able || t.needless() {
		return
	}
	h := t.history.of(a.tool)
	if a.asked <= h.questions {
		return
	}
	if unsure := h.complete && a != t.holder && len(others) > 0; unsure {
		t.history.suspect(a.tool, a.asked)
		for _, other := range others {
			t.history.suspect(other.tool, other.asked+1)
		}
		return
	}
	t.history.expect(a.tool, a.asked)
}

// end records how often a call has asked that is over.
func (t *turns) end(now time.Time, a *asker, out *era.Out) {
	if !a.able || a.ended || t.needless() {
		return
	}
	a.ended = true
	if !t.history.record(a.tool, a.asked) {
		return
	}
	for _, w := range slices.Clone(t.waiting) { // some have to wait no more
		if w.waits != nil && !t.mayAsk(w) {
			t.unwait(w)
			t.proceed(now, w, out)
		}
	}
}
