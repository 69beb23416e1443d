package era

import (
	"slices"

	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Reserved keys of _meta in 2026-07-28 (section "_meta" of its basic part).
const (
	KeyVersion      = "io.modelcontextprotocol/protocolVersion"    // in a modern request: its protocol version
	KeyClientInfo   = "io.modelcontextprotocol/clientInfo"         // in a modern request: name and version of the client
	KeyCapabilities = "io.modelcontextprotocol/clientCapabilities" // in a modern request: what the client can do
	KeyLogLevel     = "io.modelcontextprotocol/logLevel"           // in a modern request: the level of the log messages that it wants; absent: it wants none
	KeyServerInfo   = "io.modelcontextprotocol/serverInfo"         // in a modern result: name and version of the server
	KeySubscription = "io.modelcontextprotocol/subscriptionId"     // in a notification: the id of the subscriptions/listen that it belongs to
	KeyRelatedTask  = "io.modelcontextprotocol/related-task"       // in a message of 2025-11-25: the task that it belongs to
)

// ExtensionTasks is the extension of 2026-07-28 that adds tasks. Tasks of legacy
// revisions are different, so the filters hide the extension from both sides
// (C.5).
const ExtensionTasks = "io.modelcontextprotocol/tasks"

// Meta is what a modern request or notification says about itself and its client in
// params._meta. Other members of _meta, such as a progress token, are not in it. Values are
// raw JSON, nil where absent, and must not be changed.
type Meta struct {
	Version      []byte // the protocol version
	ClientInfo   []byte // name and version of the client
	Capabilities []byte // what the client can do
	LogLevel     []byte // the level of the log messages that the client wants; nil: it wants none
}

// MetaOf reads the _meta of a request or notification.
func MetaOf(m jsonrpc.Message) Meta {
	var meta Meta
	for member := range jsonrpc.Members(m.Meta()) {
		switch member.Key {
		case KeyVersion:
			meta.Version = member.Value
		case KeyClientInfo:
			meta.ClientInfo = member.Value
		case KeyCapabilities:
			meta.Capabilities = member.Value
		case KeyLogLevel:
			meta.LogLevel = member.Value
		}
	}
	return meta
}

// Object returns m as raw _meta, without the members that are nil. The bridge's own requests,
// and those that it sends for legacy clients, have such a _meta.
func (m Meta) Object() []byte {
	object := []byte{'{'}
	add := func(key string, value []byte) {
		if value != nil {
			object = shape.AppendMember(object, key, value)
		}
	}
	add(KeyVersion, m.Version)
	add(KeyClientInfo, m.ClientInfo)
	add(KeyCapabilities, m.Capabilities)
	add(KeyLogLevel, m.LogLevel)
	return append(object, '}')
}

// Revision returns the protocol version in the meta, or "".
func (m Meta) Revision() string {
	text, _ := jsonrpc.Text(m.Version)
	return text
}

// IsModern reports whether the meta makes its message modern (ED1, ED3b): it has a
// protocol version, and that is not a legacy version. A version that the bridge
// does not know counts as modern, and so does a value that is not a string. Check
// refuses both.
func (m Meta) IsModern() bool { return m.Version != nil && !IsLegacy(m.Revision()) }

// IsModernMessage reports whether m is a request or a notification whose meta
// makes it modern.
func IsModernMessage(m jsonrpc.Message) bool {
	return m.Kind() != jsonrpc.Response && MetaOf(m).IsModern()
}

// HasModern reports whether a raw list of versions has a modern version.
// server/discover and error -32022 have such lists.
func HasModern(versions []byte) bool {
	for _, raw := range jsonrpc.Elements(versions) {
		if v, _ := jsonrpc.Text(raw); IsModern(v) {
			return true
		}
	}
	return false
}

// LogLevels are the levels of notifications/message, from the most verbose to the
// least.
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// LogRank returns the index in LogLevels of a level, which is a raw JSON string;
// -1 for any other value.
func LogRank(raw []byte) int {
	text, ok := jsonrpc.Text(raw)
	if !ok {
		return -1
	}
	return slices.Index(LogLevels, text)
}

// LegacyInitialize returns m, if that is an initialize request, with a version that a
// legacy server can answer (ED6, C.6). A modern version, or a date after the newest
// legacy version, is replaced by the newest legacy version: otherwise the server
// might answer with a version that has no initialize. Other versions, and other
// messages, stay as they are.
func LegacyInitialize(m jsonrpc.Message) jsonrpc.Message {
	if m.Kind() != jsonrpc.Request || m.Method() != "initialize" {
		return m
	}
	if v, _ := jsonrpc.Text(m.Lookup("params", "protocolVersion")); !IsModern(v) && !isAfterNewestLegacy(v) {
		return m
	}
	return m.WithParams(jsonrpc.With(m.Params(), "protocolVersion", jsonrpc.Quote(NewestLegacy)))
}

// isAfterNewestLegacy reports whether a version is a date after the newest legacy version.
func isAfterNewestLegacy(version string) bool {
	if len(version) != len(NewestLegacy) || version <= NewestLegacy {
		return false
	}
	for i := range len(version) {
		digit := '0' <= version[i] && version[i] <= '9'
		if digit == (NewestLegacy[i] == '-') || !digit && version[i] != '-' {
			return false
		}
	}
	return true
}
