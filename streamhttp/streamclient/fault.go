package streamclient

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// statusHints says what the text of a Fault of a Client ends in, by the HTTP status of the reply.
var statusHints = map[int]string{
	404: "is the path of the URL right? It is often /mcp",
	405: "there is no Streamable HTTP server at this path; is it an older HTTP+SSE server?",
}

// saysSessionDead reports whether m is the error with which many deployed servers answer, with status
// 400, for a session that they do not know, where the specification has 404: the examples of the
// TypeScript SDK answer -32000 "Bad Request: No valid session ID provided", or "Server not
// initialized" when they have been restarted. Only whole texts count: an error that merely mentions
// a session must not end one that lives.
func saysSessionDead(m jsonrpc.Message) bool {
	if code, _ := strconv.Atoi(string(m.Lookup("error", "code"))); code != -32000 {
		return false
	}
	var text string
	if json.Unmarshal(m.Lookup("error", "message"), &text) != nil {
		return false
	}
	text = strings.TrimPrefix(strings.ToLower(text), "bad request: ")
	switch strings.TrimRight(text, ".") {
	case "no valid session id provided", "server not initialized", "session not found",
		"invalid session id", "invalid or missing session id":
		return true
	}
	return false
}
