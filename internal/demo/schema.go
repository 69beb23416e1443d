package demo

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// schema is the part of JSON Schema that the tools here use. Arguments are
// checked against it, so that what a tool says of itself and what it does agree.
type schema struct {
	Type        string            `json:"type,omitempty"`                 // the JSON type; "": any
	Title       string            `json:"title,omitempty"`                // how a form names the value
	Description string            `json:"description,omitempty"`          // what the value is, for people and models
	Enum        []string          `json:"enum,omitempty"`                 // the strings that are allowed; nil: all
	EnumNames   []string          `json:"enumNames,omitempty"`            // how a form shows the values of Enum, in the same order
	Format      string            `json:"format,omitempty"`               // the format of a string, such as "email"; it is not checked
	Minimum     *float64          `json:"minimum,omitempty"`              // the smallest number that is allowed; nil: no bound
	Maximum     *float64          `json:"maximum,omitempty"`              // the largest number that is allowed; nil: no bound
	Default     any               `json:"default,omitempty"`              // the value of an argument that is missing; nil: it stays missing
	Properties  map[string]schema `json:"properties,omitempty"`           // the properties of an object, by name
	Required    []string          `json:"required,omitempty"`             // the names of Properties that must be there
	Additional  *bool             `json:"additionalProperties,omitempty"` // whether an object may have others than Properties; nil: it may
}

// props are the schemas of an object's properties, by name.
type props = map[string]schema

// objectSchema returns the schema of an object that has no other properties than these, such as a tool's arguments. required are the names of
// those that must be there.
func objectSchema(properties props, required ...string) *schema {
	closed := false
	return &schema{Type: "object", Properties: properties, Required: required, Additional: &closed}
}

// outputSchema returns the schema of an object that may have other properties than these, such as a structured result. required are the
// names of those that must be there.
func outputSchema(properties props, required ...string) *schema {
	return &schema{Type: "object", Properties: properties, Required: required}
}

// stringSchema returns the schema of a string.
func stringSchema(description string) schema { return schema{Type: "string", Description: description} }

// numberSchema returns the schema of a number.
func numberSchema(description string) schema { return schema{Type: "number", Description: description} }

// withRange returns the schema with a minimum and a maximum, both of which are allowed.
func (s schema) withRange(low, high float64) schema {
	s.Minimum, s.Maximum = &low, &high
	return s
}

// withDefault returns the schema with a default.
func (s schema) withDefault(value any) schema {
	s.Default = value
	return s
}

// integerSchema returns the schema of an integer from low to high whose default is def.
func integerSchema(description string, low, high, def int) schema {
	return schema{Type: "integer", Description: description}.withRange(float64(low), float64(high)).withDefault(def)
}

// enumSchema returns the schema of a string that is one of values and whose default is def.
func enumSchema(description, def string, values ...string) schema {
	return schema{Type: "string", Description: description, Enum: values, Default: def}
}

// check checks a tool's arguments against the schema. It returns a new map that has them and the defaults of those that are
// missing, or an error that says what is wrong with them.
func (s *schema) check(args map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	withDefaults := map[string]json.RawMessage{}
	for name, value := range args {
		p, ok := s.Properties[name]
		if !ok {
			return nil, fmt.Errorf("there is no argument %.40q; there is: %s", name, s.joinedNames())
		}
		if err := p.checkArgument(value); err != nil {
			return nil, fmt.Errorf("argument %s %w", name, err)
		}
		withDefaults[name] = value
	}
	for _, name := range s.Required {
		if _, ok := withDefaults[name]; !ok {
			return nil, fmt.Errorf("argument %s is missing", name)
		}
	}
	for name, p := range s.Properties {
		if _, ok := withDefaults[name]; !ok && p.Default != nil {
			withDefaults[name], _ = json.Marshal(p.Default) // ours: it can be encoded
		}
	}
	return withDefaults, nil
}

// joinedNames returns the names of the properties, sorted and with commas, for an error; "none" if there are none.
func (s *schema) joinedNames() string {
	if len(s.Properties) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", ")
}

// checkArgument returns what is wrong with an argument whose schema is s, as the end of a sentence such as "must be a string"; nil: nothing.
// With a Type other than string, integer and number, any argument passes.
func (s *schema) checkArgument(raw json.RawMessage) error {
	switch s.Type {
	case "string":
		v, ok := decodeAs[string](raw)
		if !ok {
			return fmt.Errorf("must be a string")
		}
		if s.Enum != nil && !slices.Contains(s.Enum, v) {
			return fmt.Errorf("must be one of %s", strings.Join(s.Enum, ", "))
		}
	case "integer":
		n, ok := decodeAs[int64](raw)
		if !ok {
			return fmt.Errorf("must be an integer")
		}
		return s.inRange(float64(n))
	case "number":
		n, ok := decodeAs[float64](raw)
		if !ok {
			return fmt.Errorf("must be a number")
		}
		return s.inRange(n)
	}
	return nil
}

// decodeAs returns a JSON value as a T; false: it is of another type, or null.
func decodeAs[T any](raw json.RawMessage) (v T, ok bool) {
	var p *T
	if json.Unmarshal(raw, &p) != nil || p == nil {
		return v, false
	}
	return *p, true
}

// inRange returns an error if n is outside of the schema's range, which has both ends or none.
func (s *schema) inRange(n float64) error {
	if s.Minimum != nil && n < *s.Minimum || s.Maximum != nil && n > *s.Maximum {
		return fmt.Errorf("must be from %.0f to %.0f", *s.Minimum, *s.Maximum)
	}
	return nil
}
