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

// A Type is the JSON Schema type of a parameter that has an x-mcp-header annotation.
type Type string

// The types of parameters that may have an annotation. "number" is not among them.
const (
	String  Type = "string"  // text; a parameter of this type may have an annotation
	Integer Type = "integer" // a parameter of this type may have an annotation; one of type "number" may not
	Boolean Type = "boolean" // true or false; a parameter of this type may have an annotation
)

// A Param is one parameter of a tool that has an x-mcp-header annotation. It is not changed any
// more once it is made.
type Param struct {
	Header string   // the name of its header, canonical: "Mcp-Param-Region"
	Path   []string // the keys of properties that lead to it, from the arguments on
	Type   Type     // the type that its schema says; arguments of another type have a header all the same
}

// annotationKey is the keyword of a property's schema whose value is the last part of the header's
// name.
const annotationKey = "x-mcp-header"

// ParseAnnotations returns the annotated parameters of a tool's inputSchema, in the order
// in which they stand; nil if there are none. An error means that the
// specification wants the tool left out of lists (ME3); it says why, in words
// fit for a log: of the schema it quotes nothing but names of properties.
func ParseAnnotations(inputSchema []byte) ([]Param, error) {
	if !mayHaveAnnotation(inputSchema) {
		return nil, nil
	}
	p := parser{seenNames: make(map[string]bool)}
	if err := p.readSchema(inputSchema, location{reachable: true}); err != nil {
		return nil, err
	}
	return p.params, nil
}

// mayHaveAnnotation reports whether there can be an annotation in the text. Nearly
// all schemas have none, and that is quickly seen. The key may be written with
// escapes.
func mayHaveAnnotation(text []byte) bool {
	return bytes.Contains(text, []byte(annotationKey)) || bytes.Contains(text, []byte(`\u`))
}

// maxSchemaDepth is how deep schemas may be nested around an annotation; deeper is an error. Each level is
// scanned anew.
const maxSchemaDepth = 64

// A parser collects the annotations of one input schema.
type parser struct {
	params    []Param         // what was found so far
	seenNames map[string]bool // the names of headers that annotations gave so far, in lower case: a second one is an error
}

// A location is where in a tool's input schema a (sub)schema stands.
type location struct {
	path      []string // the names of the properties that lead there, up to the first step that is no property; nil: there are none
	depth     int      // how many schemas, and arrays of schemas, enclose it
	reachable bool     // only "properties" lead there, so an annotation may stand there, unless it is the input schema itself
}

// String names the location for an error: "the schema", or the property by its path.
func (at location) String() string {
	if len(at.path) == 0 {
		return "the schema"
	}
	return fmt.Sprintf("property %.100q", strings.Join(at.path, "."))
}

// below returns the location of what stands in the schema and is no property of it: one level
// deeper, and not reachable.
func (at location) below() location { return location{path: at.path, depth: at.depth + 1} }

// readSchema reads one schema, and all in it, and keeps the annotations. at is where the schema stands in the input
// schema of the tool. The error says which annotation is invalid. What is no object, such as true, is passed over.
func (p *parser) readSchema(schema []byte, at location) error {
	if !mayHaveAnnotation(schema) {
		return nil
	}
	if at.depth > maxSchemaDepth {
		return errors.New(at.String() + " is nested too deeply")
	}
	var name, typ []byte
	for m := range jsonrpc.Members(schema) {
		switch m.Key {
		case annotationKey:
			name = m.Value
		case "type":
			typ = m.Value
		}
	}
	if name != nil {
		if err := p.addParam(name, typ, at); err != nil {
			return err
		}
	}
	for m := range jsonrpc.Members(schema) {
		if err := p.readKeyword(m, at); err != nil {
			return err
		}
	}
	return nil
}

// readKeyword looks for annotations in the value of m, one keyword of the schema at a location: those below
// "properties" are kept, those elsewhere are an error. Values that are data ("const", "default")
// are passed over.
func (p *parser) readKeyword(m jsonrpc.Member, at location) error {
	switch m.Key {
	case annotationKey, "const", "enum", "default", "examples", "example":
		return nil // data, which may look like anything
	case "properties":
		for prop := range jsonrpc.Members(m.Value) {
			next := at.below()
			if at.reachable {
				next.reachable = true
				next.path = append(at.path[:len(at.path):len(at.path)], prop.Key)
			}
			if err := p.readSchema(prop.Value, next); err != nil {
				return err
			}
		}
		return nil
	case "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
		for named := range jsonrpc.Members(m.Value) { // the keys are names, no keywords
			if err := p.refuseAnnotations(named.Value, at.below()); err != nil {
				return err
			}
		}
		return nil
	}
	return p.refuseAnnotations(m.Value, at.below())
}

// refuseAnnotations returns an error if value, a schema or an array of schemas, has an annotation:
// it stands where none may be.
func (p *parser) refuseAnnotations(value []byte, at location) error {
	if !mayHaveAnnotation(value) {
		return nil
	}
	if at.depth > maxSchemaDepth {
		return errors.New(at.String() + " is nested too deeply")
	}
	for _, element := range jsonrpc.Elements(value) {
		if err := p.refuseAnnotations(element, at.below()); err != nil {
			return err
		}
	}
	return p.readSchema(value, at)
}

// addParam keeps the annotation of the property at a location, or returns an error that says why it is invalid. name
// and typ are the raw values of x-mcp-header and of "type" in the property's schema; typ nil: there is none.
func (p *parser) addParam(name, typ []byte, at location) error {
	if !at.reachable || len(at.path) == 0 {
		return fmt.Errorf("%s has an %s where none may be: it must be on a property that is reached through properties alone", at, annotationKey)
	}
	text, ok := jsonrpc.Text(name)
	if !ok || !isToken(text) {
		return fmt.Errorf("the %s of %s is no name of a header", annotationKey, at)
	}
	t, _ := jsonrpc.Text(typ)
	switch Type(t) {
	case String, Integer, Boolean:
	default:
		return fmt.Errorf("%s has an %s, but its type is not string, integer or boolean", at, annotationKey)
	}
	if lower := strings.ToLower(text); p.seenNames[lower] {
		return fmt.Errorf("the %s of %s is that of another property too", annotationKey, at)
	} else {
		p.seenNames[lower] = true
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
