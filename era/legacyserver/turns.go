package legacyserver

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
)

// A legacy server does not say during which call it sends an input request (B.1).
// So calls that may cause input requests take turns: one call has the turn, from
// when it is sent until it has asked or is answered; the other calls wait. An
// input request then belongs to the call that has the turn. When the client has
// answered, its call needs a turn again if more input requests are expected.
//
// "Ask" means: the server sends an input request during the call. Which tools ask
// is learned (askHistory), because most tools never do, and their calls must not
// wait for each other.
//
// A call has its turn for a limited time, and waits for a limited time. An input
// request that comes later than that may be taken for another call's.
const (
	// turnUnknown is how long a call has the turn, and how long a call waits for the
	// turn, if its tool is not known to ask.
	turnUnknown = time.Second

	// turnKnown and waitKnown are the same for a tool that is known to ask.
	turnKnown = 10 * time.Second
	waitKnown = 30 * time.Second

	// turnAbandoned is how long an abandoned call may still ask.
	turnAbandoned = time.Second
)

// turns decides which call may ask. It calls proceed for a call that has waited,
// also from within its other methods.
type turns struct {
	timers  *timers
	proceed func(now time.Time, a *asker, out *era.Out)

	related   bool     // the transport has named the call of the latest input request
	unrelated bool     // the transport could name the call of an input request, and did not
	holder    *asker   // the call that has the turn; nil: none
	late      *timer   // ends the turn
	waiting   []*asker // in order; empty if there is no holder
	history   askHistory
}

// asker is the part of a call that turns uses.
type asker struct {
	call  *call
	tool  toolKey
	able  bool // input requests are possible during the call
	stage askerStage
	asked int    // how many input requests there have been
	waits *timer // when the call stops waiting; nil: it does not wait
	ended bool   // history has recorded the call
}

// askerStage is what a call does when it has its turn. Calls of a lower stage go
// first.
type askerStage int

const (
	returning askerStage = iota // a retry: the server gets the answers of the client
	beginning                   // the call is sent to the server
	abandoned                   // the client has cancelled the call or not come back: the server gets refusals
)

// needless reports whether no call needs turns, because the transport names the
// call of each input request.
func (t *turns) needless() bool { return t.related && !t.unrelated }

// mayAsk reports whether a call may ask (again).
func (t *turns) mayAsk(a *asker) bool {
	if !a.able || t.needless() {
		return false
	}
	h := t.history.of(a.tool)
	return !h.complete || a.asked < h.requests
}

// willAsk reports whether a call is expected to ask (again).
func (t *turns) willAsk(a *asker) bool { return a.asked < t.history.of(a.tool).requests }

// await gives a call the turn if it may ask. True: another call has the turn; this
// one waits, and proceed is called in time.
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

// waitUntil lets a call wait until soon, or until last if it is expected to ask by
// then.
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

// unwait removes a call from the waiting ones.
func (t *turns) unwait(a *asker) {
	if a.waits == nil {
		return
	}
	t.timers.stop(a.waits)
	a.waits = nil
	if w := t.waiting; w[0] == a { // nearly always
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
			t.end(now, a, out) // later calls of the tool need not wait for this one
		}
		t.release(now, a, out)
	})
}

// release ends the turn of a call, which has asked or is over, and gives it to the
// next one. It does nothing if the call does not have the turn.
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

// joinAbandoned lets all abandoned calls go on in the turn of one of them: input
// requests of any of them are refused.
func (t *turns) joinAbandoned(now time.Time, out *era.Out) {
	for _, a := range slices.Clone(t.waiting) {
		if a.stage == abandoned {
			t.unwait(a)
			t.proceed(now, a, out)
		}
	}
}

// abandon is called when a call was cancelled at the server. The server may send
// input requests before it knows, and also when it gets the refusals of earlier
// ones. So an abandoned call takes a turn, in which all input requests are
// refused. refusals says that the server waits for some. True: they must wait, and
// proceed is called in time.
func (t *turns) abandon(now time.Time, a *asker, refusals bool, out *era.Out) (wait bool) {
	a.stage = abandoned
	switch {
	case !t.mayAsk(a):
		t.release(now, a, out)
		return false
	case t.holder == nil || t.holder == a:
		t.take(now, a)
		return false
	}
	return refusals && t.await(now, a)
}

// ofAbandoned reports whether an abandoned call has the turn, so that nobody can
// answer an input request.
func (t *turns) ofAbandoned() bool { return t.holder != nil && t.holder.stage == abandoned }

// findAbandoned returns an abandoned call for which is returns true, of those that
// have the turn or wait for it; nil if there is none.
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

// finish is called when the server answers an abandoned call all the same: the
// call does not ask any more.
func (t *turns) finish(now time.Time, a *asker, out *era.Out) {
	if a.waits != nil {
		t.unwait(a)
		t.proceed(now, a, out)
		return
	}
	t.release(now, a, out)
}

// returning returns how many retries wait.
func (t *turns) returning() (n int) {
	for _, a := range t.waiting {
		if a.stage == returning {
			n++
		}
	}
	return n
}

// heard notes what the transport says about an input request: related, that it
// belongs to a certain call; standalone, that it came on a stream of its own,
// although the transport could have related it.
func (t *turns) heard(now time.Time, related, standalone bool, out *era.Out) {
	t.unrelated = t.unrelated || standalone
	t.related = related
	if t.needless() && t.holder != nil {
		t.release(now, t.holder, out)
	}
}

// ask notes an input request that was assigned to the call a. others are the calls
// that it could belong to as well.
func (t *turns) ask(a *asker, others []*asker) {
	a.asked++
	if !a.able || t.needless() {
		return
	}
	h := t.history.of(a.tool)
	if a.asked <= h.requests {
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

// end records a call that has ended. Calls of its tool that wait may go on, if
// they need no turn any more.
func (t *turns) end(now time.Time, a *asker, out *era.Out) {
	if !a.able || a.ended || t.needless() {
		return
	}
	a.ended = true
	if !t.history.record(a.tool, a.asked) {
		return
	}
	for _, w := range slices.Clone(t.waiting) {
		if w.waits != nil && !t.mayAsk(w) {
			t.unwait(w)
			t.proceed(now, w, out)
		}
	}
}
