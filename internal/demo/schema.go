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
	Type        string            `json:"type,omitempty"` // none: any JSON value
	Title       string            `json:"title,omitempty"`
	Description string            `json:"description,omitempty"`
	Enum        []string          `json:"enum,omitempty"`
	EnumNames   []string          `json:"enumNames,omitempty"`
	Format      string            `json:"format,omitempty"`
	Minimum     *float64          `json:"minimum,omitempty"`
	Maximum     *float64          `json:"maximum,omitempty"`
	Default     any               `json:"default,omitempty"`
	Properties  map[string]schema `json:"properties,omitempty"`
	Required    []string          `json:"required,omitempty"`
	Additional  *bool             `json:"additionalProperties,omitempty"`
}

// props are the properties of an object, by name.
type props = map[string]schema

// objectSchema is the schema of an object with these properties only.
func objectSchema(properties props, required ...string) *schema {
	closed := false
	return &schema{Type: "object", Properties: properties, Required: required, Additional: &closed}
}

// outputSchema is the schema of a structured result.
func outputSchema(properties props, required ...string) *schema {
	return &schema{Type: "object", Properties: properties, Required: required}
}

func stringSchema(description string) schema { return schema{Type: "string", Description: description} }
func numberSchema(description string) schema { return schema{Type: "number", Description: description} }

func (s schema) withRange(low, high float64) schema {
	s.Minimum, s.Maximum = &low, &high
	return s
}

func (s schema) withDefault(value any) schema {
	s.Default = value
	return s
}

func integerSchema(description string, low, high, def int) schema {
	return schema{Type: "integer", Description: description}.withRange(float64(low), float64(high)).withDefault(def)
}

func enumSchema(description, def string, values ...string) schema {
	return schema{Type: "string", Description: description, Enum: values, Default: def}
}

// check returns args with the defaults filled in, or an error that says what is wrong with them.
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

// joinedNames returns the names of the properties, as they are shown.
func (s *schema) joinedNames() string {
	if len(s.Properties) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", ")
}

// checkArgument checks one argument.
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

func (s *schema) inRange(n float64) error {
	if s.Minimum != nil && n < *s.Minimum || s.Maximum != nil && n > *s.Maximum {
		return fmt.Errorf("must be from %.0f to %.0f", *s.Minimum, *s.Maximum)
	}
	return nil
}
