package demo

import (
	"strings"
)

// prompt is a row of prompts/list.
type prompt struct {
	Name        string           `json:"name"`
	Title       string           `json:"title"`
	Description string           `json:"description"`
	Arguments   []promptArgument `json:"arguments,omitempty"`

	render   func(args map[string]string) []promptMessage
	ask      func(c *call) ([]promptMessage, error) // instead of render
	complete func(argument, prefix string, known map[string]string) []string
}

type promptArgument struct {
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Required    bool   `json:"required"`
}

type promptMessage struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

func says(role, words string) promptMessage { return promptMessage{role, text(words)} }

var styles = []string{"casual", "cheerful", "formal", "pirate"}

// cities shows a completion that depends on another argument.
var cities = map[string][]string{
	"france": {"Lyon", "Marseille", "Paris"},
	"japan":  {"Kyoto", "Osaka", "Tokyo"},
	"peru":   {"Arequipa", "Cusco", "Lima"},
}

var allPrompts = []*prompt{
	{
		Name: "simple", Title: "A simple prompt",
		Description: "A prompt without arguments.",
		render: func(map[string]string) []promptMessage {
			return []promptMessage{says("user", "Which tools does this server have, and what could I try first?")}
		},
	},
	{
		Name: "greet", Title: "Greet somebody",
		Description: "A prompt with a required and an optional argument, whose values can be completed.",
		Arguments: []promptArgument{
			{"name", "Name", "Who is greeted.", true},
			{"style", "Style", "How: casual, cheerful, formal or pirate.", false},
		},
		render: func(args map[string]string) []promptMessage {
			words := "Please greet " + args["name"]
			if style := args["style"]; style != "" {
				words += " in a " + style + " style"
			}
			return []promptMessage{says("user", words+"."), says("assistant", "Hello, "+args["name"]+"!")}
		},
		complete: func(argument, prefix string, _ map[string]string) []string {
			if argument == "style" {
				return startingWith(prefix, styles)
			}
			return startingWith(prefix, []string{"Ada", "Alan", "Grace"})
		},
	},
	{
		Name: "visit", Title: "Visit a city",
		Description: "A prompt whose second argument is completed according to the first (completion context).",
		Arguments: []promptArgument{
			{"country", "Country", "France, Japan or Peru.", true},
			{"city", "City", "A city of that country.", true},
		},
		render: func(args map[string]string) []promptMessage {
			return []promptMessage{says("user", "What should I see in "+args["city"]+", "+args["country"]+"?")}
		},
		complete: func(argument, prefix string, known map[string]string) []string {
			if argument == "country" {
				return startingWith(prefix, []string{"France", "Japan", "Peru"})
			}
			return startingWith(prefix, cities[strings.ToLower(known["country"])])
		},
	},
	{
		Name: "item", Title: "Describe an item",
		Description: "A prompt that embeds a resource.",
		Arguments:   []promptArgument{{"id", "Id", "The number of the item.", true}},
		render: func(args map[string]string) []promptMessage {
			c := read(itemURI + args["id"])
			if c == nil {
				return nil
			}
			return []promptMessage{
				says("user", "Please describe this item."),
				{"user", content{Type: "resource", Resource: c}},
			}
		},
		complete: func(_, prefix string, _ map[string]string) []string { return completeItem(prefix) },
	},
}

// prompts are those that there are now.
func (s *session) prompts() []*prompt {
	all := allPrompts[:len(allPrompts):len(allPrompts)]
	if s.srv.Conformance {
		all = append(all, conformancePrompts...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.extraPrompt {
		all = append(all, extraPrompt)
	}
	return all
}

func (s *session) listPrompts(params []byte) (any, error) {
	part, next, err := page(params, s.prompts(), s.srv.pageSize())
	if err != nil {
		return nil, err
	}
	return struct {
		Prompts    []*prompt `json:"prompts"`
		NextCursor string    `json:"nextCursor,omitempty"`
	}{part, next}, nil
}

func (s *session) prompt(name string) (*prompt, error) {
	for _, p := range s.prompts() {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, invalidParams("there is no prompt " + clip(name))
}

func (s *session) getPrompt(params []byte) (any, error) {
	var p struct {
		Name      string            `json:"name"`
		Arguments map[string]string `json:"arguments"`
	}
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	found, err := s.prompt(p.Name)
	if err != nil {
		return nil, err
	}
	for _, a := range found.Arguments {
		if a.Required && p.Arguments[a.Name] == "" {
			return nil, invalidParams("argument " + a.Name + " is missing")
		}
	}
	messages := found.render(p.Arguments)
	if messages == nil {
		return nil, invalidParams("there is no such item")
	}
	return promptResult{found.Description, messages}, nil
}

type promptResult struct {
	Description string          `json:"description"`
	Messages    []promptMessage `json:"messages"`
}

// promptJob returns the job of a prompts/get whose prompt asks the client; nil for others.
func (s *session) promptJob(params []byte) (job, error) {
	var p struct {
		Name string `json:"name"`
	}
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	found, err := s.prompt(p.Name)
	if err != nil || found.ask == nil {
		return nil, err
	}
	return func(c *call) (any, error) {
		messages, err := found.ask(c)
		return promptResult{found.Description, messages}, err
	}, nil
}

// maxCompletions is how many values completion/complete may return at once.
const maxCompletions = 100

// complete answers completion/complete, for the arguments of prompts and of the resource template.
func (s *session) complete(params []byte) (any, error) {
	var p struct {
		Ref struct {
			Type, Name, URI string
		} `json:"ref"`
		Argument *struct {
			Name, Value string
		} `json:"argument"`
		Context struct {
			Arguments map[string]string `json:"arguments"`
		} `json:"context"`
	}
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	if p.Argument == nil {
		return nil, invalidParams("argument is missing")
	}
	values := []string{}
	switch p.Ref.Type {
	case "ref/resource":
		if p.Ref.URI != templates[0].URITemplate || p.Argument.Name != "id" {
			return nil, invalidParams("there is no such resource template, or it has no such argument")
		}
		values = append(values, completeItem(p.Argument.Value)...)
	case "ref/prompt":
		found, err := s.prompt(p.Ref.Name)
		if err != nil {
			return nil, err
		}
		if !found.has(p.Argument.Name) {
			return nil, invalidParams("the prompt has no argument " + clip(p.Argument.Name))
		}
		values = append(values, found.complete(p.Argument.Name, p.Argument.Value, p.Context.Arguments)...)
	default:
		return nil, invalidParams("ref.type must be ref/prompt or ref/resource")
	}
	return completion(values), nil
}

func (p *prompt) has(argument string) bool {
	for _, a := range p.Arguments {
		if a.Name == argument {
			return true
		}
	}
	return false
}

func completion(values []string) any {
	type part struct {
		Values  []string `json:"values"`
		Total   int      `json:"total"`
		HasMore bool     `json:"hasMore"`
	}
	shown := values[:min(len(values), maxCompletions)]
	return map[string]part{"completion": {shown, len(values), len(values) > len(shown)}}
}

// startingWith returns the values that begin with prefix, whatever the case.
func startingWith(prefix string, values []string) []string {
	var found []string
	for _, v := range values {
		if len(v) >= len(prefix) && strings.EqualFold(v[:len(prefix)], prefix) {
			found = append(found, v)
		}
	}
	return found
}
