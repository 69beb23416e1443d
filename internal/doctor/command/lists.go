package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/toolheader"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxPages is how many pages of a list are read.
const maxPages = 100

// A listMethod is one that a server may have.
type listMethod struct {
	capability, method, member string
	key                        string // the member that names an element
}

var allLists = []listMethod{
	{"tools", "tools/list", "tools", "name"},
	{"prompts", "prompts/list", "prompts", "name"},
	{"resources", "resources/list", "resources", "uri"},
}

// lists is C13: reads all lists that the server says it has, and looks whether clients can
// make use of them.
func (s *session) lists(ctx context.Context) {
	began := time.Now()
	for _, l := range allLists {
		if s.timeLeft() <= 0 || ctx.Err() != nil {
			return
		}
		if !s.hasCapability(l.capability) {
			s.undeclared(ctx, l)
			continue
		}
		if count, ok := s.list(ctx, l); ok {
			s.report.Fact(l.member, "%d", count)
		}
	}
	if !s.untold {
		s.noteTook("lists %v", time.Since(began))
	}
}

// addC13 adds a finding of C13.
func (s *session) addC13(severity doctor.Severity, title, seen, means, do string) {
	s.add("C13", severity, title, seen, means, do)
}

// undeclared looks whether there are tools although the server does not say so.
func (s *session) undeclared(ctx context.Context, l listMethod) {
	if l.capability != "tools" {
		return
	}
	r := s.request(ctx, l.method, "")
	if !r.ok() {
		return
	}
	if n := len(toolheader.Tools(r.message.Result())); n > 0 {
		s.addC13(doctor.Error, "tools without the capability", fmt.Sprintf("capabilities has no \"tools\", and tools/list has %d", n),
			"Clients ask for tools only if the server has declared that it has any. They will show none.",
			"Declare the capability: \"capabilities\":{\"tools\":{}}.")
	}
}

// list reads one list.
func (s *session) list(ctx context.Context, l listMethod) (count int, ok bool) {
	names, cursors := map[string]bool{}, map[string]bool{}
	members := ""
	for page := 1; ; page++ {
		r := s.request(ctx, l.method, members)
		if ctx.Err() != nil || !s.usable(l, r) {
			return count, false
		}
		var elements []byte
		var next json.RawMessage
		for m := range jsonrpc.Members(r.message.Result()) {
			switch m.Key {
			case l.member:
				elements = m.Value
			case "nextCursor":
				next = m.Value
			}
		}
		if len(elements) == 0 || elements[0] != '[' {
			s.addC13(doctor.Error, "a list without its elements", fmt.Sprintf("%s: %s", l.method, r.message.Bytes()),
				"Clients refuse the whole answer.", fmt.Sprintf("The result needs an array %q, empty if there is nothing.", l.member))
			return count, false
		}
		for _, element := range jsonrpc.Elements(elements) {
			count++
			s.element(l, element, names)
		}
		cursor, more := s.next(l, next, cursors, page)
		if !more {
			if l.member == "tools" && (len(next) == 0 || string(next) == `""`) {
				s.tools = names
			}
			return count, true
		}
		members = `"cursor":` + string(jsonrpc.Quote(cursor))
	}
}

// usable looks whether a list was answered with a result.
func (s *session) usable(l listMethod, r reply) (ok bool) {
	const do = "Implement the method, or do not declare the capability."
	switch {
	case r.outcome == silent && s.timeLeft() <= 0: // of the doctor's time
	case r.outcome == silent:
		s.addC13(doctor.Error, "a list is not answered", fmt.Sprintf("%s: no answer in %v", l.method, r.took.Round(100*time.Millisecond)),
			"Clients ask for it when they connect, and wait until they give up.", do)
	case r.outcome == exited:
		s.endedAt(l.method)
	case r.outcome == answered && r.message.IsError():
		s.addC13(doctor.Error, doctor.NoMethod.Title, fmt.Sprintf("capabilities has %q, and %s is refused: %s", l.capability, l.method, r.message.ErrorObject()),
			doctor.NoMethod.Means, do)
	}
	return r.ok()
}

// next tells how to ask for the next page.
func (s *session) next(l listMethod, raw json.RawMessage, cursors map[string]bool, page int) (cursor string, more bool) {
	if len(raw) == 0 {
		return "", false
	}
	cursor, ok := jsonrpc.Text(raw)
	switch {
	case !ok:
		s.addC13(doctor.Warning, "nextCursor is no text", fmt.Sprintf("%s: \"nextCursor\":%s", l.method, raw),
			"Strict clients, such as those of the TypeScript SDK, refuse the whole answer.", "Leave nextCursor out on the last page.")
		return "", false
	case cursor == "": // most clients take it for the end
		return "", false
	case cursors[cursor]:
		s.report.Add(doctor.Circle.Finding(fmt.Sprintf("%s: page %d has the nextCursor %s, as one before", l.method, page, raw)))
		return "", false
	case page >= maxPages:
		s.addC13(doctor.Warning, "a list does not end", fmt.Sprintf("%s: page %d has a nextCursor again: %s", l.method, page, raw),
			"Clients that read all pages may never end, or give up.", "Leave nextCursor out on the last page.")
		return "", false
	}
	cursors[cursor] = true
	return cursor, s.timeLeft() > 0
}

// element looks at one tool, prompt or resource.
func (s *session) element(l listMethod, element []byte, names map[string]bool) {
	var name string
	for m := range jsonrpc.Members(element) {
		if m.Key == l.key {
			name, _ = jsonrpc.Text(m.Value)
		}
	}
	what := strings.TrimSuffix(l.member, "s")
	if name == "" {
		s.addC13(doctor.Error, "a "+what+" without a "+l.key, fmt.Sprintf("%s: %s", l.method, element),
			"Clients refuse the whole list.", "Give it a "+l.key+".")
		return
	}
	if names[name] {
		s.addC13(doctor.Warning, "two "+l.member+" with the same "+l.key, strconv.Quote(name),
			"Clients show one of them, or refuse the list; models refuse two tools of one name.", "Give each its own "+l.key+".")
	}
	names[name] = true
	if l.member == "tools" {
		s.tool(name, element)
	}
}

// tool looks at the schemas of a tool.
func (s *session) tool(name string, element []byte) {
	var input, output []byte
	for m := range jsonrpc.Members(element) {
		switch m.Key {
		case "inputSchema":
			input = m.Value
		case "outputSchema":
			output = m.Value
		}
	}
	if wrong := notObjectSchema(input); wrong != "" {
		s.addC13(doctor.Error, "a tool's inputSchema is not that of an object", fmt.Sprintf("tool %q: inputSchema %s: %s", name, wrong, input),
			"Arguments are an object, so its schema needs \"type\":\"object\". Strict clients refuse the whole list of tools, others this tool.",
			"Write {\"type\":\"object\",\"properties\":{...}}; for a tool without arguments, {\"type\":\"object\"}.")
	}
	if output != nil && (len(output) == 0 || output[0] != '{') {
		s.addC13(doctor.Error, "a tool's outputSchema is no schema", fmt.Sprintf("tool %q: outputSchema %s", name, output),
			"Strict clients refuse the whole list of tools.", "Write a JSON Schema as an object, or leave outputSchema out.")
	}
	if _, err := toolheader.Parse(input); err != nil {
		s.addC13(doctor.Warning, "a tool has an invalid x-mcp-header", fmt.Sprintf("tool %q: %v", name, err),
			"Clients of 2026-07-28 must leave such a tool out of the list when they use HTTP, and so does the bridge.",
			"Correct the annotation in the tool's inputSchema, or take it out.")
	}
}

// notObjectSchema says what is wrong with an inputSchema, or nothing.
func notObjectSchema(schema []byte) string {
	if len(schema) == 0 {
		return "is missing"
	}
	if schema[0] != '{' {
		return "is no object"
	}
	for m := range jsonrpc.Members(schema) {
		if m.Key != "type" {
			continue
		}
		if text, ok := jsonrpc.Text(m.Value); ok && text == "object" {
			return ""
		}
		var types []string
		if json.Unmarshal(bytes.TrimSpace(m.Value), &types) == nil && slices.Contains(types, "object") {
			return "has several types"
		}
		return "has another type"
	}
	return "has no type"
}
