package mux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// conn is the bridge.Conn that a Mux gives one client, in the place of a server.
type conn struct {
	mux       *Mux   // the Mux that the Conn is of
	principal string // the client's Principal (identity.Principal); "": it has not authenticated

	removed bool        // removeConn was called for it; under mux.mu
	calls   clientCalls // the client's calls in progress; under mux.mu

	inbox bridge.Inbox // messages for the client; isFull, which is in room.go, says how many

	// mu is held while something is put into inbox, so that it is known how much waits there, and that the call is not
	// cancelled. It also guards the fields below.
	mu       sync.Mutex
	err      error         // why the Conn has ended; nil: it has not, or its client still reads the rest (endWhenDelivered)
	done     chan struct{} // closed when err is set; nil: doneChan was not called
	roomWait *roomWait     // for those who wait for room in inbox; nil: inbox was never half full
}

// errNoMessage is the error of Send for the zero Message.
var errNoMessage = errors.New("bridge: send of an invalid message")

// Send implements bridge.Conn. It waits for a server, and for room in the server's queue; with a
// message above budget.UncountedBytes also until that is written. A request that gets to no
// server is answered with an error, and Send returns nil. It also returns nil where it drops a
// message, such as a response or a progress notification, of which a server of 2026-07-28 takes
// none, or a notification for which there is no server.
func (c *conn) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.ended(); err != nil {
		return err
	}
	switch m.Kind() {
	case jsonrpc.Request:
		return c.request(ctx, m)
	case jsonrpc.Notification:
		switch m.Method() {
		case ownmsg.Cancelled:
			c.cancel(m)
			return nil
		case ownmsg.Progress:
			c.mux.reportDropped(m, "a client of 2026-07-28 makes no progress")
			return nil
		}
		if name := ambiguousKey(m); name != "" {
			c.mux.reportDropped(m, `a key differs from "`+name+`" by upper and lower case only`)
			return nil
		}
		return c.mux.submit(ctx, c, nil, m)
	case jsonrpc.Response: // ST10
		c.mux.reportDropped(m, "a server of 2026-07-28 makes no requests")
		return nil
	}
	return errNoMessage
}

// newCall makes the call for a client's request m. enterLocked enters it into the ledger.
func (c *conn) newCall(m jsonrpc.Message) *call {
	call := &call{conn: c, id: m.ID(), token: m.ProgressToken(), logLevel: -1}
	if level := requestedLogLevel(m); level != nil {
		call.logLevel = max(era.LogRank(level), 0) // the server says if it is none
	}
	switch m.Method() {
	case ownmsg.Listen:
		call.listen = new(subscription)
	case ownmsg.Discover:
		call.isDiscover = true
	}
	if m.Size() <= maxDirectSize && era.OnlyReads(m.Method()) {
		kept := m // a copy, so that m is on the stack in every other case
		call.repeat = &kept
	}
	return call
}

// requestedLogLevel returns the least level of log messages that a request asks for, as raw JSON; nil: it asks for
// none.
func requestedLogLevel(m jsonrpc.Message) (level []byte) {
	meta := m.Meta()
	if !bytes.Contains(meta, []byte("logLevel")) && bytes.IndexByte(meta, '\\') < 0 {
		return nil // so in most calls, and quickly seen
	}
	return era.MetaOf(m).LogLevel
}

// request sends a client's request to the server, or answers it with an error.
func (c *conn) request(ctx context.Context, m jsonrpc.Message) error {
	id := m.ID()
	if name := ambiguousKey(m); name != "" {
		text := `a key of the message differs from "` + name + `" by upper and lower case only`
		c.pushOrEndClient(nil, jsonrpc.NewError(id, jsonrpc.CodeInvalidRequest, text, nil).WithRelated(id))
		return nil
	}
	call := c.newCall(m)
	if call.listen != nil {
		kept, refusal := era.KeptListen(m)
		if refusal != nil {
			c.pushOrEndClient(nil, refusal.Response(id).WithRelated(id))
			return nil
		}
		call.listen.listenRequest = kept
	}
	no, err := c.enterCall(call)
	if no.Kind() != jsonrpc.Invalid {
		c.pushOrEndClient(call, no)
		return nil
	}
	if err != nil {
		return err
	}
	return c.mux.submit(ctx, c, call, m)
}

// TrySend implements bridge.Conn. It takes a request, but no subscription, if there is a server that takes it at once.
func (c *conn) TrySend(m jsonrpc.Message) bool {
	if m.Kind() != jsonrpc.Request || ambiguousKey(m) != "" || m.Method() == ownmsg.Listen {
		return false
	}
	call := c.newCall(m)
	x := c.mux
	x.mu.Lock()
	s := x.serverState.server
	if s == nil {
		x.mu.Unlock()
		return false
	}
	no, err := c.enterLocked(call)
	if no.Kind() != jsonrpc.Invalid || err != nil {
		x.mu.Unlock()
		return false
	}
	call.server = s
	x.mu.Unlock()
	if s.writeDirectly(call, m) {
		return true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if call.removed { // the server has ended, and it is answered
		return true
	}
	x.ledger.remove(call)
	return false
}

// ambiguousKey returns a key of JSON-RPC's envelope which m has in another spelling by upper and lower case; "": there
// is none. A server that takes the one for the other would answer another client's request, or cancel it.
func ambiguousKey(m jsonrpc.Message) string {
	if !m.IsExtended() { // mostly so
		return ""
	}
	for key := range m.EnvelopeKeys() {
		switch key {
		case "jsonrpc", "id", "method", "params":
			continue
		}
		for _, name := range [...]string{"jsonrpc", "id", "method", "params", "result", "error"} {
			if strings.EqualFold(key, name) {
				return name
			}
		}
	}
	return ""
}

// enterCall enters a call into the ledger. no is valid if the call may not be entered: it is the error to answer it
// with. err says that the Conn or the Mux has ended.
func (c *conn) enterCall(call *call) (no jsonrpc.Message, err error) {
	c.mux.mu.Lock()
	defer c.mux.mu.Unlock()
	return c.enterLocked(call)
}

// enterLocked enters a call into the ledger with mux.mu held. no is valid if the call may not be entered: it is the
// error to answer it with. err says that the Conn or the Mux has ended.
func (c *conn) enterLocked(call *call) (no jsonrpc.Message, err error) {
	x := c.mux
	refuse := func(code int, text string, data []byte) jsonrpc.Message {
		return jsonrpc.NewError(call.id, code, text, data).WithRelated(call.id)
	}
	switch {
	case c.removed:
		return no, io.ErrClosedPipe
	case x.closed:
		return no, bridge.ErrClosing
	case c.calls.get(call.id) != nil: // J3
		return refuse(jsonrpc.CodeInvalidRequest, ownmsg.ErrIDInUse.Error(), nil), nil
	case c.calls.len() >= maxCalls: // D.2
		return refuse(jsonrpc.CodeInternalError, ownmsg.ErrTooManyRequests.Error(), nil), nil
	case x.ledger.isFull(c, x.opts.MaxCalls):
		return refuse(jsonrpc.CodeInternalError, ownmsg.ErrTooManyRequests.Error(), ownmsg.BusyData), nil
	case x.serverState.server == nil && x.serverState.breaker.isOpen(time.Now()):
		wait := time.Until(x.serverState.breaker.nextAttempt).Round(time.Second)
		text := fmt.Sprintf("the server has failed %d times in a row; it is tried again in %v", x.serverState.breaker.failures, wait)
		return refuse(jsonrpc.CodeInternalError, text, ownmsg.ServerUnavailableData), nil
	}
	x.ledger.enter(call)
	return no, nil
}

// cancel cancels the client's call that the cancellation m is about. A client can only cancel its own (D.2). What the
// client has not read about the call is taken back, also if the call is answered already: the id may be in use again
// soon.
func (c *conn) cancel(m jsonrpc.Message) {
	x, id := c.mux, m.CancelledID()
	x.mu.Lock()
	call := c.calls.find(id)
	if call != nil {
		x.cancelCall(call, m.Lookup("params", "reason"), m.Lookup("params", "_meta"), m.Mark())
	}
	x.mu.Unlock()
	if found := c.withdrawUnread(id); call == nil && !found { // J12
		x.reportDropped(m, "cancels no request that is in progress")
	}
}

// withdrawUnread takes back what waits in inbox about the client's request with this id; found: there was something.
func (c *conn) withdrawUnread(id jsonrpc.ID) (found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inbox.Remove(func(m jsonrpc.Message) bool { return m.Related().Equivalent(id) })
}

// pushOrEndClient hands a message to the client. If the client's inbox is full, it waits as long as the client reads
// fast enough and does not hold others up for too long (maxHoldUp), and then ends the Conn (D.2). call is the request
// that the message is about; nil: none. If it is cancelled by then, the message is dropped. mux.mu is not held. A message
// that takes its call out of the ledger does not go through here, but through finish.
func (c *conn) pushOrEndClient(call *call, m jsonrpc.Message) {
	for !c.tryEnqueue(call, m) {
		if !c.awaitRoomOrEnd(m) {
			return
		}
	}
	c.inbox.Wake()
}

// tryPush hands a message about call (nil: about none) to the client without waiting. false: its inbox has no room,
// and nothing was done.
func (c *conn) tryPush(call *call, m jsonrpc.Message) bool {
	if !c.tryEnqueue(call, m) {
		return false
	}
	c.inbox.Wake()
	return true
}

// Receive implements bridge.Conn. Each message has as its Related the client's own id of the request that it is about.
func (c *conn) Receive(ctx context.Context, sink bridge.Sink) error {
	return c.inbox.Receive(ctx, sink)
}

// endWhenDelivered ends the Conn for the reason err once its client has read what waits in inbox. The caller must call
// removeConn, too.
func (c *conn) endWhenDelivered(err error) { c.inbox.End(err) }

// doneChan returns a channel that is closed when the Conn has ended (markEnded).
func (c *conn) doneChan() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// ended returns why the Conn has ended; nil: it has not.
func (c *conn) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close implements bridge.Conn. It cancels at the server what the client still waits for
// (D.2). The cancellations are queued, and Close returns before they are sent.
func (c *conn) Close(error) error {
	c.end(io.ErrClosedPipe)
	return nil
}

// end ends the Conn for the reason err, and cancels the client's calls; only the first call counts.
func (c *conn) end(err error) {
	c.markEnded(err)
	c.mux.mu.Lock()
	defer c.mux.mu.Unlock()
	c.mux.removeConn(c)
}

// markEnded makes Receive and Send return err, from now on; only the first call counts. The caller must call
// removeConn, too.
func (c *conn) markEnded(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
	c.inbox.Abort(err)
}

// samePrincipal reports whether c and o are the same Conn, or have the same principal: then
// either may hear what is meant for the other. o may be nil.
func (c *conn) samePrincipal(o *conn) bool {
	return c == o || c.principal != "" && o != nil && c.principal == o.principal
}

// goneReason is the reason, as JSON, in the cancellation of a call whose client has gone.
var goneReason = []byte(`"the client has gone"`)
