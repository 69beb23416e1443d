package streamclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/sse"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// run is the goroutine of one request: it carries the request from beginning to end.
func (c *modernConn) run(call *modernCall) {
	defer call.cancel()
	answer, rest, fault := c.exchange(call)
	if c.claim(call) && c.Context().Err() == nil {
		if fault != nil {
			c.log.With(fault.LogAttrs()...).Warn("request failed", "method", call.method)
			answer = fault.Response(call.id)
		}
		c.Deliver(c.Context(), answer.WithRelated(call.id))
	}
	finishReply(rest, call.cancel)
}

// ask sends a request of the bridge's own, and waits for the answer, which it returns. The fault says
// why there is none.
func (c *modernConn) ask(call *modernCall) (jsonrpc.Message, *httpdial.Fault) {
	answer, rest, fault := c.exchange(call)
	finishReply(rest, call.cancel)
	return answer, fault
}

// finishReply reads what is left of a reply that has answered its request, nil
// for nothing: the server should end it now, and the connection can be used
// again if it does. After streamLinger it calls cancel, which ends the reply. Nothing that
// comes is of use any more (J13).
func finishReply(rest *http.Response, cancel context.CancelFunc) {
	if rest == nil {
		return
	}
	defer time.AfterFunc(streamLinger, cancel).Stop()
	io.Copy(io.Discard, rest.Body)
	rest.Body.Close()
}

// runNotification is the goroutine of one notification: it posts it once, and closes accepted then.
func (c *modernConn) runNotification(call *modernCall) {
	defer close(call.accepted)
	defer call.cancel()
	var at modernAttempt
	if at.readRequest(call) != nil {
		c.log.Warn("notification dropped: no header can repeat what it says")
		return
	}
	resp, fault := c.roundTrip(call, call.msg, c.headerOf(call, &at))
	if fault == nil {
		defer resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			fault = c.target.Peer.StatusFault(resp)
		} else {
			httpdial.DrainShortBody(resp)
			if resp.StatusCode != http.StatusAccepted {
				c.log.Debug("the server did not answer 202 where there is nothing to say", "status", resp.StatusCode) // LE2
			}
			return
		}
	}
	if c.Context().Err() == nil {
		c.log.Warn("the server did not take a message", append(fault.LogAttrs(), "method", call.method)...)
	}
}

// exchange gets the answer to a request, with as many POSTs as that takes: one,
// unless the server refuses the headers (ME2, ME4), is too busy for something
// that does no harm (LE14), or loses it (ME6). rest is what is left of the
// reply, for finishReply; nil: nothing.
func (c *modernConn) exchange(call *modernCall) (answer jsonrpc.Message, rest *http.Response, fault *httpdial.Fault) {
	attempt := modernAttempt{msg: call.msg}
	if answer, fault = c.prepareHeaders(call, &attempt); fault != nil || answer.Kind() != jsonrpc.Invalid {
		return answer, nil, fault
	}
	for {
		answer, rest, fault = c.post(call, attempt.msg, attempt.header)
		switch {
		case call.ctx.Err() != nil:
			return answer, rest, fault
		case fault == nil && attempt.wantsOtherHeaders(answer) && c.correctHeaders(call, &attempt, answer):
			finishReply(rest, func() { rest.Body.Close() })
		case fault == nil:
			c.learnHeaderForms(&attempt, answer)
			return c.withoutInvalidTools(call, answer), rest, nil
		case !mayRepost(call.method) || call.delivered:
			return answer, nil, fault
		case fault.Reason == httpdial.ReasonConnectionLost && !attempt.resent:
			attempt.resent = true
			attempt.msg = call.msg.WithID(c.ownID()) // the server may still be at work on the lost one
		case fault.ServerBusy && httpdial.PauseBeforeBusyRetry(call.ctx, attempt.busyRetries, fault.RetryAfter):
			attempt.busyRetries++
		default:
			return answer, nil, fault
		}
	}
}

// mayRepost reports whether a request of this method may be sent again when
// its reply was lost (ME6).
func mayRepost(method string) bool {
	switch method {
	case "server/discover", "resources/read", "completion/complete":
		return true
	}
	return strings.HasSuffix(method, "/list")
}

// roundTrip posts the message m of call with these headers, once, and returns the response as soon as
// its headers are there. The caller closes the body.
func (c *modernConn) roundTrip(call *modernCall, m jsonrpc.Message, header http.Header) (*http.Response, *httpdial.Fault) {
	ctx := call.ctx
	switch {
	case call.method == "subscriptions/listen": // it is begun again and again, and nobody waits for its end
		ctx = httpdial.Unattended(ctx)
	case c.opts.Authorize != nil && !call.isOwn:
		ctx = c.WithProgress(ctx, call.msg, true)
	}
	req := c.target.NewBareRequest(ctx, http.MethodPost, header)
	httpdial.SetBody(req, m.Bytes())
	return c.target.Do(req)
}

// post posts the request m of call with these headers once, and reads the reply up to the answer. The
// fault says why there is none. rest is what is left of the reply, for finishReply; nil: nothing.
func (c *modernConn) post(call *modernCall, m jsonrpc.Message, header http.Header) (answer jsonrpc.Message, rest *http.Response, fault *httpdial.Fault) {
	resp, fault := c.roundTrip(call, m, header)
	if fault != nil {
		return answer, nil, fault
	}
	if call.isOwn {
		call.sessionID = resp.Header.Get(wire.HeaderSession)
	}
	switch mediaType := httpdial.MediaType(resp); {
	case resp.StatusCode/100 != 2:
		answer, fault = c.readModernRefusal(call, resp, m.ID())
	case mediaType == wire.TypeSSE:
		if answer, fault = c.readModernStream(call, m, resp); fault == nil {
			rest = resp
		}
	case mediaType == wire.TypeJSON, mediaType == "":
		answer, fault = c.readModernBody(m, resp)
	case resp.StatusCode == http.StatusNoContent, resp.StatusCode == http.StatusAccepted:
		fault = c.noResponseFault(resp.StatusCode)
	default:
		c.reportForeignRefusal(call)
		fault = &httpdial.Fault{
			Reason: httpdial.ReasonNotMCP, Status: resp.StatusCode,
			Text: fmt.Sprintf("%s answered with %q, not with JSON or an event stream; is this the URL of an MCP server?", c.target.Peer, c.target.Peer.WithholdingSent(resp).WithholdSecrets(mediaType)),
		}
	}
	if rest == nil {
		resp.Body.Close()
	}
	if fault == nil && answer.ID() != call.id {
		answer = httpdial.ResponseWithID(answer, call.id)
	}
	return answer, rest, fault
}

// readModernRefusal reads a reply whose status is no success. With 400 and 404 it returns a
// JSON-RPC error in it as the answer (ME9). Otherwise it returns a Fault. The Fault has the
// JSON-RPC error as ServerError if that has the id of the request, but not with 401 and 403,
// where credentials are what is missing. A refusal that is no modern server's
// (isForeignRefusal) is reported besides.
func (c *modernConn) readModernRefusal(call *modernCall, resp *http.Response, id jsonrpc.ID) (jsonrpc.Message, *httpdial.Fault) {
	fault := c.target.Peer.RefusalFault(resp)
	own := fault.ServerError
	if isForeignRefusal(fault, id) {
		c.reportForeignRefusal(call)
	}
	if own.Kind() == jsonrpc.Response {
		switch resp.StatusCode {
		case http.StatusBadRequest, http.StatusNotFound:
			return own, nil
		case http.StatusUnauthorized, http.StatusForbidden:
			fault.ServerError = jsonrpc.Message{}
		default:
			if !own.ID().Equivalent(id) {
				fault.ServerError = jsonrpc.Message{}
			}
		}
	}
	return jsonrpc.Message{}, fault
}

// isForeignRefusal reports whether no server of 2026-07-28 refuses the request with this id
// like this (ED9): with an error that is none of that revision's, or with one of JSON-RPC's
// that has another id. A status that says who may ask, how much, or when, says nothing
// about revisions. (-32022 says which revisions the server knows.)
func isForeignRefusal(fault *httpdial.Fault, id jsonrpc.ID) bool {
	if fault.Status/100 != 4 || isStatusAboutCaller(fault.Status) {
		return false
	}
	switch string(fault.ServerError.Lookup("error", "code")) {
	case "-32020", "-32021", "-32022":
		return false
	case "-32601", "-32602", "-32603":
		return !fault.ServerError.ID().Equivalent(id)
	}
	return true
}

// reportForeignRefusal calls opts.OnForeignRefusal for a call that was refused, or answered, as no modern server
// does; not for the request of Discover, whose caller sees the refusal.
func (c *modernConn) reportForeignRefusal(call *modernCall) {
	if c.opts.OnForeignRefusal != nil && call.id != discoverID {
		c.opts.OnForeignRefusal()
	}
}

// readModernBody reads a reply to the request m that is JSON: the response.
func (c *modernConn) readModernBody(m jsonrpc.Message, resp *http.Response) (jsonrpc.Message, *httpdial.Fault) {
	raw, fault := readReplyBody(c.target.Peer, resp, c.opts.MaxMessageSize)
	switch {
	case fault != nil:
		return jsonrpc.Message{}, fault
	case len(bytes.TrimSpace(raw)) == 0:
		return jsonrpc.Message{}, c.noResponseFault(resp.StatusCode)
	}
	answer, err := jsonrpc.ParseDepth(raw, c.opts.MaxDepth)
	switch {
	case err != nil:
		return jsonrpc.Message{}, c.target.Peer.InvalidMessageFault(err)
	case !answersTo(answer, m.ID()):
		return jsonrpc.Message{}, c.noResponseFault(resp.StatusCode)
	}
	return answer, nil
}

// answersTo reports whether m, which came in the reply to the request id, is the response to that. An
// error without an id is, too.
func answersTo(m jsonrpc.Message, id jsonrpc.ID) bool {
	if m.Kind() != jsonrpc.Response {
		return false
	}
	return m.ID().Equivalent(id) || m.IsError() && (m.ID().IsZero() || m.ID() == jsonrpc.NullID)
}

// noResponseFault returns the fault of a request to which the reply had this HTTP status, a success,
// and no response.
func (c *modernConn) noResponseFault(status int) *httpdial.Fault {
	return &httpdial.Fault{Reason: httpdial.ReasonNoAnswer, Status: status,
		Text: fmt.Sprintf("%s answered %s, but without a response to the request", c.target.Peer, httpdial.StatusText(status))}
}

// readModernStream reads a reply that is an event stream up to the response,
// and hands on what comes before it. Ids and retry fields have no meaning in
// this revision (ME12).
func (c *modernConn) readModernStream(call *modernCall, m jsonrpc.Message, resp *http.Response) (jsonrpc.Message, *httpdial.Fault) {
	r := sse.NewReader(resp.Body, c.opts.MaxMessageSize)
	for {
		event, err := r.Next()
		switch {
		case errors.Is(err, sse.ErrTooLarge):
			return jsonrpc.Message{}, c.target.Peer.TooLargeFault(c.opts.MaxMessageSize)
		case err != nil:
			return jsonrpc.Message{}, c.brokenReplyFault(err)
		case len(event.Data) == 0, event.Name != "" && event.Name != "message":
			continue
		}
		got, err := jsonrpc.ParseDepth(event.Data, c.opts.MaxDepth)
		switch {
		case err != nil:
			return jsonrpc.Message{}, c.target.Peer.InvalidMessageFault(err)
		case answersTo(got, m.ID()):
			return got, nil
		case got.Kind() == jsonrpc.Notification:
			c.deliverNotification(call, got)
		case got.Kind() == jsonrpc.Request:
			c.deliverServerRequest(call, got)
		default: // somebody else's response
			c.log.Warn("response of the server dropped: it has no place in the reply to another request", "method", call.method)
		}
	}
}

// brokenReplyFault returns the fault of a request whose reply, an event stream, has ended with err
// before the response (ME6).
func (c *modernConn) brokenReplyFault(err error) *httpdial.Fault {
	if !errors.Is(err, io.EOF) {
		return c.target.Peer.NetFault(err)
	}
	return &httpdial.Fault{Reason: httpdial.ReasonConnectionLost, Transient: true,
		Text: fmt.Sprintf("%s ended the stream before the response", c.target.Peer)}
}

// deliverNotification hands on a notification that came in the reply to call, unless call is the bridge's own. One
// that says that the list of tools has changed makes c.tools forget them in either case.
func (c *modernConn) deliverNotification(call *modernCall, m jsonrpc.Message) {
	if m.Method() == "notifications/tools/list_changed" {
		c.tools.forget()
	}
	if call.isOwn {
		return
	}
	call.delivered = true
	c.Deliver(call.ctx, m.WithRelated(call.id))
}

// deleteSession ends a session that a server of an older revision has made of
// a request, and waits for the answer, for deleteTimeout at most. Nothing depends on it.
func (c *modernConn) deleteSession(session string) {
	ctx, cancel := context.WithTimeout(httpdial.Unattended(c.Context()), deleteTimeout)
	defer cancel()
	req := c.target.NewRequest(ctx, http.MethodDelete)
	req.Header[wire.HeaderSession] = []string{session}
	resp, fault := c.target.Do(req)
	if fault != nil {
		c.log.Debug("could not end the session", "reason", fault.Reason)
		return
	}
	httpdial.DrainShortBody(resp)
	resp.Body.Close()
}
