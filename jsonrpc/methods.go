package jsonrpc

// knownMethods are the methods of all revisions of MCP. Method does not allocate for them.
// Nothing else depends on the list.
var knownMethods = makeWordList(
	"initialize", "ping", "server/discover",
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
)

// knownTexts are keys and values of nearly every request and result. Text and Members
// do not allocate for them. Nothing else depends on the list.
var knownTexts = makeWordList(
	"name", "arguments", "uri", "cursor", "requestState", "inputResponses", "inputRequests",
	"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "complete", "input_required",
	"content", "structuredContent", "resultType", "ttlMs", "cacheScope", "tools", "inputSchema", "description",
	"io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientInfo",
	"io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/logLevel",
	"io.modelcontextprotocol/serverInfo", "io.modelcontextprotocol/subscriptionId",
)

// wordList is a fixed list of texts, in which a text is looked up. Few of them have
// the same length, so comparing those costs less than a hash of the text.
type wordList struct {
	list     []string                   // the texts, by their index; "" is the first
	byLength [maxWordLength + 1][]uint8 // the indexes in list of the texts of each length
}

// maxWordLength is the longest text that a wordList can have, in bytes.
const maxWordLength = 48

// makeWordList makes a wordList of these texts, whose indexes begin with 1.
func makeWordList(list ...string) *wordList {
	w := &wordList{list: append([]string{""}, list...)}
	for i, word := range list {
		w.byLength[len(word)] = append(w.byLength[len(word)], uint8(i+1))
	}
	return w
}

// find returns the index of text in the list, 0 if it is not there.
func (w *wordList) find(text []byte) uint8 {
	if len(text) > maxWordLength {
		return 0
	}
	for _, i := range w.byLength[len(text)] {
		if w.list[i] == string(text) {
			return i
		}
	}
	return 0
}
