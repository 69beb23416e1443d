package legacyclient

import (
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// declared is what the client can do, as it said in initialize.
type declared struct {
	raw           []byte // as a modern clientCapabilities
	roots         bool
	sampling      bool
	samplingTools bool
	form, url     bool // modes of elicitation
}

// advertised is what the server can do, as far as the Filter must know.
type advertised struct {
	logging   bool
	subscribe bool
	changes   changes
}

// projectDeclared makes the capabilities of a client of a legacy version modern
// (C.2): roots without listChanged, no tasks, and elicitation as far as the
// version has it: nothing before 2025-06-18, then forms only, from 2025-11-25 as declared.
// Everything else stays.
func projectDeclared(raw []byte, version string) declared {
	if !shape.IsObject(raw) {
		return declared{raw: []byte("{}")}
	}
	var d declared
	d.raw = jsonrpc.Without(raw, "tasks")
	for m := range jsonrpc.Members(raw) {
		if m.Key == "extensions" {
			d.raw = replaceCapability(d.raw, m.Key, withoutTasks(m.Value))
			continue
		}
		if m.Key != "roots" && m.Key != "sampling" && m.Key != "elicitation" {
			continue
		}
		if !shape.IsObject(m.Value) {
			d.raw = jsonrpc.Without(d.raw, m.Key)
			continue
		}
		switch m.Key {
		case "roots":
			d.roots = true
			d.raw = replaceCapability(d.raw, m.Key, jsonrpc.Without(m.Value, "listChanged"))
		case "sampling":
			d.sampling = true
			d.samplingTools = shape.IsObject(shape.Member(m.Value, "tools"))
		case "elicitation":
			if version < era.Version2025_06_18 {
				d.raw = jsonrpc.Without(d.raw, m.Key)
				continue
			}
			if version < era.Version2025_11_25 {
				d.form = true
				d.raw = replaceCapability(d.raw, m.Key, onlyForms(m.Value))
				continue
			}
			d.url = shape.IsObject(shape.Member(m.Value, "url"))
			d.form = !d.url || shape.IsObject(shape.Member(m.Value, "form")) // {} means forms
		}
	}
	return d
}

// onlyForms returns what elicitation is to a client of a revision that has nothing
// but forms: what it says of these, and of what the bridge does not know, stays.
func onlyForms(elicitation []byte) []byte {
	elicitation = jsonrpc.Without(elicitation, "url")
	if shape.IsObject(shape.Member(elicitation, "form")) {
		return elicitation
	}
	return jsonrpc.With(elicitation, "form", []byte("{}"))
}

// replaceCapability replaces a capability; nil takes it away.
func replaceCapability(capabilities []byte, key string, value []byte) []byte {
	if value == nil {
		return jsonrpc.Without(capabilities, key)
	}
	return jsonrpc.With(capabilities, key, value)
}

// withoutTasks takes the extension for tasks out of extensions (C.5); nil if
// there is no other.
func withoutTasks(extensions []byte) []byte {
	if !shape.IsObject(extensions) {
		return nil
	}
	rest := jsonrpc.Without(extensions, era.ExtensionTasks)
	if len(rest) != len(extensions) && shape.IsEmpty(rest) {
		return nil
	}
	return rest
}
