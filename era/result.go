package era

import (
	"bytes"
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// resultType returns the type of a result; one that has none is complete (2026-07-28,
// "ResultType"). ok is false if it is no string.
func resultType(result []byte) (kind string, ok bool) {
	if bytes.IndexByte(result, '\\') < 0 && !bytes.Contains(result, []byte(`"resultType"`)) {
		return "complete", true
	}
	raw := member(result, "resultType")
	if raw == nil {
		return "complete", true
	}
	switch string(raw) { // saves the allocation
	case `"complete"`:
		return "complete", true
	case `"input_required"`:
		return "input_required", true
	}
	return jsonrpc.Text(raw)
}

// legalResult takes out of a result what legacy revisions do not have (C.0):
// resultType, who the server is, the caching hints. core is whether the method is
// one of 2026-07-28: in results of others, ttlMs may be anything.
func legalResult(result []byte, core bool) []byte {
	_, meta, _ := findMeta(result)
	cut := [4]string{"resultType"}
	keys := cut[:1]
	if core {
		keys = append(keys, "ttlMs", "cacheScope")
	}
	if meta != nil {
		rest := legalMeta(meta)
		switch {
		case rest == nil:
			keys = append(keys, "_meta")
		case len(rest) != len(meta):
			return jsonrpc.With(jsonrpc.Without(result, keys...), "_meta", rest)
		}
	}
	return jsonrpc.Without(result, keys...)
}

// legalMeta takes out of the _meta of a result or notification of a server what
// legacy revisions do not have; nil if nothing else was in it.
func legalMeta(meta []byte) []byte {
	if !isObject(meta) {
		return meta
	}
	rest := jsonrpc.Without(meta, KeyServerInfo, KeySubscription)
	if len(rest) != len(meta) && isEmpty(rest) {
		return nil
	}
	return rest
}

// legalNotification does the same for a notification that came over a listen.
func legalNotification(m jsonrpc.Message) jsonrpc.Message {
	params := m.Params()
	_, meta, _ := findMeta(params)
	if meta == nil {
		return m
	}
	rest := legalMeta(meta)
	switch {
	case rest == nil:
		params = jsonrpc.Without(params, "_meta")
		if isEmpty(params) {
			params = nil
		}
	case len(rest) != len(meta):
		params = jsonrpc.With(params, "_meta", rest)
	default:
		return m
	}
	return m.WithParams(params)
}

// withErrorCode returns an error response with another code; message and data stay.
func withErrorCode(m jsonrpc.Message, code int) jsonrpc.Message {
	object := jsonrpc.With(m.ErrorObject(), "code", strconv.AppendInt(nil, int64(code), 10))
	changed, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":` + m.ID().String() + `,"error":` + string(object) + `}`))
	if err != nil {
		panic("era: cannot replace an error code: " + err.Error())
	}
	return changed.WithRelated(m.Related())
}
