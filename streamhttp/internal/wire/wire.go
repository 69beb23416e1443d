// Package wire has the names of Streamable HTTP that its server and its client share.
package wire

// Header names, as net/http spells them.
const (
	HeaderSession     = "Mcp-Session-Id"       // the id of a legacy session; the reply to initialize brings it
	HeaderVersion     = "Mcp-Protocol-Version" // the protocol version
	HeaderLastEventID = "Last-Event-Id"        // of a GET that resumes a stream: the id of the last event that the client has got
	HeaderMCPMethod   = "Mcp-Method"           // from 2026-07-28 on: repeats the message's method (MI5)
	HeaderMCPName     = "Mcp-Name"             // from 2026-07-28 on: repeats the value in params that NameParamKey names (MI5)
)

// Media types.
const (
	TypeJSON = "application/json"  // of a message, or an array of them
	TypeSSE  = "text/event-stream" // of an SSE stream

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
