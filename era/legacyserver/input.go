package legacyserver

import (
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Input requests are what a server wants from a client: elicitation/create,
// sampling/createMessage and roots/list. In legacy revisions they are requests of
// the server, in 2026-07-28 entries of inputRequests in a result. Method, params
// and answer are nearly the same.

// isInputRequest reports whether method is that of an input request: elicitation/create,
// sampling/createMessage or roots/list.
func isInputRequest(method string) bool {
	return method == "elicitation/create" || method == "sampling/createMessage" || method == "roots/list"
}

// missingCapability returns the capability that a client needs for an input
// request and does not have, as data.requiredCapabilities of -32021 names it; nil:
// none is missing (C.4.3). caps are the client's raw capabilities. An empty
// elicitation capability means forms only.
func missingCapability(caps []byte, method string, params []byte) []byte {
	switch method {
	case "roots/list":
		if !shape.IsObject(shape.Member(caps, "roots")) {
			return []byte(`{"roots":{}}`)
		}
	case "sampling/createMessage":
		sampling := shape.Member(caps, "sampling")
		tools := shape.Member(params, "tools") != nil || shape.Member(params, "toolChoice") != nil
		if tools && !shape.IsObject(shape.Member(sampling, "tools")) {
			return []byte(`{"sampling":{"tools":{}}}`)
		}
		if !shape.IsObject(sampling) {
			return []byte(`{"sampling":{}}`)
		}
	case "elicitation/create":
		return missingMode(shape.Member(caps, "elicitation"), isURLMode(params))
	}
	return nil
}

// missingMode returns the capability that a client needs for an elicitation and does not have, as
// data.requiredCapabilities of -32021 names it; nil: none is missing. url: the elicitation is by URL, otherwise it is
// by form. elicitation is the client's raw elicitation capability; nil: it has none.
func missingMode(elicitation []byte, url bool) []byte {
	hasURL := shape.IsObject(shape.Member(elicitation, "url"))
	hasForm := shape.IsObject(elicitation) && (shape.IsObject(shape.Member(elicitation, "form")) || !hasURL)
	switch {
	case url && !hasURL:
		return []byte(`{"elicitation":{"url":{}}}`)
	case !url && !hasForm:
		return []byte(`{"elicitation":{"form":{}}}`)
	}
	return nil
}

// isURLMode reports whether the params of an elicitation send the user to a URL.
// Otherwise they are a form.
func isURLMode(params []byte) bool {
	mode, _ := jsonrpc.Text(shape.Member(params, "mode"))
	return mode == "url"
}

// isValidAnswer reports whether a raw result is a valid answer to an input request of this method
// (C.4.4).
func isValidAnswer(method string, result []byte) bool {
	if !shape.IsObject(result) {
		return false
	}
	switch method {
	case "elicitation/create":
		content := shape.Member(result, "content")
		return actionOf(result) != "" && (content == nil || shape.IsObject(content) || string(content) == "null")
	case "sampling/createMessage":
		_, role := jsonrpc.Text(shape.Member(result, "role"))
		_, model := jsonrpc.Text(shape.Member(result, "model"))
		content := shape.Member(result, "content")
		return role && model && (shape.IsObject(content) || shape.IsArray(content))
	case "roots/list":
		return shape.IsArray(shape.Member(result, "roots"))
	}
	return false
}

// actionOf returns the action of an elicitation's result: accept, decline or
// cancel, or "" for any other.
func actionOf(result []byte) string {
	switch action, _ := jsonrpc.Text(shape.Member(result, "action")); action {
	case "accept", "decline", "cancel":
		return action
	}
	return ""
}
