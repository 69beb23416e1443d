package jsonrpc

// knownMethods are the methods of MCP, all revisions, so that Method need not
// allocate for them. Nothing else depends on the list. The first is that of a
// response.
var knownMethods = [...]string{
	"", "initialize", "ping", "server/discover",
	"tools/list", "tools/call",
	"prompts/list", "prompts/get",
	"resources/list", "resources/templates/list", "resources/read",
	"resources/subscribe", "resources/unsubscribe",
	"completion/complete", "logging/setLevel",
	"sampling/createMessage", "elicitation/create", "roots/list",
	"tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update",
	"subscriptions/listen",
	"notifications/initialized", "notifications/cancelled", "notifications/progress",
	"notifications/message",
	"notifications/tools/list_changed", "notifications/prompts/list_changed",
	"notifications/resources/list_changed", "notifications/resources/updated",
	"notifications/roots/list_changed", "notifications/elicitation/complete",
	"notifications/tasks/status", "notifications/tasks", "notifications/subscriptions/acknowledged",
}

// methodNumbers has where in knownMethods a method stands.
var methodNumbers = func() map[string]uint8 {
	m := make(map[string]uint8, len(knownMethods))
	for i, name := range knownMethods {
		m[name] = uint8(i)
	}
	return m
}()

// knownKeys are keys that stand in nearly every request and result; it
// serves the same end.
var knownKeys = makeKnown(
	"name", "arguments", "uri", "cursor", "requestState", "inputResponses", "inputRequests",
	"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "complete", "input_required",
	"content", "structuredContent", "resultType", "ttlMs", "cacheScope", "tools", "inputSchema", "description",
	"io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientInfo",
	"io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/logLevel",
	"io.modelcontextprotocol/serverInfo", "io.modelcontextprotocol/subscriptionId",
)

func makeKnown(names ...string) map[string]string {
	m := make(map[string]string, len(names))
	for _, name := range names {
		m[name] = name
	}
	return m
}
