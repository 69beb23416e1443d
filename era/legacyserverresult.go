package era

import (
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// cacheHints are what results of cacheable methods say: a legacy server promises
// nothing, and may answer each client differently (MI16).
const cacheHints = `"ttlMs":0,"cacheScope":"private",`

// resultMessage is the response with a result that a legacy server has given,
// as a modern client wants it (C.0).
func (f *LegacyServerFilter) resultMessage(id jsonrpc.ID, method string, result []byte) jsonrpc.Message {
	if !isObject(result) {
		return jsonrpc.NewError(id, jsonrpc.CodeInternalError, "the server's result is no object", nil).WithRelated(id)
	}
	var hints string
	rest := result
	if IsCacheable(method) {
		hints = cacheHints
		rest = jsonrpc.Without(result, "resultType", "_meta", "ttlMs", "cacheScope")
	} else {
		rest = jsonrpc.Without(result, "resultType", "_meta")
	}
	meta := f.link.meta
	if len(rest) != len(result) {
		meta = f.resultMeta(member(result, "_meta"))
	}
	return makeResult(id, `"resultType":"complete",`+hints, meta, rest)
}

// resultMeta adds to the _meta of a result who the server is, and takes away
// that it belongs to a task: the client has not asked for one.
func (f *LegacyServerFilter) resultMeta(meta []byte) []byte {
	if !isObject(meta) {
		return f.link.meta
	}
	meta = jsonrpc.Without(meta, KeyRelatedTask)
	if info := member(f.link.meta, KeyServerInfo); info != nil {
		meta = jsonrpc.With(meta, KeyServerInfo, info)
	}
	if isEmpty(meta) {
		return nil
	}
	return meta
}

// makeResult writes a response: members, which end with a comma, _meta, and what
// else the object rest has.
func makeResult(id jsonrpc.ID, members string, meta, rest []byte) jsonrpc.Message {
	raw := make([]byte, 0, len(`{"jsonrpc":"2.0","id":,"result":{"_meta":,}}`)+len(id.String())+len(members)+len(meta)+len(rest))
	raw = append(raw, `{"jsonrpc":"2.0","id":`...)
	raw = append(raw, id.String()...)
	raw = append(raw, `,"result":{`...)
	raw = append(raw, members...)
	if meta != nil {
		raw = append(raw, `"_meta":`...)
		raw = append(append(raw, meta...), ',')
	}
	if isEmpty(rest) {
		raw[len(raw)-1] = '}'
	} else {
		raw = append(raw, rest[1:]...)
	}
	m, err := jsonrpc.Parse(append(raw, '}'))
	if err != nil {
		return jsonrpc.NewError(id, jsonrpc.CodeInternalError, "the server's result cannot be translated", nil).WithRelated(id)
	}
	return m.WithRelated(id)
}

// failure is the response for an error of the server. Codes that 2026-07-28 has
// reserved are replaced (J10): what a legacy server means by them, no modern
// client would understand. One that says which capability is missing is
// understood.
func (f *LegacyServerFilter) failure(now time.Time, c *serverCall, m jsonrpc.Message) jsonrpc.Message {
	code := errorCode(m)
	data := m.Lookup("error", "data")
	switch {
	case code == CodeResourceNotFound:
		code = jsonrpc.CodeInvalidParams
		if uri := c.m.Lookup("params", "uri"); uri != nil && (data == nil || isObject(data) && member(data, "uri") == nil) {
			data = jsonrpc.With(data, "uri", uri)
		}
	case code == CodeURLElicitation && MayAskForInput(c.method):
		if response, ok := f.sendToURL(now, c, data); ok {
			return response
		}
		code, data = jsonrpc.CodeInternalError, originalCode(code, data)
	case code == CodeMissingCapability && isObject(member(data, "requiredCapabilities")):
		return m.WithID(c.id).WithRelated(c.id)
	case code <= -32020 && code >= -32099:
		code, data = jsonrpc.CodeInternalError, originalCode(code, data)
	default:
		return m.WithID(c.id).WithRelated(c.id)
	}
	return withError(m, code, data).WithID(c.id).WithRelated(c.id)
}

// originalCode puts the code that an error had into its data.
func originalCode(code int, data []byte) []byte {
	number := strconv.AppendInt(nil, int64(code), 10)
	if data == nil || isObject(data) {
		return jsonrpc.With(data, "originalCode", number)
	}
	out := appendMember([]byte{'{'}, "originalCode", number)
	return append(appendMember(out, "originalData", data), '}')
}
