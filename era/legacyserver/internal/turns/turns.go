// Package turns decides which calls of clients may cause requests of a legacy
// server at a time.
//
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
package turns

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/timers"
)

const (
	// turnTimeoutUnknown is how long a call has the turn, and how long a call waits for the
	// turn, if no input request is expected during the call.
	turnTimeoutUnknown = time.Second

	// turnTimeoutKnown is how long a call has the turn during which an input request is expected.
	turnTimeoutKnown = 10 * time.Second

	// waitTimeoutKnown is how long a call waits for the turn during which an input request is expected.
	waitTimeoutKnown = 30 * time.Second

	// turnTimeoutAbandoned is how long an abandoned call has the turn: its input requests may still come.
	turnTimeoutAbandoned = time.Second
)

// Turns decides which calls may cause input requests of the server at a time: such calls take turns, so
// that an input request belongs to the call that has the turn. New makes one. Its methods are called one
// at a time.
type Turns[C any] struct {
	timers  *timers.Timers                                 // those of the Filter: they end the wait for a turn
	proceed func(now time.Time, a *Asker[C], out *era.Out) // goes on with a call that has waited

	sawRelated    bool          // the transport has named the call of the latest input request
	sawUnrelated  bool          // the transport could have named the call of an input request, once, and did not; it stays true
	holder        *Asker[C]     // the call that has the turn; nil: none
	turnTimer     *timers.Timer // ends the turn of holder; nil: there is no holder
	waiting       []*Asker[C]   // the calls that wait for the turn, the next one first; empty if there is no holder
	history       askHistory    // how many input requests calls of each tool cause
	assumesAllAsk bool          // input requests count as expected during all calls; see AssumeAllAsk
}

// New returns the Turns of one server. It calls proceed for a call that has waited,
// from within its own methods and from timers.
func New[C any](timers *timers.Timers, proceed func(now time.Time, a *Asker[C], out *era.Out)) Turns[C] {
	return Turns[C]{timers: timers, proceed: proceed}
}

// AssumeAllAsk makes all calls take turns during which input requests are possible, as if some were
// expected during each. Only BenchmarkTurns of package legacyserver calls it: it compares that with what
// is learned.
func (t *Turns[C]) AssumeAllAsk() { t.assumesAllAsk = true }

// Begin makes a call ready to be sent. mayBeAsked says that input requests are
// possible during the call; name is the raw name of its tool or prompt.
func (t *Turns[C]) Begin(a *Asker[C], mayBeAsked bool, method string, name []byte) {
	a.Priority = Beginning
	if a.mayAsk = mayBeAsked; mayBeAsked {
		a.tool = t.history.toolKeyOf(method, name)
	}
}

// HasTurn reports whether a call has the turn.
func (t *Turns[C]) HasTurn(a *Asker[C]) bool { return t.holder == a }

// IsIdle reports whether no call has the turn or waits for it.
func (t *Turns[C]) IsIdle() bool { return t.holder == nil && len(t.waiting) == 0 }

// Asker is what this package has to know of a call. Call is the call itself: it is only
// handed back to the caller of the package. Begin and Abandon set Priority; once the call
// was sent, the caller sets it to Returning.
type Asker[C any] struct {
	Call     C        // the call itself, for who calls turns
	Priority Priority // what the call does when it has its turn

	tool          toolKey       // the tool or prompt that is called, if mayAsk
	mayAsk        bool          // input requests are possible during the call
	inputRequests int           // how many input requests there have been during the call
	waitTimer     *timers.Timer // ends the wait for the turn; nil: the call does not wait
	isRecorded    bool          // End has entered inputRequests in the history of the tool; it does so once for each call
}

// IsWaiting reports whether the call waits for its turn.
func (a *Asker[C]) IsWaiting() bool { return a.waitTimer != nil }

// Priority is what a call does when it has its turn. Calls of a lower one go
// first.
type Priority int

const (
	Returning Priority = iota // the call is a retry: the server gets the answers of the client
	Beginning                 // the call is sent to the server
	Abandoned                 // the client has cancelled the call or not come back: the server gets refusals
)

// isNeedless reports whether no call needs turns, because the transport names the
// call of each input request.
func (t *Turns[C]) isNeedless() bool { return t.sawRelated && !t.sawUnrelated }

// MightAsk reports whether (further) input requests of the server are possible during a call, as far as
// is known of its tool, so that the call needs the turn.
func (t *Turns[C]) MightAsk(a *Asker[C]) bool {
	if !a.mayAsk || t.isNeedless() {
		return false
	}
	h := t.history.historyOf(a.tool)
	return t.assumesAllAsk || !h.isSure() || a.inputRequests < h.expectedRequests
}

// willAsk reports whether (further) input requests of the server are expected during a call: there were
// fewer than calls of its tool are known to cause.
func (t *Turns[C]) willAsk(a *Asker[C]) bool {
	return t.assumesAllAsk || a.inputRequests < t.history.historyOf(a.tool).expectedRequests
}

// MustWait gives a call the turn if it needs one. True: another call has the turn; this call
// waits, and proceed is called when it has the turn, or needs none any more, or after waitTimeoutKnown at the
// latest. False: the call can go on now.
func (t *Turns[C]) MustWait(now time.Time, a *Asker[C]) bool {
	switch {
	case !t.MightAsk(a) || t.holder == a:
		return false
	case t.holder == nil:
		t.giveTurn(now, a)
		return false
	}
	at := len(t.waiting)
	for at > 0 && t.waiting[at-1].Priority > a.Priority {
		at--
	}
	t.waiting = slices.Insert(t.waiting, at, a)
	t.waitUntil(now.Add(turnTimeoutUnknown), now.Add(waitTimeoutKnown), a)
	return true
}

// waitUntil has proceed called at the time soon for a call that still waits for the turn then; but
// at the time last, if at soon an input request is expected during the call.
func (t *Turns[C]) waitUntil(soon, last time.Time, a *Asker[C]) {
	a.waitTimer = t.timers.Set(soon, func(now time.Time, out *era.Out) {
		if soon.Before(last) && t.willAsk(a) {
			t.waitUntil(last, last, a)
			return
		}
		t.StopWaiting(a)
		t.proceed(now, a, out)
	})
}

// StopWaiting removes a call from those that wait for the turn, if it does. It calls nothing.
func (t *Turns[C]) StopWaiting(a *Asker[C]) {
	if a.waitTimer == nil {
		return
	}
	t.timers.Stop(a.waitTimer)
	a.waitTimer = nil
	if w := t.waiting; w[0] == a { // nearly always
		w[0] = nil
		t.waiting = w[1:]
		return
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(other *Asker[C]) bool { return other == a })
}

// giveTurn gives a call the turn, and sets when the turn ends at the latest.
func (t *Turns[C]) giveTurn(now time.Time, a *Asker[C]) {
	patience := turnTimeoutUnknown
	switch {
	case a.Priority == Abandoned:
		patience = turnTimeoutAbandoned
	case t.willAsk(a):
		patience = turnTimeoutKnown
	}
	t.timers.Stop(t.turnTimer)
	t.holder = a
	t.turnTimer = t.timers.Set(now.Add(patience), func(now time.Time, out *era.Out) {
		if a.Priority != Abandoned {
			t.End(now, a, out) // later calls of the tool need not wait for this one
		}
		t.Release(now, a, out)
	})
}

// Release ends the turn of a call, whose input requests have come or which is over, and gives it to the
// next one, for which proceed is called. It does nothing if the call does not have the turn.
func (t *Turns[C]) Release(now time.Time, a *Asker[C], out *era.Out) {
	if t.holder != a {
		return
	}
	t.timers.Stop(t.turnTimer)
	t.holder, t.turnTimer = nil, nil
	for t.holder == nil && len(t.waiting) > 0 {
		next := t.waiting[0]
		t.StopWaiting(next)
		if t.MightAsk(next) {
			t.giveTurn(now, next)
		}
		t.proceed(now, next, out)
		if t.holder == next && next.Priority == Abandoned {
			t.joinAbandoned(now, out)
		}
	}
}

// joinAbandoned lets all abandoned calls that wait go on now, because an abandoned call has the
// turn: input requests of any of them are refused.
func (t *Turns[C]) joinAbandoned(now time.Time, out *era.Out) {
	for _, a := range slices.Clone(t.waiting) {
		if a.Priority == Abandoned {
			t.StopWaiting(a)
			t.proceed(now, a, out)
		}
	}
}

// Abandon is called when a call was cancelled at the server. The server may send input requests
// before it knows, and also when it gets the refusals of earlier ones. So an abandoned call takes
// a turn, in which all input requests are refused. refusals says that input requests of the call
// are open, and have to be refused; without any, the call takes no turn while another one has it.
// If Abandon returns true, refusing must wait until proceed is called; otherwise the caller does it
// now.
func (t *Turns[C]) Abandon(now time.Time, a *Asker[C], refusals bool, out *era.Out) (wait bool) {
	a.Priority = Abandoned
	switch {
	case !t.MightAsk(a):
		t.Release(now, a, out)
		return false
	case t.holder == nil || t.holder == a:
		t.giveTurn(now, a)
		return false
	}
	return refusals && t.MustWait(now, a)
}

// IsAbandoned reports whether an abandoned call has the turn, so that nobody can
// answer an input request.
func (t *Turns[C]) IsAbandoned() bool { return t.holder != nil && t.holder.Priority == Abandoned }

// FindAbandoned returns an abandoned call for which match returns true, of those that have the
// turn or wait for it; nil if there is none.
func (t *Turns[C]) FindAbandoned(match func(a *Asker[C]) bool) *Asker[C] {
	if t.IsAbandoned() && match(t.holder) {
		return t.holder
	}
	for _, a := range t.waiting {
		if a.Priority == Abandoned && match(a) {
			return a
		}
	}
	return nil
}

// FinishAbandoned is called when the server answers an abandoned call all the same: no more input
// requests come of it, so it needs the turn no longer.
func (t *Turns[C]) FinishAbandoned(now time.Time, a *Asker[C], out *era.Out) {
	if a.waitTimer != nil {
		t.StopWaiting(a)
		t.proceed(now, a, out)
		return
	}
	t.Release(now, a, out)
}

// WaitingRetries returns how many calls with answers for the server (Returning) wait for the turn.
func (t *Turns[C]) WaitingRetries() (n int) {
	for _, a := range t.waiting {
		if a.Priority == Returning {
			n++
		}
	}
	return n
}

// NoteRelation notes what the transport says about an input request: related, that it
// belongs to a certain call; standalone, that it came on a stream of its own,
// although the transport could have related it. If no call needs turns any more, the
// turn ends, and the calls that wait go on.
func (t *Turns[C]) NoteRelation(now time.Time, related, standalone bool, out *era.Out) {
	t.sawUnrelated = t.sawUnrelated || standalone
	t.sawRelated = related
	if t.isNeedless() && t.holder != nil {
		t.Release(now, t.holder, out)
	}
}

// RecordInputRequest counts an input request that was assigned to the call a. others are the calls that
// it could belong to as well. If there were more during a than a call of its tool is expected to cause,
// as many are expected of the tool from now on. If it may well belong to one of others, that is only
// suspected, and of their tools, too.
func (t *Turns[C]) RecordInputRequest(a *Asker[C], others []*Asker[C]) {
	a.inputRequests++
	if !a.mayAsk || t.isNeedless() {
		return
	}
	h := t.history.historyOf(a.tool)
	if a.inputRequests <= h.expectedRequests {
		return
	}
	if unsure := h.hasEndedCall && a != t.holder && len(others) > 0; unsure {
		t.history.suspect(a.tool, a.inputRequests)
		for _, other := range others {
			t.history.suspect(other.tool, other.inputRequests+1)
		}
		return
	}
	t.history.raiseExpected(a.tool, a.inputRequests)
}

// End records how many input requests a call has caused, when it has ended or has had its turn for too
// long. Calls that wait and need no turn any more, because of what was learned, go on.
func (t *Turns[C]) End(now time.Time, a *Asker[C], out *era.Out) {
	if !a.mayAsk || a.isRecorded || t.isNeedless() {
		return
	}
	a.isRecorded = true
	if !t.history.record(a.tool, a.inputRequests) {
		return
	}
	for _, w := range slices.Clone(t.waiting) {
		if w.waitTimer != nil && !t.MightAsk(w) {
			t.StopWaiting(w)
			t.proceed(now, w, out)
		}
	}
}
