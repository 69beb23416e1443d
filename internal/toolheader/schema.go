package toolheader

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// headerPrefix begins the name of every header that carries a parameter.
const headerPrefix = "Mcp-Param-"

// Type is the JSON Schema type of a parameter that has a header.
type Type string

// The types that may have one. There is no "number" among them.
const (
	String  Type = "string"
	Integer Type = "integer"
	Boolean Type = "boolean"
)

// Param is one annotated parameter. It is not changed any more once it is made.
type Param struct {
	Header string   // canonical: "Mcp-Param-Region"
	Path   []string // the keys of properties that lead to it, from the arguments on
	Type   Type
}

const annotation = "x-mcp-header"

// Parse returns the annotated parameters of a tool's inputSchema, in the order
// in which they stand; nil if there are none. An error means that the
// specification wants the tool left out of lists (ME3); it says why, in words
// fit for a log: of the schema it quotes nothing but names of properties.
func Parse(inputSchema []byte) ([]Param, error) {
	if !mayAnnotate(inputSchema) {
		return nil, nil
	}
	p := parser{seen: make(map[string]bool)}
	if err := p.schema(inputSchema, place{reachable: true}); err != nil {
		return nil, err
	}
	return p.params, nil
}

// mayAnnotate reports whether there can be an annotation in the text. Nearly
// all schemas have none, and that is quickly seen. The key may be written with
// escapes.
func mayAnnotate(text []byte) bool {
	return bytes.Contains(text, []byte(annotation)) || bytes.Contains(text, []byte(`\u`))
}

// deepest is how deep schemas are looked into. Each level is scanned anew.
const deepest = 64

type parser struct {
	params []Param
	seen   map[string]bool // names in lower case
}

// place is where a schema stands.
type place struct {
	path      []string // of properties, as far as they are reachable
	depth     int
	reachable bool // the way here was by properties only
}

func (at place) String() string {
	if len(at.path) == 0 {
		return "the schema"
	}
	return fmt.Sprintf("property %.100q", strings.Join(at.path, "."))
}

// below is the place of what stands in the schema and is no property of it.
func (at place) below() place { return place{path: at.path, depth: at.depth + 1} }

// schema reads one schema. What is no object, such as true, says nothing.
func (p *parser) schema(schema []byte, at place) error {
	if !mayAnnotate(schema) {
		return nil
	}
	if at.depth > deepest {
		return errors.New(at.String() + " is nested too deeply")
	}
	var name, typ []byte
	for m := range jsonrpc.Members(schema) {
		switch m.Key {
		case annotation:
			name = m.Value
		case "type":
			typ = m.Value
		}
	}
	if name != nil {
		if err := p.annotated(name, typ, at); err != nil {
			return err
		}
	}
	for m := range jsonrpc.Members(schema) {
		if err := p.keyword(m, at); err != nil {
			return err
		}
	}
	return nil
}

// keyword looks into the value of one keyword of a schema.
func (p *parser) keyword(m jsonrpc.Member, at place) error {
	switch m.Key {
	case annotation, "const", "enum", "default", "examples", "example":
		return nil // data, which may look like anything
	case "properties":
		for prop := range jsonrpc.Members(m.Value) {
			next := at.below()
			if at.reachable {
				next.reachable = true
				next.path = append(at.path[:len(at.path):len(at.path)], prop.Key)
			}
			if err := p.schema(prop.Value, next); err != nil {
				return err
			}
		}
		return nil
	case "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
		for named := range jsonrpc.Members(m.Value) { // the keys are names, no keywords
			if err := p.unreachable(named.Value, at.below()); err != nil {
				return err
			}
		}
		return nil
	}
	return p.unreachable(m.Value, at.below())
}

// unreachable looks for annotations where none may be: in a schema, or in an
// array of schemas.
func (p *parser) unreachable(value []byte, at place) error {
	if !mayAnnotate(value) {
		return nil
	}
	if at.depth > deepest {
		return errors.New(at.String() + " is nested too deeply")
	}
	for _, element := range jsonrpc.Elements(value) {
		if err := p.unreachable(element, at.below()); err != nil {
			return err
		}
	}
	return p.schema(value, at)
}

// annotated checks one annotation and keeps it.
func (p *parser) annotated(name, typ []byte, at place) error {
	if !at.reachable || len(at.path) == 0 {
		return fmt.Errorf("%s has an %s where none may be: it must be on a property that is reached through properties alone", at, annotation)
	}
	text, ok := jsonrpc.Text(name)
	if !ok || !isToken(text) {
		return fmt.Errorf("the %s of %s is no name of a header", annotation, at)
	}
	t, _ := jsonrpc.Text(typ)
	switch Type(t) {
	case String, Integer, Boolean:
	default:
		return fmt.Errorf("%s has an %s, but its type is not string, integer or boolean", at, annotation)
	}
	if lower := strings.ToLower(text); p.seen[lower] {
		return fmt.Errorf("the %s of %s is that of another property too", annotation, at)
	} else {
		p.seen[lower] = true
	}
	p.params = append(p.params, Param{Header: http.CanonicalHeaderKey(headerPrefix + text), Path: at.path, Type: Type(t)})
	return nil
}

// isToken reports whether s is a token (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && !('0' <= c && c <= '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
