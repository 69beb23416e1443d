package streamclient

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// This file is for servers that make requests, for which 2026-07-28 has no place (ST10).

// deliverServerRequest hands on a request of the server that came in the reply to call. If call is the
// bridge's own, nobody receives the request: it is answered here.
func (c *modernConn) deliverServerRequest(call *modernCall, m jsonrpc.Message) {
	if call.isOwn {
		c.sendAnswer(era.AnswerServerRequest(m))
		return
	}
	c.Deliver(call.ctx, m.WithRelated(call.id))
}

// sendAnswer posts the response to a request of the server, in a goroutine of its own. Nobody
// waits until the server has taken it. If maxOneWay responses are on their way, one more is
// dropped.
func (c *modernConn) sendAnswer(m jsonrpc.Message) {
	if !c.answerSlots.TryAcquire() {
		c.log.Warn("answer dropped: the server asks more than it takes answers to")
		return
	}
	within, stop := context.WithTimeout(c.Context(), oneWayTimeout)
	call := c.newCall(within, m)
	if !c.Go(func() { c.runAnswer(call); stop(); c.answerSlots.Release() }) {
		stop()
		c.answerSlots.Release()
	}
}

// runAnswer is the goroutine of sendAnswer: it posts the response once. That the server does not take
// it is only logged.
func (c *modernConn) runAnswer(call *modernCall) {
	defer call.cancel()
	header := c.baseHeader(1)
	header[wire.HeaderVersion] = []string{era.NewestModern}
	resp, fault := c.roundTrip(call, call.msg, header)
	if fault == nil {
		defer resp.Body.Close()
		if resp.StatusCode/100 == 2 {
			httpdial.DrainShortBody(resp)
			return
		}
		fault = c.target.Peer.StatusFault(resp)
	}
	if c.Context().Err() == nil {
		c.log.Warn("the server did not take an answer to its own request", fault.LogAttrs()...)
	}
}
