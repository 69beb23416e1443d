package legacyclient

import (
	"bytes"
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// call is a request of the client that is not answered yet. It is either
// at the server (upstream is set), or waits for the client's answers (asks), or
// for the time of the next attempt.
type call struct {
	id       jsonrpc.ID      // the client's
	m        jsonrpc.Message // as the client has sent it
	method   string
	upstream jsonrpc.ID // the id at the server; zero: not there
	input    *input     // nil until the server asks for something
	due      time.Time  // when waiting ends
	progress float64    // the last that went to the client
}

// forward sends a request of the client to the server.
func (f *filter) forward(m jsonrpc.Message, method string, out *era.Out) {
	c := &call{id: m.ID(), m: m, method: method, progress: -1}
	if params := m.Params(); params != nil && !shape.IsObject(params) {
		f.refuse(c.id, jsonrpc.CodeInvalidParams, "params must be an object", nil, out)
		return
	}
	f.owed[c.id] = c
	f.send(c, jsonrpc.Fragment{}, out)
}

// send gives the call to the server under a new id, with the members of a retry.
func (f *filter) send(c *call, retry jsonrpc.Fragment, out *era.Out) {
	f.lastID++
	c.upstream = jsonrpc.IntID(f.lastID)
	f.calls[c.upstream] = c
	out.Server(f.forServer(c, retry))
}

// forServer returns what the client has sent with our _meta spliced in (C.0) and,
// ahead of everything, the members of a retry.
func (f *filter) forServer(c *call, retry jsonrpc.Fragment) jsonrpc.Message {
	var reserved, others []string
	if hasReserved(c.m.Meta()) {
		reserved = reservedKeys[:]
	}
	if era.MayAskForInput(c.method) {
		others = retryKeys[:]
	}
	m := c.m.Plain()
	if reserved != nil || others != nil {
		m = m.WithoutInParams(reserved, others...)
	}
	return m.WithMeta(f.meta).WithFirst(retry).WithID(c.upstream)
}

var (
	// reservedKeys are what only a modern client says in a request's _meta.
	reservedKeys = [...]string{era.KeyVersion, era.KeyClientInfo, era.KeyCapabilities, era.KeyLogLevel, era.KeyRelatedTask}

	// retryKeys are what a legacy client's params cannot mean: a task would be
	// ignored (C.5), and the others have a meaning only in a retry.
	retryKeys = [...]string{"task", "inputResponses", "requestState"}
)

// hasReserved reports whether there may be any of reservedKeys in a request's _meta.
func hasReserved(meta []byte) bool {
	return bytes.IndexByte(meta, '\\') >= 0 || bytes.Contains(meta, []byte("io.modelcontextprotocol/"))
}

// completed takes a result of the server.
func (f *filter) completed(now time.Time, c *call, m jsonrpc.Message, out *era.Out) {
	parts := readResult(m)
	switch {
	case !parts.ok:
		f.finishError(c, "the server's result is none of 2026-07-28", "invalid_result", out)
	case parts.kind == "complete":
		f.finish(c, f.translated(c, m, parts), out)
	case parts.kind == "input_required" && era.MayAskForInput(c.method):
		f.inputRequired(now, c, m.Result(), out)
	default: // ME7
		f.finishError(c, "the server's result is of a type that the bridge does not know here", "invalid_result", out)
	}
}

// translated makes a complete result, and its response, one that the client
// knows. What only has to be taken out of it goes with the id, in one copy.
func (f *filter) translated(c *call, m jsonrpc.Message, parts resultParts) jsonrpc.Message {
	core := era.IsModernMethod(c.method)
	if c.method != "tools/list" && (c.method != "tools/call" || !f.wraps(c, parts.structured)) {
		var room [4]string
		if keys, ok := parts.removed(room[:0], core); ok {
			return m.Plain().WithID(c.id).WithoutInResult(keys...)
		}
	}
	result := m.Result()
	legal := legalResult(result, parts, core)
	switch c.method {
	case "tools/list":
		legal = f.showTools(legal)
	case "tools/call":
		legal = f.showStructured(c, legal)
	}
	if &legal[0] != &result[0] {
		m = m.WithResult(legal)
	}
	return m.Plain().WithID(c.id)
}

// failed takes an error of the server.
func (f *filter) failed(c *call, m jsonrpc.Message, out *era.Out) {
	if original, ok := withOriginalCode(m); ok {
		f.finish(c, original.WithID(c.id), out)
		return
	}
	switch code := shape.ErrorCode(m); {
	case code == era.CodeHeaderMismatch || code == era.CodeUnsupportedVersion:
		// Between the bridge and the server; the client can do nothing (C.2).
		f.finishError(c, "the server does not take the bridge's requests", "protocol_mismatch", out)
	case code == jsonrpc.CodeInvalidParams && c.method == "resources/read" && namesURI(m, c.m):
		f.finish(c, shape.WithError(m, era.CodeResourceNotFound, nil).WithID(c.id), out)
	default:
		f.finish(c, m.WithID(c.id), out)
	}
}

// namesURI reports whether an error of resources/read says that there is no
// such resource: its data has the URI (C.0).
func namesURI(failure, read jsonrpc.Message) bool {
	return shape.SameText(failure.Lookup("error", "data", "uri"), read.Lookup("params", "uri"))
}

// finish answers the client's request; m has the client's id.
func (f *filter) finish(c *call, m jsonrpc.Message, out *era.Out) {
	delete(f.owed, c.id)
	out.Client(m.WithRelated(c.id))
}

// finishError answers the client's request with an error of the bridge (C.7).
func (f *filter) finishError(c *call, text, why string, out *era.Out) {
	f.finish(c, jsonrpc.NewError(c.id, jsonrpc.CodeInternalError, text, shape.Reason(why)), out)
}

// cancelled takes notifications/cancelled of the client. Nothing more goes to
// it for that request (J12).
func (f *filter) cancelled(now time.Time, m jsonrpc.Message, out *era.Out) {
	id, c, ok := jsonrpc.Find(f.owed, m.RequestID())
	if !ok {
		if !f.forgetWaiter(now, m.RequestID()) {
			out.Drop(m, "it names no request in flight")
		}
		return
	}
	delete(f.owed, id)
	f.withdraw(c, nil, out)
	if !c.upstream.IsZero() {
		delete(f.calls, c.upstream)
		out.Server(m.WithRequestID(c.upstream))
	}
}

// progress passes progress of a call on; its token is the client's own.
func (f *filter) progress(m jsonrpc.Message, out *era.Out) {
	c := f.callOf(m)
	if c == nil || !c.m.ProgressToken().Equivalent(m.ProgressToken()) {
		out.Drop(m, "progress of no call in flight") // J13
		return
	}
	done, err := strconv.ParseFloat(string(m.Lookup("params", "progress")), 64)
	if c.input != nil && (err != nil || done <= c.progress) {
		out.Drop(m, "progress that went further in an earlier round") // J13: it increases
		return
	}
	c.progress = done
	out.Client(m.WithRelated(c.id))
}

// callOf returns the call in whose course a message came: as its transport
// tells, or else by the progress token; nil if there is none.
func (f *filter) callOf(m jsonrpc.Message) *call {
	if related, ok := m.During(); ok {
		_, c, _ := jsonrpc.Find(f.calls, related)
		return c
	}
	token := m.ProgressToken()
	if token.IsZero() {
		return nil
	}
	for _, c := range f.calls {
		if c.m.ProgressToken().Equivalent(token) {
			return c
		}
	}
	return nil
}

// logMessage passes a log line on, on the stream of its call.
func (f *filter) logMessage(m jsonrpc.Message, out *era.Out) {
	if f.level >= 0 {
		if rank := era.LogRank(m.Lookup("params", "level")); rank >= 0 && rank < f.level {
			out.Drop(m, "below the level that the client has set")
			return
		}
	}
	f.relay(m, out)
}

// relay passes a notification on, on the stream of the call in whose course it
// came if there was one.
func (f *filter) relay(m jsonrpc.Message, out *era.Out) {
	if f.phase != ready {
		out.Drop(m, "the session has not begun")
		return
	}
	related := jsonrpc.NullID
	if f.isNews(m) { // of an extension
		out.Client(legalNotification(m).WithRelated(related))
		return
	}
	if c := f.callOf(m); c != nil {
		related = c.id
	} else if of, ok := m.During(); ok {
		out.Drop(m, "its call has ended") // J12
		return
	} else if of.IsZero() && len(f.calls) == 1 {
		for _, c := range f.calls {
			related = c.id // the only one it can be of (B.1)
		}
	}
	out.Client(m.WithRelated(related))
}
