package bridge

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// call is a request that a Pump has taken from one of its sides, and to which the other owes an answer.
type call struct {
	id jsonrpc.ID // the id as whoever has asked spells it
	// of a client's request: the id that the server is given instead, because id would be taken for that of another
	// request (assignServerID); zero: it knows id
	serverID        jsonrpc.ID
	method          string       // the request's method
	progressToken   jsonrpc.ID   // the request's progress token; zero: it has none
	asksForTask     bool         // the request is augmented as a task: its progress token stays valid after the response (J13)
	heldBytes       int          // how many bytes of the ledger's budgetShare the call takes: for what the Pump, the client's side and the server's side keep of it
	heldAfterAnswer bool         // heldBytes stay taken when the call has left the ledger, until the conversation ends
	timeoutTimer    *time.Timer  // ends the request when it has run out; nil: it has no time-out
	latestDeadline  time.Time    // the time beyond which progress does not put the time-out off; set if there is a timeoutTimer
	pendingEntry    pendingEntry // the call in the ledger's pendingCalls
}

// ledger has the requests of one side of a Pump, to which the other owes answers.
//
// A request of the client leaves the ledger in two steps when it is answered, takeForAnswer and answerDelivered, so that
// "nothing is owed" becomes true only after the answer was handed on. A request that leaves it otherwise, or that the
// server has made, leaves it in one step.
type ledger struct {
	maxCalls      int             // how many requests may be in the ledger
	pendingCalls  *PendingCalls   // the PendingCalls that the requests are entered in, too; nil: none
	ctx           context.Context // the conversation's context, for the entries in pendingCalls
	canceller     canceller       // who can cancel the requests, for the entries in pendingCalls; nil: nobody
	byServer      bool            // the requests are the server's, not the client's; for the entries in pendingCalls
	budgetShare   *budget.Share   // the part of PumpOptions.Budget that the calls take, in the name of the client's party; nil: memory is not counted. Under mu
	runningTimers sync.WaitGroup  // waits for time-outs that run or may still run, and for giveUp

	mu         sync.Mutex           // guards the fields below, and budgetShare
	calls      map[jsonrpc.ID]*call // the requests without an answer, by id
	byServerID map[jsonrpc.ID]*call // those of calls that the server knows by another id than the client, by that (serverID)
	// ids, as the server knows them, of requests that were cancelled or answered by the bridge, and that the server
	// may still answer
	unanswered         map[jsonrpc.ID]bool
	lastServerID       int                  // the number in the serverID that was made last
	byProgressToken    map[jsonrpc.ID]*call // the calls with a progress token, by token
	hasSharedToken     bool                 // two of calls have had the same progress token at the same time
	taskTokens         map[jsonrpc.ID]bool  // progress tokens of requests that have asked for a task and were answered
	undeliveredAnswers int                  // how many requests were taken out for their answers (takeForAnswer and the like) without answerDelivered yet
	closed             bool                 // nothing may be entered any more
	listenCount        int                  // how many of calls are subscriptions/listen
	tracksQuietSince   bool                 // quietSince is kept up to date
	quietSince         time.Time            // since when nothing but subscriptions is owed; means nothing while more is owed, or without tracksQuietSince
	emptied            chan struct{}        // closed when nothing is owed; nil: nobody waits for that
}

// init makes the ledger ready for at most max requests.
func (l *ledger) init(max int) {
	l.maxCalls = max
	l.calls = make(map[jsonrpc.ID]*call)
	l.byProgressToken = make(map[jsonrpc.ID]*call)
}

var (
	// the error of ledger.add once the ledger is closed. Its text is the answer to a server's requests when the client has gone, and to a
	// client's requests that the Handler of an era takes no more (ByEra); what the Pump says of a server's end is serverEndText
	errOtherSideGone = errors.New("the other side has gone")
	// the error of ledger.add when budgetShare has no room
	errOverBudget = errors.New("what waits for an answer takes too much memory; try again later")
)

// add enters a request, or returns why it may not be entered: errOtherSideGone, errOverBudget, ownmsg.ErrIDInUse or
// ownmsg.ErrTooManyRequests.
func (l *ledger) add(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errOtherSideGone
	}
	if _, dup := l.calls[c.id]; dup {
		return ownmsg.ErrIDInUse
	}
	if len(l.calls) >= l.maxCalls {
		return ownmsg.ErrTooManyRequests
	}
	if !l.budgetShare.Take(c.heldBytes) {
		return errOverBudget
	}
	l.calls[c.id] = c
	if len(l.unanswered)+len(l.byServerID) > 0 {
		l.assignServerID(c)
	}
	c.pendingEntry.canceller, c.pendingEntry.ByServer = l.canceller, l.byServer
	l.pendingCalls.add(l.ctx, &c.pendingEntry, c.method, c.id)
	if c.method == ownmsg.Listen {
		l.listenCount++
	}
	if !c.progressToken.IsZero() {
		l.hasSharedToken = l.hasSharedToken || l.byProgressToken[c.progressToken] != nil
		l.byProgressToken[c.progressToken] = c
	}
	return nil
}

// maxUnansweredIDs is how many ids a ledger remembers in unanswered. Before one more it forgets them all: most servers
// never answer these requests.
const maxUnansweredIDs = 64

// noteUnanswered remembers the id of a request that was cancelled, or that the bridge itself answers: the server's answer
// may still come. It is called with mu held.
func (l *ledger) noteUnanswered(c *call) {
	if l.unanswered == nil || len(l.unanswered) >= maxUnansweredIDs {
		l.unanswered = make(map[jsonrpc.ID]bool)
	}
	l.unanswered[c.idAtServer()] = true
}

// assignServerID gives a request a serverID if the server may still answer an earlier request with the same id, as that
// answer would be taken for this request's (J2), or if its id is the serverID of another. A subscription keeps its id,
// which stands in all its messages. It is called with mu held.
func (l *ledger) assignServerID(c *call) {
	older, _, used := jsonrpc.Find(l.unanswered, c.id)
	if c.method == ownmsg.Listen {
		delete(l.unanswered, older)
		return
	}
	if !used && l.byServerID[c.id] == nil {
		return
	}
	if l.byServerID == nil {
		l.byServerID = make(map[jsonrpc.ID]*call)
	}
	for taken := true; taken; _, taken = l.calls[c.serverID] {
		l.lastServerID++
		c.serverID = jsonrpc.StringID("mcp-bridge-" + strconv.Itoa(l.lastServerID))
	}
	l.byServerID[c.serverID] = c
}

// idAtServer returns the id by which the server knows the request: serverID, or id.
func (c *call) idAtServer() jsonrpc.ID { return cmp.Or(c.serverID, c.id) }

// idAtClient returns the id by which the client knows the request that the server knows by id.
func (l *ledger) idAtClient(id jsonrpc.ID) jsonrpc.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.byServerID[id]; c != nil {
		return c.id
	}
	return id
}

// What a request that waits for its answer takes, beside its bytes: entries in the
// ledgers of the client's transport, the pump and the server's side, each with copies
// of its id, its token and its method.
const (
	callOverheadBytes = 1 << 10 // memory, in bytes, of a request that waits for its answer, beside its bytes, id, token and method
	idCopies          = 4       // how many copies of the id, token and method of a request there are while it waits for its answer
)

// newCall returns a new call for the request m, which is not in a ledger yet.
func newCall(m jsonrpc.Message) *call {
	c := &call{id: m.ID(), method: m.Method(), progressToken: m.ProgressToken()}
	c.heldBytes = callOverheadBytes + idCopies*(len(c.id.String())+len(c.progressToken.String())+len(c.method))
	c.asksForTask = !c.progressToken.IsZero() && m.Lookup("params", "task") != nil
	return c
}

// startTimeout gives a request in the ledger a time-out: if it is still there after d, it is taken out, and expired,
// which has to answer it, runs in a goroutine of its own. That does not happen after waitForTimers.
func (l *ledger) startTimeout(c *call, d time.Duration, expired func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[c.id] != c {
		return
	}
	l.runningTimers.Add(1)
	c.latestDeadline = time.Now().Add(min(d, math.MaxInt64/maxTimeoutFactor) * maxTimeoutFactor)
	c.timeoutTimer = time.AfterFunc(d, func() {
		defer l.runningTimers.Done()
		if l.takeCallForAnswer(c) {
			defer l.answerDelivered()
			expired()
		}
	})
}

// giveUp takes the request with this id out of the ledger before it is answered, and calls ended, which has to answer
// it. false: there is no such request. It may be called at any time.
func (l *ledger) giveUp(id jsonrpc.ID, ended func(c *call)) (found bool) {
	l.mu.Lock()
	c := l.calls[id]
	if c == nil {
		l.mu.Unlock()
		return false
	}
	l.runningTimers.Add(1) // nobody waits for these while there is a request
	l.mu.Unlock()
	defer l.runningTimers.Done()
	if !l.takeCallForAnswer(c) {
		return false
	}
	defer l.answerDelivered()
	ended(c)
	return true
}

// waitForTimers returns when no time-out and no giveUp runs, or will run, any more. All requests must have left the ledger
// before.
func (l *ledger) waitForTimers() { l.runningTimers.Wait() }

// methodOf returns the method of the request with this id; false: none is in the ledger.
func (l *ledger) methodOf(id jsonrpc.ID) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.callByID(id); c != nil {
		return c.method, true
	}
	return "", false
}

// takeForAnswer takes the request that a response with this id answers out of the ledger, and returns the id as it was
// asked. answerDelivered must follow once the response was handed on. false: there is none, also if the response is a late
// one to a request that was cancelled, or answered by the bridge; the id is returned as it came.
func (l *ledger) takeForAnswer(id jsonrpc.ID) (jsonrpc.ID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.callByID(id)
	if len(l.unanswered) > 0 && (c == nil || c.idAtServer() != id) {
		if older, _, late := jsonrpc.Find(l.unanswered, id); late {
			delete(l.unanswered, older)
			return id, false
		}
	}
	if c == nil || !c.serverID.IsZero() && !c.serverID.Equivalent(id) {
		return id, false
	}
	l.remove(c)
	l.rememberTaskToken(c)
	l.undeliveredAnswers++
	return c.id, true
}

// maxTaskTokens is how many progress tokens of tasks a ledger remembers, as nothing here says when a task is over. Before
// one more it forgets them all.
const maxTaskTokens = 1000

// rememberTaskToken remembers the progress token of a request that was answered, if it has asked for a task. mu is
// held.
func (l *ledger) rememberTaskToken(c *call) {
	if !c.asksForTask {
		return
	}
	if l.taskTokens == nil || len(l.taskTokens) >= maxTaskTokens {
		l.taskTokens = make(map[jsonrpc.ID]bool)
	}
	l.taskTokens[c.progressToken] = true
}

// takeCallForAnswer takes a call out of the ledger that the bridge itself is about to answer: the server may still
// answer it. answerDelivered must follow. false: the call is not in the ledger any more.
func (l *ledger) takeCallForAnswer(c *call) (found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[c.id] != c {
		return false
	}
	l.remove(c)
	l.noteUnanswered(c)
	l.undeliveredAnswers++
	return true
}

// answerDelivered says that the answer to one request, which takeForAnswer or the like has taken out, was handed on.
func (l *ledger) answerDelivered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.undeliveredAnswers--
	l.updateQuietSince()
	l.signalIfEmpty()
}

// updateQuietSince is called when something was answered or withdrawn: it sets quietSince to now if nothing but
// subscriptions is owed. The caller holds mu.
func (l *ledger) updateQuietSince() {
	if l.tracksQuietSince && l.undeliveredAnswers == 0 && len(l.calls) == l.listenCount {
		l.quietSince = time.Now()
	}
}

// trackQuietSince has quietSince kept up to date from now on. It is called before there is a request.
func (l *ledger) trackQuietSince() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tracksQuietSince, l.quietSince = true, time.Now()
}

// busyState reports whether anything but subscriptions is owed (busy), and if not, since when.
func (l *ledger) busyState() (busy bool, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.undeliveredAnswers > 0 || len(l.calls) > l.listenCount, l.quietSince
}

// withdraw takes a request out of the ledger that needs no answer any more, and returns its id as it was asked. false:
// there is none, and the id is returned as it came.
func (l *ledger) withdraw(id jsonrpc.ID) (jsonrpc.ID, bool) {
	if c := l.removeByID(id, nil); c != nil {
		return c.id, true
	}
	return id, false
}

// removeAnswered takes a request out of the ledger whose answer has come, and returns its id as it was asked. false:
// there is none, and the id is returned as it came.
func (l *ledger) removeAnswered(id jsonrpc.ID) (jsonrpc.ID, bool) {
	if c := l.removeByID(id, l.rememberTaskToken); c != nil {
		return c.id, true
	}
	return id, false
}

// cancel takes a client's request out of the ledger that the client has cancelled, and returns the id by which the
// server knows it. false: there is none, and the id is returned as it came.
func (l *ledger) cancel(id jsonrpc.ID) (jsonrpc.ID, bool) {
	if c := l.removeByID(id, l.noteUnanswered); c != nil {
		return c.idAtServer(), true
	}
	return id, false
}

// removeByID takes the request with this id out of the ledger, and returns it; nil: there is none. note, unless it is
// nil, is called with the request while mu is held.
func (l *ledger) removeByID(id jsonrpc.ID, note func(*call)) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.callByID(id)
	if c == nil {
		return nil
	}
	l.remove(c)
	if note != nil {
		note(c)
	}
	l.updateQuietSince()
	l.signalIfEmpty()
	return c
}

// closeAndTakeAll takes all requests out of the ledger and returns them; none can be entered afterwards. With
// forAnswers, answerDelivered must follow for each, as after takeForAnswer.
func (l *ledger) closeAndTakeAll(forAnswers bool) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	all := make([]*call, 0, len(l.calls))
	for _, c := range l.calls {
		l.remove(c)
		all = append(all, c)
	}
	if forAnswers {
		l.undeliveredAnswers += len(all)
	}
	l.signalIfEmpty()
	return all
}

// takeListens takes all subscriptions/listen out of the ledger and returns them. answerDelivered must follow for each.
func (l *ledger) takeListens() []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*call
	for _, c := range l.calls {
		if c.method == ownmsg.Listen {
			l.remove(c)
			l.undeliveredAnswers++
			all = append(all, c)
		}
	}
	return all
}

// withdrawListen takes a subscriptions/listen out of the ledger that the server has ended with a cancellation, and
// returns its id as it was asked. false: none with this id is in the ledger, and the id is returned as it came.
func (l *ledger) withdrawListen(id jsonrpc.ID) (jsonrpc.ID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.callByID(id)
	if c == nil || c.method != ownmsg.Listen {
		return id, false
	}
	l.remove(c)
	l.signalIfEmpty()
	return c.id, true
}

// owedCounts returns how many requests have no answer yet, and how many answers there are that were not handed on yet.
func (l *ledger) owedCounts() (unanswered, undelivered int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls), l.undeliveredAnswers
}

// whenEmpty returns a channel that is closed as soon as nothing is owed.
func (l *ledger) whenEmpty() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.emptied == nil {
		l.emptied = make(chan struct{})
	}
	done := l.emptied
	l.signalIfEmpty()
	return done
}

// renewTimeout is called for progress with this token: it sets the time-out of the request with the token to d from
// now, but not beyond latestDeadline, and returns the token as it was asked with. The token of a task counts, too,
// after the answer to its request. false: there is no such request or task (J13).
func (l *ledger) renewTimeout(token jsonrpc.ID, d time.Duration) (jsonrpc.ID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked, c, ok := jsonrpc.Find(l.byProgressToken, token)
	if !ok {
		asked, _, ok = jsonrpc.Find(l.taskTokens, token)
		return asked, ok
	}
	// A time-out that has run out already must not run again.
	if c.timeoutTimer != nil && c.timeoutTimer.Stop() {
		c.timeoutTimer.Reset(min(d, time.Until(c.latestDeadline)))
	}
	return asked, true
}

// callByID returns the request with this id, which may be a serverID; nil: none. If none is spelled so, it is the only
// one whose id is the same JSON value (a peer may have decoded and encoded it). mu is held.
func (l *ledger) callByID(id jsonrpc.ID) *call {
	if len(l.byServerID) > 0 {
		if _, c, ok := jsonrpc.Find(l.byServerID, id); ok {
			return c
		}
	}
	_, c, _ := jsonrpc.Find(l.calls, id)
	return c
}

// remove takes a request out of all that the ledger has, ends its time-out, and gives back what it holds of the budget,
// unless that stays taken (heldAfterAnswer). The caller, who holds mu, either adds one to undeliveredAnswers, so that
// answerDelivered must follow, or calls signalIfEmpty.
func (l *ledger) remove(c *call) {
	delete(l.calls, c.id)
	if !c.serverID.IsZero() {
		delete(l.byServerID, c.serverID)
	}
	l.pendingCalls.remove(&c.pendingEntry)
	if c.method == ownmsg.Listen {
		l.listenCount--
	}
	if !c.heldAfterAnswer {
		l.budgetShare.Release(c.heldBytes)
	}
	if l.byProgressToken[c.progressToken] == c {
		delete(l.byProgressToken, c.progressToken)
		if l.hasSharedToken { // which should not be, but then none of them is to suffer
			for _, o := range l.calls {
				if o.progressToken == c.progressToken {
					l.byProgressToken[c.progressToken] = o
				}
			}
		}
	}
	if c.timeoutTimer != nil && c.timeoutTimer.Stop() {
		l.runningTimers.Done()
	}
}

// signalIfEmpty closes emptied, if somebody waits for that, once nothing is owed. It is called with mu held.
func (l *ledger) signalIfEmpty() {
	if l.emptied != nil && len(l.calls) == 0 && l.undeliveredAnswers == 0 {
		close(l.emptied)
		l.emptied = nil
	}
}
