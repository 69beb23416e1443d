package demo

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Tool is one row of the table of tools: what tools/list tells, and what a call does.
type Tool struct {
	Name        string      `json:"name"`                   // the name of the tool, by which clients call it
	Title       string      `json:"title"`                  // the name of the tool, for people
	Description string      `json:"description"`            // what the tool does, for the model
	Input       any         `json:"inputSchema"`            // the schema of the arguments, which are checked against it if it is a *schema
	Output      any         `json:"outputSchema,omitempty"` // the schema of Result.Structured; nil: none
	Annotations annotations `json:"annotations"`            // hints for clients

	// Run does what the tool does, and returns the result of the call. args is an object, with the defaults of Input filled in if that is a *schema.
	Run func(c *Call, args json.RawMessage) (*Result, error) `json:"-"`
}

// annotations are the hints about a tool. All four are always in the list, because they have different defaults.
type annotations struct {
	ReadOnly    bool `json:"readOnlyHint"`    // the tool changes nothing
	Destructive bool `json:"destructiveHint"` // the tool may destroy something
	Idempotent  bool `json:"idempotentHint"`  // a second call with the same arguments changes nothing more
	OpenWorld   bool `json:"openWorldHint"`   // the tool deals with others than this server
}

var (
	readOnlyTool  = annotations{ReadOnly: true, Idempotent: true} // the annotations of a tool that changes nothing
	changesServer = annotations{}                                 // the annotations of a tool that changes something in this server only
	asksClient    = annotations{OpenWorld: true}                  // the annotations of a tool that asks the client, which may ask anybody
	endsServer    = annotations{Destructive: true}                // the annotations of a tool that ends this server
)

// Typed returns a function for Tool.Run that reads the arguments into an A, a struct, and calls f with it.
func Typed[A any](f func(c *Call, a A) (*Result, error)) func(*Call, json.RawMessage) (*Result, error) {
	return func(c *Call, raw json.RawMessage) (*Result, error) {
		var a A
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, fmt.Errorf("arguments: %s", describeDecodeError(err)) // the schema lets none of these pass
		}
		return f(c, a)
	}
}

// Result is the result of tools/call.
type Result struct {
	Content    []Content `json:"content"`                     // the result as blocks, for the model and people
	Structured any       `json:"structuredContent,omitempty"` // the result as JSON, as Tool.Output describes it; nil: none
	IsError    bool      `json:"isError,omitempty"`           // the tool has failed, and Content says why
}

// Content is one block of a result or a prompt message.
type Content struct {
	Type     string    `json:"type"`               // the kind of block: text, image, audio or resource
	Text     any       `json:"text,omitempty"`     // a string, or a json.RawMessage: a string as the client has spelled it
	Data     string    `json:"data,omitempty"`     // the bytes of an image or audio, in Base64
	MimeType string    `json:"mimeType,omitempty"` // the media type of Data
	Resource *Contents `json:"resource,omitempty"` // of a block of type resource: the embedded resource
}

// Text returns a block of text. A json.RawMessage must be a string in JSON, which is sent as it is spelled.
func Text[T string | json.RawMessage](text T) Content { return Content{Type: "text", Text: text} }

// Textf returns a result that is one text, formatted as by fmt.Sprintf.
func Textf(format string, args ...any) *Result {
	return &Result{Content: []Content{Text(fmt.Sprintf(format, args...))}}
}

// Failure returns a result with isError, whose text a model is meant to read and to react to.
func Failure(words string) *Result {
	return &Result{Content: []Content{Text(words)}, IsError: true}
}

// Structured returns a result whose structuredContent is the JSON of v; the same JSON is also its text, for clients that know no structuredContent.
func Structured(v any) (*Result, error) {
	raw, err := encode(v)
	if err != nil {
		return nil, err
	}
	return &Result{Content: []Content{Text(string(raw))}, Structured: json.RawMessage(raw)}, nil
}

// listTools answers tools/list.
func (s *session) listTools(params []byte) (any, error) {
	return page(s, "tools", params, slices.Concat(allTools(), s.srv.Tools))
}

// callTool answers tools/call: it checks the arguments against the tool's schema, and runs the tool.
func (c *Call) callTool(params []byte) (any, error) {
	var p struct {
		Name      string                     `json:"name"`
		Arguments map[string]json.RawMessage `json:"arguments"`
	}
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	tools := slices.Concat(allTools(), c.s.srv.Tools)
	i := slices.IndexFunc(tools, func(t *Tool) bool { return t.Name == p.Name })
	if i < 0 {
		return nil, invalidParams(fmt.Sprintf("there is no tool %.40q", p.Name))
	}
	if own, ok := tools[i].Input.(*schema); ok {
		args, err := own.check(p.Arguments)
		switch {
		case err != nil && c.request.client().Revision >= "2025-11-25": // for the model, which can do better next time
			return nil, &toolError{err.Error()}
		case err != nil:
			return nil, invalidParams(err.Error())
		}
		p.Arguments = args
	}
	raw, err := encode(p.Arguments)
	if err != nil {
		return nil, err
	}
	return tools[i].Run(c, raw)
}
