package ws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// reader is the state of the goroutine that reads (readLoop).
type reader struct {
	messageLimit int              // how many bytes a message may have now: maxMessageSize, but a client's no more than maxFirstMessage until one was valid
	message      io.LimitedReader // reads the message that is arriving, up to one byte beyond messageLimit
	share        *budget.Share    // what the message that is arriving holds of the budget; nil: nothing
	slowTimer    lazytimer.Timer  // is set while a message arrives; calls refuseSlow
}

// readLoop is the goroutine that reads what the peer sends, until it is gone, or
// has sent what must not be.
func (c *conn) readLoop() {
	defer func() { c.reader.share.ReleaseAll() }()
	defer c.reader.slowTimer.Stop()
	defer c.wire.burst.End()
	for {
		kind, r, err := c.ws.Reader(context.Background())
		if err == nil && kind != websocket.MessageText {
			c.endForViolation(websocket.StatusUnsupportedData, "a binary message; messages must be text") // WS2
			return
		}
		var text []byte
		if err == nil {
			text, err = c.readAll(r)
		}
		if err != nil {
			c.handleReadFailure(err)
			return
		}
		c.wire.noteMessage(len(text), c.peerIsClient)
		if !c.handleText(text) {
			return
		}
	}
}

// readAll returns all of a message in memory of its exact size. Every byte is copied once, however long the message
// is. Each chunk after the first is taken from the budget before it is read, and so is the copy. A message that is too
// long is read only to the first byte beyond the limit: errTooLong. Without room in the budget: errBudgetExhausted.
func (c *conn) readAll(message io.Reader) ([]byte, error) {
	c.startChunkTimer()
	defer c.reader.slowTimer.Clear()
	first := getChunk()
	defer putChunk(first)
	r := &c.reader.message
	r.R, r.N = message, int64(c.reader.messageLimit)+1
	n, err := readFull(r, first)
	if err == io.EOF && r.N == 0 {
		return nil, errTooLong
	}
	if err == io.EOF {
		return bytes.Clone(first[:n]), nil
	}
	all := [][]byte{first}
	defer func() {
		for _, chunk := range all[1:] {
			putChunk(chunk)
		}
	}()
	for err == nil {
		if !c.holdBudget(chunkSize) {
			return nil, errBudgetExhausted
		}
		c.startChunkTimer()
		chunk := getChunk()
		n, err = readFull(r, chunk)
		all = append(all, chunk[:n])
	}
	if err == io.EOF && r.N == 0 {
		return nil, errTooLong
	}
	if err != io.EOF {
		return nil, err
	}
	beyond := (len(all) - 1) * chunkSize
	if !c.holdBudget(beyond + n) {
		return nil, errBudgetExhausted
	}
	text := bytes.Join(all, nil)
	c.reader.share.Release(beyond)
	return text, nil
}

// holdBudget takes n bytes of the budget for the message that is being read; false: it has no room for them.
func (c *conn) holdBudget(n int) (held bool) {
	if c.reader.share == nil && c.budget != nil {
		c.reader.share = c.budget.Share(c.party)
	}
	return c.reader.share.Take(n)
}

// readFull reads until p is full (err is nil), or r ends (io.EOF) or fails; n is how many bytes it has read.
func readFull(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var more int
		more, err = r.Read(p[n:])
		n += more
	}
	if n == len(p) {
		err = nil
	}
	return n, err
}

// handleText decodes a text message of the peer, deals with what is not valid in it, and hands its messages on. false:
// the conversation is over.
func (c *conn) handleText(text []byte) bool {
	messages, faults := jsonrpc.Decode(text, !c.peerIsClient || c.calls.revision.AllowsBatches(), c.maxBatch, c.maxDepth)
	if len(faults) > 0 {
		c.wire.burst.End() // who has sent this is told what is wrong, and may take long to read that
	}
	if len(faults) > 0 && !utf8.Valid(text) {
		c.endForViolation(websocket.StatusInvalidFramePayloadData, "the text is not UTF-8") // WS2
		return false
	}
	if c.peerIsClient {
		for _, m := range messages {
			c.calls.noteReceived(m)
		}
	}
	for _, fault := range faults {
		c.onNoise(len(text), fault.Message)
		if !c.answerInvalid(fault) {
			return false
		}
	}
	for i, m := range messages {
		var share *budget.Share
		if i == len(messages)-1 { // until then all of the text is needed
			share, c.reader.share = c.reader.share, nil
		}
		if !c.deliver(m, share) {
			return false
		}
	}
	c.reader.share.ReleaseAll() // of a text without a message
	c.reader.share = nil
	if len(messages) > 0 {
		c.reader.messageLimit = c.maxMessageSize
	}
	return true
}

// answerInvalid deals with a part of the peer's input that is no valid message. If it was meant as an answer, whoever
// has asked gets an error in its place. Of anything else that the peer may wait for an answer to, a client is told. A
// server is told of its requests only, and only if the queue has room. goOn is false if the conversation is over, for
// another reason (J4).
func (c *conn) answerInvalid(fault *jsonrpc.Error) (goOn bool) {
	switch {
	case fault.Kind == jsonrpc.Response && !fault.IsAnswer():
		return true
	case !c.peerIsClient && fault.IsAnswer(), c.peerIsClient && c.calls.serverRequests.WasMeantAsResponse(fault):
		text := fmt.Sprintf("the answer of %s was not valid JSON-RPC: %s", c.peer, fault.Message)
		return c.deliver(jsonrpc.NewError(fault.ID, jsonrpc.CodeInternalError, text, nil), nil)
	}
	reply, due := fault.Reply()
	switch {
	case due && c.peerIsClient:
		c.calls.openRequests.Add(1)
		return c.Send(context.Background(), reply) == nil
	case due && fault.IsRequest():
		c.out.TrySend(reply.Bytes())
	}
	return true
}

// deliver hands a message of the peer on to Receive. It waits while the queue is full: the WebSocket is then not read,
// and TCP slows the peer. share is what the message holds of the budget; nil: nothing. When the client's token has
// expired, the message is refused instead. false: the conversation is over.
func (c *conn) deliver(m jsonrpc.Message, share *budget.Share) bool {
	c.resetIdleTimer()
	if c.wire.burst.Going() {
		m = m.WithBurst(c.wire.burst)
	}
	c.delivering.Lock()
	if c.tokenExpired.Load() {
		c.delivering.Unlock()
		c.wire.burst.End()
		share.ReleaseAll()
		return c.refuseExpired(context.Background(), m) == nil
	}
	defer c.delivering.Unlock()
	err := c.in.deliver(m, share, c.wire.burst.End)
	if err != access.ErrExpired {
		return err == nil
	}
	// It has waited for room until the token had expired, and the calls in progress were answered.
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	return c.refuseExpired(ctx, m) == nil
}

// refuseExpired answers a client's request with an error because the token has expired: only calls that came before
// are still finished. It drops any other message. The error is Send's.
func (c *conn) refuseExpired(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() != jsonrpc.Request {
		return nil
	}
	return c.Send(ctx, jsonrpc.NewError(m.ID(), jsonrpc.CodeInvalidRequest, expiredText, []byte(`{"reason":"token_expired"}`)))
}

// noteReceived is called with each valid message of the client, and counts the open requests.
func (c *calls) noteReceived(m jsonrpc.Message) {
	c.serverRequests.NoteReceived(m)
	switch {
	case m.Kind() == jsonrpc.Request && m.Method() != "subscriptions/listen": // which stays open
		c.openRequests.Add(1)
	case m.Method() == "notifications/cancelled": // its request is not answered, mostly
		c.noteAnswered()
	}
}

// noteAnswered counts one request of the client less: it was answered or cancelled. It may be called for a request
// that was not counted, too.
func (c *calls) noteAnswered() {
	if c.openRequests.Add(-1) < 0 {
		c.openRequests.Add(1)
	}
}

// endForViolation ends the conversation because the peer has sent what it must not; code and what go into the close
// frame.
func (c *conn) endForViolation(code websocket.StatusCode, what string) {
	c.finish(fmt.Errorf("%s has sent what cannot be accepted: %s", c.peer, what), code, what, false)
}

// tooLongText returns what the close frame says of a message that was too long, with the limit. A server is not told
// which flag of the bridge sets it.
func (c *conn) tooLongText() string {
	switch {
	case !c.peerIsClient:
		return fmt.Sprintf("a message longer than %d bytes", c.reader.messageLimit)
	case c.reader.messageLimit < c.maxMessageSize:
		return fmt.Sprintf("a message longer than %d bytes, which is the limit until there was a valid one", c.reader.messageLimit)
	}
	return fmt.Sprintf("a message longer than %d bytes, which is the limit (--max-message-size)", c.reader.messageLimit)
}

// handleReadFailure ends the conversation because reading a message has failed with err: the peer has closed, or is
// gone, or has broken a rule, or the budget had no room for the message.
func (c *conn) handleReadFailure(err error) {
	var closed websocket.CloseError
	switch {
	case errors.As(err, &closed):
		c.finish(&closeError{peer: c.peer, code: int(closed.Code), reason: closed.Reason}, websocket.StatusNormalClosure, "", false)
	case err == errTooLong:
		c.endForViolation(websocket.StatusMessageTooBig, c.tooLongText())
	case err == errBudgetExhausted:
		c.onBudgetExhausted()
		c.finish(errBudgetExhausted, websocket.StatusTryAgainLater, errBudgetExhausted.Error(), false)
	default:
		// If it is not the network but a violation of the protocol, the peer is told.
		c.finish(c.connectionLostError(err), websocket.StatusProtocolError, "protocol error", false)
	}
}

// closeError is the error with which a conn ends when its peer has sent a close frame.
type closeError struct {
	peer   string // the name of the peer in texts
	code   int    // the status of its close frame; websocket.StatusNoStatusRcvd: the frame has none
	reason string // the text of its close frame, in the peer's words; "": none
}

// Error returns a text with the status, if the peer has sent one, and without the peer's words: they may be anything.
func (e *closeError) Error() string {
	if e.code == int(websocket.StatusNoStatusRcvd) {
		return fmt.Sprintf("%s has closed the WebSocket", e.peer)
	}
	return fmt.Sprintf("%s has closed the WebSocket with status %d", e.peer, e.code)
}
