package era

import "strings"

// IsModernMethod reports whether 2026-07-28 itself defines the request method.
// Extensions may define more.
func IsModernMethod(method string) bool {
	switch method {
	case "server/discover", "subscriptions/listen",
		"tools/list", "tools/call", "prompts/list", "prompts/get",
		"resources/list", "resources/templates/list", "resources/read", "completion/complete":
		return true
	}
	return false
}

// IsRemovedMethod reports whether method is a request of legacy revisions that
// 2026-07-28 has removed (MI11). It is false for all other methods: an extension
// may define them.
func IsRemovedMethod(method string) bool {
	switch method {
	case "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
		"tasks/list", "tasks/result", "roots/list", "sampling/createMessage", "elicitation/create":
		return true
	}
	return false
}

// OnlyReads reports whether a request of this method changes nothing, of any revision:
// a server may get it twice.
func OnlyReads(method string) bool {
	switch method {
	case "ping", "server/discover", "resources/read", "prompts/get", "completion/complete":
		return true
	}
	return strings.HasSuffix(method, "/list")
}

// MayAskForInput reports whether a server may answer a request of this method with
// input_required (MI20).
func MayAskForInput(method string) bool {
	return method == "tools/call" || method == "prompts/get" || method == "resources/read"
}

// IsCacheable reports whether results of this method have ttlMs and cacheScope
// (MI16).
func IsCacheable(method string) bool {
	switch method {
	case "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read":
		return true
	}
	return false
}
