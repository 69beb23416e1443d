package sseclient

import (
	"io"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is for servers that answer a request in the body of its POST (SS7).

// bodyAnswerWait is how long the answer in a body waits for one on the stream, where it
// belongs. It does not wait if the last answer came so, too.
const bodyAnswerWait = time.Second

// readBodyAnswer reads the reply to the POST of a request, which may be its answer. It reads for no longer
// than the request is in progress.
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

// answerFromBody answers a call with what came in the body, unless the answer comes on the
// stream.
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
