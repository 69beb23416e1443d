package demo

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
)

// allTools are the demo's own tools. The most useful come first, for clients that show one page.
var allTools = sync.OnceValue(func() []*Tool {
	return []*Tool{
		{
			Name: "echo", Title: "Echo",
			Description: "Returns the message, spelled exactly as it was sent (the same escapes, and for value the same digits). " +
				"Shows what a bridge or a client does to text and numbers on the way.",
			Input: objectSchema(props{
				"message": stringSchema("Any text."),
				"value":   {Description: "Any JSON value, for instance 9007199254740993 or 1e400. Optional."},
			}, "message"),
			Output: outputSchema(props{
				"message": stringSchema("The message."),
				"value":   {Description: "The value, if there was one."},
			}, "message"),
			Annotations: readOnlyTool, Run: Typed(echo),
		},
		{
			Name: "add", Title: "Add",
			Description: "Adds two numbers. Has an output schema, and answers with structured content.",
			Input:       objectSchema(props{"a": numberSchema("First number."), "b": numberSchema("Second number.")}, "a", "b"),
			Output:      outputSchema(props{"sum": numberSchema("a + b.")}, "sum"),
			Annotations: readOnlyTool, Run: Typed(add),
		},
		{
			Name: "slow", Title: "Slow work",
			Description: "Takes its time. Reports progress after every step, with a message, to a client that sent a progress token. Can be cancelled.",
			Input: objectSchema(props{
				"steps":   integerSchema("Into how many steps the work is divided.", 1, 1000, 5),
				"seconds": numberSchema("How long all of it takes.").withRange(0, 3600).withDefault(5),
			}),
			Annotations: readOnlyTool, Run: Typed(slow),
		},
		{
			Name: "log", Title: "Log",
			Description: "Sends a log message (notifications/message). What is less severe than the level of logging/setLevel (at first: info) is not sent.",
			Input: objectSchema(props{
				"level":   enumSchema("How severe it is.", "info", era.LogLevels...),
				"message": stringSchema("What the log says.").withDefault("hello from the demo server"),
				"logger":  stringSchema("The name of the logger.").withDefault("demo"),
			}),
			Annotations: changesServer, Run: Typed(logMessage),
		},
		{
			Name: "elicit", Title: "Ask the user",
			Description: "Asks the user to fill in a small form (elicitation/create), and tells what came back. The client must have the capability elicitation.",
			Input:       objectSchema(props{"message": stringSchema("What the user is told.").withDefault("The demo server would like to know a few things.")}),
			Annotations: asksClient, Run: Typed(elicit),
		},
		{
			Name: "sample", Title: "Ask the client's model",
			Description: "Asks the model of the client to write something (sampling/createMessage), and returns it. The client must have the capability sampling.",
			Input: objectSchema(props{
				"prompt":    stringSchema("What the model is asked.").withDefault("Say hello in five words."),
				"maxTokens": integerSchema("How long the answer may be.", 1, 100_000, 100),
			}),
			Annotations: asksClient, Run: Typed(sample),
		},
		{
			Name: "roots", Title: "List the client's roots",
			Description: "Asks the client for its roots (roots/list), and returns them. The client must have the capability roots.",
			Input:       objectSchema(nil),
			Annotations: asksClient, Run: Typed(listRoots),
		},
		{
			Name: "session", Title: "Session",
			Description: "Tells what this server knows about the client: the revision agreed on, the client's name and capabilities, and the _meta of this very call. " +
				"Shows what a bridge makes of them.",
			Input: objectSchema(nil),
			Output: outputSchema(props{
				"protocolVersion": stringSchema("The protocol revision of this session."),
				"clientInfo":      {Type: "object", Description: "As the client sent it."},
				"capabilities":    {Type: "object", Description: "As the client sent them."},
				"meta":            {Description: "The _meta of this call, if it has one."},
			}, "protocolVersion"),
			Annotations: readOnlyTool, Run: Typed(showSession),
		},
		{
			Name: "fail", Title: "Fail",
			Description: "Fails the way a tool does: with a result that has isError, for the model to read.",
			Input:       objectSchema(props{"message": stringSchema("Why it failed.").withDefault("this tool always fails")}),
			Annotations: readOnlyTool, Run: Typed(fail),
		},
		{
			Name: "notify", Title: "Notify",
			Description: "Sends a notification that something changed, although nothing did: a list, or (kind resource) one subscribed resource.",
			Input: objectSchema(props{
				"kind": enumSchema("What to say has changed.", "tools", "tools", "prompts", "resources", "resource"),
				"uri":  stringSchema("The resource, for kind resource. Nothing is sent unless the client subscribed to it.").withDefault("demo://item/1"),
			}),
			Annotations: changesServer, Run: Typed(notifyChange),
		},
		{
			Name: "crash", Title: "Crash",
			Description: "Ends the server's process at once, without an answer. Shows what becomes of a client, and of other sessions, when a server dies.",
			Input: objectSchema(props{
				"status":  integerSchema("The exit status.", 0, 255, 1),
				"message": stringSchema("The last words, on stderr.").withDefault("demo: crashing, as was asked for"),
			}),
			Annotations: endsServer, Run: Typed(crash),
		},
	}
})

// elicitForm is the schema of the form in which the tool "elicit" asks the user: it has one field of each kind.
var elicitForm = sync.OnceValue(func() *schema {
	return outputSchema(props{
		"name":   {Type: "string", Title: "Name", Description: "What shall we call you?"},
		"email":  {Type: "string", Title: "E-mail", Format: "email"},
		"color":  {Type: "string", Title: "Favourite colour", Enum: []string{"r", "g", "b"}, EnumNames: []string{"Red", "Green", "Blue"}},
		"age":    schema{Type: "integer", Title: "Age"}.withRange(0, 150),
		"coffee": {Type: "boolean", Title: "Coffee?", Default: true},
	}, "name")
})

// echoArgs are the arguments of the tool "echo", and its structured result. They are kept as the client has spelled them.
type echoArgs struct {
	Message json.RawMessage `json:"message"`         // a string
	Value   json.RawMessage `json:"value,omitempty"` // any JSON value; nil: not given
}

// echo is the tool "echo": it returns its arguments as the client has spelled them.
func echo(_ *Call, a echoArgs) (*Result, error) {
	return &Result{Content: []Content{Text(a.Message)}, Structured: a}, nil
}

// add is the tool "add": it returns the sum of A and B, as structured content.
func add(_ *Call, a struct{ A, B float64 }) (*Result, error) {
	return Structured(map[string]float64{"sum": a.A + a.B})
}

// slow is the tool "slow": it takes Seconds in all, reports progress after each of its Steps, and ends early when it is cancelled.
func slow(c *Call, a struct {
	Steps   int
	Seconds float64
}) (*Result, error) {
	pause := time.Duration(a.Seconds * float64(time.Second) / float64(a.Steps))
	for i := 1; i <= a.Steps; i++ {
		if err := c.Wait(pause); err != nil {
			return nil, err
		}
		c.Progress(i, a.Steps, fmt.Sprintf("step %d of %d done", i, a.Steps))
	}
	return Textf("done: %d steps in %g seconds", a.Steps, a.Seconds), nil
}

// logMessage is the tool "log": it sends a log message if the client wants its level, and says whether it did.
func logMessage(c *Call, a struct{ Level, Message, Logger string }) (*Result, error) {
	if c.Log(a.Level, a.Logger, a.Message) {
		return Textf("sent"), nil
	}
	if era.IsModern(c.request.client().Revision) {
		return Textf("not sent: the request has no %s that takes it", era.KeyLogLevel), nil
	}
	return Textf("not sent: the client asked for more severe messages only"), nil
}

// elicit is the tool "elicit": it asks the user to fill in elicitForm, and returns what came back. If the client cannot
// ask the user, the call fails.
func elicit(c *Call, a struct{ Message string }) (*Result, error) {
	return askAndShow(c, "the user's answer", Elicit("form", a.Message, elicitForm()))
}

// sample is the tool "sample": it asks the client's model to answer Prompt, and returns what came back.
func sample(c *Call, a struct {
	Prompt    string
	MaxTokens int
}) (*Result, error) {
	return askAndShow(c, "the model's answer", Sample("model", a.Prompt, "You are helping to try out an MCP server.", a.MaxTokens))
}

// listRoots is the tool "roots": it asks the client for its roots, and returns them.
func listRoots(c *Call, _ struct{}) (*Result, error) {
	return askAndShow(c, "the client's roots", Roots("roots"))
}

// askAndShow asks the client a question, and returns a text with the answer as it was sent. what stands in front of the answer, such as
// "the user's answer".
func askAndShow(c *Call, what string, q Question) (*Result, error) {
	answers, err := c.Ask(q)
	if err != nil {
		return nil, err
	}
	return Textf("%s: %s", what, answers[0]), nil
}

// showSession is the tool "session": it returns what this server knows about the client, and the _meta of the call.
func showSession(c *Call, _ struct{}) (*Result, error) {
	return Structured(struct {
		clientInfo
		Meta json.RawMessage `json:"meta,omitempty"`
	}{c.request.client(), c.meta})
}

// fail is the tool "fail": its result has isError, with Message as its text.
func fail(_ *Call, a struct{ Message string }) (*Result, error) { return Failure(a.Message), nil }

// notifyChange is the tool "notify": it notifies the client that a list (Kind) or the resource URI has changed, although nothing has, and says
// whether anybody listens.
func notifyChange(c *Call, a struct{ Kind, URI string }) (*Result, error) {
	switch {
	case a.Kind != "resource" && !c.NotifyListChanged(a.Kind):
		return Textf("not sent: the client does not listen for it"), nil
	case a.Kind == "resource" && !c.notifyUpdated(a.URI):
		return Textf("not sent: the client has not subscribed to this resource"), nil
	}
	return Textf("sent"), nil
}

// crash is the tool "crash": it writes Message to Server.Stderr and ends the process with Status, without an answer. Without
// Server.Exit it only reports an error.
func crash(c *Call, a struct {
	Status  int
	Message string
}) (*Result, error) {
	srv := c.s.srv
	if srv.Exit == nil {
		return Failure("not here: this server has no process of its own"), nil
	}
	if srv.Stderr != nil {
		fmt.Fprintln(srv.Stderr, a.Message)
	}
	srv.Exit(a.Status)
	<-c.ctx.Done() // an Exit that returns, in a test, does not make this call answered
	return nil, c.ctx.Err()
}
