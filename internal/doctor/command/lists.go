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

// maxPages is how many pages of a list are read at most.
const maxPages = 100

// A listMethod is a method of MCP that lists something.
type listMethod struct {
	capability   string // the capability of a server that has the method: "tools"
	method       string // the method itself: "tools/list"
	resultMember string // the member of the result that has the elements: "tools"
	nameMember   string // the member of an element that names it: "name"
}

// allLists are the lists that checkLists reads.
var allLists = []listMethod{
	{"tools", "tools/list", "tools", "name"},
	{"prompts", "prompts/list", "prompts", "name"},
	{"resources", "resources/list", "resources", "uri"},
}

// checkLists reads all lists that the server says it has, as long as there is time, and adds C13 where clients cannot make use of them,
// or where there are tools that it does not say it has. It notes, as facts, how many elements each list has.
func (s *session) checkLists(ctx context.Context) {
	began := time.Now()
	for _, l := range allLists {
		if s.timeLeft() <= 0 || ctx.Err() != nil {
			return
		}
		if !s.hasCapability(l.capability) {
			s.checkUndeclaredTools(ctx, l)
			continue
		}
		if count, ok := s.readList(ctx, l); ok {
			s.report.SetFact(l.resultMember, "%d", count)
		}
	}
	if !s.omitsTimings {
		s.noteTiming("lists %v", time.Since(began))
	}
}

// addC13 adds a finding with the code C13.
func (s *session) addC13(severity doctor.Severity, title, seen, means, do string) {
	s.addFinding("C13", severity, title, seen, means, do)
}

// checkUndeclaredTools adds C13 if the server has tools, although it has not declared the capability. l is the list without a
// capability; only that of tools is checked.
func (s *session) checkUndeclaredTools(ctx context.Context, l listMethod) {
	if l.capability != "tools" {
		return
	}
	r := s.request(ctx, l.method, "")
	if !r.hasResult() {
		return
	}
	if n := len(toolheader.Tools(r.message.Result())); n > 0 {
		s.addC13(doctor.Error, "tools without the capability", fmt.Sprintf("capabilities has no \"tools\", and tools/list has %d", n),
			"Clients ask for tools only if the server has declared that it has any. They will show none.",
			"Declare the capability: \"capabilities\":{\"tools\":{}}.")
	}
}

// readList reads the pages of a list, and checks each element. It returns how many elements it has read, which are not all if
// nextCursor has stopped it; false: a page could not be had, or has no array of elements. It keeps the names of the tools in toolNames if
// it has read all.
func (s *session) readList(ctx context.Context, l listMethod) (count int, ok bool) {
	names, cursors := map[string]bool{}, map[string]bool{}
	members := ""
	for page := 1; ; page++ {
		r := s.request(ctx, l.method, members)
		if ctx.Err() != nil || !s.checkListReply(l, r) {
			return count, false
		}
		var elements []byte
		var next json.RawMessage
		for m := range jsonrpc.Members(r.message.Result()) {
			switch m.Key {
			case l.resultMember:
				elements = m.Value
			case "nextCursor":
				next = m.Value
			}
		}
		if len(elements) == 0 || elements[0] != '[' {
			s.addC13(doctor.Error, "a list without its elements", fmt.Sprintf("%s: %s", l.method, r.message.Bytes()),
				"Clients refuse the whole answer.", fmt.Sprintf("The result needs an array %q, empty if there is nothing.", l.resultMember))
			return count, false
		}
		for _, element := range jsonrpc.Elements(elements) {
			count++
			s.checkElement(l, element, names)
		}
		cursor, more := s.nextCursor(l, next, cursors, page)
		if !more {
			if l.resultMember == "tools" && (len(next) == 0 || string(next) == `""`) {
				s.toolNames = names
			}
			return count, true
		}
		members = `"cursor":` + string(jsonrpc.Quote(cursor))
	}
}

// checkListReply reports whether r, the answer to the request for a page of a list, has a result. If there was none although there was
// time, or an error, it adds C13; if the server has ended, C2. Of an answer that is too long, addStdoutFindings tells.
func (s *session) checkListReply(l listMethod, r reply) (ok bool) {
	const do = "Implement the method, or do not declare the capability."
	switch {
	case r.outcome == outcomeSilent && s.timeLeft() <= 0: // of the doctor's time
	case r.outcome == outcomeSilent:
		s.addC13(doctor.Error, "a list is not answered", fmt.Sprintf("%s: no answer in %v", l.method, r.duration.Round(100*time.Millisecond)),
			"Clients ask for it when they connect, and wait until they give up.", do)
	case r.outcome == outcomeExited:
		s.addEndedDuring(l.method)
	case r.outcome == outcomeAnswered && r.message.IsError():
		s.addC13(doctor.Error, doctor.CapabilityWithoutMethod.Title, fmt.Sprintf("capabilities has %q, and %s is refused: %s", l.capability, l.method, r.message.ErrorObject()),
			doctor.CapabilityWithoutMethod.Consequence, do)
	}
	return r.hasResult()
}

// nextCursor returns the cursor of the next page; more is false if there is none, or it is not to be asked for: it is invalid or
// was there before, there are maxPages already (C13 is added), or there is no time. raw is the member nextCursor of this page, the
// page-th, and cursors are those that were returned before: it adds this one.
func (s *session) nextCursor(l listMethod, raw json.RawMessage, cursors map[string]bool, page int) (cursor string, more bool) {
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
		s.report.AddFinding(doctor.CircularPages.WithEvidence(fmt.Sprintf("%s: page %d has the nextCursor %s, as one before", l.method, page, raw)))
		return "", false
	case page >= maxPages:
		s.addC13(doctor.Warning, "a list does not end", fmt.Sprintf("%s: page %d has a nextCursor again: %s", l.method, page, raw),
			"Clients that read all pages may never end, or give up.", "Leave nextCursor out on the last page.")
		return "", false
	}
	cursors[cursor] = true
	return cursor, s.timeLeft() > 0
}

// checkElement checks one tool, prompt or resource of a list, and adds C13 if it has no name, or that of another. names are the
// names in the list so far: it adds this one.
func (s *session) checkElement(l listMethod, element []byte, names map[string]bool) {
	var name string
	for m := range jsonrpc.Members(element) {
		if m.Key == l.nameMember {
			name, _ = jsonrpc.Text(m.Value)
		}
	}
	what := strings.TrimSuffix(l.resultMember, "s")
	if name == "" {
		s.addC13(doctor.Error, "a "+what+" without a "+l.nameMember, fmt.Sprintf("%s: %s", l.method, element),
			"Clients refuse the whole list.", "Give it a "+l.nameMember+".")
		return
	}
	if names[name] {
		s.addC13(doctor.Warning, "two "+l.resultMember+" with the same "+l.nameMember, strconv.Quote(name),
			"Clients show one of them, or refuse the list; models refuse two tools of one name.", "Give each its own "+l.nameMember+".")
	}
	names[name] = true
	if l.resultMember == "tools" {
		s.checkToolSchemas(name, element)
	}
}

// checkToolSchemas checks the schemas of the tool name, whose JSON is element, and adds C13 for what is wrong with them.
func (s *session) checkToolSchemas(name string, element []byte) {
	var input, output []byte
	for m := range jsonrpc.Members(element) {
		switch m.Key {
		case "inputSchema":
			input = m.Value
		case "outputSchema":
			output = m.Value
		}
	}
	if wrong := inputSchemaProblem(input); wrong != "" {
		s.addC13(doctor.Error, "a tool's inputSchema is not that of an object", fmt.Sprintf("tool %q: inputSchema %s: %s", name, wrong, input),
			"Arguments are an object, so its schema needs \"type\":\"object\". Strict clients refuse the whole list of tools, others this tool.",
			"Write {\"type\":\"object\",\"properties\":{...}}; for a tool without arguments, {\"type\":\"object\"}.")
	}
	if output != nil && (len(output) == 0 || output[0] != '{') {
		s.addC13(doctor.Error, "a tool's outputSchema is no schema", fmt.Sprintf("tool %q: outputSchema %s", name, output),
			"Strict clients refuse the whole list of tools.", "Write a JSON Schema as an object, or leave outputSchema out.")
	}
	if _, err := toolheader.ParseAnnotations(input); err != nil {
		s.addC13(doctor.Warning, "a tool has an invalid x-mcp-header", fmt.Sprintf("tool %q: %v", name, err),
			"Clients of 2026-07-28 must leave such a tool out of the list when they use HTTP, and so does the bridge.",
			"Correct the annotation in the tool's inputSchema, or take it out.")
	}
}

// inputSchemaProblem returns what is wrong with a tool's inputSchema, as the end of a sentence; "": nothing.
func inputSchemaProblem(schema []byte) string {
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
