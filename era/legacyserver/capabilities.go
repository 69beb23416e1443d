package legacyserver

import (
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ProjectCapabilities returns the capabilities for a legacy initialize that
// correspond to a modern client's raw clientCapabilities (C.1). roots.listChanged
// is left out, because it needs a connection, and so are tasks, which differ
// between the eras. Capabilities that the bridge does not know stay, unless their
// value is not an object. Equivalent capabilities give the same bytes, so that the
// result can be part of a key. No capabilities give {}.
func ProjectCapabilities(raw []byte) []byte {
	out := []byte{'{'}
	if !shape.IsObject(raw) {
		return append(out, '}')
	}
	for m := range jsonrpc.Members(shape.AppendCanonical(nil, raw, shape.MaxCanonicalDepth)) {
		if !shape.IsObject(m.Value) {
			continue
		}
		if value := projectCapability(m.Key, m.Value); value != nil {
			out = shape.AppendMember(out, m.Key, value)
		}
	}
	return append(out, '}')
}

// projectCapability returns the legacy form of one capability, or nil if a legacy
// client does not have it. value is an object in canonical spelling.
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

// onlyObjects returns object without those of the keys whose value is not an object.
func onlyObjects(object []byte, keys ...string) []byte {
	for _, key := range keys {
		if value := shape.Member(object, key); value != nil && !shape.IsObject(value) {
			object = jsonrpc.Without(object, key)
		}
	}
	return object
}
