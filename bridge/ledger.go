package bridge

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// call is one request that is owed an answer.
type call struct {
	id         jsonrpc.ID
	method     string
	token      jsonrpc.ID  // of progress; zero: none
	task       bool        // augmented as a task: its token outlives the response (J13)
	size       int         // bytes that are kept of it, in all ledgers together
	lasts      bool        // they are kept when it is answered, too
	timeout    *time.Timer // nil: none
	deadline   time.Time   // when there is a timeout: it is not put off beyond this
	inProgress inProgress  // of all calls
}

// ledger keeps the requests that one side owes the other an answer to.
//
// A response leaves the ledger in two steps, take and settled, so that "nothing
// is owed" becomes true only after the answer was handed on.
type ledger struct {
	maxCalls    int             // calls at once
	allCalls    *Calls          // in which these are, too; nil: in none
	ctx         context.Context // of the conversation, for all
	cancelledBy canceller       // who can cancel these, for all
	ofServer    bool            // they are the server's
	share       *budget.Share   // for what is kept of the calls; nil: no limit. Under mu
	timers      sync.WaitGroup  // time-outs that are running or may still run

	mu          sync.Mutex
	calls       map[jsonrpc.ID]*call
	tokens      map[jsonrpc.ID]*call // those with a progress token
	sharedToken bool                 // some had the same token at the same time
	tasks       map[jsonrpc.ID]bool  // progress tokens of tasks
	unsettled   int                  // answers taken but not settled yet
	closed      bool                 // nothing may be opened any more
	listenCount int                  // of calls, subscriptions
	tracksQuiet bool                 // quietSince is wanted; set before there is a call
	quietSince  time.Time            // since when nothing but subscriptions is owed
	emptied     chan struct{}        // closed when somebody waits for it and nothing is owed
}

func (l *ledger) init(max int) {
	l.maxCalls = max
	l.calls = make(map[jsonrpc.ID]*call)
	l.tokens = make(map[jsonrpc.ID]*call)
}

var (
	errShut    = errors.New("the other side has gone")
	errTooMuch = errors.New("what waits for an answer takes too much memory; try again later")
)

// open enters a request.
func (l *ledger) open(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errShut
	}
	if _, dup := l.calls[c.id]; dup {
		return ownmsg.ErrIDInUse
	}
	if len(l.calls) >= l.maxCalls {
		return ownmsg.ErrTooManyRequests
	}
	if !l.share.Take(c.size) {
		return errTooMuch
	}
	l.calls[c.id] = c
	c.inProgress.by, c.inProgress.ByServer = l.cancelledBy, l.ofServer
	l.allCalls.begin(l.ctx, &c.inProgress, c.method, c.id)
	if c.method == ownmsg.Listen {
		l.listenCount++
	}
	if !c.token.IsZero() {
		l.sharedToken = l.sharedToken || l.tokens[c.token] != nil
		l.tokens[c.token] = c
	}
	return nil
}

// What a request that waits for its answer takes, beside its bytes: entries in the
// ledgers of the client's transport, the pump and the server's side, each with copies
// of its id, its token and its method.
const (
	callSize = 1 << 10
	copies   = 4
)

// newCall returns the call that a request makes.
func newCall(m jsonrpc.Message) *call {
	c := &call{id: m.ID(), method: m.Method(), token: m.ProgressToken()}
	c.size = callSize + copies*(len(c.id.String())+len(c.token.String())+len(c.method))
	c.task = !c.token.IsZero() && m.Lookup("params", "task") != nil
	return c
}

// arm gives an open request a time-out: expired runs in a goroutine of its own
// when the request is still open after d. It is not called after wait.
func (l *ledger) arm(c *call, d time.Duration, expired func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[c.id] != c {
		return
	}
	l.timers.Add(1)
	c.deadline = time.Now().Add(min(d, math.MaxInt64/maxRenewal) * maxRenewal)
	c.timeout = time.AfterFunc(d, func() {
		defer l.timers.Done()
		if l.takeCall(c) {
			defer l.settled()
			expired()
		}
	})
}

// giveUp ends an open request before it is answered: ended is called unless there is none of this id any
// more. It may be called at any time.
func (l *ledger) giveUp(id jsonrpc.ID, ended func(c *call)) (found bool) {
	l.mu.Lock()
	c := l.calls[id]
	if c == nil {
		l.mu.Unlock()
		return false
	}
	l.timers.Add(1) // nobody waits for these while there is a request
	l.mu.Unlock()
	defer l.timers.Done()
	if !l.takeCall(c) {
		return false
	}
	defer l.settled()
	ended(c)
	return true
}

// wait returns when no time-out runs, or will run, any more. Every request
// must have been removed before.
func (l *ledger) wait() { l.timers.Wait() }

func (l *ledger) method(id jsonrpc.ID) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.find(id); c != nil {
		return c.method, true
	}
	return "", false
}

// take removes the request that a response with this id answers and returns
// the id as it was asked. settled must follow once the response was handed on.
func (l *ledger) take(id jsonrpc.ID) (jsonrpc.ID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.find(id)
	if c == nil {
		return id, false
	}
	l.remove(c)
	l.keepTask(c)
	l.unsettled++
	return c.id, true
}

// maxTasks is how many tokens of tasks are remembered: nothing here says when
// a task is over.
const maxTasks = 1000

// keepTask remembers the token of a request whose answer has made a task.
func (l *ledger) keepTask(c *call) {
	if !c.task {
		return
	}
	if l.tasks == nil || len(l.tasks) >= maxTasks {
		l.tasks = make(map[jsonrpc.ID]bool)
	}
	l.tasks[c.token] = true
}

// takeCall is take for a request of which the caller knows which one it is.
func (l *ledger) takeCall(c *call) (found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[c.id] != c {
		return false
	}
	l.remove(c)
	l.unsettled++
	return true
}

// settled says that what take returned was handed on.
func (l *ledger) settled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsettled--
	l.noteIdle()
	l.signal()
}

// noteIdle takes note of it when nothing is in progress any more. The caller holds mu.
func (l *ledger) noteIdle() {
	if l.tracksQuiet && l.unsettled == 0 && len(l.calls) == l.listenCount {
		l.quietSince = time.Now()
	}
}

// trackQuiet has quietSince kept up to date from now on.
func (l *ledger) trackQuiet() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tracksQuiet, l.quietSince = true, time.Now()
}

// inProgress reports whether anything but subscriptions is owed, and since when
// nothing is.
func (l *ledger) inProgress() (busy bool, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unsettled > 0 || len(l.calls) > l.listenCount, l.quietSince
}

// close removes a request that needs no answer any more, and returns its id
// as it was asked.
func (l *ledger) close(id jsonrpc.ID) (jsonrpc.ID, bool) { return l.end(id, false) }

// answered is close for a request whose answer is there.
func (l *ledger) answered(id jsonrpc.ID) (jsonrpc.ID, bool) { return l.end(id, true) }

func (l *ledger) end(id jsonrpc.ID, answered bool) (jsonrpc.ID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.find(id)
	if c == nil {
		return id, false
	}
	l.remove(c)
	if answered {
		l.keepTask(c)
	}
	l.noteIdle()
	l.signal()
	return c.id, true
}

// shut removes and returns everything that is owed; nothing can be opened
// afterwards. With handing, each must be settled, as after take.
func (l *ledger) shut(handing bool) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	all := make([]*call, 0, len(l.calls))
	for _, c := range l.calls {
		l.remove(c)
		all = append(all, c)
	}
	if handing {
		l.unsettled += len(all)
	}
	l.signal()
	return all
}

// takeListens removes and returns the open subscriptions. Each must be settled.
func (l *ledger) takeListens() []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*call
	for _, c := range l.calls {
		if c.method == ownmsg.Listen {
			l.remove(c)
			l.unsettled++
			all = append(all, c)
		}
	}
	return all
}

// endListen removes the open subscription with this id, if there is one, and
// returns the id as it was asked.
func (l *ledger) endListen(id jsonrpc.ID) (jsonrpc.ID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.find(id)
	if c == nil || c.method != ownmsg.Listen {
		return id, false
	}
	l.remove(c)
	l.signal()
	return c.id, true
}

// owed returns how many requests wait for their answers, and how many answers are
// being handed on.
func (l *ledger) owed() (calls, handing int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls), l.unsettled
}

// drained returns a channel that is closed when nothing is owed.
func (l *ledger) drained() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.emptied == nil {
		l.emptied = make(chan struct{})
	}
	done := l.emptied
	l.signal()
	return done
}

// progress starts the time-out of the request with this progress token anew,
// within its deadline, and returns the token as it was asked with. It is false
// if there is no such request any more (J13).
func (l *ledger) progress(token jsonrpc.ID, d time.Duration) (jsonrpc.ID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked, c, ok := jsonrpc.Find(l.tokens, token)
	if !ok {
		asked, _, ok = jsonrpc.Find(l.tasks, token)
		return asked, ok
	}
	// A time-out that has run out already must not run again.
	if c.timeout != nil && c.timeout.Stop() {
		c.timeout.Reset(min(d, time.Until(c.deadline)))
	}
	return asked, true
}

// find returns the request with this id: as spelled, or else the only one that
// is the same JSON value (a peer may have decoded and encoded it).
func (l *ledger) find(id jsonrpc.ID) *call {
	_, c, _ := jsonrpc.Find(l.calls, id)
	return c
}

func (l *ledger) remove(c *call) {
	delete(l.calls, c.id)
	l.allCalls.end(&c.inProgress)
	if c.method == ownmsg.Listen {
		l.listenCount--
	}
	if !c.lasts {
		l.share.Release(c.size)
	}
	if l.tokens[c.token] == c {
		delete(l.tokens, c.token)
		if l.sharedToken { // which should not be, but then none of them is to suffer
			for _, o := range l.calls {
				if o.token == c.token {
					l.tokens[c.token] = o
				}
			}
		}
	}
	if c.timeout != nil && c.timeout.Stop() {
		l.timers.Done()
	}
}

func (l *ledger) signal() {
	if l.emptied != nil && len(l.calls) == 0 && l.unsettled == 0 {
		close(l.emptied)
		l.emptied = nil
	}
}
