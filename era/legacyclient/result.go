package legacyclient

import (
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// resultParts are what the bridge reads in a modern result.
type resultParts struct {
	kind       string // resultType; a result that has none is complete (2026-07-28, "ResultType")
	meta       []byte // raw; nil: none
	structured []byte // structuredContent, raw; nil: none
	ok         bool   // it is an object, and its type a string
}

func readResult(m jsonrpc.Message) resultParts {
	parts := resultParts{kind: "complete", ok: shape.IsObject(m.Result())}
	for member := range m.ResultObject().Members() {
		switch member.Key {
		case "_meta":
			parts.meta = member.Value
		case "structuredContent":
			parts.structured = member.Value
		case "resultType":
			parts.kind, parts.ok = jsonrpc.Text(member.Value)
		}
	}
	return parts
}

// removed appends the keys of what legacy revisions do not have in a result
// (C.0): resultType, who the server is, the caching hints. core is whether the
// method is one of 2026-07-28: in results of others, ttlMs may be anything. ok is
// false if part of the _meta must go, and part of it stay.
func (parts resultParts) removed(keys []string, core bool) (_ []string, ok bool) {
	keys = append(keys, "resultType")
	if core {
		keys = append(keys, "ttlMs", "cacheScope")
	}
	if parts.meta == nil {
		return keys, true
	}
	rest := legalMeta(parts.meta)
	if rest == nil {
		return append(keys, "_meta"), true
	}
	return keys, len(rest) == len(parts.meta)
}

// legalResult takes out of a result what legacy revisions do not have.
func legalResult(result []byte, parts resultParts, core bool) []byte {
	var room [4]string
	keys, ok := parts.removed(room[:0], core)
	result = jsonrpc.Without(result, keys...)
	if !ok {
		result = jsonrpc.With(result, "_meta", legalMeta(parts.meta))
	}
	return result
}

// legalMeta takes out of the _meta of a result or notification of a server what
// legacy revisions do not have; nil if nothing else was in it.
func legalMeta(meta []byte) []byte {
	if !shape.IsObject(meta) {
		return meta
	}
	rest := jsonrpc.Without(meta, era.KeyServerInfo, era.KeySubscription)
	if len(rest) != len(meta) && shape.IsEmpty(rest) {
		return nil
	}
	return rest
}

// legalNotification does the same for a notification that came over a listen.
func legalNotification(m jsonrpc.Message) jsonrpc.Message {
	params := m.Params()
	meta := m.Meta()
	if meta == nil {
		return m
	}
	rest := legalMeta(meta)
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

// withOriginalCode returns an error as an older server has said it, if it is one
// that 2026-07-28 has no place for: then its data say which, and its code is the
// one that such an error gets (J10). What originalCode has put there is taken out
// again.
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
