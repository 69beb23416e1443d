package legacyclient

import (
	"bytes"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// In legacy revisions structured content is always an object; in 2026-07-28 it may
// be any JSON. A legacy client gets any other value as the member "result" of an
// object, and the tool's output schema is wrapped in the same way (C.2). Whether a
// result is wrapped follows the schema that the client has seen last, because the
// client checks the result with that.

// schemas knows which output schemas were wrapped when the client saw them.
type schemas struct {
	wrapped map[string]bool // by the name of a tool: whether its output schema was wrapped; absent: it was not
}

// maxSchemaDepth is how deep references are looked for in a schema. Each level
// costs one more scan, and the server chooses how deep its schemas are.
const maxSchemaDepth = 64

// wrapToolSchemas returns a tools/list result in which the output schemas that are not those of
// objects are wrapped. An output schema null is removed.
func (s *schemas) wrapToolSchemas(result []byte) []byte {
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
		shown := s.wrapToolSchema(tool)
		if len(shown) == len(tool) {
			continue
		}
		b = append(append(b, result[done:at+offset]...), shown...)
		done = at + offset + len(tool)
	}
	return append(b, result[done:]...)
}

// wrapToolSchema returns a tool of a list with its output schema wrapped, unless that is the schema
// of an object, or removed, if that is null. It notes in wrapped whether it has wrapped the schema.
func (s *schemas) wrapToolSchema(tool []byte) []byte {
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

// wrapSchema returns the schema of an object whose member "result" has the given
// schema. References within that schema still lead to the same place: a schema
// with an $id keeps them, in others they are changed.
func wrapSchema(schema []byte) []byte {
	out := []byte("{")
	if dialect := shape.Member(schema, "$schema"); dialect != nil {
		out = shape.AppendMember(out, "$schema", dialect)
	}
	if !hasID(schema) {
		schema = appendMovedSchema(nil, jsonrpc.Without(schema, "$schema"), false, maxSchemaDepth)
	}
	out = shape.AppendMember(out, "type", []byte(`"object"`))
	out = shape.AppendMember(out, "properties", shape.AppendMember([]byte("{"), "result", append(schema[:len(schema):len(schema)], '}')))
	return append(shape.AppendMember(out, "required", []byte(`["result"]`)), '}')
}

// hasID reports whether a schema has an identity of its own, to which its
// references are relative. An $id that is only a fragment does not count: it is an
// anchor of older drafts. Draft 4 spells it id.
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

// appendMovedSchema appends the schema raw to out, with its references to itself changed to its
// place in the wrapper, down to depth levels. names says that the members of raw are named schemas
// and not keywords.
func appendMovedSchema(out, raw []byte, names bool, depth int) []byte {
	if len(raw) == 0 || depth == 0 {
		return append(out, raw...)
	}
	done := 0
	switch {
	case raw[0] == '[':
		for at, e := range jsonrpc.Elements(raw) {
			out = appendMovedSchema(append(out, raw[done:at]...), e, false, depth-1)
			done = at + len(e)
		}
	case raw[0] == '{' && (names || !hasID(raw)):
		for m := range jsonrpc.Members(raw) {
			out = append(out, raw[done:m.At]...)
			done = m.At + len(m.Value)
			switch {
			case names:
				out = appendMovedSchema(out, m.Value, false, depth-1)
			case m.Key == "$ref" || m.Key == "$dynamicRef":
				out = append(out, moveReference(m.Value)...)
			case m.Key == "const" || m.Key == "enum" || m.Key == "default" || m.Key == "examples":
				out = append(out, m.Value...) // data
			default:
				out = appendMovedSchema(out, m.Value, holdsNamedSchemas(m.Key), depth-1)
			}
		}
	}
	return append(out, raw[done:]...)
}

// holdsNamedSchemas reports whether the value of this keyword is an object of named
// schemas.
func holdsNamedSchemas(keyword string) bool {
	switch keyword {
	case "properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions":
		return true
	}
	return false
}

// moveReference returns a raw reference as it is in the wrapper: a JSON pointer within the schema
// gets the schema's place in front. Any other reference stays.
func moveReference(raw []byte) []byte {
	to, ok := jsonrpc.Text(raw)
	if !ok || to != "#" && !strings.HasPrefix(to, "#/") {
		return raw
	}
	return jsonrpc.Quote("#/properties/result" + to[1:])
}

// wrapStructured returns a tools/call result with its structured content wrapped, and as text too,
// if mustWrap says so; otherwise the result as it is.
func (s *schemas) wrapStructured(c *call, result []byte) []byte {
	value := shape.Member(result, "structuredContent")
	if !s.mustWrap(c, value) {
		return result
	}
	result = jsonrpc.With(result, "structuredContent", append(shape.AppendMember([]byte("{"), "result", value), '}'))
	return withTextBlock(result, value)
}

// mustWrap reports whether structured, the structured content of the result of c (nil: there is
// none), must be wrapped: it is no object, or the client has seen the tool's schema wrapped.
func (s *schemas) mustWrap(c *call, structured []byte) bool {
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

// withTextBlock returns a tools/call result with a block of text that has value, the structured
// content, unless the result has text already: some clients read nothing else.
func withTextBlock(result, value []byte) []byte {
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
