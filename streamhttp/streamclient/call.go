package streamclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// call is one message on its way to the server and, for a request, what
// comes back.
type call struct {
	msg    jsonrpc.Message // the message
	kind   jsonrpc.Kind    // the kind of msg
	id     jsonrpc.ID      // the id of msg
	method string          // the method of msg

	ctx    context.Context    // the ctx of the POST and of the reading of its reply; only that of initialize, a notification or a response has a deadline
	cancel context.CancelFunc // ends ctx

	sent     chan struct{} // closed when the next message may set out
	sentOnce sync.Once     // closes sent once
	done     chan struct{} // closed when a request was answered, cancelled or given up; never for another message

	session *session // where it is posted first; nil: there was none when it was admitted, or it is an initialize

	initializeGate  chan struct{} // other messages wait for it until this call, the client's initialize, is answered; nil: it is another call
	newSession      *session      // of an initialize, also the bridge's own: the session that its reply has begun; nil: none
	replacedSession *session      // a session to end at the server when the call, an initialize, is over; nil: none

	cancelledCall *call // the call that this notification cancels; nil: it cancels none

	isOwn bool // a request or notification of the bridge's own
	// attended, of a call of the bridge's own: a person may be asked to sign in for it. Of a client's
	// request: an attempt to renew the session was made for it already (retryAttended).
	attended bool
	// tell tells the clients what they wait for. It is for a call of the bridge's own; nil: no client waits for the call.
	tell    func(text string)
	replied chan jsonrpc.Message // gets the response to a request of the bridge's own (isOwn)
	reply   jsonrpc.Message      // the response to a request of the bridge's own, which ask returns; zero for a client's request
}

// newCall returns the call for m, with the ctx that its kind needs.
func newCall(c *conn, m jsonrpc.Message) *call {
	call := &call{
		msg: m, kind: m.Kind(), id: m.ID(), method: m.Method(),
		sent: make(chan struct{}), done: make(chan struct{}), replied: make(chan jsonrpc.Message, 1),
	}
	switch {
	case call.method == "initialize":
		call.ctx, call.cancel = context.WithTimeout(c.Context(), httpdial.TimeoutWithSignIn(c.opts.InitializeTimeout, c.opts.AuthorizeTimeout))
	case call.kind != jsonrpc.Request:
		call.ctx, call.cancel = context.WithTimeout(c.Context(), oneWayTimeout)
	default:
		call.ctx, call.cancel = context.WithCancel(c.Context())
	}
	return call
}

// end ends the ctx of call, whose message is over. If the message has cancelled another call, the ctx of that one ends cancelLinger later.
func (call *call) end() {
	call.cancel()
	if call.cancelledCall != nil {
		time.AfterFunc(cancelLinger, call.cancelledCall.cancel)
	}
}

// ID is the id of a request.
func (call *call) ID() jsonrpc.ID { return call.id }

// IsFromBridge reports whether the call is the bridge's own.
func (call *call) IsFromBridge() bool { return call.isOwn }

// OnRemoved is called by the ledger when the call is taken out: nobody waits for the response any more.
func (call *call) OnRemoved() { close(call.done) }

// setSent closes sent, if it is not closed yet: the next message may set out.
func (call *call) setSent() { call.sentOnce.Do(func() { close(call.sent) }) }

// wantsResponse reports whether the call is a request, which gets a response.
func (call *call) wantsResponse() bool { return call.kind == jsonrpc.Request }

// isDone reports whether the call is a request that was answered, cancelled or given up.
func (call *call) isDone() bool {
	select {
	case <-call.done:
		return true
	default:
		return false
	}
}

// exchange posts the message, and for a request reads the reply until the request is
// answered. It returns nil if the server has taken the message and answered the request,
// if nobody waits for the answer any more, if the Conn has ended, or if the session was
// renewed meanwhile and the new one does not want the message.
func (c *conn) exchange(call *call) *httpdial.Fault {
	session := call.session
	resent, repeats := false, 0
	for {
		if call.kind == jsonrpc.Request && !call.IsFromBridge() {
			c.listener.startListening(session)
		}
		fault := c.post(call, session)
		switch {
		case fault == nil, call.isDone(), c.Context().Err() != nil:
			return nil
		case fault.SessionLost && !call.IsFromBridge() && !resent: // LE5
			resent = true
			session, fault = c.renewer.recoverSession(call.ctx, session)
			switch {
			case c.Context().Err() != nil:
				return nil // NoRenew
			case fault != nil:
				return fault
			}
			if call.kind == jsonrpc.Response || call.method == "notifications/initialized" {
				return nil // the new session did not ask, or was told
			}
		case call.kind == jsonrpc.Response && httpdial.MayRepostAnswer(fault) && !c.oneWaySlots.IsOverHalfFull(): // LE15
			call.setSent() // what follows does not wait for it
			if !httpdial.Pause(call.ctx, nil, httpdial.BackoffAfter(fault, repeats)) {
				return fault
			}
			repeats++
		case fault.ServerBusy && httpdial.MayRepeatMethod(call.method) && httpdial.PauseBeforeBusyRetry(call.ctx, repeats, fault.RetryAfter): // LE14
			repeats++
		default:
			return fault
		}
	}
}

// post posts the message once, in this session (nil: in none), and handles the reply. The fault says
// why the server has not taken the message, or a request has no answer; nil: it has.
func (c *conn) post(call *call, session *session) *httpdial.Fault {
	ctx := call.ctx
	if call.kind != jsonrpc.Notification {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { call.setSent() },
		})
	}
	switch {
	case call.IsFromBridge() && !call.attended:
		ctx = httpdial.Unattended(ctx)
	case call.tell != nil:
		ctx = httpdial.WithProgress(ctx, call.tell)
	case c.opts.Authorize != nil && !call.IsFromBridge():
		ctx = c.WithProgress(ctx, call.msg, true)
	}
	req := c.newRequest(ctx, http.MethodPost, session)
	req.Header["Accept"] = valueAcceptBoth
	req.Header["Content-Type"] = valueJSON
	httpdial.AllowReplay(req, call.msg)
	httpdial.SetBody(req, call.msg.Bytes())
	resp, fault := c.target.Do(req)
	if fault != nil {
		return fault
	}
	defer resp.Body.Close()
	return c.readReply(call, session, resp)
}

// Header values shared by all requests.
var (
	valueAcceptBoth = []string{wire.AcceptBoth} // the Accept header of a POST
	valueAcceptSSE  = []string{wire.TypeSSE}    // the Accept header of a GET
	valueJSON       = []string{wire.TypeJSON}   // the Content-Type of a POST
)

// readReply handles what came back for a POST. Its caller closes the body.
func (c *conn) readReply(call *call, session *session, resp *http.Response) *httpdial.Fault {
	if resp.StatusCode/100 != 2 {
		return c.readRefusal(session, resp)
	}
	session, fault := c.noteSession(call, session, resp)
	if fault != nil {
		return fault
	}
	mediaType := httpdial.MediaType(resp)
	switch {
	case mediaType == wire.TypeSSE:
		return c.readCallStream(call, session, resp)
	case mediaType == wire.TypeJSON, mediaType == "":
		return c.readJSONReply(call, session, resp)
	case call.kind != jsonrpc.Request || resp.StatusCode == http.StatusNoContent:
		httpdial.DrainShortBody(resp)
		return c.handleAccepted(call, session, resp.StatusCode)
	}
	return &httpdial.Fault{
		Reason: httpdial.ReasonNotMCP, Status: resp.StatusCode,
		Text: fmt.Sprintf("%s answered with %q, not with JSON or an event stream; is this the URL of an MCP server?", c.target.Peer, c.target.Peer.WithholdingSent(resp).WithholdSecrets(mediaType)),
	}
}

// readJSONReply reads a reply that is JSON: a message, an array of them, or nothing.
func (c *conn) readJSONReply(call *call, session *session, resp *http.Response) *httpdial.Fault {
	raw, fault := c.readReplyBody(resp)
	if fault != nil {
		return fault
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return c.handleAccepted(call, session, resp.StatusCode)
	}
	fault = c.handleIncoming(raw, call, session)
	switch {
	case call.kind != jsonrpc.Request:
		return nil // there is nothing that it could mean
	case fault != nil:
		return fault
	case !call.isDone():
		return c.noAnswerFault(resp.StatusCode)
	}
	return nil
}

// maxPreallocated is the greatest Content-Length, in bytes, for which the memory for a body is taken before the
// body has come.
const maxPreallocated = 4 << 20

// readReplyBody reads the body of a reply, of up to MaxMessageSize.
func (c *conn) readReplyBody(resp *http.Response) ([]byte, *httpdial.Fault) {
	return readReplyBody(c.target.Peer, resp, c.opts.MaxMessageSize)
}

// readReplyBody reads the body of a reply of peer. A body of more than maxSize bytes is a fault.
func readReplyBody(peer *httpdial.Peer, resp *http.Response, maxSize int) ([]byte, *httpdial.Fault) {
	limit := int64(maxSize)
	if resp.ContentLength > limit {
		return nil, peer.TooLargeFault(maxSize)
	}
	var raw []byte
	var err error
	if n := resp.ContentLength; n >= 0 && n <= maxPreallocated {
		raw = make([]byte, n)
		if _, err = io.ReadFull(resp.Body, raw); err == nil {
			httpdial.DrainShortBody(resp) // sees the end
		}
	} else {
		raw, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	}
	switch {
	case err != nil:
		return nil, peer.NetFault(err)
	case int64(len(raw)) > limit:
		return nil, peer.TooLargeFault(maxSize)
	}
	return raw, nil
}

// handleAccepted handles a reply that is a success without a message. A request waits for its
// response on another stream, unless none can come.
func (c *conn) handleAccepted(call *call, session *session, status int) *httpdial.Fault {
	if call.kind != jsonrpc.Request {
		if status != http.StatusAccepted {
			c.log.Debug("the server did not answer 202 where there is nothing to say", "status", status) // LE2
		}
		return nil
	}
	if status == http.StatusOK || session == nil {
		return c.noAnswerFault(status)
	}
	// LE10: the response may come on another stream.
	c.log.Warn("the server accepted a request without answering it; waiting for the response on another stream", "method", call.method)
	call.setSent()
	c.listener.startListening(session)
	select {
	case <-call.done:
		return nil
	case <-session.noListenStream:
	case <-c.listener.streamUnavailableOf(session):
		return c.resultLostFault(&httpdial.Fault{})
	case <-session.ctx.Done():
	case <-call.ctx.Done():
		return c.target.Peer.NetFault(call.ctx.Err())
	}
	return c.noAnswerFault(status)
}

// noAnswerFault returns the fault of a request to which the reply had this HTTP status, a success, and
// no response.
func (c *conn) noAnswerFault(status int) *httpdial.Fault {
	return &httpdial.Fault{Reason: httpdial.ReasonNoAnswer, Status: status,
		Text: fmt.Sprintf("%s answered %s, but without a response to the request", c.target.Peer, httpdial.StatusText(status))}
}

// readRefusal returns the fault for a reply whose status is no success, with the JSON-RPC error that the
// body may hold. It sets SessionLost if the reply says that session is gone (LE5, LE6):
//   - for a session with an id 404, unless the body says that there is no such method, and 400 with an
//     error that says so (saysSessionDead);
//   - 400 with an error that only a modern server sends, if there is a ConfirmUpgrade (ED9);
//   - if a renewal may find out that it is no Streamable HTTP server any more (ReportWrongTransport, and
//     not NoRenew), 405, and the same 404 for a session without an id.
//
// A nil session means that the reply cannot be about a session.
func (c *conn) readRefusal(session *session, resp *http.Response) *httpdial.Fault {
	fault := c.target.Peer.RefusalFault(resp)
	if session == nil {
		return fault
	}
	gone := c.opts.ReportWrongTransport && !c.opts.NoRenew // if it is no Streamable HTTP server any more
	switch status := resp.StatusCode; {
	case status == http.StatusBadRequest && c.opts.ConfirmUpgrade != nil && isOnlyModernError(fault.ServerError):
		fault.SessionLost = true // the server knows no sessions any more (ED9)
		return fault
	case status == http.StatusMethodNotAllowed:
		fault.SessionLost = gone
		return fault
	case session.id == "" && (status != http.StatusNotFound || !gone):
		return fault
	}
	switch resp.StatusCode {
	case http.StatusNotFound:
		// A body that says "no such method" is about the method.
		fault.SessionLost = string(fault.ServerError.Lookup("error", "code")) != "-32601"
	case http.StatusBadRequest:
		fault.SessionLost = fault.ServerError.IsError() && saysSessionDead(fault.ServerError)
	}
	return fault
}

// handleIncoming hands on what a reply or an event carries: a message, or an array
// of them (LE2). from is the call whose reply it is, nil on the standalone
// stream. The fault is about the call.
func (c *conn) handleIncoming(raw []byte, from *call, session *session) *httpdial.Fault {
	if !jsonrpc.IsBatch(raw) {
		return c.handleMessage(raw, from, session)
	}
	elements, err := jsonrpc.SplitBatch(raw, jsonrpc.MaxServerBatch)
	if err != nil {
		return c.target.Peer.InvalidMessageFault(err)
	}
	var first *httpdial.Fault
	for _, element := range elements {
		if fault := c.handleMessage(element, from, session); fault != nil && first == nil {
			first = fault
		}
	}
	return first
}

// handleMessage hands on one message, raw, that a reply or an event carries. from and the fault are
// those of handleIncoming.
func (c *conn) handleMessage(raw []byte, from *call, session *session) *httpdial.Fault {
	m, err := jsonrpc.ParseDepth(raw, c.opts.MaxDepth)
	if err != nil {
		return c.target.Peer.InvalidMessageFault(err)
	}
	switch m.Kind() {
	case jsonrpc.Response:
		c.handleResponse(m, from)
		return nil
	case jsonrpc.Request:
		if session != nil {
			m, _ = c.ledger.NoteServerMessage(session, m)
		}
	case jsonrpc.Notification:
		if from != nil && from.isDone() && isProgressOf(m, from) { // J12, J13
			return nil
		}
		m, _ = c.ledger.NoteServerMessage(session, m)
	}
	c.Deliver(c.Context(), m.WithRelated(relatedID(from)))
	return nil
}

// relatedID returns the id of the client's request to which a message belongs that came with
// the reply to from: the server's streams are told apart for the client, too (B.4).
// NullID: to none. The reply is to no request of the client, or the response came before.
func relatedID(from *call) jsonrpc.ID {
	if from == nil || from.IsFromBridge() || from.kind != jsonrpc.Request || from.isDone() {
		return jsonrpc.NullID
	}
	return from.id
}

// isProgressOf reports whether m is progress of call: a notifications/progress with its token.
func isProgressOf(m jsonrpc.Message, call *call) bool {
	return m.Method() == "notifications/progress" && !m.ProgressToken().IsZero() &&
		m.ProgressToken().Equivalent(call.msg.ProgressToken())
}

// handleResponse answers the call that m is the response to, whichever stream m came on
// (LE10). An error without an id, in the reply to a request, is about that request.
func (c *conn) handleResponse(m jsonrpc.Message, from *call) {
	id := m.ID()
	if m.IsError() && (id.IsZero() || id == jsonrpc.NullID) && from != nil && from.kind == jsonrpc.Request {
		id = from.id
	}
	call, ok := c.ledger.ClaimByID(id)
	if !ok {
		c.log.Debug("response dropped: nobody waits for it")
		return
	}
	c.answer(call, m)
	if call != from {
		call.cancel()
	}
}

// answer answers a call, which the caller has claimed from the ledger, with the server's response m.
func (c *conn) answer(call *call, m jsonrpc.Message) {
	if m.ID() != call.id {
		m = httpdial.ResponseWithID(m, call.id)
	}
	if call.initializeGate != nil {
		c.setSessionFromInitialize(call, m)
	} else if !m.IsError() && !call.IsFromBridge() && !c.ledger.RememberSetting(call.msg) {
		c.log.Warn("too many subscriptions: this one will not survive a restart of the server")
	}
	if call.IsFromBridge() {
		call.replied <- m // has room for it
	} else {
		c.Deliver(c.Context(), m)
	}
	if call.initializeGate != nil {
		c.ledger.OpenInitializeGate(call.initializeGate)
	}
}

// fail answers a call with the fault, unless it was answered already. Of a message that is
// no request only the log hears.
func (c *conn) fail(ctx context.Context, call *call, fault *httpdial.Fault) {
	if call.kind != jsonrpc.Request {
		c.log.Warn("the server did not take a message", append(fault.LogAttrs(), "method", call.method)...)
		return
	}
	if !c.ledger.ClaimCall(call) {
		return
	}
	c.log.With(fault.LogAttrs()...).Warn("request failed", "method", call.method)
	if call.initializeGate != nil {
		c.handleInitializeFailure(call, fault)
	}
	c.Deliver(ctx, fault.Response(call.id))
	if call.initializeGate != nil {
		c.ledger.OpenInitializeGate(call.initializeGate)
	}
}

// refuse answers with the fault a request that tryAdmit has not entered into the ledger, but has counted in c.refusing: refuse
// takes it off that count.
func (c *conn) refuse(ctx context.Context, call *call, fault *httpdial.Fault) {
	defer c.refusing.Done()
	c.log.Warn("request refused", "method", call.method, "reason", fault.Reason)
	_ = c.QueueErrorResponse(ctx, fault.Response(call.id))
}

// endUnanswered takes a message that was never sent out of the ledger, and lets the messages behind it
// go on; false: it is a request that was answered before.
func (c *conn) endUnanswered(call *call) bool {
	ours := call.kind != jsonrpc.Request || c.ledger.ClaimCall(call)
	call.setSent()
	if call.initializeGate != nil {
		c.ledger.OpenInitializeGate(call.initializeGate)
	}
	return ours
}
