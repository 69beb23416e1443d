package legacyclient

import (
	"bytes"
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// calls are the requests of the client that the server must answer.
type calls struct {
	session *session // the client's session
	inputs  *inputs  // asks the client for input that the server needs
	schemas schemas  // which results of tools are wrapped

	atServer   map[jsonrpc.ID]*call // calls that are at the server now, by the id that the server knows
	byClientID map[jsonrpc.ID]*call // all calls, by the client's id
}

// call is a request of the client without an answer. Either it is at the server
// (serverID is set), or it waits for answers of the client, or for the time of the
// next attempt.
type call struct {
	id            jsonrpc.ID      // the id that the client knows
	m             jsonrpc.Message // the request as the client has sent it
	method        string          // the method of m
	serverID      jsonrpc.ID      // the id that the server knows; zero: the call is not at the server now
	inputRound    *inputRound     // what the server has asked; nil: it has never answered the call with input_required
	inputDeadline time.Time       // when the wait for the client's answers, or for the next attempt, ends; only for calls in inputs.callsWithDeadline
	lastProgress  float64         // the latest progress that the client has got; -1: none
}

// forward sends a request of the client to the server.
func (k *calls) forward(m jsonrpc.Message, method string, out *era.Out) {
	c := &call{id: m.ID(), m: m, method: method, lastProgress: -1}
	if params := m.Params(); params != nil && !shape.IsObject(params) {
		refuse(c.id, jsonrpc.CodeInvalidParams, "params must be an object", nil, out)
		return
	}
	k.byClientID[c.id] = c
	k.send(c, jsonrpc.Fragment{}, out)
}

// send sends a call to the server, with a new id. retry has the members of a retry; it is empty
// the first time.
func (k *calls) send(c *call, retry jsonrpc.Fragment, out *era.Out) {
	c.serverID = k.session.nextID()
	k.atServer[c.serverID] = c
	out.Server(k.requestForServer(c, retry))
}

// requestForServer returns the client's request as the server gets it: without reservedKeys and
// retryKeys, with the members of a retry first, and with the session's members of _meta (C.0).
func (k *calls) requestForServer(c *call, retry jsonrpc.Fragment) jsonrpc.Message {
	var reserved, others []string
	if mayHaveReserved(c.m.Meta()) {
		reserved = reservedKeys[:]
	}
	if era.MayAskForInput(c.method) {
		others = retryKeys[:]
	}
	m := c.m.Plain()
	if reserved != nil || others != nil {
		m = m.WithoutInParams(reserved, others...)
	}
	return m.WithMeta(k.session.callMeta).WithFirst(retry).WithID(c.serverID)
}

var (
	// reservedKeys are the keys that are removed from the _meta of a client's request: a legacy
	// client has none of them to say, or (the related task) nothing that the server knows.
	reservedKeys = [...]string{era.KeyVersion, era.KeyClientInfo, era.KeyCapabilities, era.KeyLogLevel, era.KeyRelatedTask}

	// retryKeys are the members that are removed from the params of a client's request: a server
	// would ignore a task (C.5), and only the Filter itself makes retries, which have the others.
	retryKeys = [...]string{"task", "inputResponses", "requestState"}
)

// mayHaveReserved reports whether a raw _meta may have any of reservedKeys; false: it has none.
func mayHaveReserved(meta []byte) bool {
	return bytes.IndexByte(meta, '\\') >= 0 || bytes.Contains(meta, []byte("io.modelcontextprotocol/"))
}

// handleResult takes a result of the server for c, and answers the client, or asks it for input.
func (k *calls) handleResult(now time.Time, c *call, m jsonrpc.Message, out *era.Out) {
	parts := readResult(m)
	switch {
	case !parts.valid:
		k.finishError(c, "the server's result is none of 2026-07-28", "invalid_result", out)
	case parts.resultType == "complete":
		k.finish(c, k.translateResult(c, m, parts), out)
	case parts.resultType == "input_required" && era.MayAskForInput(c.method):
		k.inputs.handleInputRequired(now, c, m.Result(), out)
	default: // ME7
		k.finishError(c, "the server's result is of a type that the bridge does not know here", "invalid_result", out)
	}
}

// translateResult returns a complete result as the client gets it. If members only have
// to be removed, the response is copied once.
func (k *calls) translateResult(c *call, m jsonrpc.Message, parts resultParts) jsonrpc.Message {
	core := era.IsModernMethod(c.method)
	if c.method != "tools/list" && (c.method != "tools/call" || !k.schemas.mustWrap(c, parts.structured)) {
		var room [4]string
		if keys, ok := parts.keysToRemove(room[:0], core); ok {
			return m.Plain().WithID(c.id).WithoutInResult(keys...)
		}
	}
	result := m.Result()
	legal := legacyResult(result, parts, core)
	switch c.method {
	case "tools/list":
		legal = k.schemas.wrapToolSchemas(legal)
	case "tools/call":
		legal = k.schemas.wrapStructured(c, legal)
	}
	if &legal[0] != &result[0] {
		m = m.WithResult(legal)
	}
	return m.Plain().WithID(c.id)
}

// handleError takes an error of the server for c, and answers the client with its legacy form.
func (k *calls) handleError(c *call, m jsonrpc.Message, out *era.Out) {
	if original, ok := withOriginalCode(m); ok {
		k.finish(c, original.WithID(c.id), out)
		return
	}
	switch code := shape.ErrorCode(m); {
	case code == era.CodeHeaderMismatch || code == era.CodeUnsupportedVersion:
		// Between the bridge and the server; the client can do nothing (C.2).
		k.finishError(c, "the server does not take the bridge's requests", "protocol_mismatch", out)
	case code == jsonrpc.CodeInvalidParams && c.method == "resources/read" && isResourceNotFound(m, c.m):
		k.finish(c, shape.WithError(m, era.CodeResourceNotFound, nil).WithID(c.id), out)
	default:
		k.finish(c, m.WithID(c.id), out)
	}
}

// isResourceNotFound reports whether an error of resources/read means that the resource does
// not exist: its data has the URI (C.0).
func isResourceNotFound(failure, read jsonrpc.Message) bool {
	return shape.EqualStrings(failure.Lookup("error", "data", "uri"), read.Lookup("params", "uri"))
}

// finish ends a call: it answers the client with m, which has the client's id.
func (k *calls) finish(c *call, m jsonrpc.Message, out *era.Out) {
	delete(k.byClientID, c.id)
	out.Client(m.WithRelated(c.id))
}

// finishError ends a call: it answers the client with an error of the bridge, whose message is
// text and whose data.reason is why (C.7).
func (k *calls) finishError(c *call, text, why string, out *era.Out) {
	k.finish(c, jsonrpc.NewError(c.id, jsonrpc.CodeInternalError, text, shape.ReasonData(why)), out)
}

// handleCancelled takes the client's notifications/cancelled, m, and cancels the call at the
// server. The client hears nothing more of the call (J12). False: m names none of these calls.
func (k *calls) handleCancelled(m jsonrpc.Message, out *era.Out) bool {
	id, c, ok := jsonrpc.Find(k.byClientID, m.CancelledID())
	if !ok {
		return false
	}
	delete(k.byClientID, id)
	k.inputs.cancelRequests(c, nil, out)
	if !c.serverID.IsZero() {
		delete(k.atServer, c.serverID)
		out.Server(m.WithCancelledID(c.serverID))
	}
	return true
}

// forwardProgress passes the server's notifications/progress for a call on to the client. The
// token in it is the client's own. It drops progress of a call that is not at the server, or that has not
// asked for it. Once the server has asked for input, and gets the call again, it drops progress that is not
// above the latest.
func (k *calls) forwardProgress(m jsonrpc.Message, out *era.Out) {
	c := k.callOf(m)
	if c == nil || !c.m.ProgressToken().Equivalent(m.ProgressToken()) {
		out.Drop(m, "progress of no call in flight") // J13
		return
	}
	done, err := strconv.ParseFloat(string(m.Lookup("params", "progress")), 64)
	if c.inputRound != nil && (err != nil || done <= c.lastProgress) {
		out.Drop(m, "progress that went further in an earlier round") // J13: it increases
		return
	}
	c.lastProgress = done
	out.Client(m.WithRelated(c.id))
}

// callOf returns the call that a message of the server belongs to: the one that the transport
// names, or the one with the progress token. Nil: there is none at the server.
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

// onlyCall returns the call at the server if there is exactly one, or else nil.
func (k *calls) onlyCall() *call {
	if len(k.atServer) == 1 {
		for _, c := range k.atServer {
			return c
		}
	}
	return nil
}

// failAll answers all calls with an error, because the server has ended.
func (k *calls) failAll(text string, data []byte, out *era.Out) {
	for _, c := range k.byClientID {
		k.inputs.cancelRequests(c, nil, out)
		refuse(c.id, jsonrpc.CodeInternalError, text, data, out)
	}
}
