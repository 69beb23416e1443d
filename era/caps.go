package era

import "github.com/mcp-bridge/mcp-bridge/jsonrpc"

// extensionTasks is the extension of 2026-07-28 that has tasks. A legacy peer
// has others, so neither side is told of it (C.5).
const extensionTasks = "io.modelcontextprotocol/tasks"

// ProjectCapabilities returns what a modern client's raw clientCapabilities are
// in a legacy initialize (C.1): roots without listChanged, sampling with tools
// and context, elicitation with form and url, experimental, and extensions but
// tasks. What means the same gives the same bytes, so that it can be part of a
// key; no capabilities are {}.
func ProjectCapabilities(raw []byte) []byte {
	out := []byte{'{'}
	add := func(key string, value []byte) {
		if value != nil {
			out = appendMember(out, key, value)
		}
	}
	if isObject(member(raw, "roots")) {
		add("roots", []byte("{}"))
	}
	if sampling := member(raw, "sampling"); isObject(sampling) {
		add("sampling", presence(sampling, "context", "tools"))
	}
	if elicitation := member(raw, "elicitation"); isObject(elicitation) {
		modes := presence(elicitation, "form", "url")
		if string(modes) == `{"form":{}}` {
			modes = []byte("{}") // means the same (2025-11-25), and older servers know no other
		}
		add("elicitation", modes)
	}
	add("experimental", canonicalObject(member(raw, "experimental")))
	add("extensions", canonicalObject(jsonrpc.Without(member(raw, "extensions"), extensionTasks)))
	return append(out, '}')
}

// presence returns an object with those of the keys that object has, each with {}.
func presence(object []byte, keys ...string) []byte {
	out := []byte{'{'}
	for _, key := range keys {
		if isObject(member(object, key)) {
			out = appendMember(out, key, []byte("{}"))
		}
	}
	return append(out, '}')
}

// canonicalObject returns an object in canonical spelling, nil for an empty one and anything else.
func canonicalObject(raw []byte) []byte {
	if !isObject(raw) {
		return nil
	}
	if c := appendCanonical(nil, raw, canonicalDepth); string(c) != "{}" {
		return c
	}
	return nil
}
