package sseclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse/internal/wire"
)

// call is one message on its way to the server and, for a request, what
// comes back on the event stream.
type call struct {
	msg    jsonrpc.Message // the message
	kind   jsonrpc.Kind    // the kind of msg
	id     jsonrpc.ID      // the id of msg
	method string          // the method of msg

	session *session // where it is sent; nil: it waits for a session
	// tell tells the client what its request waits for; nil: the request has not waited for a session, or has not asked for progress.
	tell func(text string)

	postCtx    context.Context    // the ctx of the POST; that of a notification or a response has a deadline
	cancelPost context.CancelFunc // ends postCtx

	written   chan struct{} // closed when the POST was written
	writeOnce sync.Once     // closes written once
	accepted  chan struct{} // closed when the POST was answered, or has failed

	initializeGate chan struct{}        // other messages wait for it until this call, the client's initialize, is answered; nil: it is another call
	timeout        *time.Timer          // answers the client's initialize with an error if the server does not; nil: it is another call, or was not sent yet
	bodyAnswer     jsonrpc.Message      // the answer that has come in the body of the reply to the POST; zero: none has
	fromBody       *time.Timer          // answers the call with bodyAnswer after bodyAnswerWait; nil: there is no bodyAnswer yet, or no wait for it
	reply          chan jsonrpc.Message // gets the answer if the request is the bridge's own; nil: it is the client's
}

// newCall returns the call for m, with the postCtx that its kind needs.
func newCall(c *conn, m jsonrpc.Message) *call {
	call := &call{
		msg: m, kind: m.Kind(), id: m.ID(), method: m.Method(),
		written: make(chan struct{}), accepted: make(chan struct{}),
	}
	if call.kind == jsonrpc.Request {
		call.postCtx, call.cancelPost = context.WithCancel(c.Context())
	} else {
		call.postCtx, call.cancelPost = context.WithTimeout(c.Context(), oneWayTimeout)
	}
	return call
}

// ID is the id of a request.
func (call *call) ID() jsonrpc.ID { return call.id }

// IsFromBridge reports whether the call is the bridge's own.
func (call *call) IsFromBridge() bool { return call.reply != nil }

// OnRemoved is called by the ledger when the call is taken out: nobody waits for the response any more.
// The POST has a moment left to come to its end: to cut it off here and now would cost the connection.
func (call *call) OnRemoved() {
	if call.timeout != nil {
		call.timeout.Stop()
	}
	if call.fromBody != nil {
		call.fromBody.Stop()
	}
	if !call.isAccepted() {
		time.AfterFunc(lingerTimeout, call.cancelPost)
	}
}

// setWritten closes written, if it is not closed yet.
func (call *call) setWritten() { call.writeOnce.Do(func() { close(call.written) }) }

// isAccepted reports whether the POST was answered, or has failed.
func (call *call) isAccepted() bool {
	select {
	case <-call.accepted:
		return true
	default:
		return false
	}
}

// run is the goroutine of a POST: it posts a message, and deals with what goes wrong.
func (c *conn) run(call *call) {
	if call.initializeGate != nil { // nothing else goes out before the answer, so it cannot take for ever
		c.ledger.Lock()
		call.timeout = time.AfterFunc(httpdial.TimeoutWithSignIn(initializeTimeout, c.opts.AuthorizeTimeout), func() { c.Go(func() { c.failInitialize(call) }) })
		c.ledger.Unlock()
	}
	fault := c.post(call)
	for repeats := 0; fault != nil && fault.ServerBusy && httpdial.MayRepeatMethod(call.method) && httpdial.PauseBeforeBusyRetry(call.postCtx, repeats, fault.RetryAfter); repeats++ {
		fault = c.post(call) // LE14
	}
	for repeats := 0; fault != nil && call.kind == jsonrpc.Response && httpdial.MayRepostAnswer(fault) && !c.oneWaySlots.IsOverHalfFull(); repeats++ { // LE15
		call.setWritten() // what follows does not wait for it
		if !httpdial.Pause(call.postCtx, call.session.ended, httpdial.BackoffAfter(fault, repeats)) {
			break
		}
		fault = c.post(call)
	}
	close(call.accepted)
	call.cancelPost()
	switch {
	case c.Context().Err() != nil:
		return
	case fault == nil:
		if call.bodyAnswer.Kind() == jsonrpc.Response {
			c.answerFromBody(call)
		}
		return
	}
	if fault.SessionLost {
		c.endStream(call.session, fault)
	}
	c.fail(call, fault)
}

// failInitialize answers the client's initialize, which has taken too long, with an error.
func (c *conn) failInitialize(call *call) {
	c.fail(call, &httpdial.Fault{Reason: httpdial.ReasonTimeout, Transient: true,
		Text: c.target.Peer.String() + " did not answer initialize within " + httpdial.TimeoutWithSignIn(initializeTimeout, c.opts.AuthorizeTimeout).String()})
}

// Header values shared by all requests.
var (
	acceptAny   = []string{"*/*"}         // the Accept header of a POST: servers reply with text such as "Accepted", or with the answer in JSON (readBodyAnswer)
	acceptSSE   = []string{wire.TypeSSE}  // the Accept header of the GET
	contentType = []string{wire.TypeJSON} // the Content-Type of a POST
)

// post sends the message to the endpoint of its session. Any status 2xx is a success (SS7). The answer to a
// request may be in the body, in JSON; otherwise it comes on the event stream.
func (c *conn) post(call *call) *httpdial.Fault {
	ctx := httptrace.WithClientTrace(call.postCtx, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { call.setWritten() },
	})
	switch {
	case call.IsFromBridge():
		if httpdial.IsUnattended(call.session.ctx) {
			ctx = httpdial.Unattended(ctx)
		} else {
			ctx = httpdial.WithProgress(ctx, httpdial.ProgressOf(call.session.ctx))
		}
	case call.tell != nil:
		ctx = httpdial.WithProgress(ctx, call.tell)
	case c.opts.Authorize != nil:
		ctx = c.WithProgress(ctx, call.msg, false)
	}
	req := c.target.NewRequest(ctx, http.MethodPost)
	req.URL = call.session.endpoint
	req.Header["Accept"] = acceptAny
	req.Header["Content-Type"] = contentType
	if v := c.versionOf(call); v >= wire.Version2025_06_18 { // SS8
		req.Header[wire.HeaderVersion] = []string{v}
	}
	httpdial.AllowReplay(req, call.msg)
	httpdial.SetBody(req, call.msg.Bytes())
	resp, fault := call.session.peer.Do(c.target.Transport, req)
	if fault != nil {
		return fault
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return readRefusal(call.session.peer, resp)
	}
	if call.kind == jsonrpc.Request && httpdial.MediaType(resp) == wire.TypeJSON {
		c.readBodyAnswer(call, resp.Body)
		return nil
	}
	// Read, so that the connection can be used again; but not for long.
	defer time.AfterFunc(lingerTimeout, call.cancelPost).Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	return nil
}

// versionOf returns the negotiated version of the call's session; "" for initialize.
func (c *conn) versionOf(call *call) string {
	if call.method == "initialize" {
		return ""
	}
	c.ledger.Lock()
	defer c.ledger.Unlock()
	return call.session.version
}

// readRefusal returns the fault for a reply to a POST whose status is no success. Its SessionLost says
// that the server does not know the session.
func readRefusal(peer *httpdial.Peer, resp *http.Response) *httpdial.Fault {
	var said bytes.Buffer
	body := resp.Body
	resp.Body = readCloser{io.TeeReader(body, &said), body}
	fault := peer.RefusalFault(resp)
	switch resp.StatusCode {
	case http.StatusNotFound:
		// A body that says "no such method" is about the method.
		fault.SessionLost = string(fault.ServerError.Lookup("error", "code")) != "-32601"
	case http.StatusBadRequest:
		fault.SessionLost = saysSessionDead(said.Bytes(), fault.ServerError)
	}
	if fault.SessionLost && fault.ServerError.Kind() != jsonrpc.Response {
		fault.Reason = httpdial.ReasonSessionLost
		fault.Text = peer.String() + " has forgotten the session (" + httpdial.StatusText(resp.StatusCode) + ")"
	}
	return fault
}

// readCloser is an io.ReadCloser of a Reader and a Closer that may be two things.
type readCloser struct {
	io.Reader
	io.Closer
}

// saysSessionDead reports whether the body of a reply with status 400 says that the server does not know
// the session, in the words of many deployed servers, the examples of the SDKs among them; own is the
// JSON-RPC error in body, if there is one. Only whole texts count: an error that merely mentions a
// session must not end one that lives.
func saysSessionDead(body []byte, own jsonrpc.Message) bool {
	text := string(body)
	if own.IsError() {
		text = ""
		_ = json.Unmarshal(own.Lookup("error", "message"), &text)
	}
	text = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "bad request: ")
	switch strings.TrimRight(text, ".") {
	case "no transport found for sessionid", "session not found", "could not find session",
		"invalid session id", "invalid or missing session id", "no valid session id provided":
		return true
	}
	return false
}

// endStream ends the stream of a session that is of no use any more: the server does
// not know it, or the client's initialize has failed in it. Requests that wait in the session
// are answered with fault, which says why. The reconnector then gets a new session, unless
// the client has to initialize it (State.InitializeRequest is zero). With NoRenew the Conn ends.
func (c *conn) endStream(session *session, fault *httpdial.Fault) {
	c.ledger.Lock()
	session.bridgeEndFault = fault
	c.ledger.Unlock()
	session.stop()
}

// handleIncoming takes what an event carries, a message or an array of them, to handleMessage. What is no message is dropped, and
// logged; if it can be seen to be a response, the call that it answers gets a fault for an answer.
func (c *conn) handleIncoming(raw []byte, session *session) {
	elements := [][]byte{raw}
	if jsonrpc.IsBatch(raw) {
		var err error
		if elements, err = jsonrpc.SplitBatch(raw, jsonrpc.MaxServerBatch); err != nil {
			c.log.Warn("event of the server dropped", "error", err)
			return
		}
	}
	for _, element := range elements {
		m, err := jsonrpc.ParseDepth(element, c.opts.MaxDepth)
		if err != nil {
			c.log.Warn("event of the server dropped", "error", err)
			e, ok := errors.AsType[*jsonrpc.Error](err)
			if !ok || !e.IsAnswer() {
				continue
			}
			m = c.target.Peer.InvalidMessageFault(err).Response(e.ID)
		}
		c.handleMessage(m, session)
	}
}

// handleMessage answers the call that m is a response to, or hands m on to the client.
func (c *conn) handleMessage(m jsonrpc.Message, session *session) {
	if m.Kind() == jsonrpc.Response {
		call, ok := c.ledger.ClaimByID(m.ID())
		if !ok {
			c.log.Debug("response dropped: nobody waits for it")
			return
		}
		c.answersInBody.Store(false)
		c.answer(call, m)
		return
	}
	m, _ = c.ledger.NoteServerMessage(session, m)
	c.Deliver(c.Context(), m)
}

// answer answers a call, which the caller has claimed from the ledger, with the server's response m.
func (c *conn) answer(call *call, m jsonrpc.Message) {
	if m.ID() != call.id {
		m = httpdial.ResponseWithID(m, call.id)
	}
	if call.IsFromBridge() {
		call.reply <- m // has room for it
		return
	}
	if call.initializeGate != nil {
		c.noteInitializeAnswer(call, m)
	} else if !m.IsError() && !c.ledger.RememberSetting(call.msg) {
		c.log.Warn("too many subscriptions: this one will not survive a restart of the server")
	}
	c.Deliver(c.Context(), m)
	if call.initializeGate != nil {
		c.ledger.OpenInitializeGate(call.initializeGate)
	}
}

// fail answers a call with the fault, unless it was answered already. Of a message that is
// no request only the log hears.
func (c *conn) fail(call *call, fault *httpdial.Fault) {
	if call.kind != jsonrpc.Request {
		c.log.Warn("the server did not take a message", append(fault.LogAttrs(), "method", call.method)...)
		return
	}
	if !c.ledger.ClaimCall(call) {
		return
	}
	if call.initializeGate != nil { // without it the session is of no use
		if !fault.Transient {
			c.ledger.Lock()
			c.ledger.State.InitializeRequest = jsonrpc.Message{}
			c.ledger.Unlock()
		}
		c.endStream(call.session, fault)
	}
	c.answerFault(call, fault)
}

// answerFault answers a call, which the caller has taken out of the ledger, with the fault.
func (c *conn) answerFault(call *call, fault *httpdial.Fault) {
	c.log.With(fault.LogAttrs()...).Warn("request failed", "method", call.method)
	if call.IsFromBridge() {
		call.reply <- fault.Response(call.id)
		return
	}
	c.Deliver(c.Context(), fault.Response(call.id))
	if call.initializeGate != nil {
		c.ledger.OpenInitializeGate(call.initializeGate)
	}
}

// noteInitializeAnswer notes what m, the server's answer to the client's initialize, says: the version
// of the session, or that there is no session to renew.
func (c *conn) noteInitializeAnswer(call *call, m jsonrpc.Message) {
	c.ledger.Lock()
	defer c.ledger.Unlock()
	if m.IsError() {
		c.ledger.State.InitializeRequest = jsonrpc.Message{} // there is nothing to renew
		return
	}
	call.session.version = negotiatedVersion(m)
	c.ledger.State.InitializeSucceeded = true
	c.log.Info("connected", "url", c.target.Peer.String(), "version", call.session.version)
}

// negotiatedVersion returns the version in an initialize result; "" if there is none
// that could stand in a header.
func negotiatedVersion(result jsonrpc.Message) string {
	var version string
	if json.Unmarshal(result.Lookup("result", "protocolVersion"), &version) != nil {
		return ""
	}
	for i := range len(version) {
		if version[i] < 0x21 || version[i] > 0x7e {
			return ""
		}
	}
	return version
}
