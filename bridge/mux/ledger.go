package mux

import (
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// call is one request of a client that is in progress.
type call struct {
	conn     *conn      // the Conn of the client that has asked
	id       jsonrpc.ID // the id as its client knows it
	serverID int64      // the id as the server knows it; under Mux.mu, and so are server, written and removed
	token    jsonrpc.ID // the progress token as its client knows it; zero: none
	logLevel int        // the rank (era.LogRank) from which on the request asks for log messages; negative: it asks for none
	// isDiscover: it is server/discover, whose cancellation is not sent to the server: there are servers that take
	// that, as their second message, for the beginning of a legacy session. The answer reaches nobody then.
	isDiscover bool
	listen     *subscription // what is remembered of the subscription; nil: the request is none

	server  *server          // the server that has it, or is about to get it; nil: it waits for one
	written bool             // the server may know of it: it was written to the server, or is being written (server.writing)
	request *jsonrpc.Message // the client's request, while it is not written and no Send waits with it; nil otherwise. See passon.go
	// repeat is the request, if it only reads and is short, until it was sent twice: a server that ends in an orderly
	// way may get it when it is about to go. nil otherwise
	repeat   *jsonrpc.Message
	passedOn bool // a server has ended without taking it, or without answering it, and passOn was called
	removed  bool // it is no longer in the ledger: it was answered or cancelled, or TrySend has not sent it

	cancelled atomic.Bool // it left the ledger without an answer: nothing more about it reaches its client. Not under Mux.mu
}

// ledger has the calls of all clients that are in progress; under Mux.mu.
type ledger struct {
	calls            map[int64]*call // the calls, by serverID
	listens          int             // how many of calls are subscriptions
	callsByPrincipal map[string]int  // how many of calls each principal has that has any
	lastServerID     int64           // the serverID that was given last
	quietSince       time.Time       // when the last call but subscriptions was over; zero: none was yet. It means nothing while there are any

	strayLogsUntil time.Time // until then the server may log about a call that was cancelled
	strayLogsOf    *conn     // the client whose call was cancelled (strayLogsUntil); nil: there were calls of several clients
}

// enter enters a new call, also into its client's calls, and gives it a serverID.
func (l *ledger) enter(call *call) {
	c := call.conn
	c.calls.add(call)
	l.assignServerID(call)
	if c.principal != "" {
		l.callsByPrincipal[c.principal]++
	}
	if call.listen != nil {
		l.listens++
	}
}

// assignServerID gives a call a serverID that was not used before (J2), also one that has had another and is sent
// again.
func (l *ledger) assignServerID(call *call) {
	delete(l.calls, call.serverID)
	l.lastServerID++
	call.serverID = l.lastServerID
	l.calls[call.serverID] = call
}

// remove takes a call out, also of its client's calls.
func (l *ledger) remove(call *call) {
	delete(l.calls, call.serverID)
	if call.listen != nil {
		l.listens--
	} else if l.requestCount() == 0 {
		l.quietSince = time.Now()
	}
	if call.server != nil {
		call.server.noteLastUser(call)
	}
	c := call.conn
	c.calls.remove(call)
	if c.principal != "" {
		if l.callsByPrincipal[c.principal]--; l.callsByPrincipal[c.principal] == 0 {
			delete(l.callsByPrincipal, c.principal)
		}
	}
	call.removed = true
}

// requestCount returns how many calls there are, subscriptions not counted.
func (l *ledger) requestCount() int { return len(l.calls) - l.listens }

// isFull reports whether the client of c may have no more calls, if there may be `most` of them altogether: it has as
// many as are left for the others (D.2). Conns of one principal are one client. most 0: there is no bound.
func (l *ledger) isFull(c *conn, most int) bool {
	share := c.calls.len()
	if c.principal != "" {
		share = l.callsByPrincipal[c.principal]
	}
	return most > 0 && share >= most-len(l.calls)
}

// othersHaveCalls reports whether others than c have calls in progress, subscriptions not counted.
func (l *ledger) othersHaveCalls(c *conn) bool {
	others := l.requestCount()
	for call := range c.calls.all() {
		if call.listen == nil {
			others--
		}
	}
	return others > 0
}

// strayLogTime is for how long after the cancellation of a call the server may still log about it.
const strayLogTime = 5 * time.Second

// noteCancelled is called when a call is cancelled that the server may know of: for strayLogTime it may still log
// about it.
func (l *ledger) noteCancelled(call *call) {
	if call.listen != nil { // no log message is about a subscription
		return
	}
	now := time.Now()
	if now.Before(l.strayLogsUntil) && !call.conn.samePrincipal(l.strayLogsOf) {
		l.strayLogsOf = nil
	} else {
		l.strayLogsOf = call.conn
	}
	l.strayLogsUntil = now.Add(strayLogTime)
}

// mayBeStrayLog reports whether a log message that names no call may be about one that another client than c's has
// cancelled.
func (l *ledger) mayBeStrayLog(c *conn) bool {
	return !time.Now().After(l.strayLogsUntil) && !c.samePrincipal(l.strayLogsOf)
}
