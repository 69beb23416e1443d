package era

import (
	"slices"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Reserved keys of _meta in 2026-07-28 (basic, "_meta").
const (
	KeyVersion      = "io.modelcontextprotocol/protocolVersion"
	KeyClientInfo   = "io.modelcontextprotocol/clientInfo"
	KeyCapabilities = "io.modelcontextprotocol/clientCapabilities"
	KeyLogLevel     = "io.modelcontextprotocol/logLevel"
	KeyServerInfo   = "io.modelcontextprotocol/serverInfo"
	KeySubscription = "io.modelcontextprotocol/subscriptionId"
	KeyRelatedTask  = "io.modelcontextprotocol/related-task"
)

// ExtensionTasks is the extension of 2026-07-28 that has tasks. A legacy peer
// has others, so neither side is told of it (C.5).
const ExtensionTasks = "io.modelcontextprotocol/tasks"

// Meta is what a modern request says about itself in params._meta. Values are
// raw JSON, nil where absent, and not to be changed.
type Meta struct {
	Version      []byte
	ClientInfo   []byte
	Capabilities []byte
	LogLevel     []byte
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

// Revision returns the protocol version that the meta claims; "" for none.
func (m Meta) Revision() string {
	text, _ := jsonrpc.Text(m.Version)
	return text
}

// Claims reports whether the meta makes its message modern: it names a version
// that is no legacy one (ED1, ED3b). One that nobody knows counts, and so does
// one that is no string: both are refused as modern requests are.
func (m Meta) Claims() bool { return m.Version != nil && !IsLegacy(m.Revision()) }

// IsModernMessage reports whether m is a request or notification that claims to be modern.
func IsModernMessage(m jsonrpc.Message) bool {
	return m.Kind() != jsonrpc.Response && MetaOf(m).Claims()
}

// HasModern reports whether a raw list of versions, as server/discover and -32022
// have it, has a modern one.
func HasModern(versions []byte) bool {
	for _, raw := range jsonrpc.Elements(versions) {
		if v, _ := jsonrpc.Text(raw); IsModern(v) {
			return true
		}
	}
	return false
}

// LogLevels are the levels of notifications/message, the most verbose first.
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// LogRank returns the index of a level, a raw JSON string, in LogLevels; -1 if it is none.
func LogRank(raw []byte) int {
	text, ok := jsonrpc.Text(raw)
	if !ok {
		return -1
	}
	return slices.Index(LogLevels, text)
}

// LegacyInitialize returns an initialize request that asks for a modern version,
// or for one of a later date than the newest with initialize, as one that asks for
// that, and anything else as it is: no server shall be led to answer it with a
// modern one, or with one that nobody knows (ED6, C.6). What is no date stays: what
// a client means by it, the server may know.
func LegacyInitialize(m jsonrpc.Message) jsonrpc.Message {
	if m.Kind() != jsonrpc.Request || m.Method() != "initialize" {
		return m
	}
	if v, _ := jsonrpc.Text(m.Lookup("params", "protocolVersion")); !IsModern(v) && !isLater(v) {
		return m
	}
	return m.WithParams(jsonrpc.With(m.Params(), "protocolVersion", jsonrpc.Quote(NewestLegacy)))
}

// isLater reports whether a version looks like a date after the newest with initialize.
func isLater(version string) bool {
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
