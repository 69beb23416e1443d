package demo

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// tool is one row of the table of tools: what tools/list tells, and what a call does.
type tool struct {
	Name        string      `json:"name"`
	Title       string      `json:"title"`
	Description string      `json:"description"`
	Input       *schema     `json:"inputSchema"`
	Output      *schema     `json:"outputSchema,omitempty"`
	Annotations annotations `json:"annotations"`

	run func(c *call, args json.RawMessage) (*toolResult, error)
}

// annotations are the hints of a tool. All four are always told, since their defaults differ.
type annotations struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	Idempotent  bool `json:"idempotentHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

var (
	readOnly = annotations{ReadOnly: true, Idempotent: true}
	changes  = annotations{}                  // changes something in this server only
	asks     = annotations{OpenWorld: true}   // asks the client, and who knows whom that asks
	destroys = annotations{Destructive: true} // ends this server
)

// typed makes a run function of one whose arguments are a struct.
func typed[A any](f func(c *call, a A) (*toolResult, error)) func(*call, json.RawMessage) (*toolResult, error) {
	return func(c *call, raw json.RawMessage) (*toolResult, error) {
		var a A
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, fmt.Errorf("arguments: %s", explain(err)) // the schema lets none of these pass
		}
		return f(c, a)
	}
}

// toolResult is the result of tools/call.
type toolResult struct {
	Content    []content `json:"content"`
	Structured any       `json:"structuredContent,omitempty"`
	IsError    bool      `json:"isError,omitempty"`
}

// content is one block of a result or a prompt message.
type content struct {
	Type        string              `json:"type"`
	Text        any                 `json:"text,omitempty"` // a string, or one as the client spelled it
	Data        string              `json:"data,omitempty"`
	URI         string              `json:"uri,omitempty"`
	Name        string              `json:"name,omitempty"`
	Title       string              `json:"title,omitempty"`
	Description string              `json:"description,omitempty"`
	MimeType    string              `json:"mimeType,omitempty"`
	Resource    *contents           `json:"resource,omitempty"`
	Annotations *contentAnnotations `json:"annotations,omitempty"`
}

type contentAnnotations struct {
	Audience []string `json:"audience,omitempty"`
	Priority float64  `json:"priority,omitempty"`
}

func text(t any) content { return content{Type: "text", Text: t} }

func textResult(format string, args ...any) *toolResult {
	return &toolResult{Content: []content{text(fmt.Sprintf(format, args...))}}
}

// failure is a result with isError: what a model is meant to read and to react to.
func failure(format string, args ...any) *toolResult {
	r := textResult(format, args...)
	r.IsError = true
	return r
}

// structured is a result that is JSON, also given as text for clients that know no structuredContent.
func structured(v any) (*toolResult, error) {
	raw, err := encode(v)
	if err != nil {
		return nil, err
	}
	return &toolResult{Content: []content{text(string(raw))}, Structured: json.RawMessage(raw)}, nil
}

// toolCall makes the job of a tools/call, or says why it makes no sense.
func (s *session) toolCall(params []byte, client clientInfo) (job, error) {
	var p struct {
		Name      string                     `json:"name"`
		Arguments map[string]json.RawMessage `json:"arguments"`
	}
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	t := s.tool(p.Name)
	if t == nil {
		return nil, invalidParams("there is no tool " + clip(p.Name))
	}
	args, err := t.Input.check(p.Arguments)
	if err != nil {
		return nil, badArguments(err, client)
	}
	raw, err := encode(args)
	if err != nil {
		return nil, err
	}
	return func(c *call) (any, error) { return t.run(c, raw) }, nil
}

// badArguments reports arguments that do not fit the schema: since 2025-11-25
// to the model, which can do better next time, and before to the client.
func badArguments(err error, client clientInfo) error {
	if client.Revision >= "2025-11-25" {
		return &toolError{err.Error()}
	}
	return invalidParams(err.Error())
}

// tool returns the tool with that name, nil if there is none now.
func (s *session) tool(name string) *tool {
	for _, t := range s.tools() {
		if t.Name == name {
			return t
		}
	}
	return nil
}

func (s *session) tools() []*tool {
	all := allTools[:len(allTools):len(allTools)]
	if s.srv.Conformance {
		all = append(all, conformanceTools...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.extra {
		all = append(all, extraTool)
	}
	return all
}

func (s *session) listTools(params []byte) (any, error) {
	part, next, err := page(params, s.tools(), s.srv.pageSize())
	if err != nil {
		return nil, err
	}
	return struct {
		Tools      []*tool `json:"tools"`
		NextCursor string  `json:"nextCursor,omitempty"`
	}{part, next}, nil
}

// progress reports progress to a client that asked for it. It must increase from call to call.
// It is built by hand because the tool "count" sends thousands of them.
func (c *call) progress(done, total int, message string) {
	if c.token.IsZero() || c.ctx.Err() != nil {
		return
	}
	b := make([]byte, 0, 128)
	b = append(b, `{"progressToken":`...)
	b = append(b, c.token.String()...)
	b = append(b, `,"progress":`...)
	b = strconv.AppendInt(b, int64(done), 10)
	b = append(b, `,"total":`...)
	b = strconv.AppendInt(b, int64(total), 10)
	if message != "" {
		b = append(b, `,"message":`...)
		b = strconv.AppendQuote(b, message) // ours: plain ASCII, so quoted alike in Go and JSON
	}
	b = append(b, '}')
	c.send(jsonrpc.NewNotification("notifications/progress", b))
}
