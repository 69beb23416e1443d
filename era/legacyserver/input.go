package legacyserver

import (
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Questions are what a server may ask a client: requests of their own in the
// legacy era, inputRequests of a result in the modern one (multi round-trip
// requests). Method, params and answer are the same but for a few fields.

// isQuestion reports whether a server may ask a client with method.
func isQuestion(method string) bool {
	return method == "elicitation/create" || method == "sampling/createMessage" || method == "roots/list"
}

// missingCapability returns what a client with the raw capabilities caps lacks
// for a question, as data.requiredCapabilities of -32021 says it; nil: nothing
// (C.4.3). An empty elicitation capability means forms only.
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

// isURLMode reports whether the params of an elicitation send the user to a URL; else they are a form.
func isURLMode(params []byte) bool {
	mode, _ := jsonrpc.Text(shape.Member(params, "mode"))
	return mode == "url"
}

// isAnswer reports whether a raw result has the shape of an answer to a question (C.4.4).
func isAnswer(method string, result []byte) bool {
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

// actionOf returns accept, decline or cancel of the result of an elicitation; "" if it has none.
func actionOf(result []byte) string {
	switch action, _ := jsonrpc.Text(shape.Member(result, "action")); action {
	case "accept", "decline", "cancel":
		return action
	}
	return ""
}
