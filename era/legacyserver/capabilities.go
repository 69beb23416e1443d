package legacyserver

import (
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ProjectCapabilities returns what a modern client's raw clientCapabilities are
// in a legacy initialize (C.1): without roots.listChanged, which needs a
// connection, and tasks, which are others there. What the bridge does not know
// stays, values as spelled, unless it is no object where capabilities are. What
// means the same gives the same bytes, so that it can be part of a key; no
// capabilities are {}.
func ProjectCapabilities(raw []byte) []byte {
	out := []byte{'{'}
	if !shape.IsObject(raw) {
		return append(out, '}')
	}
	for m := range jsonrpc.Members(shape.AppendCanonical(nil, raw, shape.CanonicalDepth)) {
		if !shape.IsObject(m.Value) {
			continue
		}
		if value := projectCapability(m.Key, m.Value); value != nil {
			out = shape.AppendMember(out, m.Key, value)
		}
	}
	return append(out, '}')
}

// projectCapability returns what one capability, an object in canonical spelling,
// is in a legacy initialize; nil: it is none.
func projectCapability(key string, value []byte) []byte {
	switch key {
	case "tasks":
		return nil
	case "roots":
		return jsonrpc.Without(value, "listChanged")
	case "sampling":
		return onlyObjects(value, "context", "tools")
	case "elicitation":
		value = onlyObjects(value, "form", "url")
		if string(shape.Member(value, "form")) == "{}" && shape.Member(value, "url") == nil {
			value = jsonrpc.Without(value, "form") // means the same (2025-11-25), and older servers know no other
		}
	case "extensions":
		if value = jsonrpc.Without(value, era.ExtensionTasks); shape.IsEmpty(value) {
			return nil
		}
	case "experimental":
		if shape.IsEmpty(value) {
			return nil
		}
	}
	return value
}

// onlyObjects returns object without those of the keys whose value is no object.
func onlyObjects(object []byte, keys ...string) []byte {
	for _, key := range keys {
		if value := shape.Member(object, key); value != nil && !shape.IsObject(value) {
			object = jsonrpc.Without(object, key)
		}
	}
	return object
}
