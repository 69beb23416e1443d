// Package mux makes one server that speaks 2026-07-28 look like many.
//
// # Delivery order
//
// A client gets what the server says about its requests in the order in which the server has
// said it, and what the Mux says about them in between: all of it goes through the client's
// Inbox. An answer is the last about its request, a subscription's end as well. What a
// client has cancelled says nothing more, not even what waited in the Inbox by then.
//
// The server gets the messages of one client in that client's order. A message that a client
// writes itself goes first only if nothing waits to be written. Subscriptions that are opened
// again come before all else that a new server gets.
//
// Nobody waits for a client for longer than room.go says. The reader of the server waits
// for the Inbox of a client only, never for the client's own work; it does that work where
// that needs no waiting, and where no other call is in progress.
//
// # Lock order
//
// One goroutine takes the locks in this order: the turn of a client's Inbox, server.writeMu,
// Mux.mu, conn.mu, the Inbox's own. The first two are turns more than locks: whoever
// receives for a client, or writes to the server, has them. Others try to take them and go on
// without; only the Mux's writer waits for server.writeMu. None of the others is held while
// anybody waits, or while messages are reported (report.Mutex).
package mux

import (
	"context"
	"crypto/rand"
	"math"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/bridge/internal/report"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Defaults of Options.
const (
	// DefaultMaxUnread is how many messages a client may leave unread by default (Options.MaxUnread). It is large because
	// a burst of small messages comes faster than any client can read.
	DefaultMaxUnread = 100_000
	// DefaultMaxUnreadBytes is how many bytes of messages a client may leave unread by default (Options.MaxUnreadBytes).
	DefaultMaxUnreadBytes = 16 << 20
	// DefaultBackoff is the wait, by default, before a server is dialed again after a first failure (Options.Backoff).
	DefaultBackoff = 500 * time.Millisecond
	// DefaultMaxBackoff is the longest wait, by default, before a server is dialed again after failures
	// (Options.MaxBackoff); if Backoff is longer, that is.
	DefaultMaxBackoff = 30 * time.Second
)

// maxCalls is how many requests of one client may wait for an answer at once (D.2).
const maxCalls = 1000

// Options tune a Mux. All but Dialer may be zero.
type Options struct {
	// Dialer makes the Conn to the server, which speaks 2026-07-28. It is asked when somebody
	// wants something of the server and none is there, by one goroutine at a time, and not again
	// before that Conn is closed. Its ctx is done when the Mux is closed.
	Dialer bridge.Dialer

	// MaxUnread is how many messages a client may leave unread before it has to read fast or its Conn is ended
	// (ErrSlow). 0 means DefaultMaxUnread.
	MaxUnread int
	// MaxUnreadBytes is how many bytes the messages that a client leaves unread may have together, before it has to
	// read fast or its Conn is ended (ErrSlow). One message always fits. 0 means DefaultMaxUnreadBytes.
	MaxUnreadBytes int

	// MaxCalls is how many requests may be in progress at the server, open subscriptions among
	// them. A client that has as many as are left for the others gets no more: the next is
	// answered with an error (data.reason "busy"). Conns of one principal are one client here. 0
	// means no bound.
	MaxCalls int

	// Backoff is the time to the next attempt after a first failure to start the server or keep it up for a minute; it
	// doubles with each one that follows, up to MaxBackoff. A server that has answered calls, and ends in an orderly
	// way (IsOrderly), is no failure: a call starts the next at once, and only open subscriptions wait. 0 means
	// DefaultBackoff.
	Backoff time.Duration
	// MaxBackoff is the longest time to the next attempt. 0 means DefaultMaxBackoff, or Backoff if that is longer.
	MaxBackoff time.Duration

	// Dropped is told of each message that reached nobody, and why. The reason never holds content. Dropped may be
	// called concurrently, with no lock held: it may use the Mux. It should not wait, for the reader of the server may
	// have called it. nil: nobody is told.
	Dropped func(m jsonrpc.Message, reason string)

	// OnCrash is told that the server has ended, other than by its own choice after it has
	// answered (IsOrderly), and who had requests in progress there: principals, "" for all who
	// have not authenticated. If nobody had any, it is told whose request was the last to be
	// over, if there was one. The principals that it returns are to share the server no more:
	// their Conns end once they have read what they are owed. If it returns any, this end is no
	// failure, so that the others have the next server at once. It is called by one goroutine at
	// a time, with no lock held; nil is fine, and returns nobody.
	OnCrash func(principals []string) (part []string)

	// OnNoServer is told that the server has ended, or that none could be had: why, and after
	// what time another may be tried, if anybody wants one then. It is not told once the Mux is
	// closed. It is called by one goroutine at a time; nil is fine.
	OnNoServer func(err error, wait time.Duration)
}

// Mux makes one server that speaks 2026-07-28 look like many: it is a Dialer
// whose Conns share the server (part D of docs/rules.md). Any number of
// goroutines may use it. It starts nothing until a client says something;
// Close ends all.
//
// Towards the server each request has an id, and a progress token if it had
// one, of the Mux's own; what comes back goes to the one client that it is
// about, with that client's ids, and is marked (Message.Related) with the
// request in whose course it came. What cannot be attributed reaches nobody.
//
// When the server ends, the calls it owes are answered with an error, and
// subscriptions are opened again at the next one without their clients' doing;
// these are told that all they watch may have changed (ST9).
type Mux struct {
	opts        Options // New's, with the defaults filled in
	tokenPrefix string  // begins each progress token that the server gets; random, so that no client can guess those of another

	ctx    context.Context    // done when the Mux is closed
	cancel context.CancelFunc // ends ctx: Close calls it
	wg     sync.WaitGroup     // waits for the goroutine of keepConnected
	wake   chan struct{}      // holds one element when keepConnected has to look again whether a server is wanted

	mu                report.Mutex       // guards what changes: the fields of the Mux below it, and those of others that say so
	closed            bool               // Close was called
	closeErr          error              // what Close of the last server's Conn has returned
	keepConnectedRuns bool               // the goroutine of keepConnected was started
	conns             map[*conn]struct{} // the Conns that have not ended
	idleSince         time.Time          // since when conns is empty, if it is
	ledger            ledger             // the calls in progress
	serverState       serverState        // whether there is a server, and when there may be
}

// serverState is what a Mux knows of whether it has a server, and when it may dial one; under Mux.mu.
type serverState struct {
	server             *server       // the server that is up; nil: none is
	waitingSends       int           // how many Sends wait for a server
	passedOn           []*call       // calls that the last server has not taken, or that are sent again (endLost), and no Send waits with: the next one gets them
	dialFailures       int           // how many times Dial has failed: a Send that waits sees by it that there was no server to be had
	changed            chan struct{} // closed, and replaced by another, when server or dialFailures has changed
	breaker            breaker       // when a server may be dialed
	noListenDialBefore time.Time     // until then, open subscriptions alone are no reason to dial
}

// New returns a Mux. It starts nothing, and dials no server before a client says something.
func New(o Options) *Mux {
	if o.MaxUnread <= 0 {
		o.MaxUnread = DefaultMaxUnread
	}
	if o.MaxUnreadBytes <= 0 {
		o.MaxUnreadBytes = DefaultMaxUnreadBytes
	}
	if o.Backoff <= 0 {
		o.Backoff = DefaultBackoff
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = max(DefaultMaxBackoff, o.Backoff)
	}
	x := &Mux{
		opts: o, tokenPrefix: rand.Text()[:12] + "-", idleSince: time.Now(),
		wake: make(chan struct{}, 1), conns: make(map[*conn]struct{}),
		ledger:      ledger{calls: make(map[int64]*call), callsByPrincipal: make(map[string]int)},
		serverState: serverState{changed: make(chan struct{}), breaker: breaker{minBackoff: o.Backoff, maxBackoff: o.MaxBackoff}},
	}
	x.mu.Dropped = o.Dropped
	x.ctx, x.cancel = context.WithCancel(context.Background())
	return x
}

// Dial returns a Conn for one more client, whose Principal is in ctx. It does not wait
// for the server. The error is ctx's, or bridge.ErrClosing once the Mux is closed.
func (x *Mux) Dial(ctx context.Context) (bridge.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, bridge.ErrClosing
	}
	c := &conn{mux: x, principal: identity.Principal(ctx)}
	c.inbox.MaxMessages = math.MaxInt
	x.conns[c] = struct{}{}
	return c, nil
}

// Load is how much a Mux has to do.
type Load struct {
	Conns   int // how many clients there are, that is Conns which have not ended
	Calls   int // how many requests are in progress, subscriptions not counted
	Listens int // how many subscriptions are open

	// IdleSince is when the last client has gone, or the Mux was made; zero: there is a client.
	IdleSince time.Time

	// QuietSince is when the last request but subscriptions was over; zero: there was none yet, or some are in progress.
	QuietSince time.Time
}

// Load returns how much there is to do now.
func (x *Mux) Load() Load {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := Load{Conns: len(x.conns), Calls: x.ledger.requestCount(), Listens: x.ledger.listens}
	if l.Conns == 0 {
		l.IdleSince = x.idleSince
	}
	if l.Calls == 0 {
		l.QuietSince = x.ledger.quietSince
	}
	return l
}

// Close ends all Conns, with ErrClosing, and closes the server. It returns when everything that the Mux has started
// has ended, with the error with which the server's Conn was closed.
func (x *Mux) Close() error {
	x.mu.Lock()
	x.closed = true
	conns := make([]*conn, 0, len(x.conns))
	for c := range x.conns {
		conns = append(conns, c)
	}
	server := x.serverState.server
	x.mu.Unlock()
	for _, c := range conns {
		c.end(bridge.ErrClosing)
	}
	if server != nil {
		server.awaitCancellations()
	}
	x.cancel()
	if server != nil {
		_ = server.conn.Close(nil) // its error is that of keepConnected
	}
	x.wg.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.closeErr
}

// cancelCall takes a call out of the ledger without an answer, and cancels it at the server, if that may know of it and the
// call is not server/discover. reason, meta and mark are those of the client's cancellation; nil: it has none. It is called
// with mu held.
func (x *Mux) cancelCall(call *call, reason, meta []byte, mark *jsonrpc.Mark) {
	x.ledger.remove(call)
	call.cancelled.Store(true)
	if !call.written || call.server == nil || call.isDiscover {
		return
	}
	x.ledger.noteCancelled(call)
	call.server.queueCancellation(call.serverID, reason, meta, mark)
}

// finish takes a call out of the ledger and hands its client last, what there is left to say about it. Both is one
// step: a cancellation comes before, and then nothing is said, or after, and then takes back what is unread. It is
// called with mu held, for a call that is not removed.
func (x *Mux) finish(call *call, last ...jsonrpc.Message) {
	x.finishWithoutWake(call, last...)
	call.conn.inbox.Wake()
}

// finishWithoutWake takes a call out of the ledger and puts last, what there is left to say about it, into its
// client's inbox. If the client leaves so much unread that there is no room for it even so (enqueueLast), its Conn ends with
// ErrSlow. The caller calls Wake or Deliver of the inbox. It is called with mu held, for a call that is not removed.
func (x *Mux) finishWithoutWake(call *call, last ...jsonrpc.Message) {
	c := call.conn
	x.ledger.remove(call)
	for _, m := range last {
		if !c.enqueueLast(call, m) {
			x.mu.Drop(m, bridge.ErrSlow.Error())
			c.markEnded(bridge.ErrSlow)
			x.removeConn(c)
			return
		}
	}
}

// removeConn forgets a Conn that has ended, and cancels its calls. It is called with mu held.
func (x *Mux) removeConn(c *conn) {
	if c.removed {
		return
	}
	c.removed = true
	for call := range c.calls.all() {
		x.cancelCall(call, goneReason, nil, nil)
	}
	delete(x.conns, c)
	if len(x.conns) == 0 {
		x.idleSince = time.Now()
	}
}

// reportDropped tells Options.Dropped that a message has reached nobody. It is called without mu.
func (x *Mux) reportDropped(m jsonrpc.Message, reason string) {
	if x.mu.Dropped != nil {
		x.mu.Dropped(m, reason)
	}
}
