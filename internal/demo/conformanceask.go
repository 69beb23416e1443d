package demo

import (
	"encoding/json"
	"fmt"
)

// Those of the suite's tools, and the prompt, that ask the client for something.

// field is a form with one required field.
func field(name, kind string) *schema {
	return output(props{name: {Type: kind}}, name)
}

func elicits(key, message string, form any) question {
	return question{key: key, method: "elicitation/create", params: elicitation{message, form}}
}

func samples(key, prompt string, maxTokens int) question {
	return question{key: key, method: "sampling/createMessage", params: sampling{
		Messages: []promptMessage{says("user", prompt)}, MaxTokens: maxTokens,
	}}
}

func lists(key string) question {
	return question{key: key, method: "roots/list", params: struct{}{}}
}

// alone makes a question whose answer needs no requestState.
func alone(q question) question {
	q.stateless = true
	return q
}

// capabilityOf names what a client must have for a question.
func capabilityOf(q question) (capability, part string) {
	switch q.method {
	case "elicitation/create":
		return "elicitation", "form"
	case "sampling/createMessage":
		return "sampling", ""
	}
	return "roots", ""
}

// asking makes a tool without arguments that asks these questions at once and
// tells the answers.
func asking(name, description, says string, questions ...question) *tool {
	t := plainTest(name, description, func(c *call) (*toolResult, error) { return askAndTell(c, says, questions...) })
	t.Annotations = asks
	return t
}

func askAndTell(c *call, says string, questions ...question) (*toolResult, error) {
	for _, q := range questions {
		if err := c.needs(capabilityOf(q)); err != nil {
			return nil, err
		}
	}
	answers, err := c.askAll(questions...)
	if err != nil {
		return unanswered(err)
	}
	r := textResult("%s", says)
	for i, q := range questions {
		r.Content = append(r.Content, text(fmt.Sprintf("%s: %s", q.key, answers[i])))
	}
	return r, nil
}

var (
	userName = elicits("user_name", "What is your name?", field("name", "string"))
	confirm  = elicits("confirm", "Please confirm", field("ok", "boolean"))
)

var conformanceAsking = []*tool{
	asking("test_input_required_result_elicitation", "asks for a name.", "Hello!", alone(userName)),
	asking("test_input_required_result_sampling", "asks the model a question.", "The model has answered.",
		alone(samples("capital_question", "What is the capital of France?", 100))),
	asking("test_input_required_result_list_roots", "asks for the roots.", "The roots are known.", alone(lists("client_roots"))),
	asking("test_input_required_result_request_state", "asks for a confirmation, with a requestState.", "state-ok", confirm),
	asking("test_input_required_result_tampered_state", "asks for a confirmation, with a requestState that it checks.", "state-ok", confirm),
	asking("test_input_required_result_multiple_inputs", "asks three things at once.", "All three are answered.",
		userName, samples("greeting", "Generate a greeting", 50), lists("client_roots")),
	plainTest("test_input_required_result_multi_round", "asks one thing after another.", func(c *call) (*toolResult, error) {
		if r, err := askAndTell(c, "", elicits("step1", "Step 1: What is your name?", field("name", "string"))); err != nil || r.IsError {
			return r, err
		}
		return askAndTell(c, "Both steps are done.", elicits("step2", "Step 2: What is your favorite color?", field("color", "string")))
	}),
	plainTest("test_input_required_result_capabilities", "asks what the client can answer.", askWhatCanBe),
	asking("test_missing_capability", "cannot do without sampling.", "The model has answered.", samples("sample", "Say hello.", 10)),
	asking("test_streaming_elicitation", "asks for a confirmation.", "confirmed", confirm),
	asking("test_elicitation_sep1034_defaults", "asks with a form that has defaults.", "Elicitation completed",
		elicits("defaults", "Please review the values", json.RawMessage(defaultsForm))),
	asking("test_elicitation_sep1330_enums", "asks with a form of enumerations.", "Elicitation completed",
		elicits("enums", "Please choose", json.RawMessage(enumsForm))),
	{
		Name: "test_sampling", Title: "test_sampling", Description: "Conformance: asks the client's model what it is told to.",
		Input:       object(props{"prompt": str("The prompt to send to the LLM")}, "prompt"),
		Annotations: asks, run: typed(func(c *call, a struct{ Prompt string }) (*toolResult, error) {
			return askAndTell(c, "LLM response:", samples("llm", a.Prompt, 100))
		}),
	},
	{
		Name: "test_elicitation", Title: "test_elicitation", Description: "Conformance: asks the user for a name and an address.",
		Input:       object(props{"message": str("The message to show the user")}, "message"),
		Annotations: asks, run: typed(func(c *call, a struct{ Message string }) (*toolResult, error) {
			return askAndTell(c, "User response:", elicits("user", a.Message, userForm))
		}),
	},
}

var userForm = output(props{
	"username": str("User's response"),
	"email":    str("User's email address"),
}, "username", "email")

const defaultsForm = `{"type":"object","properties":{` +
	`"name":{"type":"string","default":"John Doe"},` +
	`"age":{"type":"integer","default":30},` +
	`"score":{"type":"number","default":95.5},` +
	`"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},` +
	`"verified":{"type":"boolean","default":true}},"required":[]}`

const enumsForm = `{"type":"object","properties":{` +
	`"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},` +
	`"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},` +
	`"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},` +
	`"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},` +
	`"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}},` +
	`"required":[]}`

// askWhatCanBe asks only what the client has declared that it can answer.
func askWhatCanBe(c *call) (*toolResult, error) {
	var questions []question
	for _, q := range []question{userName, samples("capital_question", "What is the capital of France?", 100), lists("client_roots")} {
		if c.needs(capabilityOf(q)) == nil {
			questions = append(questions, q)
		}
	}
	return askAndTell(c, fmt.Sprintf("asked %d things", len(questions)), questions...)
}

var askingPrompt = &prompt{
	Name: "test_input_required_result_prompt", Title: "test_input_required_result_prompt",
	Description: "Conformance: a prompt that asks the user first.",
	ask: func(c *call) ([]promptMessage, error) {
		words, err := askForText(c, alone(elicits("user_context", "What context should the prompt use?", field("context", "string"))))
		return []promptMessage{says("user", "Use this context: "+words)}, err
	},
}

// resourceJob returns the job of a resources/read that asks the client; nil for others.
func (s *session) resourceJob(params []byte) (job, error) {
	uri, err := uriOf(params)
	if err != nil || uri != askingURI || !s.srv.Conformance {
		return nil, err
	}
	return func(c *call) (any, error) {
		words, err := askForText(c, elicits("text", "What does this resource say?", field("text", "string")))
		r := contents{URI: uri, MimeType: "text/plain"}
		r.setText(words)
		return readResult{[]contents{r}}, err
	}, nil
}

// askForText asks one thing and returns the answer as it came.
func askForText(c *call, q question) (string, error) {
	if err := c.needs(capabilityOf(q)); err != nil {
		return "", err
	}
	answer, err := c.ask(q)
	return string(answer), err
}
