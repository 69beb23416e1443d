package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

const (
	manualFile = "../../docs/config.md"
	schemaFile = "../../docs/config.schema.json"
)

// TestManual: the manual's table of settings says what the settings are, and names every
// other key. With -update the table is written anew.
func TestManual(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(manualFile)
	bridgetest.Must(t, err)
	manual := string(data)
	const head = "| key | value | flag | what it is |\n|---|---|---|---|\n"
	before, rest, ok := strings.Cut(manual, head)
	if !ok {
		t.Fatalf("%s has no table of settings", manualFile)
	}
	have, after, _ := strings.Cut(rest, "\n\n")
	want := manualTable()
	if *update {
		bridgetest.Must(t, os.WriteFile(manualFile, []byte(before+head+want+"\n\n"+after), 0o644))
	} else if have != want {
		t.Errorf("%s has\n%s\nand the settings are\n%s", manualFile, have, want)
	}
	keys := slices.Concat(serverKeys, slices.Collect(maps.Keys(keyAliases)), slices.Collect(maps.Keys(clientServerKeys)), []string{bridgeKey, "defaults", "maxChildrenTotal", "scopes", "$schema"})
	for _, key := range keys {
		if !strings.Contains(manual, "`"+key+"`") {
			t.Errorf("%s does not name %s", manualFile, key)
		}
	}
}

// manualTable returns the rows of all settings.
func manualTable() string {
	defaults := DefaultSettings()
	var rows []string
	for _, set := range slices.Concat(settings, serverOnlySettings) {
		value, flag, doc := "", "", set.doc
		if set.fieldOf != nil {
			value = " `" + set.spelled(&defaults) + "`"
		}
		if set.flag != "" {
			flag = " `--" + set.flag + "`"
		}
		if set.values != nil {
			quoted := "`\"" + strings.Join(set.values, "\"`, `\"") + "\"`"
			first, more, cut := strings.Cut(doc, "; ")
			if doc = first + ": " + quoted; cut {
				doc += "; " + more
			}
		}
		switch set.serverType {
		case "command":
			doc += " (commands only)"
		case "url":
			doc += " (remote servers only)"
		}
		rows = append(rows, "| `"+set.key+"` |"+value+" |"+flag+" | "+doc+" |")
	}
	return strings.Join(rows, "\n")
}

// spelled returns the value of a setting as the file spells it.
func (set *setting) spelled(s *Settings) string {
	switch v := set.fieldOf(s).(type) {
	case *string:
		return strconv.Quote(*v)
	case *int:
		if set.key == "maxMessageSize" {
			return fmt.Sprintf(`"%dMiB"`, *v>>20)
		}
		return strconv.Itoa(*v)
	case *bool:
		return strconv.FormatBool(*v)
	case *time.Duration:
		text := v.String() // as short as it can be written
		if cut, ok := strings.CutSuffix(text, "m0s"); ok {
			text = cut + "m"
		}
		if cut, ok := strings.CutSuffix(text, "h0m"); ok {
			text = cut + "h"
		}
		return strconv.Quote(text)
	}
	return "[]"
}

// TestSchema: the schema for editors has all keys, and no other. With -update it is written anew.
func TestSchema(t *testing.T) {
	t.Parallel()
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	bridgetest.Must(t, enc.Encode(schema()))
	if *update {
		bridgetest.Must(t, os.WriteFile(schemaFile, want.Bytes(), 0o644))
	}
	have, err := os.ReadFile(schemaFile)
	bridgetest.Must(t, err)
	if !bytes.Equal(have, want.Bytes()) {
		t.Errorf("%s is not what the keys are: run this test with -update", schemaFile)
	}
}

type object = map[string]any

// closed is an object of the schema that has these keys and comments, and no others.
func closed(kind any, properties object) object {
	return object{
		"type": kind, "properties": properties,
		"patternProperties": object{"^(//|_|#)": true}, "additionalProperties": false,
	}
}

func orNull(kind string) []string { return []string{kind, "null"} }

func schema() object {
	forClient := object{"description": "For a client; ignored by the bridge."}
	servers := object{"$ref": "#/$defs/servers"}
	top := object{
		"$schema": object{"type": "string"},
		bridgeKey: closed(orNull("object"), object{
			"maxChildrenTotal": object{
				"description": "Child processes of all servers together; 0 means no limit (--max-children-total).",
				"type":        orNull("integer"), "minimum": 0,
			},
			"scopes": object{
				"description": "Which scopes of access tokens messages need, a line each (--scope-map).",
				"type":        orNull("array"), "items": object{"type": "string"},
			},
			"defaults": object{
				"description": "Settings of every server that does not say otherwise.",
				"anyOf":       []any{object{"$ref": "#/$defs/settings"}, object{"type": "null"}},
			},
		}),
	}
	var required []any
	for _, key := range serverKeys {
		top[key] = servers
		required = append(required, object{"required": []string{key}})
	}
	for _, key := range clientTopKeys {
		top[key] = forClient
	}
	server := serverProperties()
	for key := range clientServerKeys {
		server[key] = forClient
	}
	all, own := object{}, object{}
	for _, set := range settings {
		all[set.key] = set.schema()
		own[set.key] = object{"$ref": "#/$defs/settings/properties/" + set.key}
	}
	for _, set := range serverOnlySettings {
		own[set.key] = object{"description": schemaText(set.doc), "type": "string"}
	}
	own["auth"] = authSchema()
	s := closed("object", top)
	s["$schema"], s["title"] = "https://json-schema.org/draft/2020-12/schema", "Configuration of mcp-bridge"
	s["description"], s["anyOf"] = "What each key means: docs/config.md.", required
	s["$defs"] = object{
		"duration": object{
			"type": "string", "pattern": `^(0|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$`,
			"examples": []string{"500ms", "30s", "1h30m"},
		},
		"servers": object{
			"type": orNull("object"), "patternProperties": object{"^(//|_|#)": true},
			"additionalProperties": object{"$ref": "#/$defs/server"},
		},
		"server":   closed("object", server),
		"settings": closed("object", all),
		"own":      closed(orNull("object"), own),
	}
	return s
}

// authSchema is what "auth" must be.
func authSchema() object {
	types := map[authValueKind]object{
		authText: {"type": orNull("string")}, authPath: {"type": orNull("string")}, authNumber: {"type": orNull("integer")}, authBool: {"type": orNull("boolean")},
		authList:  {"type": orNull("array"), "items": object{"type": "string"}},
		authPairs: {"type": orNull("object"), "additionalProperties": object{"type": "string"}},
	}
	keys := object{}
	for _, set := range authSettings {
		one := maps.Clone(types[set.kind])
		one["description"] = schemaText(set.doc)
		keys[set.key] = one
	}
	auth := closed(orNull("object"), keys)
	auth["description"] = "How to sign in to the server."
	return auth
}

// Every key of "auth" stands in the manual, with its flag and what it means.
func TestManualHasAuth(t *testing.T) {
	data, err := os.ReadFile(manualFile)
	bridgetest.Must(t, err)
	for _, set := range authSettings {
		flag := " `--" + set.flag + "`"
		if set.flag == AuthSecret || set.flag == AuthIDPSecret {
			flag = ""
		}
		if row := "| `" + set.key + "` |" + flag + " | " + set.doc + " |"; !strings.Contains(string(data), row+"\n") {
			t.Errorf("%s has no row %s", manualFile, row)
		}
	}
}

// serverProperties are the keys of a server that the bridge reads.
func serverProperties() object {
	text, texts := orNull("string"), object{"type": "string"}
	about := map[string]object{
		"command":     {"description": "The program to run. No shell is used.", "type": text},
		"args":        {"description": "Its arguments.", "type": orNull("array"), "items": texts},
		"env":         {"description": "Variables of its environment.", "type": orNull("object"), "additionalProperties": object{"type": []string{"string", "number", "null"}}},
		"envFile":     {"description": "A file of variables, NAME=VALUE a line.", "type": text},
		"cwd":         {"description": "Its working directory.", "type": text},
		"url":         {"description": "The server to connect to: http, https, ws, wss, unix:PATH or tcp:HOST:PORT.", "type": text},
		"headers":     {"description": "Headers of each request.", "type": orNull("object"), "additionalProperties": object{"type": text}},
		"type":        {"description": "stdio, http (streamable-http), sse or ws.", "type": text},
		"disabled":    {"description": "Leave the server out.", "type": orNull("boolean")},
		"description": {"description": "What the server is for.", "type": text},
	}
	all := object{bridgeKey: object{"description": "The bridge's own settings of this server.", "$ref": "#/$defs/own"}}
	for key, meaning := range keyAliases {
		all[key] = about[meaning]
		if key == meaning {
			continue
		}
		same := maps.Clone(about[meaning])
		same["description"] = fmt.Sprintf("The same as %s.", meaning)
		if meaning == "disabled" {
			same["description"] = "The opposite of disabled."
		}
		all[key] = same
	}
	return all
}

// schema returns what a value of a setting must be.
func (set setting) schema() object {
	text := schemaText(set.doc)
	if set.flag != "" {
		text += " (--" + set.flag + ")"
	}
	s := object{"description": text}
	var none Settings
	switch set.fieldOf(&none).(type) {
	case *string:
		if s["enum"] = set.values; set.values == nil { // passEnv
			delete(s, "enum")
			s["anyOf"] = []any{object{"type": "string"}, object{"type": "array", "items": object{"type": "string"}}}
		}
	case *int:
		if set.read != nil { // maxMessageSize
			s["anyOf"] = []any{object{"type": "integer", "minimum": 1}, object{"type": "string", "pattern": "^ *[0-9]+ *([KMG]iB)? *$"}}
			break
		}
		s["type"], s["minimum"] = "integer", set.min
	case *bool:
		s["type"] = "boolean"
	case *[]string:
		s["type"], s["items"] = "array", object{"type": "string", "minLength": 1}
	default:
		s["$ref"] = "#/$defs/duration"
	}
	return s
}

// schemaText is what the manual says, as a sentence without code quotes.
func schemaText(doc string) string {
	doc = strings.ReplaceAll(doc, "`", "")
	return strings.ToUpper(doc[:1]) + doc[1:]
}
