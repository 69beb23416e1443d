package legacyclient

import (
	"bytes"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Legacy revisions have objects only as structured content; 2026-07-28 has any
// JSON. What is none is given to a legacy client as the member "result" of one,
// and so is the schema that a tool has for it (C.2). Which of the two a result is
// follows the schema that the client was shown last, for that is what it checks
// the result with.

// schemas is which output schemas of tools were wrapped when the client saw them.
type schemas struct{ wrapped map[string]bool }

// maxSchemaDepth is how deep references are looked for in a schema. Each level
// costs a scan, and the server chooses how deep its schemas are.
const maxSchemaDepth = 64

// showTools wraps the output schemas of a tools/list result whose root is no object.
func (s *schemas) showTools(result []byte) []byte {
	if len(s.wrapped) == 0 && bytes.IndexByte(result, '\\') < 0 && !bytes.Contains(result, []byte(`"outputSchema"`)) {
		return result
	}
	var tools []byte
	at := 0
	for m := range jsonrpc.Members(result) {
		if m.Key == "tools" {
			at, tools = m.At, m.Value
		}
	}
	var b []byte
	done := 0
	for offset, tool := range jsonrpc.Elements(tools) {
		shown := s.showTool(tool)
		if len(shown) == len(tool) {
			continue
		}
		b = append(append(b, result[done:at+offset]...), shown...)
		done = at + offset + len(tool)
	}
	return append(b, result[done:]...)
}

func (s *schemas) showTool(tool []byte) []byte {
	name, _ := jsonrpc.Text(shape.Member(tool, "name"))
	schema := shape.Member(tool, "outputSchema")
	switch {
	case schema == nil || string(shape.Member(schema, "type")) == `"object"`:
		delete(s.wrapped, name)
		return tool
	case string(schema) == "null":
		delete(s.wrapped, name)
		return jsonrpc.Without(tool, "outputSchema")
	}
	if s.wrapped == nil {
		s.wrapped = map[string]bool{}
	}
	s.wrapped[name] = true
	return jsonrpc.With(tool, "outputSchema", wrapSchema(schema))
}

// wrapSchema returns the schema of an object whose member result has the given
// schema. References within that still lead to where they led: a schema with an
// $id is a resource of its own and keeps them, in others they are moved.
func wrapSchema(schema []byte) []byte {
	out := []byte("{")
	if dialect := shape.Member(schema, "$schema"); dialect != nil {
		out = shape.AppendMember(out, "$schema", dialect)
	}
	if !hasID(schema) {
		schema = appendMoved(nil, jsonrpc.Without(schema, "$schema"), false, maxSchemaDepth)
	}
	out = shape.AppendMember(out, "type", []byte(`"object"`))
	out = shape.AppendMember(out, "properties", shape.AppendMember([]byte("{"), "result", append(schema[:len(schema):len(schema)], '}')))
	return append(shape.AppendMember(out, "required", []byte(`["result"]`)), '}')
}

// hasID reports whether a schema is a resource of its own. An $id that is only
// a fragment is an anchor of older drafts, and draft 4 spells it id.
func hasID(schema []byte) bool {
	id, ok := jsonrpc.Text(shape.Member(schema, "$id"))
	if !ok {
		dialect, _ := jsonrpc.Text(shape.Member(schema, "$schema"))
		if !strings.Contains(dialect, "draft-04") {
			return false
		}
		id, ok = jsonrpc.Text(shape.Member(schema, "id"))
	}
	return ok && id != "" && id[0] != '#'
}

// appendMoved appends a schema with its references into itself made references
// to where it stands in the wrapper. names is whether the members of raw are
// schemas under names of the author's, not keywords.
func appendMoved(out, raw []byte, names bool, depth int) []byte {
	if len(raw) == 0 || depth == 0 {
		return append(out, raw...)
	}
	done := 0
	switch {
	case raw[0] == '[':
		for at, e := range jsonrpc.Elements(raw) {
			out = appendMoved(append(out, raw[done:at]...), e, false, depth-1)
			done = at + len(e)
		}
	case raw[0] == '{' && (names || !hasID(raw)):
		for m := range jsonrpc.Members(raw) {
			out = append(out, raw[done:m.At]...)
			done = m.At + len(m.Value)
			switch {
			case names:
				out = appendMoved(out, m.Value, false, depth-1)
			case m.Key == "$ref" || m.Key == "$dynamicRef":
				out = append(out, movedReference(m.Value)...)
			case m.Key == "const" || m.Key == "enum" || m.Key == "default" || m.Key == "examples":
				out = append(out, m.Value...) // data
			default:
				out = appendMoved(out, m.Value, namesSchemas(m.Key), depth-1)
			}
		}
	}
	return append(out, raw[done:]...)
}

// namesSchemas reports whether the keyword's value is an object of named schemas.
func namesSchemas(keyword string) bool {
	switch keyword {
	case "properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions":
		return true
	}
	return false
}

// movedReference moves a reference by JSON pointer; one by name stays.
func movedReference(raw []byte) []byte {
	to, ok := jsonrpc.Text(raw)
	if !ok || to != "#" && !strings.HasPrefix(to, "#/") {
		return raw
	}
	return jsonrpc.Quote("#/properties/result" + to[1:])
}

// showStructured wraps the structured content of a tools/call result where the
// client expects that, or could not take it otherwise.
func (s *schemas) showStructured(c *call, result []byte) []byte {
	value := shape.Member(result, "structuredContent")
	if !s.wraps(c, value) {
		return result
	}
	result = jsonrpc.With(result, "structuredContent", append(shape.AppendMember([]byte("{"), "result", value), '}'))
	return withText(result, value)
}

// wraps reports whether the structured content of a call's result is to be
// wrapped; nil: it has none.
func (s *schemas) wraps(c *call, structured []byte) bool {
	switch {
	case structured == nil:
		return false
	case !shape.IsObject(structured):
		return true
	case len(s.wrapped) == 0:
		return false
	}
	name, _ := jsonrpc.Text(c.m.Lookup("params", "name"))
	return s.wrapped[name]
}

// withText sees to it that a result has its structured content as text too, for
// those who look at nothing else: a block of text is added if there is none.
func withText(result, value []byte) []byte {
	blocks := []byte("[")
	content := shape.Member(result, "content")
	for _, block := range jsonrpc.Elements(content) {
		if string(shape.Member(block, "type")) == `"text"` {
			return result
		}
		if len(blocks) > 1 {
			blocks = append(blocks, ',')
		}
		blocks = append(blocks, block...)
	}
	if len(blocks) > 1 {
		blocks = append(blocks, ',')
	}
	blocks = append(append(blocks, `{"type":"text","text":`...), jsonrpc.Quote(string(value))...)
	return jsonrpc.With(result, "content", append(blocks, "}]"...))
}
