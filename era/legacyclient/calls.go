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
	session *session
	inputs  *inputs
	schemas schemas

	atServer   map[jsonrpc.ID]*call // by the id at the server
	byClientID map[jsonrpc.ID]*call // by the client's id
}

// call is a request of the client without an answer. Either it is at the server
// (serverID is set), or it waits for answers of the client, or for the time of the
// next attempt.
type call struct {
	id            jsonrpc.ID      // the client's
	m             jsonrpc.Message // as the client has sent it
	method        string
	serverID      jsonrpc.ID  // the id at the server; zero: not there
	inputRound    *inputRound // nil: the server has not asked for input
	inputDeadline time.Time   // when the wait for the client's answers, or for the next attempt, ends
	lastProgress  float64     // the latest progress that the client has got; -1: none
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

// requestForServer returns the client's request for the server: the members of a retry
// come first, and the session's members of _meta are added (C.0).
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
	// reservedKeys are the keys of _meta that only modern requests have.
	reservedKeys = [...]string{era.KeyVersion, era.KeyClientInfo, era.KeyCapabilities, era.KeyLogLevel, era.KeyRelatedTask}

	// retryKeys are members of params that are removed: a server would ignore a task
	// (C.5), and the others belong to retries.
	retryKeys = [...]string{"task", "inputResponses", "requestState"}
)

// mayHaveReserved reports whether _meta may have any of reservedKeys.
func mayHaveReserved(meta []byte) bool {
	return bytes.IndexByte(meta, '\\') >= 0 || bytes.Contains(meta, []byte("io.modelcontextprotocol/"))
}

// handleResult takes a result of the server.
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

// handleError takes an error of the server.
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

// finish answers the client. m has the client's id.
func (k *calls) finish(c *call, m jsonrpc.Message, out *era.Out) {
	delete(k.byClientID, c.id)
	out.Client(m.WithRelated(c.id))
}

// finishError answers the client with an error of the bridge (C.7).
func (k *calls) finishError(c *call, text, why string, out *era.Out) {
	k.finish(c, jsonrpc.NewError(c.id, jsonrpc.CodeInternalError, text, shape.ReasonData(why)), out)
}

// handleCancelled takes the client's notifications/cancelled. The client hears nothing
// more of the request (J12). False: it is not one of these calls.
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

// forwardProgress passes progress of a call on. Its token is the client's own.
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

// callOf returns the call that a message belongs to: the one that the transport
// names, or the one with the progress token. Nil: there is none.
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

// onlyCall returns the call at the server, if there is exactly one.
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
	clear(k.byClientID)
	clear(k.atServer)
}
