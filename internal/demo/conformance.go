package demo

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// What the official conformance suite asks a server for by name
// (Server.Conformance). Texts and names are those that its scenarios tell.

const (
	staticTextURI = "test://static-text"
	staticBlobURI = "test://static-binary"
	watchedURI    = "test://watched-resource"
	askingURI     = "test://input-required" // ours: a resource that asks first

	mixedURI    = "test://mixed-content-resource"
	embeddedURI = "test://embedded-resource"
)

// plainTest makes a tool without arguments.
func plainTest(name, description string, run func(c *call) (*toolResult, error)) *tool {
	return &tool{
		Name: name, Title: name, Description: "Conformance: " + description,
		Input: object(nil), Annotations: readOnly,
		run: func(c *call, _ json.RawMessage) (*toolResult, error) { return run(c) },
	}
}

// shows makes a tool that returns always the same.
func shows(name, description string, blocks ...content) *tool {
	return plainTest(name, description, func(*call) (*toolResult, error) { return &toolResult{Content: blocks}, nil })
}

var (
	testImage = content{Type: "image", Data: base64.StdEncoding.EncodeToString(logo), MimeType: "image/png"}
	testSound = content{Type: "audio", Data: base64.StdEncoding.EncodeToString(tone), MimeType: "audio/wav"}
)

func embedded(uri, mimeType, words string) content {
	c := &contents{URI: uri, MimeType: mimeType}
	c.setText(words)
	return content{Type: "resource", Resource: c}
}

var conformanceTools = append([]*tool{
	shows("test_simple_text", "returns a text.", text("This is a simple text response for testing.")),
	shows("test_image_content", "returns an image.", testImage),
	shows("test_audio_content", "returns a sound.", testSound),
	shows("test_embedded_resource", "returns an embedded resource.",
		embedded(embeddedURI, "text/plain", "This is an embedded resource content.")),
	shows("test_multiple_content_types", "returns a text, an image and a resource.",
		text("Multiple content types test:"), testImage, embedded(mixedURI, "application/json", `{"test":"data","value":123}`)),
	plainTest("test_error_handling", "fails always.", func(*call) (*toolResult, error) {
		return failure("This tool intentionally returns an error for testing"), nil
	}),
	plainTest("test_tool_with_logging", "logs three messages.", testLogging),
	plainTest("test_logging_tool", "logs a message.", func(c *call) (*toolResult, error) {
		c.log(levelInfo, "test", "Logging tool was called")
		return textResult("logged"), nil
	}),
	plainTest("test_tool_with_progress", "reports progress three times.", testProgress),
	plainTest("test_reconnection", "takes a while, in which the stream may be closed.", func(c *call) (*toolResult, error) {
		if err := c.wait(time.Second); err != nil {
			return nil, err
		}
		return textResult("Reconnection test completed"), nil
	}),
	plainTest("test_trigger_tool_change", "changes the list of tools.", func(c *call) (*toolResult, error) {
		return toggle(c, struct{}{})
	}),
	plainTest("test_trigger_prompt_change", "changes the list of prompts.", togglePrompt),
	{
		Name: "json_schema_2020_12_tool", Title: "JSON Schema 2020-12",
		Description: "Conformance: has a schema with many words of JSON Schema 2020-12, and returns its arguments.",
		Input:       &schema{Type: "object", raw: schema2020},
		Annotations: readOnly, run: func(_ *call, raw json.RawMessage) (*toolResult, error) { return structured(raw) },
	},
}, conformanceAsking...)

// schema2020 is the schema that the suite wants to see again, word for word.
const schema2020 = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",` +
	`"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},` +
	`"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},` +
	`"phone":{"type":"string"},"email":{"type":"string"}},` +
	`"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],` +
	`"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},` +
	`"then":{"required":["phone"]},"else":{"required":["email"]},"additionalProperties":false}`

func testLogging(c *call) (*toolResult, error) {
	for i, words := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
		if i > 0 {
			if err := c.wait(50 * time.Millisecond); err != nil {
				return nil, err
			}
		}
		c.log(levelInfo, "test", words)
	}
	return textResult("Tool with logging executed"), nil
}

func testProgress(c *call) (*toolResult, error) {
	for done := 0; done <= 100; done += 50 {
		if done > 0 {
			if err := c.wait(50 * time.Millisecond); err != nil {
				return nil, err
			}
		}
		c.progress(done, 100, "")
	}
	return textResult("Tool with progress executed"), nil
}

func togglePrompt(c *call) (*toolResult, error) {
	c.mu.Lock()
	c.extraPrompt = !c.extraPrompt
	c.mu.Unlock()
	c.changed("prompts")
	return textResult("the list of prompts has changed"), nil
}

// extraPrompt is there only after "test_trigger_prompt_change".
var extraPrompt = &prompt{
	Name: "extra", Title: "Extra", Description: "The prompt that test_trigger_prompt_change adds and takes away.",
	render: func(map[string]string) []promptMessage { return []promptMessage{says("user", "extra is here")} },
}

var conformancePrompts = []*prompt{
	{
		Name: "test_simple_prompt", Title: "test_simple_prompt", Description: "Conformance: a prompt without arguments.",
		render: func(map[string]string) []promptMessage {
			return []promptMessage{says("user", "This is a simple prompt for testing.")}
		},
	},
	{
		Name: "test_prompt_with_arguments", Title: "test_prompt_with_arguments", Description: "Conformance: a prompt with two arguments.",
		Arguments: []promptArgument{
			{"arg1", "arg1", "First test argument", true},
			{"arg2", "arg2", "Second test argument", true},
		},
		render: func(args map[string]string) []promptMessage {
			return []promptMessage{says("user", fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", args["arg1"], args["arg2"]))}
		},
		complete: func(_, prefix string, _ map[string]string) []string {
			return startingWith(prefix, []string{"paris", "park", "party", "test"})
		},
	},
	{
		Name: "test_prompt_with_embedded_resource", Title: "test_prompt_with_embedded_resource",
		Description: "Conformance: a prompt that embeds a resource.",
		Arguments:   []promptArgument{{"resourceUri", "resourceUri", "URI of the resource to embed", true}},
		render: func(args map[string]string) []promptMessage {
			return []promptMessage{
				{"user", embedded(args["resourceUri"], "text/plain", "Embedded resource content for testing.")},
				says("user", "Please process the embedded resource above."),
			}
		},
		complete: func(_, prefix string, _ map[string]string) []string {
			return startingWith(prefix, []string{staticTextURI, staticBlobURI})
		},
	},
	{
		Name: "test_prompt_with_image", Title: "test_prompt_with_image", Description: "Conformance: a prompt with an image.",
		render: func(map[string]string) []promptMessage {
			return []promptMessage{{"user", testImage}, says("user", "Please analyze the image above.")}
		},
	},
	askingPrompt,
}

var conformanceResources = []resource{
	{URI: staticTextURI, Name: "static-text", Title: "Static text", Description: "Conformance: a text.", MimeType: "text/plain"},
	{URI: staticBlobURI, Name: "static-binary", Title: "Static binary", Description: "Conformance: an image.", MimeType: "image/png"},
	{URI: watchedURI, Name: "watched-resource", Title: "Watched resource", Description: "Conformance: a text to subscribe to.", MimeType: "text/plain"},
	{URI: askingURI, Name: "input-required", Title: "Input required", Description: "A text that the user is asked for.", MimeType: "text/plain"},
}

var conformanceTemplate = template{
	URITemplate: "test://template/{id}/data", Name: "template", Title: "Template", Description: "Conformance: a template.", MimeType: "application/json",
}

// conformanceRead is read for these resources.
func conformanceRead(uri string) *contents {
	c := &contents{URI: uri, MimeType: "text/plain"}
	switch uri {
	case staticTextURI:
		c.setText("This is the content of the static text resource.")
	case staticBlobURI:
		c.MimeType, c.Blob = testImage.MimeType, testImage.Data
	case watchedURI:
		c.setText("This is the content of the watched resource.")
	case askingURI:
		c.setText("") // the text is asked for, see resourceJob
	default:
		id, ok := strings.CutPrefix(uri, "test://template/")
		id, data := strings.CutSuffix(id, "/data")
		if !ok || !data || id == "" {
			return nil
		}
		words, _ := encode(struct {
			ID   string `json:"id"`
			Test bool   `json:"templateTest"`
			Data string `json:"data"`
		}{id, true, "Data for ID: " + id})
		c.MimeType = "application/json"
		c.setText(string(words))
	}
	return c
}
