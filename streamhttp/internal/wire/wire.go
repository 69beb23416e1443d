// Package wire has the names of Streamable HTTP that its server and its client share.
package wire

// Header names, as net/http spells them.
const (
	HeaderSession     = "Mcp-Session-Id"
	HeaderVersion     = "Mcp-Protocol-Version"
	HeaderLastEventID = "Last-Event-Id"

	// Since 2026-07-28 these repeat what stands in the body (MI5).
	HeaderMCPMethod = "Mcp-Method"
	HeaderMCPName   = "Mcp-Name"
)

// Media types.
const (
	TypeJSON = "application/json"
	TypeSSE  = "text/event-stream"

	// AcceptBoth is the Accept header of a POST: its reply may have either type.
	AcceptBoth = TypeJSON + ", " + TypeSSE
)

// NameParamKey returns the key of params whose value HeaderMCPName repeats for requests
// of method; "": there is none.
func NameParamKey(method string) string {
	switch method {
	case "tools/call", "prompts/get":
		return "name"
	case "resources/read":
		return "uri"
	case "tasks/get", "tasks/update", "tasks/cancel":
		return "taskId"
	}
	return ""
}
