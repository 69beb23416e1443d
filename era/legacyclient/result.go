package legacyclient

import (
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// resultParts are the members of a modern result that the bridge reads.
type resultParts struct {
	resultType string // resultType; "complete" if absent (2026-07-28, "ResultType")
	meta       []byte // _meta, raw; nil: none
	structured []byte // structuredContent, raw; nil: none
	valid      bool   // the result is an object, and resultType a string
}

// readResult reads the result of a response.
func readResult(m jsonrpc.Message) resultParts {
	parts := resultParts{resultType: "complete", valid: shape.IsObject(m.Result())}
	for member := range m.ResultObject().Members() {
		switch member.Key {
		case "_meta":
			parts.meta = member.Value
		case "structuredContent":
			parts.structured = member.Value
		case "resultType":
			parts.resultType, parts.valid = jsonrpc.Text(member.Value)
		}
	}
	return parts
}

// keysToRemove appends the keys of a result that legacy revisions do not have (C.0): resultType,
// the caching hints, and _meta if it has only what legacy revisions do not have (legacyMeta).
// standardMethod says that 2026-07-28 defines the method: in results of other methods ttlMs may
// mean anything. ok is false if a part of _meta must be removed beside these keys.
func (parts resultParts) keysToRemove(keys []string, standardMethod bool) (_ []string, ok bool) {
	keys = append(keys, "resultType")
	if standardMethod {
		keys = append(keys, "ttlMs", "cacheScope")
	}
	if parts.meta == nil {
		return keys, true
	}
	rest := legacyMeta(parts.meta)
	if rest == nil {
		return append(keys, "_meta"), true
	}
	return keys, len(rest) == len(parts.meta)
}

// legacyResult returns a raw result without what legacy revisions do not have. parts are those of the result;
// standardMethod says that 2026-07-28 defines the method of its request.
func legacyResult(result []byte, parts resultParts, standardMethod bool) []byte {
	var room [4]string
	keys, ok := parts.keysToRemove(room[:0], standardMethod)
	result = jsonrpc.Without(result, keys...)
	if !ok {
		result = jsonrpc.With(result, "_meta", legacyMeta(parts.meta))
	}
	return result
}

// legacyMeta returns a server's _meta without what legacy revisions do not have, the serverInfo and
// the id of a subscription; nil if it had nothing else. A _meta that has neither is returned as it
// is, also if it is empty or no object.
func legacyMeta(meta []byte) []byte {
	if !shape.IsObject(meta) {
		return meta
	}
	rest := jsonrpc.Without(meta, era.KeyServerInfo, era.KeySubscription)
	if len(rest) != len(meta) && shape.IsEmpty(rest) {
		return nil
	}
	return rest
}

// legacyNotification returns a notification of a listen without what legacy revisions do not have.
func legacyNotification(m jsonrpc.Message) jsonrpc.Message {
	params := m.Params()
	meta := m.Meta()
	if meta == nil {
		return m
	}
	rest := legacyMeta(meta)
	switch {
	case rest == nil:
		params = jsonrpc.Without(params, "_meta")
		if shape.IsEmpty(params) {
			params = nil
		}
	case len(rest) != len(meta):
		params = jsonrpc.With(params, "_meta", rest)
	default:
		return m
	}
	return m.WithParams(params)
}

// withOriginalCode undoes what package legacyserver does to an error of a legacy server (J10): it
// returns the error with the code and data that the server has sent. False: m is no such error.
func withOriginalCode(m jsonrpc.Message) (jsonrpc.Message, bool) {
	data := m.Lookup("error", "data")
	if !shape.IsObject(data) {
		return m, false
	}
	original, err := strconv.Atoi(string(shape.Member(data, "originalCode")))
	if err != nil {
		return m, false
	}
	if code, ok := era.ModernCode(original); !ok || code != shape.ErrorCode(m) {
		return m, false
	}
	object := m.ErrorObject()
	if was := shape.Member(data, "originalData"); was != nil {
		object = jsonrpc.With(object, "data", was)
	} else if rest := jsonrpc.Without(data, "originalCode"); shape.IsEmpty(rest) {
		object = jsonrpc.Without(object, "data")
	} else {
		object = jsonrpc.With(object, "data", rest)
	}
	return shape.WithErrorObject(m, jsonrpc.With(object, "code", shape.Member(data, "originalCode"))), true
}
