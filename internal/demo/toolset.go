package demo

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Limits of what a client may ask for.
const (
	maxBig   = 100 << 20
	maxCount = 1_000_000
)

// allTools is the table of tools. The most useful come first, for clients that show one page.
var allTools = []*tool{
	{
		Name: "echo", Title: "Echo",
		Description: "Returns the message, spelled exactly as it was sent (the same escapes, and for value the same digits). " +
			"Shows what a bridge or a client does to text and numbers on the way.",
		Input: object(props{
			"message": str("Any text."),
			"value":   {Description: "Any JSON value, for instance 9007199254740993 or 1e400. Optional."},
		}, "message"),
		Output: output(props{
			"message": str("The message."),
			"value":   {Description: "The value, if there was one."},
		}, "message"),
		Annotations: readOnly, run: typed(echo),
	},
	{
		Name: "add", Title: "Add",
		Description: "Adds two numbers. Has an output schema, and answers with structured content.",
		Input:       object(props{"a": number("First number."), "b": number("Second number.")}, "a", "b"),
		Output:      output(props{"sum": number("a + b.")}, "sum"),
		Annotations: readOnly, run: typed(add),
	},
	{
		Name: "slow", Title: "Slow work",
		Description: "Takes its time. Reports progress after every step, with a message, to a client that sent a progress token. Can be cancelled.",
		Input: object(props{
			"steps":   integer("Into how many steps the work is divided.", 1, 1000, 5),
			"seconds": number("How long all of it takes.").between(0, 3600).or(5),
		}),
		Annotations: readOnly, run: typed(slow),
	},
	{
		Name: "count", Title: "Count fast",
		Description: "Sends n progress notifications as fast as it can, and the result right behind them. Shows whether all arrive, in order, before the result.",
		Input:       object(props{"n": integer("How many notifications.", 0, maxCount, 1000)}),
		Annotations: readOnly, run: typed(count),
	},
	{
		Name: "log", Title: "Log",
		Description: "Sends a log message (notifications/message). What is less severe than the level of logging/setLevel (at first: info) is not sent.",
		Input: object(props{
			"level":   choice("How severe it is.", "info", levels...),
			"message": str("What the log says.").or("hello from the demo server"),
			"logger":  str("The name of the logger.").or("demo"),
		}),
		Annotations: changes, run: typed(logMessage),
	},
	elicitTool, sampleTool, rootsTool, contentTool, sessionTool,
	{
		Name: "fail", Title: "Fail",
		Description: "Fails the way a tool does: with a result that has isError, for the model to read.",
		Input:       object(props{"message": str("Why it failed.").or("this tool always fails")}),
		Annotations: readOnly, run: typed(fail),
	},
	{
		Name: "error", Title: "JSON-RPC error",
		Description: "Fails the way a protocol does: with a JSON-RPC error response instead of a result.",
		Input: object(props{
			"code":    integer("The error code.", -2147483648, 2147483647, jsonrpc.CodeInternalError),
			"message": str("The error message.").or("this error was asked for"),
			"data":    {Description: "Any JSON value, returned as the error's data. Optional."},
		}),
		Annotations: readOnly, run: typed(rpcFailure),
	},
	elicitURLTool,
	{
		Name: "notify", Title: "Notify",
		Description: "Sends a notification that something changed, although nothing did: a list, or (kind resource) one subscribed resource.",
		Input: object(props{
			"kind": choice("What to say has changed.", "tools", "tools", "prompts", "resources", "resource"),
			"uri":  str("The resource, for kind resource. Nothing is sent unless the client subscribed to it.").or("demo://item/1"),
		}),
		Annotations: changes, run: typed(notifyChange),
	},
	{
		Name: "toggle", Title: "Toggle a tool",
		Description: "Adds the tool \"extra\" to the list of tools, or takes it away again, and tells the client so (notifications/tools/list_changed).",
		Input:       object(nil),
		Annotations: changes, run: typed(toggle),
	},
	headersTool, interviewTool,
	{
		Name: "big", Title: "Big result",
		Description: "Returns a text of exactly that many bytes.",
		Input:       object(props{"bytes": integer("How long the text is.", 0, maxBig, 1<<20)}),
		Annotations: readOnly, run: typed(big),
	},
	{
		Name: "env", Title: "Environment",
		Description: "Lists the names of the environment variables that this server sees; never their values. Shows what a bridge passes on.",
		Input:       object(nil),
		Output:      output(props{"names": {Type: "array", Items: &schema{Type: "string"}, Description: "Sorted."}}, "names"),
		Annotations: readOnly, run: typed(env),
	},
	{
		Name: "stderr", Title: "Write to stderr",
		Description: "Writes lines to this server's stderr, where logs belong. They must not show up among the messages.",
		Input: object(props{
			"line":  str("What each line says.").or("a line on stderr"),
			"lines": integer("How many lines.", 1, maxCount, 1),
		}),
		Annotations: changes, run: typed(writeStderr),
	},
	{
		Name: "crash", Title: "Crash",
		Description: "Ends the server's process at once, without an answer. Shows what becomes of a client, and of other sessions, when a server dies.",
		Input: object(props{
			"status":  integer("The exit status.", 0, 255, 1),
			"message": str("The last words, on stderr.").or("demo: crashing, as was asked for"),
		}),
		Annotations: destroys, run: typed(crash),
	},
}

// extraTool is there only after "toggle".
var extraTool = &tool{
	Name: "extra", Title: "Extra",
	Description: "The tool that \"toggle\" adds and takes away. Does nothing.",
	Input:       object(nil),
	Annotations: readOnly, run: typed(func(*call, struct{}) (*toolResult, error) { return textResult("extra is here"), nil }),
}

type echoArgs struct {
	Message json.RawMessage `json:"message"`
	Value   json.RawMessage `json:"value,omitempty"`
}

func echo(c *call, a echoArgs) (*toolResult, error) {
	return &toolResult{Content: []content{text(a.Message)}, Structured: a}, nil
}

func add(c *call, a struct{ A, B float64 }) (*toolResult, error) {
	return structured(map[string]float64{"sum": a.A + a.B})
}

func slow(c *call, a struct {
	Steps   int
	Seconds float64
}) (*toolResult, error) {
	pause := time.Duration(a.Seconds * float64(time.Second) / float64(a.Steps))
	for i := 1; i <= a.Steps; i++ {
		if err := c.wait(pause); err != nil {
			return nil, err
		}
		c.progress(i, a.Steps, fmt.Sprintf("step %d of %d done", i, a.Steps))
	}
	return textResult("done: %d steps in %g seconds", a.Steps, a.Seconds), nil
}

// wait waits, unless the call ends before.
func (c *call) wait(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

func count(c *call, a struct{ N int }) (*toolResult, error) {
	if c.token.IsZero() {
		return textResult("sent nothing: the request has no progressToken"), nil
	}
	for i := 1; i <= a.N; i++ {
		if err := c.ctx.Err(); err != nil {
			return nil, err
		}
		c.progress(i, a.N, "")
	}
	return textResult("sent %d progress notifications", a.N), nil
}

func logMessage(c *call, a struct{ Level, Message, Logger string }) (*toolResult, error) {
	if !c.log(levelIndex(a.Level), a.Logger, a.Message) {
		if era.IsModern(c.client().Revision) {
			return textResult("not sent: the request has no %s that takes it", era.KeyLogLevel), nil
		}
		return textResult("not sent: the client asked for more severe messages only"), nil
	}
	return textResult("sent"), nil
}

func fail(c *call, a struct{ Message string }) (*toolResult, error) {
	return failure("%s", a.Message), nil
}

func rpcFailure(c *call, a struct {
	Code    int
	Message string
	Data    json.RawMessage
}) (*toolResult, error) {
	err := &rpcError{code: a.Code, message: a.Message}
	if a.Data != nil {
		err.data = a.Data
	}
	return nil, err
}

func notifyChange(c *call, a struct{ Kind, URI string }) (*toolResult, error) {
	if a.Kind != "resource" {
		if !c.changed(a.Kind) {
			return textResult("not sent: the client does not listen for it"), nil
		}
		return textResult("sent"), nil
	}
	if !c.updated(a.URI) {
		return textResult("not sent: the client has not subscribed to this resource"), nil
	}
	return textResult("sent"), nil
}

func toggle(c *call, _ struct{}) (*toolResult, error) {
	c.mu.Lock()
	c.extra = !c.extra
	there := c.extra
	c.mu.Unlock()
	c.changed("tools")
	if there {
		return textResult("the tool extra is there now"), nil
	}
	return textResult("the tool extra is gone"), nil
}

func big(c *call, a struct{ Bytes int }) (*toolResult, error) {
	const line = "0123456789abcdef"
	t := strings.Repeat(line, a.Bytes/len(line)+1)
	return &toolResult{Content: []content{text(t[:a.Bytes])}}, nil
}

func env(c *call, _ struct{}) (*toolResult, error) {
	names := []string{}
	for _, kv := range c.srv.environ() {
		name, _, _ := strings.Cut(kv, "=")
		if name != "" { // Windows has some that begin with "="
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return structured(map[string]any{"names": names})
}

func writeStderr(c *call, a struct {
	Line  string
	Lines int
}) (*toolResult, error) {
	for range a.Lines {
		if err := c.ctx.Err(); err != nil {
			return nil, err
		}
		fmt.Fprintln(c.srv.stderr(), a.Line)
	}
	return textResult("wrote %d lines to stderr", a.Lines), nil
}

func crash(c *call, a struct {
	Status  int
	Message string
}) (*toolResult, error) {
	if c.srv.Exit == nil {
		return failure("not here: this server has no process of its own"), nil
	}
	fmt.Fprintln(c.srv.stderr(), a.Message)
	c.srv.Exit(a.Status)
	<-c.ctx.Done() // an Exit that returns, in a test, does not make this call answered
	return nil, c.ctx.Err()
}
