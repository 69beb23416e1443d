package era

import "github.com/mcp-bridge/mcp-bridge/jsonrpc"

// extensionTasks is the extension of 2026-07-28 that has tasks. A legacy peer
// has others, so neither side is told of it (C.5).
const extensionTasks = "io.modelcontextprotocol/tasks"

// ProjectCapabilities returns what a modern client's raw clientCapabilities are
// in a legacy initialize (C.1): without roots.listChanged, which needs a
// connection, and tasks, which are others there. What the bridge does not know
// stays, values as spelled, unless it is no object where capabilities are. What
// means the same gives the same bytes, so that it can be part of a key; no
// capabilities are {}.
func ProjectCapabilities(raw []byte) []byte {
	out := []byte{'{'}
	if !isObject(raw) {
		return append(out, '}')
	}
	for m := range jsonrpc.Members(appendCanonical(nil, raw, canonicalDepth)) {
		if !isObject(m.Value) {
			continue
		}
		if value := projectCapability(m.Key, m.Value); value != nil {
			out = appendMember(out, m.Key, value)
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
		if string(member(value, "form")) == "{}" && member(value, "url") == nil {
			value = jsonrpc.Without(value, "form") // means the same (2025-11-25), and older servers know no other
		}
	case "extensions":
		if value = jsonrpc.Without(value, extensionTasks); isEmpty(value) {
			return nil
		}
	case "experimental":
		if isEmpty(value) {
			return nil
		}
	}
	return value
}

// onlyObjects returns object without those of the keys whose value is no object.
func onlyObjects(object []byte, keys ...string) []byte {
	for _, key := range keys {
		if value := member(object, key); value != nil && !isObject(value) {
			object = jsonrpc.Without(object, key)
		}
	}
	return object
}
