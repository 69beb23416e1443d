package toolheader

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// ME3: what a schema may say, and what it says then.
func TestParseAnnotations(t *testing.T) {
	for schema, want := range map[string]string{
		``:                  "",
		`true`:              "",
		`{"type":"object"}`: "",
		`{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`:                                           "Mcp-Param-Region region string",
		`{"properties":{"region":{"type":"string","x-mcp-h\u0065ader":"Region"}}}`:                                      "Mcp-Param-Region region string",
		`{"properties":{"a":{"x-mcp-header":"NonAscii","type":"integer"},"b":{"x-mcp-header":"x_Y","type":"boolean"}}}`: "Mcp-Param-Nonascii a integer; Mcp-Param-X_y b boolean",
		// Objects within objects.
		`{"properties":{"a":{"type":"object","properties":{"b":{"properties":{"c":{"type":"string","x-mcp-header":"C"}}}}}}}`: "Mcp-Param-C a/b/c string",
		`{"$ref":"#/$defs/x","properties":{"a":{"type":"string","x-mcp-header":"A"}}}`:                                        "Mcp-Param-A a string",
		// A parameter, a definition and data that happen to have the name.
		`{"properties":{"x-mcp-header":{"type":"string"}}}`:                                 "",
		`{"properties":{"x-mcp-header":{"type":"string","x-mcp-header":"X"}}}`:              "Mcp-Param-X x-mcp-header string",
		`{"$defs":{"x-mcp-header":{"type":"string"}}}`:                                      "",
		`{"properties":{"a":{"default":{"x-mcp-header":"A"},"enum":[{"x-mcp-header":1}]}}}`: "",
		`{"properties":{"a":{"description":"no x-mcp-header here","type":"string"}}}`:       "",
		`{"required":["x-mcp-header"],"properties":{"a":true,"b":null}}`:                    "",
	} {
		got, err := ParseAnnotations([]byte(schema))
		var all []string
		for _, p := range got {
			all = append(all, fmt.Sprint(p.Header, " ", strings.Join(p.Path, "/"), " ", p.Type))
		}
		if text := strings.Join(all, "; "); err != nil || text != want {
			t.Errorf("ParseAnnotations(%s) = %s, %v; want %s", schema, text, err, want)
		}
	}
}

// ME3: what makes a tool invalid.
func TestParseInvalid(t *testing.T) {
	prop := func(s string) string { return `{"type":"object","properties":{"p":` + s + `}}` }
	for schema, word := range map[string]string{
		prop(`{"type":"string","x-mcp-header":""}`):                                                                      "no name",
		prop(`{"type":"string","x-mcp-header":7}`):                                                                       "no name",
		prop(`{"type":"string","x-mcp-header":null}`):                                                                    "no name",
		prop(`{"type":"string","x-mcp-header":"My Region"}`):                                                             "no name",
		prop(`{"type":"string","x-mcp-header":"Region:Main"}`):                                                           "no name",
		prop(`{"type":"string","x-mcp-header":"Région"}`):                                                                "no name",
		prop(`{"type":"string","x-mcp-header":"a\r\nb"}`):                                                                "no name",
		prop(`{"type":"string","x-mcp-header":"Region\t1"}`):                                                             "no name",
		prop(`{"type":"number","x-mcp-header":"A"}`):                                                                     "type",
		prop(`{"type":"object","x-mcp-header":"A"}`):                                                                     "type",
		prop(`{"type":"array","x-mcp-header":"A"}`):                                                                      "type",
		prop(`{"type":"null","x-mcp-header":"A"}`):                                                                       "type",
		prop(`{"type":["string","null"],"x-mcp-header":"A"}`):                                                            "type",
		prop(`{"x-mcp-header":"A"}`):                                                                                     "type",
		`{"type":"string","x-mcp-header":"A"}`:                                                                           "the schema has",
		`{"allOf":[` + prop(`{"type":"string","x-mcp-header":"A"}`) + `]}`:                                               "where none may be",
		prop(`{"items":{"type":"string","x-mcp-header":"A"}}`):                                                           `property "p"`,
		prop(`{"anyOf":[{"type":"string","x-mcp-header":"A"},{"type":"null"}]}`):                                         "where none may be",
		prop(`{"if":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`):                                         "where none may be",
		prop(`{"prefixItems":[true,{"type":"string","x-mcp-header":"A"}]}`):                                              "where none may be",
		`{"$defs":{"d":{"type":"string","x-mcp-header":"A"}}}`:                                                           "where none may be",
		`{"patternProperties":{"^a":{"type":"string","x-mcp-header":"A"}}}`:                                              "where none may be",
		`{"additionalProperties":{"type":"string","x-mcp-header":"A"}}`:                                                  "where none may be",
		`{"properties":{"a":{"type":"string","x-mcp-header":"MyField"},"b":{"type":"string","x-mcp-header":"myfield"}}}`: "another",
		strings.Repeat(`{"properties":{"a":`, 100) + `{"type":"string","x-mcp-header":"A"}` + strings.Repeat(`}}`, 100):  "deeply",
		strings.Repeat(`{"items":[`, 100) + `{"type":"string","x-mcp-header":"A"}` + strings.Repeat(`]}`, 100):           "deeply",
	} {
		if got, err := ParseAnnotations([]byte(schema)); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("ParseAnnotations(%s) = %v, %v; want an error with %q", schema, got, err, word)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"properties":{"a":{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"B"}}}}}`))
	f.Add([]byte(`{"$defs":{"x-mcp-header":{"items":[{"x-mcp-header":"a"}]}},"properties":{"\ud800":{"type":"integer","x-mcp-header":"A-1"}}}`))
	f.Add([]byte(`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"a":{"type":"boolean","x-mcp-header":"B"}}`))
	f.Add([]byte(`{"properties":{"a":{"type":"boolean","x-mcp-header":"B\}`))
	f.Fuzz(func(t *testing.T, schema []byte) {
		params, err := ParseAnnotations(schema) // whatever it is, it does no harm
		if err != nil || !json.Valid(schema) {
			return
		}
		seen := map[string]bool{}
		for _, p := range params {
			if seen[p.Header] || !isToken(p.Header) || !strings.HasPrefix(p.Header, headerPrefix) || p.Header == headerPrefix || len(p.Path) == 0 {
				t.Errorf("%s: %+v", schema, p)
			}
			seen[p.Header] = true
		}
	})
}
