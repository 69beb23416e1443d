package mux

import (
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// call is one request in progress.
type call struct {
	conn     *conn
	id       jsonrpc.ID // as its client knows it
	serverID int64      // its id at the server; under Mux.mu, and so is what is below listen
	token    jsonrpc.ID // of progress, as its client knows it; zero: none
	logLevel int        // rank of the log messages that it asked for; negative: none
	// isDiscover: it is server/discover, which is not cancelled: there are servers
	// that take the cancellation, as their second message, for the beginning of a
	// legacy session. Its answer reaches nobody.
	isDiscover bool
	listen     *subscription // nil: it is no subscription

	server  *server // which has it, or is about to get it; nil: it waits for one
	written bool    // the server may know of it
	removed bool    // from the ledger: it was answered or cancelled, or TrySend has not sent it

	cancelled atomic.Bool // removed without an answer: nothing more about it reaches its client. Not under Mux.mu
}

// ledger is the requests in progress; under Mux.mu.
type ledger struct {
	calls            map[int64]*call // by their ids at the server
	listens          int             // how many of calls are subscriptions
	callsByPrincipal map[string]int  // how many of calls each principal has; a client without one is not in it
	lastServerID     int64           // the newest serverID

	strayLogsUntil time.Time // until then log messages may be about what was cancelled,
	strayLogsOf    *conn     // by this client; nil: by several
}

// enter enters a new call.
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

// assignServerID gives a call an id at the server, which has not been used before (J2): also one
// that the server is sent again.
func (l *ledger) assignServerID(call *call) {
	delete(l.calls, call.serverID)
	l.lastServerID++
	call.serverID = l.lastServerID
	l.calls[call.serverID] = call
}

// remove takes a call out.
func (l *ledger) remove(call *call) {
	delete(l.calls, call.serverID)
	if call.listen != nil {
		l.listens--
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

// requestCount returns how many calls there are, without subscriptions.
func (l *ledger) requestCount() int { return len(l.calls) - l.listens }

// isFull reports whether a client may have no more calls: it has as many as are left for the
// others, if there may be `most` of them altogether (D.2). A principal counts as one client.
// most 0: there is no bound.
func (l *ledger) isFull(c *conn, most int) bool {
	share := c.calls.len()
	if c.principal != "" {
		share = l.callsByPrincipal[c.principal]
	}
	return most > 0 && share >= most-len(l.calls)
}

// othersHaveCalls reports whether others than c have calls in progress.
func (l *ledger) othersHaveCalls(c *conn) bool {
	others := l.requestCount()
	for call := range c.calls.all() {
		if call.listen == nil {
			others--
		}
	}
	return others > 0
}

// strayLogTime is how long after the cancellation of a call a log message may
// still be about it.
const strayLogTime = 5 * time.Second

// noteCancelled notes that a call is cancelled which the server may know of.
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

// mayBeStrayLog reports whether a log message that names no call may be about one that others than
// c have cancelled.
func (l *ledger) mayBeStrayLog(c *conn) bool {
	return !time.Now().After(l.strayLogsUntil) && !c.samePrincipal(l.strayLogsOf)
}
