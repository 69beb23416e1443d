package era

import (
	"bytes"
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// resultParts are what the bridge reads in a modern result.
type resultParts struct {
	kind string // resultType; a result that has none is complete (2026-07-28, "ResultType")
	meta []byte // raw; nil: none
	ok   bool   // it is an object, and its type a string
}

func readResult(result []byte) resultParts {
	parts := resultParts{kind: "complete", ok: isObject(result)}
	if bytes.IndexByte(result, '\\') < 0 && !bytes.Contains(result, []byte(`"resultType"`)) && !bytes.Contains(result, []byte(`"_meta"`)) {
		return parts // nothing to find
	}
	for m := range jsonrpc.Members(result) {
		switch m.Key {
		case "_meta":
			parts.meta = m.Value
		case "resultType":
			parts.kind, parts.ok = jsonrpc.Text(m.Value)
		}
	}
	return parts
}

// legalResult takes out of a result what legacy revisions do not have (C.0):
// resultType, who the server is, the caching hints. core is whether the method is
// one of 2026-07-28: in results of others, ttlMs may be anything.
func legalResult(result []byte, parts resultParts, core bool) []byte {
	var room [4]string
	keys := append(room[:0], "resultType")
	if core {
		keys = append(keys, "ttlMs", "cacheScope")
	}
	if parts.meta != nil {
		rest := legalMeta(parts.meta)
		switch {
		case rest == nil:
			keys = append(keys, "_meta")
		case len(rest) != len(parts.meta):
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

// withErrorCode returns an error response with another code; the rest stays.
func withErrorCode(m jsonrpc.Message, code int) jsonrpc.Message { return withError(m, code, nil) }

// withError returns an error response with another code, and data; nil leaves
// them. The rest stays.
func withError(m jsonrpc.Message, code int, data []byte) jsonrpc.Message {
	object := jsonrpc.With(m.ErrorObject(), "code", strconv.AppendInt(nil, int64(code), 10))
	if data != nil {
		object = jsonrpc.With(object, "data", data)
	}
	changed, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":` + m.ID().String() + `,"error":` + string(object) + `}`))
	if err != nil {
		panic("era: cannot replace an error code: " + err.Error())
	}
	return changed.WithRelated(m.Related())
}

// errorCode returns the code of an error response, 0 if it cannot be read.
func errorCode(m jsonrpc.Message) int {
	code, _ := strconv.Atoi(string(m.Lookup("error", "code")))
	return code
}

// isEmpty reports whether an object has no members.
func isEmpty(object []byte) bool {
	for _, c := range object[1:] {
		switch c {
		case ' ', '\t', '\n', '\r':
		default:
			return c == '}'
		}
	}
	return true
}
