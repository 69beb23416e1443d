package demo

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// page returns the result of a list method: under key, the PageSize of rows that begin where the cursor in params says, and the cursor of
// the next ones (nextCursor) if there are any. A cursor that is not one of ours is an error.
func page[T any](s *session, key string, params []byte, rows []T) (any, error) {
	var p struct {
		Cursor *string `json:"cursor"`
	}
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	start := 0
	if p.Cursor != nil {
		// Cursors are opaque to clients; base64 keeps people from counting with them.
		text, _ := base64.RawURLEncoding.DecodeString(*p.Cursor)
		digits, ok := strings.CutPrefix(string(text), "from ")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 0 {
			return nil, invalidParams("cursor was not given out by this server")
		}
		start = min(n, len(rows)) // a list may have become shorter
	}
	size := s.srv.PageSize
	if size <= 0 {
		size = defaultPageSize
	}
	end := min(start+size, len(rows))
	part, err := encode(rows[start:end])
	if err != nil {
		return nil, err
	}
	result := jsonrpc.With([]byte("{}"), key, part)
	if end < len(rows) {
		next := base64.RawURLEncoding.EncodeToString([]byte("from " + strconv.Itoa(end)))
		result = jsonrpc.With(result, "nextCursor", jsonrpc.Quote(next))
	}
	return json.RawMessage(result), nil
}

// Prompt is a row of prompts/list.
type Prompt struct {
	Name        string     `json:"name"`                // the name of the prompt, by which clients call it
	Title       string     `json:"title"`               // how people see the prompt named
	Description string     `json:"description"`         // what the prompt is for
	Arguments   []Argument `json:"arguments,omitempty"` // the arguments that the prompt takes

	Render   func(args map[string]string) []Message `json:"-"` // returns the messages of the prompt for these arguments
	Complete map[string][]string                    `json:"-"` // for each argument, the values that complete it
	Ask      *Question                              `json:"-"` // what the client is asked before Render, whose args are then the answer alone, as JSON, under the question's Key; nil: nothing
}

// Argument is an argument of a prompt.
type Argument struct {
	Name        string `json:"name"`        // the name of the argument
	Title       string `json:"title"`       // how people see the argument named
	Description string `json:"description"` // what the argument is for
	Required    bool   `json:"required"`    // the prompt needs the argument
}

// Message is a message of a prompt, or of a question to the client's model.
type Message struct {
	Role    string  `json:"role"`    // user or assistant
	Content Content `json:"content"` // what is said
}

// allPrompts are the demo's own prompts.
var allPrompts = sync.OnceValue(func() []*Prompt {
	return []*Prompt{
		{
			Name: "simple", Title: "A simple prompt",
			Description: "A prompt without arguments.",
			Render: func(map[string]string) []Message {
				return []Message{{"user", Text("Which tools does this server have, and what could I try first?")}}
			},
		},
		{
			Name: "greet", Title: "Greet somebody",
			Description: "A prompt with a required and an optional argument, whose values can be completed.",
			Arguments: []Argument{
				{"name", "Name", "Who is greeted.", true},
				{"style", "Style", "How: casual, cheerful, formal or pirate.", false},
			},
			Render: func(args map[string]string) []Message {
				words := "Please greet " + args["name"]
				if style := args["style"]; style != "" {
					words += " in a " + style + " style"
				}
				return []Message{{"user", Text(words + ".")}, {"assistant", Text("Hello, " + args["name"] + "!")}}
			},
			Complete: map[string][]string{"name": {"Ada", "Alan", "Grace"}, "style": {"casual", "cheerful", "formal", "pirate"}},
		},
	}
})

// listPrompts answers prompts/list.
func (s *session) listPrompts(params []byte) (any, error) {
	return page(s, "prompts", params, slices.Concat(allPrompts(), s.srv.Prompts))
}

// prompt returns the prompt with this name; if there is none, an error of invalidParams.
func (srv *Server) prompt(name string) (*Prompt, error) {
	for _, p := range slices.Concat(allPrompts(), srv.Prompts) {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, invalidParams(fmt.Sprintf("there is no prompt %.40q", name))
}

// getPrompt answers prompts/get. If the prompt has a question, it asks the client first.
func (c *Call) getPrompt(params []byte) (any, error) {
	var p struct {
		Name      string            `json:"name"`
		Arguments map[string]string `json:"arguments"`
	}
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	found, err := c.s.srv.prompt(p.Name)
	if err != nil {
		return nil, err
	}
	for _, a := range found.Arguments {
		if a.Required && p.Arguments[a.Name] == "" {
			return nil, invalidParams("argument " + a.Name + " is missing")
		}
	}
	if found.Ask != nil {
		answers, err := c.Ask(*found.Ask)
		if err != nil {
			return nil, err
		}
		p.Arguments = map[string]string{found.Ask.Key: string(answers[0])}
	}
	return struct {
		Description string    `json:"description"`
		Messages    []Message `json:"messages"`
	}{found.Description, found.Render(p.Arguments)}, nil
}

// Resource is a row of resources/list, or of resources/templates/list, with the content of the resource.
type Resource struct {
	URI         string `json:"uri,omitempty"`         // the address of the resource; "": it is a template
	URITemplate string `json:"uriTemplate,omitempty"` // the address of a template, with {id} in it; "": it is no template
	Name        string `json:"name"`                  // the name of the resource or template
	Title       string `json:"title"`                 // how people see the resource or template named
	Description string `json:"description"`           // what the resource or template is for
	MimeType    string `json:"mimeType"`              // the media type of the content
	Size        int    `json:"size,omitempty"`        // the size of the content in bytes; 0: not said

	Text   string                 `json:"-"` // the content, unless there is a Blob
	Blob   string                 `json:"-"` // the content if it is binary, in Base64; "": it is text
	Render func(id string) string `json:"-"` // of a template: returns the text of the resource with this id

	IDs []string `json:"-"` // of a template: the ids that it takes, and with which it is completed; nil: it takes any, and completes none
}

// Contents is one part of what resources/read returns.
type Contents struct {
	URI      string  `json:"uri"`            // the address of the resource
	MimeType string  `json:"mimeType"`       // the media type of the content
	Text     *string `json:"text,omitempty"` // the content; nil: it is in Blob
	Blob     string  `json:"blob,omitempty"` // binary content, in Base64; "": it is in Text
}

const (
	helloText     = "Hello from the mcp-bridge demo server.\n" // the content of demo://hello.txt
	listedItems   = 9                                          // how many items, demo://item/1 and so on, are in resources/list
	templateItems = 99                                         // how many items the resource template demo://item/{id} finds
)

// allResources are the demo's own resources: a text, some items, and a template for all items.
var allResources = sync.OnceValue(func() []*Resource {
	template := &Resource{
		URITemplate: "demo://item/{id}", Name: "item", Title: "Item",
		Description: fmt.Sprintf("Any item from 1 to %d. The id can be completed (completion/complete).", templateItems),
		MimeType:    "application/json",
		Render:      func(id string) string { return fmt.Sprintf(`{"id":%s,"name":"item %s"}`, id, id) },
	}
	all := []*Resource{
		{URI: "demo://hello.txt", Name: "hello.txt", Title: "Hello", Description: "One line of text.", MimeType: "text/plain", Size: len(helloText), Text: helloText},
		template,
	}
	for n := 1; n <= templateItems; n++ {
		id := strconv.Itoa(n)
		template.IDs = append(template.IDs, id)
		if n <= listedItems {
			all = append(all, &Resource{
				URI: "demo://item/" + id, Name: "item-" + id, Title: "Item " + id,
				Description: "Item " + id + " of many; see the resource template.", MimeType: "application/json", Text: template.Render(id),
			})
		}
	}
	return all
})

// resourcesOrTemplates returns the server's resource templates if templates is true, else its resources that have a URI.
func (srv *Server) resourcesOrTemplates(templates bool) []*Resource {
	return slices.DeleteFunc(slices.Concat(allResources(), srv.Resources), func(r *Resource) bool { return (r.URITemplate != "") != templates })
}

// listResources answers resources/list.
func (s *session) listResources(params []byte) (any, error) {
	return page(s, "resources", params, s.srv.resourcesOrTemplates(false))
}

// listTemplates answers resources/templates/list.
func (s *session) listTemplates(params []byte) (any, error) {
	return page(s, "resourceTemplates", params, s.srv.resourcesOrTemplates(true))
}

// resource returns the resource with a URI, also one that a template makes; nil: there is none.
func (srv *Server) resource(uri string) *Resource {
	for _, r := range srv.resourcesOrTemplates(false) {
		if r.URI == uri {
			return r
		}
	}
	for _, r := range srv.resourcesOrTemplates(true) {
		prefix, suffix, _ := strings.Cut(r.URITemplate, "{id}")
		id, ok := strings.CutPrefix(uri, prefix)
		id, whole := strings.CutSuffix(id, suffix)
		if ok && whole && id != "" && (r.IDs == nil || slices.Contains(r.IDs, id)) {
			return &Resource{URI: uri, MimeType: r.MimeType, Text: r.Render(id)}
		}
	}
	return nil
}

// readResource answers resources/read, with one part.
func (s *session) readResource(params []byte) (any, error) {
	uri, err := uriOf(params)
	if err != nil {
		return nil, err
	}
	r := s.srv.resource(uri)
	if r == nil {
		return nil, notFound(uri)
	}
	part := Contents{URI: uri, MimeType: r.MimeType, Blob: r.Blob}
	if r.Blob == "" {
		part.Text = &r.Text
	}
	return map[string][]Contents{"contents": {part}}, nil
}

// uriOf returns the member uri of params; an error of invalidParams if there is none.
func uriOf(params []byte) (string, error) {
	var p struct {
		URI string `json:"uri"`
	}
	if err := decode(params, &p); err != nil {
		return "", err
	}
	if p.URI == "" {
		return "", invalidParams("uri is missing")
	}
	return p.URI, nil
}

// notFound returns the error for a resource that does not exist.
func notFound(uri string) error {
	return &rpcError{code: era.CodeResourceNotFound, message: "resource not found", data: map[string]string{"uri": uri}}
}

// complete answers completion/complete, for the arguments of prompts and of the resource templates.
func (s *session) complete(params []byte) (any, error) {
	var p struct {
		Ref      struct{ Type, Name, URI string } `json:"ref"`
		Argument *struct{ Name, Value string }    `json:"argument"`
	}
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	if p.Argument == nil {
		return nil, invalidParams("argument is missing")
	}
	var known []string
	switch p.Ref.Type {
	case "ref/resource":
		templates := s.srv.resourcesOrTemplates(true)
		i := slices.IndexFunc(templates, func(r *Resource) bool { return r.URITemplate == p.Ref.URI })
		if i < 0 || p.Argument.Name != "id" {
			return nil, invalidParams("there is no such resource template, or it has no such argument")
		}
		known = templates[i].IDs
	case "ref/prompt":
		found, err := s.srv.prompt(p.Ref.Name)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(found.Arguments, func(a Argument) bool { return a.Name == p.Argument.Name }) {
			return nil, invalidParams(fmt.Sprintf("the prompt has no argument %.40q", p.Argument.Name))
		}
		known = found.Complete[p.Argument.Name]
	default:
		return nil, invalidParams("ref.type must be ref/prompt or ref/resource")
	}
	return completion(known, p.Argument.Value), nil
}

// completion returns the result of completion/complete: those of known that begin with prefix, whatever the case of the letters.
func completion(known []string, prefix string) any {
	type part struct {
		Values  []string `json:"values"`
		Total   int      `json:"total"`
		HasMore bool     `json:"hasMore"`
	}
	values := []string{}
	for _, v := range known {
		if len(v) >= len(prefix) && strings.EqualFold(v[:len(prefix)], prefix) {
			values = append(values, v)
		}
	}
	return map[string]part{"completion": {values, len(values), false}} // 100 are allowed, and there are fewer
}
