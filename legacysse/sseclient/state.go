package sseclient

import (
	"context"
	"net/url"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// connState are everything about a conn that changes, beside the ledger, whose lock guards it.
type connState struct {
	session *session        // nil: there is none (yet)
	pending []*call         // requests that wait for the first stream
	refused int             // renewals in a row that a Conn before this one has ended with
	down    *httpdial.Fault // why there is no session although there should be one; nil: there is, or nobody has asked for it
}

// session is one event stream.
type session struct {
	endpoint *url.URL       // for the POSTs
	peer     *httpdial.Peer // explains what goes wrong with them
	ctx      context.Context
	stop     context.CancelFunc // ends the stream
	ended    chan struct{}      // closed when the reader has ended
	began    time.Time
	retry    time.Duration   // what the server said of when to come back, 0: nothing; once ended is closed
	why      *httpdial.Fault // why the stream has ended; once ended is closed

	// Guarded by the lock of the ledger:
	version     string            // negotiated, "" until the result is there
	initialized bool              // it was told notifications/initialized
	lost        bool              // it is over
	forgotten   *httpdial.Fault   // why the bridge has ended the stream itself
	changed     []jsonrpc.Message // what the client is told of a new session, with TellRenewed
}

// decision is what becomes of a message: one field is set but for after.
type decision struct {
	send  bool            // it is sent now
	after *call           // once this one was accepted
	waits bool            // it will be sent by the reconnector
	gate  <-chan struct{} // it has to come again after this was closed
	fault *httpdial.Fault // it is answered with this
	drop  string          // it is not needed, for this reason
	err   error           // it cannot be taken
}

// admit decides what becomes of a message of the client, and enters it into the ledger
// if it may be sent.
func (c *conn) admit(call *call) decision {
	c.ledger.Lock()
	defer c.ledger.Unlock()
	if err := c.Err(context.Background()); err != nil {
		return decision{err: err}
	}
	if call.kind == jsonrpc.Response {
		return c.admitResponse(call)
	}
	target := c.ledger.Cancels(call.msg)
	switch {
	case target != nil && target.method == "initialize": // J11
		return decision{drop: "initialize cannot be cancelled"}
	case c.ledger.Gate != nil:
		return decision{gate: c.ledger.Gate}
	case call.kind == jsonrpc.Request:
		d := c.admitRequest(call)
		if d.fault != nil {
			c.refusals.Add(1)
		}
		return d
	}
	return c.admitNotification(call, target)
}

func (c *conn) admitRequest(call *call) decision {
	opens := call.method == "initialize"
	fault, err := c.ledger.Refuses(call.msg, c.opts.MaxInFlight, c.st.session != nil)
	switch {
	case fault != nil || err != nil:
		return decision{fault: fault, err: err}
	case c.st.down != nil && !opens && !c.canRetryAttended():
		return decision{fault: c.downFault()}
	}
	if opens {
		c.ledger.State.Begin(call.msg)
		call.gate = make(chan struct{})
		c.ledger.Gate = call.gate
	}
	c.ledger.Add(call)
	if call.session = c.st.session; call.session != nil {
		return decision{send: true}
	}
	c.st.pending = append(c.st.pending, call)
	c.reconnector.wake()
	return decision{waits: true}
}

// canRetryAttended reports whether all that is missing is that somebody signs in: then a request of the client waits for an attempt
// that is made for it. The lock is held.
func (c *conn) canRetryAttended() bool {
	return c.st.down.Reason == httpdial.ReasonAuth && c.opts.AuthorizeTime != 0
}

// awaitsRenewal reports whether the next session has to be initialized in the client's place, for requests that wait for it
// as well. The lock is held.
func (c *conn) awaitsRenewal() bool {
	return c.st.down != nil && c.ledger.State.Initialize.Kind() == jsonrpc.Request && c.ledger.Gate == nil
}

func (c *conn) downFault() *httpdial.Fault {
	return httpdial.FaultSince(c.st.down, httpdial.ReasonDown, httpdial.Also("not connected: "+c.st.down.Text, "the bridge keeps trying"))
}

func (c *conn) admitNotification(call, target *call) decision {
	s := c.st.session
	if call.method == "notifications/initialized" {
		c.ledger.State.Initialized = call.msg
		if s != nil {
			if s.initialized {
				return decision{drop: "the bridge has said so already"}
			}
			s.initialized = true
		}
	}
	if target != nil { // its response is not wanted any more (J12)
		c.ledger.Remove(target)
		if target.session != nil && target.session != s {
			target = nil
		}
	}
	if s == nil {
		return decision{drop: "there is no session"}
	}
	call.session = s
	return decision{send: true, after: target}
}

// admitResponse gives the client's response the id that the server knows.
func (c *conn) admitResponse(call *call) decision {
	session, answer, ok := c.ledger.State.RouteResponse(call.msg)
	if !ok { // more were asked than are noted
		session = c.st.session
	}
	if session == nil || session.lost {
		return decision{drop: "the session that asked is gone"}
	}
	call.msg, call.session = answer, session
	return decision{send: true}
}
