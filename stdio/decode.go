package stdio

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// byteOrderMark is U+FEFF in UTF-8, which some programs write before their first line.
var byteOrderMark = []byte("\uFEFF")

// reasonTextInFront is the reason that Options.OnNoise is told for a line which has an
// answer behind other text, so that the answer is lost.
const reasonTextInFront = "text stands before an answer on the line"

// decodeLine returns the message to hand on for a line: the one in it, or an error
// response if the line was an answer that cannot be read. It returns the zero Message
// if there is none, or if there are several: those are in c.in.pending then. The error
// is that of telling a client what was wrong.
func (c *Conn) decodeLine(ctx context.Context, ln line) (jsonrpc.Message, error) {
	if ln.tooLong {
		what := c.tooLongText()
		return c.answerRefused(ctx, ln.size, what, &jsonrpc.Error{
			Code: jsonrpc.CodeInvalidRequest, Message: "the message " + what, ID: ln.id, Kind: ln.kind,
			Marked: !ln.id.IsZero(), // without an id that is known it may be a log, or a notification with the id null
		})
	}
	text := trimLine(ln.text)
	switch {
	case len(text) == 0:
		return jsonrpc.Message{}, nil
	case text[0] == '[':
		return c.decodeBatch(ctx, ln)
	case text[0] != '{' && c.opts.Peer == Server:
		reason := "the line is not a JSON object"
		if jsonrpc.EndsInResponse(text) {
			reason = reasonTextInFront
		}
		c.reportNoise(ln.size, reason)
		return jsonrpc.Message{}, nil
	}
	if !ln.owned {
		text = bytes.Clone(text)
	}
	m, err := jsonrpc.ParseDepth(text, c.opts.MaxDepth)
	if err != nil {
		e := asError(err)
		if c.opts.Peer == Server && e.More > 0 {
			if several := concatenatedMessages(text, e.More, c.opts.MaxDepth); several != nil {
				c.noteReceived(several[0])
				c.in.pending = several
				return jsonrpc.Message{}, nil
			}
		}
		return c.answerInvalid(ctx, ln.size, e)
	}
	c.noteReceived(m)
	return m, nil
}

// concatenatedMessages returns the messages of a line that is made of several messages
// with nothing between them; the first one ends at end, and each may have depth
// levels. It returns nil for any other line, and for one with more than
// jsonrpc.MaxServerBatch. Servers write such lines if several of their threads print
// at the same time: Python's print writes the text and the line break one after the
// other (ST4).
func concatenatedMessages(text []byte, end, depth int) (messages []jsonrpc.Message) {
	for {
		m, err := jsonrpc.ParseDepth(bytes.Clone(text[:end]), depth) // a clone does not keep the whole line in memory
		if err != nil || len(messages) == jsonrpc.MaxServerBatch {
			return nil
		}
		messages = append(messages, m)
		text = text[end:]
		if len(text) == 0 {
			return messages
		}
		end = len(text)
		if _, err := jsonrpc.ParseDepth(text, depth); err != nil {
			if end = asError(err).More; end == 0 {
				return nil
			}
		}
	}
}

// noteReceived is called with each valid message of the peer: from now on lines may
// have MaxMessageSize. Of a client's it also notes which of the server's requests are
// answered.
func (c *Conn) noteReceived(m jsonrpc.Message) {
	c.in.lines.max = c.opts.MaxMessageSize
	if c.opts.Peer == Client {
		c.client.serverRequests.NoteReceived(m)
	}
}

// trimLine returns the line's text without a byte order mark in front, and without
// white space around it (ST2).
func trimLine(text []byte) []byte {
	text = bytes.TrimPrefix(text, byteOrderMark)
	for len(text) > 0 && isSpace(text[0]) {
		text = text[1:]
	}
	for len(text) > 0 && isSpace(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}

// isSpace reports whether b is white space that may stand in a line.
func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\r' }

// decodeBatch puts the messages of a batch into c.in.pending (ST5), with error
// responses for answers that cannot be read. What is wrong with other elements is said
// before the messages are handed on. It returns the zero Message.
func (c *Conn) decodeBatch(ctx context.Context, ln line) (jsonrpc.Message, error) {
	accept, limit := true, jsonrpc.MaxServerBatch
	if c.opts.Peer == Client {
		accept, limit = c.acceptsBatch(), maxBatch
	}
	// The text is not ours, but of an array only copies of the elements are kept.
	batch, faults := jsonrpc.Decode(ln.text, accept, limit, c.opts.MaxDepth)
	for _, m := range batch {
		c.noteReceived(m)
	}
	for _, e := range faults {
		if c.opts.Peer == Server && e.Code == jsonrpc.CodeParseError && len(batch) == 0 && jsonrpc.EndsInResponse(ln.text) {
			e.Message = reasonTextInFront // a log such as "[info] ready", and no array
		}
		m, err := c.answerInvalid(ctx, ln.size, e)
		if err != nil {
			return m, err
		}
		if m.Kind() != jsonrpc.Invalid {
			batch = append(batch, m)
		}
	}
	c.in.pending = batch
	return jsonrpc.Message{}, nil
}

// acceptsBatch reports whether the client may send arrays now. Options.AcceptBatch
// decides if it is set, otherwise the version that was negotiated.
func (c *Conn) acceptsBatch() bool {
	if c.opts.AcceptBatch != nil {
		return c.opts.AcceptBatch()
	}
	return c.client.revision.AllowsBatches()
}

// asError returns the *jsonrpc.Error that err is or wraps; of another error it makes
// one.
func asError(err error) *jsonrpc.Error {
	var e *jsonrpc.Error
	if errors.As(err, &e) {
		return e
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: err.Error()}
}

// answerInvalid deals with input that is no valid message, for the reason in e, in a line of size bytes: it tells OnNoise,
// and the peer if that waits for an answer. What was meant as an answer becomes an error response, which is returned
// (answerRefused). The error is that of telling the peer.
func (c *Conn) answerInvalid(ctx context.Context, size int, e *jsonrpc.Error) (jsonrpc.Message, error) {
	return c.answerRefused(ctx, size, "was not valid: "+e.Message, e)
}

// answerRefused deals with input that is not handed on, for the reason in e, in a line of size
// bytes. If the input was meant as the answer to a request, answerRefused returns an error
// response in its place, so that the caller does not wait forever; the text of that is "the
// server's answer " (or client's), and what.
// Of anything else that the peer may wait for an answer to, a client is told. A server is
// told of its requests only. The error is that of Send.
func (c *Conn) answerRefused(ctx context.Context, size int, what string, e *jsonrpc.Error) (jsonrpc.Message, error) {
	c.reportNoise(size, e.Message)
	switch {
	case e.Kind == jsonrpc.Response && !e.IsAnswer():
		return jsonrpc.Message{}, nil
	case c.opts.Peer == Server && e.IsAnswer(), c.opts.Peer == Client && c.client.serverRequests.WasMeantAsResponse(e):
		from := "server"
		if c.opts.Peer == Client {
			from = "client"
		}
		text := fmt.Sprintf("the %s's answer %s", from, what)
		return jsonrpc.NewError(e.ID, jsonrpc.CodeInternalError, text, nil), nil
	}
	reply, due := e.Reply()
	switch {
	case !due:
	case c.opts.Peer == Client:
		return jsonrpc.Message{}, c.Send(ctx, reply)
	case e.IsRequest():
		c.refuse(reply)
	}
	return jsonrpc.Message{}, nil
}

// reportNoise counts a piece of input that is not handed on, and tells
// Options.OnNoise: the size of its line in bytes, and the reason.
func (c *Conn) reportNoise(size int, reason string) {
	c.in.lines.burst.End() // what follows may wait: for the log, or for the client to take an error
	c.skippedCount.Add(1)
	if c.opts.OnNoise != nil {
		c.opts.OnNoise(size, reason)
	}
}
