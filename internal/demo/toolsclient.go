package demo

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/era"
)

// The tools that ask the client for something, and those that show what it is.

var elicitTool = &tool{
	Name: "elicit", Title: "Ask the user",
	Description: "Asks the user to fill in a small form (elicitation/create), and tells what came back. The client must have the capability elicitation.",
	Input:       object(props{"message": str("What the user is told.").or("The demo server would like to know a few things.")}),
	Annotations: asks, run: typed(elicit),
}

var elicitURLTool = &tool{
	Name: "elicit_url", Title: "Send the user to a page",
	Description: "Asks the user to visit a page (elicitation/create with mode url, since 2025-11-25). The client must have the capability elicitation.url.",
	Input: object(props{
		"message": str("What the user is told.").or("Please look at this page; nothing there needs an answer."),
		"url":     str("The page.").or("https://example.com/"),
	}),
	Annotations: asks, run: typed(elicitURL),
}

var sampleTool = &tool{
	Name: "sample", Title: "Ask the client's model",
	Description: "Asks the model of the client to write something (sampling/createMessage), and returns it. The client must have the capability sampling.",
	Input: object(props{
		"prompt":    str("What the model is asked.").or("Say hello in five words."),
		"maxTokens": integer("How long the answer may be.", 1, 100_000, 100),
	}),
	Annotations: asks, run: typed(sample),
}

var rootsTool = &tool{
	Name: "roots", Title: "List the client's roots",
	Description: "Asks the client for its roots (roots/list), and returns them. The client must have the capability roots.",
	Input:       object(nil),
	Annotations: asks, run: typed(listRoots),
}

var sessionTool = &tool{
	Name: "session", Title: "Session",
	Description: "Tells what this server knows about the client: the revision agreed on, the client's name and capabilities, and the _meta of this very call. " +
		"Shows what a bridge makes of them.",
	Input: object(nil),
	Output: output(props{
		"protocolVersion": str("The protocol revision of this session."),
		"clientInfo":      {Type: "object", Description: "As the client sent it."},
		"capabilities":    {Type: "object", Description: "As the client sent them."},
		"meta":            {Description: "The _meta of this call, if it has one."},
	}, "protocolVersion"),
	Annotations: readOnly, run: typed(showSession),
}

// form is what "elicit" asks for: one field of each kind.
var form = &schema{
	Type: "object",
	Properties: props{
		"name":   {Type: "string", Title: "Name", Description: "What shall we call you?"},
		"email":  {Type: "string", Title: "E-mail", Format: "email"},
		"color":  {Type: "string", Title: "Favourite colour", Enum: []string{"r", "g", "b"}, EnumNames: []string{"Red", "Green", "Blue"}},
		"age":    schema{Type: "integer", Title: "Age"}.between(0, 150),
		"coffee": {Type: "boolean", Title: "Coffee?", Default: true},
	},
	Required: []string{"name"},
}

// elicitation is the params of a form.
type elicitation struct {
	Message string `json:"message"`
	Schema  any    `json:"requestedSchema"`
}

func elicit(c *call, a struct{ Message string }) (*toolResult, error) {
	if err := c.needs("elicitation", "form"); err != nil {
		return nil, err
	}
	answer, err := c.ask(question{key: "form", method: "elicitation/create", params: elicitation{a.Message, form}})
	return told("the user's answer", answer, err)
}

func elicitURL(c *call, a struct{ Message, URL string }) (*toolResult, error) {
	if err := c.needs("elicitation", "url"); err != nil {
		return nil, err
	}
	id := "" // 2026-07-28 has none, and no notification that the page is done with
	if !era.IsModern(c.client().Revision) {
		id = "elicitation-" + strconv.FormatInt(c.nextElicitation(), 10)
	}
	answer, err := c.ask(question{key: "page", method: "elicitation/create", params: struct {
		Mode    string `json:"mode"`
		ID      string `json:"elicitationId,omitempty"`
		Message string `json:"message"`
		URL     string `json:"url"`
	}{"url", id, a.Message, a.URL}})
	if err == nil && id != "" && accepted(answer) {
		c.notify("notifications/elicitation/complete", map[string]string{"elicitationId": id})
	}
	return told("the user's answer", answer, err)
}

func accepted(answer json.RawMessage) bool {
	var said struct {
		Action string `json:"action"`
	}
	return json.Unmarshal(answer, &said) == nil && said.Action == "accept"
}

func (c *call) nextElicitation() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elicitations++
	return c.elicitations
}

// sampling is the params of sampling/createMessage.
type sampling struct {
	Messages     []promptMessage `json:"messages"`
	SystemPrompt string          `json:"systemPrompt,omitempty"`
	MaxTokens    int             `json:"maxTokens"`
}

func sample(c *call, a struct {
	Prompt    string
	MaxTokens int
}) (*toolResult, error) {
	if err := c.needs("sampling", ""); err != nil {
		return nil, err
	}
	answer, err := c.ask(question{key: "model", method: "sampling/createMessage", params: sampling{
		Messages:     []promptMessage{{"user", text(a.Prompt)}},
		SystemPrompt: "You are helping to try out an MCP server.",
		MaxTokens:    a.MaxTokens,
	}})
	return told("the model's answer", answer, err)
}

func listRoots(c *call, _ struct{}) (*toolResult, error) {
	if err := c.needs("roots", ""); err != nil {
		return nil, err
	}
	answer, err := c.ask(question{key: "roots", method: "roots/list", params: struct{}{}})
	return told("the client's roots", answer, err)
}

// told shows what the client answered, exactly.
func told(what string, answer json.RawMessage, err error) (*toolResult, error) {
	if err != nil {
		return unanswered(err)
	}
	return textResult("%s: %s", what, answer), nil
}

// unanswered is what a tool ends with when the client does not answer.
func unanswered(err error) (*toolResult, error) {
	var why *askError
	if errors.As(err, &why) {
		return failure("%s", why), nil
	}
	return nil, err
}

func showSession(c *call, _ struct{}) (*toolResult, error) {
	return structured(struct {
		clientInfo
		Meta json.RawMessage `json:"meta,omitempty"`
	}{c.client(), c.meta})
}
