package legacyclient

import (
	"bytes"
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// calls are the requests of the client that the server is to answer.
type calls struct {
	session *session
	inputs  *inputs
	schemas schemas

	atServer map[jsonrpc.ID]*call // by the id there
	owed     map[jsonrpc.ID]*call // an answer, by the client's id
}

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
func (k *calls) forward(m jsonrpc.Message, method string, out *era.Out) {
	c := &call{id: m.ID(), m: m, method: method, progress: -1}
	if params := m.Params(); params != nil && !shape.IsObject(params) {
		refuse(c.id, jsonrpc.CodeInvalidParams, "params must be an object", nil, out)
		return
	}
	k.owed[c.id] = c
	k.send(c, jsonrpc.Fragment{}, out)
}

// send gives the call to the server under a new id, with the members of a retry.
func (k *calls) send(c *call, retry jsonrpc.Fragment, out *era.Out) {
	c.upstream = k.session.nextID()
	k.atServer[c.upstream] = c
	out.Server(k.forServer(c, retry))
}

// forServer returns what the client has sent with our _meta spliced in (C.0) and,
// ahead of everything, the members of a retry.
func (k *calls) forServer(c *call, retry jsonrpc.Fragment) jsonrpc.Message {
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
	return m.WithMeta(k.session.meta).WithFirst(retry).WithID(c.upstream)
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
func (k *calls) completed(now time.Time, c *call, m jsonrpc.Message, out *era.Out) {
	parts := readResult(m)
	switch {
	case !parts.ok:
		k.finishError(c, "the server's result is none of 2026-07-28", "invalid_result", out)
	case parts.kind == "complete":
		k.finish(c, k.translated(c, m, parts), out)
	case parts.kind == "input_required" && era.MayAskForInput(c.method):
		k.inputs.inputRequired(now, c, m.Result(), out)
	default: // ME7
		k.finishError(c, "the server's result is of a type that the bridge does not know here", "invalid_result", out)
	}
}

// translated makes a complete result, and its response, one that the client
// knows. What only has to be taken out of it goes with the id, in one copy.
func (k *calls) translated(c *call, m jsonrpc.Message, parts resultParts) jsonrpc.Message {
	core := era.IsModernMethod(c.method)
	if c.method != "tools/list" && (c.method != "tools/call" || !k.schemas.wraps(c, parts.structured)) {
		var room [4]string
		if keys, ok := parts.removed(room[:0], core); ok {
			return m.Plain().WithID(c.id).WithoutInResult(keys...)
		}
	}
	result := m.Result()
	legal := legalResult(result, parts, core)
	switch c.method {
	case "tools/list":
		legal = k.schemas.showTools(legal)
	case "tools/call":
		legal = k.schemas.showStructured(c, legal)
	}
	if &legal[0] != &result[0] {
		m = m.WithResult(legal)
	}
	return m.Plain().WithID(c.id)
}

// failed takes an error of the server.
func (k *calls) failed(c *call, m jsonrpc.Message, out *era.Out) {
	if original, ok := withOriginalCode(m); ok {
		k.finish(c, original.WithID(c.id), out)
		return
	}
	switch code := shape.ErrorCode(m); {
	case code == era.CodeHeaderMismatch || code == era.CodeUnsupportedVersion:
		// Between the bridge and the server; the client can do nothing (C.2).
		k.finishError(c, "the server does not take the bridge's requests", "protocol_mismatch", out)
	case code == jsonrpc.CodeInvalidParams && c.method == "resources/read" && namesURI(m, c.m):
		k.finish(c, shape.WithError(m, era.CodeResourceNotFound, nil).WithID(c.id), out)
	default:
		k.finish(c, m.WithID(c.id), out)
	}
}

// namesURI reports whether an error of resources/read says that there is no
// such resource: its data has the URI (C.0).
func namesURI(failure, read jsonrpc.Message) bool {
	return shape.SameText(failure.Lookup("error", "data", "uri"), read.Lookup("params", "uri"))
}

// finish answers the client's request; m has the client's id.
func (k *calls) finish(c *call, m jsonrpc.Message, out *era.Out) {
	delete(k.owed, c.id)
	out.Client(m.WithRelated(c.id))
}

// finishError answers the client's request with an error of the bridge (C.7).
func (k *calls) finishError(c *call, text, why string, out *era.Out) {
	k.finish(c, jsonrpc.NewError(c.id, jsonrpc.CodeInternalError, text, shape.Reason(why)), out)
}

// cancelled takes notifications/cancelled of the client. Nothing more goes to
// the client for that request (J12). False: it is none of these.
func (k *calls) cancelled(m jsonrpc.Message, out *era.Out) bool {
	id, c, ok := jsonrpc.Find(k.owed, m.RequestID())
	if !ok {
		return false
	}
	delete(k.owed, id)
	k.inputs.withdraw(c, nil, out)
	if !c.upstream.IsZero() {
		delete(k.atServer, c.upstream)
		out.Server(m.WithRequestID(c.upstream))
	}
	return true
}

// progress passes progress of a call on; its token is the client's own.
func (k *calls) progress(m jsonrpc.Message, out *era.Out) {
	c := k.callOf(m)
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
func (k *calls) callOf(m jsonrpc.Message) *call {
	if related, ok := m.During(); ok {
		_, c, _ := jsonrpc.Find(k.atServer, related)
		return c
	}
	token := m.ProgressToken()
	if token.IsZero() {
		return nil
	}
	for _, c := range k.atServer {
		if c.m.ProgressToken().Equivalent(token) {
			return c
		}
	}
	return nil
}

// only returns the call that is at the server, if there is just one.
func (k *calls) only() *call {
	if len(k.atServer) == 1 {
		for _, c := range k.atServer {
			return c
		}
	}
	return nil
}

// serverEnded answers all calls with an error.
func (k *calls) serverEnded(text string, data []byte, out *era.Out) {
	for _, c := range k.owed {
		k.inputs.withdraw(c, nil, out)
		refuse(c.id, jsonrpc.CodeInternalError, text, data, out)
	}
	clear(k.owed)
	clear(k.atServer)
}
