package metrics

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// otherLabel is the label in the place of all values that get none of their own.
const otherLabel = "_other"

// knownMethods are the methods that are labels, of all revisions.
var knownMethods = newSet("initialize", "ping", "server/discover", "tools/list", "tools/call", "prompts/list", "prompts/get",
	"resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe",
	"completion/complete", "logging/setLevel", "sampling/createMessage", "elicitation/create", "roots/list",
	"subscriptions/listen", "tasks/get", "tasks/list", "tasks/result", "tasks/cancel", "tasks/update")

// knownRevisions are the protocol versions that are labels; "": not known.
var knownRevisions = newSet("", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

// knownErrorCodes are the JSON-RPC error codes that are labels.
var knownErrorCodes = newSet("-32700", "-32600", "-32601", "-32602", "-32603", "-32000", "-32001", "-32002", "-32020", "-32021", "-32022", "-32042")

// newSet returns a set of strings.
func newSet(all ...string) map[string]bool {
	m := make(map[string]bool, len(all))
	for _, one := range all {
		m[one] = true
	}
	return m
}

// labelOrOther returns name if it is in all, else otherLabel.
func labelOrOther(all map[string]bool, name string) string {
	if all[name] {
		return name
	}
	return otherLabel
}

// kindName returns the label for the kind of a message.
func kindName(k jsonrpc.Kind) string {
	switch k {
	case jsonrpc.Request:
		return "request"
	case jsonrpc.Response:
		return "response"
	case jsonrpc.Notification:
		return "notification"
	}
	return otherLabel
}

// errorTypeOf returns the label error_type of a response: the code of its error, or otherLabel if that is not in knownErrorCodes;
// "tool_error" if a tool has failed; "": it is no error.
func errorTypeOf(p *observe.Passed) string {
	switch {
	case p.Message.IsError():
		return labelOrOther(knownErrorCodes, string(p.Message.Lookup("error", "code")))
	case p.Failed():
		return "tool_error"
	}
	return ""
}

// sessionEndReason returns the label that says how a session has ended: "orderly", or what was wrong. err is that of
// observe.SessionEnded.
func sessionEndReason(err error) string {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return "orderly"
	case errors.Is(err, bridge.ErrSlow):
		return "slow_client"
	case errors.Is(err, bridge.ErrReclaimed):
		return "reclaimed"
	case errors.Is(err, bridge.ErrClosing):
		return "shutdown"
	case errors.Is(err, context.Canceled):
		return "client_gone"
	}
	return "error"
}

// exitReason returns the label that says how a process has ended: "stopped" by the bridge, "exit_0", or "failed", which a signal is, too.
func exitReason(e observe.ProcessEnded) string {
	switch {
	case e.StopRequested:
		return "stopped"
	case e.Err == nil:
		return "exit_0"
	}
	return "failed"
}

// nameLimiter bounds how many names that others have chosen become labels. The first maxNames of them do. Every later name,
// and every name above 128 bytes, becomes otherLabel.
type nameLimiter struct {
	maxNames int // how many names may become labels

	mu    sync.Mutex      // guards names
	names map[string]bool // the names that have become labels
}

// newNameLimiter returns a nameLimiter that lets max names become labels.
func newNameLimiter(max int) *nameLimiter {
	return &nameLimiter{maxNames: max, names: map[string]bool{}}
}

// labelOf returns name if it is a label already or becomes one now, else otherLabel.
func (n *nameLimiter) labelOf(name string) string {
	const longest = 128
	if len(name) > longest {
		return otherLabel
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.names[name] {
		if len(n.names) >= n.maxNames {
			return otherLabel
		}
		n.names[name] = true
	}
	return name
}
