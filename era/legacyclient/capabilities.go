package legacyclient

import (
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// clientCapabilities is what the client can do: what it has declared in initialize, made modern
// (projectCapabilities). What is removed there is not in raw, and false below.
type clientCapabilities struct {
	raw             []byte // all capabilities, as a modern client declares them
	roots           bool   // the client has roots/list
	sampling        bool   // the client has sampling/createMessage
	samplingTools   bool   // the client has sampling/createMessage with tools
	formElicitation bool   // the client has elicitation/create with a form
	urlElicitation  bool   // the client has elicitation/create with a URL
}

// serverCapabilities is what the server can do, as far as the Filter needs it.
type serverCapabilities struct {
	logging        bool    // it says that it sends log messages
	subscribe      bool    // it takes subscriptions to resources
	announcedLists listSet // the lists whose changes it announces
}

// projectCapabilities makes a legacy client's raw capabilities modern (C.2). roots loses listChanged;
// tasks and the extension for tasks are removed. elicitation depends on the client's version: before
// 2025-06-18 it is removed, before 2025-11-25 it becomes forms only, and from then on it stays as
// declared. roots, sampling, elicitation and extensions are removed where they are no objects.
// Everything else stays.
func projectCapabilities(raw []byte, version string) clientCapabilities {
	if !shape.IsObject(raw) {
		return clientCapabilities{raw: []byte("{}")}
	}
	var d clientCapabilities
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
				d.formElicitation = true
				d.raw = replaceCapability(d.raw, m.Key, withFormsOnly(m.Value))
				continue
			}
			d.urlElicitation = shape.IsObject(shape.Member(m.Value, "url"))
			d.formElicitation = !d.urlElicitation || shape.IsObject(shape.Member(m.Value, "form")) // {} means forms
		}
	}
	return d
}

// withFormsOnly returns the raw elicitation capability of a client whose revision has only forms as a modern client
// declares it: with "form" and without "url". Members that the bridge does not know stay.
func withFormsOnly(elicitation []byte) []byte {
	elicitation = jsonrpc.Without(elicitation, "url")
	if shape.IsObject(shape.Member(elicitation, "form")) {
		return elicitation
	}
	return jsonrpc.With(elicitation, "form", []byte("{}"))
}

// replaceCapability returns the raw capabilities with value for key; nil: without key.
func replaceCapability(capabilities []byte, key string, value []byte) []byte {
	if value == nil {
		return jsonrpc.Without(capabilities, key)
	}
	return jsonrpc.With(capabilities, key, value)
}

// withoutTasks returns the raw extensions without that for tasks (C.5). Nil: there is no other
// extension, or extensions is no object.
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
