package sseclient

import (
	"io"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is for servers that answer a request in the body of its POST (SS7).

// bodyAnswerWait is how long the answer in a body is held back, in case one comes on the
// stream, where it belongs. If the last answer came in a body, too, there is no wait.
const bodyAnswerWait = time.Second

// readBodyAnswer reads the reply to the POST of a request. If the reply is the answer to the request, it
// becomes call.bodyAnswer. If the request is answered on the stream meanwhile, the read ends a moment
// later.
func (c *conn) readBodyAnswer(call *call, body io.Reader) {
	text, err := io.ReadAll(io.LimitReader(body, int64(c.opts.MaxMessageSize)+1))
	if err != nil || len(text) > c.opts.MaxMessageSize {
		return
	}
	m, err := jsonrpc.ParseDepth(text, c.opts.MaxDepth)
	if err == nil && m.Kind() == jsonrpc.Response && m.ID().Equivalent(call.id) {
		call.bodyAnswer = m
	}
}

// answerFromBody answers a call with its bodyAnswer, unless an answer comes on the stream
// within bodyAnswerWait.
func (c *conn) answerFromBody(call *call) {
	answer := func() {
		if c.ledger.ClaimCall(call) {
			c.answersInBody.Store(true)
			c.answer(call, call.bodyAnswer)
		}
	}
	if c.answersInBody.Load() {
		answer()
		return
	}
	c.ledger.Lock()
	defer c.ledger.Unlock()
	if c.ledger.Has(call) {
		call.fromBody = time.AfterFunc(bodyAnswerWait, func() { c.Go(answer) })
	}
}
