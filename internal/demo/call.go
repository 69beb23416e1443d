package demo

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// face is one request as its era shows it to a tool: who the client is, how it
// is asked for something, which log messages it takes, and how it is answered.
// There are two: legacyFace and modernFace.
type face interface {
	// client is what the client told about itself.
	client() clientInfo

	// ask returns the client's answers to the questions, in their order. An
	// *askError says that it does not answer; any other error ends the job.
	ask(ctx context.Context, questions []question) ([]json.RawMessage, error)

	// pause ends this round of a modern request, without a question, unless it
	// did so before: an error that ends the job. Legacy requests have one round.
	pause(name string) error

	// logs reports whether the request takes log messages of that level.
	logs(level int) bool

	// reply answers the request.
	reply(result any, err error)
}

// question is something that only the client can answer.
//
// In a modern request the job runs from its beginning in every round, with the
// answers that are known by then. So before its last question it must do nothing
// that counts, and ask the same questions under the same keys.
type question struct {
	key    string // names it among the questions of a request
	method string
	params any

	// stateless: an answer is taken without a requestState, and none is given out.
	stateless bool
}

// askError is why a question has no answer: a result for the model to read.
type askError struct{ message string }

func (e *askError) Error() string { return e.message }

// lacking is an error: the client has not declared what a job cannot do without.
type lacking struct{ capability, part string }

func (e *lacking) Error() string {
	name := e.capability
	if e.part != "" && e.part != "form" { // forms are what elicitation means by itself
		name += "." + e.part
	}
	return "the client has not declared the capability " + name
}

// needs returns a *lacking error if the client cannot do something.
func (c *call) needs(capability, part string) error {
	client := c.client()
	ok := client.can(capability, part)
	if part == "form" {
		// An empty elicitation capability means forms; with parts, forms must be among them.
		ok = client.can(capability, "") && (ok || !client.can(capability, "url"))
	}
	if !ok {
		return &lacking{capability, part}
	}
	return nil
}

// job answers one request, in a goroutine of its own.
type job func(c *call) (any, error)

// job returns what a request is to do that can take long or asks the client;
// nil if handle answers it.
func (s *session) job(m jsonrpc.Message, client clientInfo) (job, error) {
	switch m.Method() {
	case "tools/call":
		return s.toolCall(m.Params(), client)
	case "prompts/get":
		return s.promptJob(m.Params())
	case "resources/read":
		return s.resourceJob(m.Params())
	}
	return nil, nil
}

// call is one job in progress.
type call struct {
	*session
	face
	ctx   context.Context // ends when the request is cancelled
	token jsonrpc.ID      // progress token, zero if the client wants no progress
	meta  json.RawMessage
}

// start runs the job of a request.
func (s *session) start(m jsonrpc.Message, f face, run job) {
	ctx, cancel := context.WithCancel(s.ctx)
	id := m.ID()
	if !s.put(id, cancel) {
		cancel()
		f.reply(nil, &rpcError{code: jsonrpc.CodeInternalError, message: fmt.Sprintf("more than %d calls in progress", maxCalls)})
		return
	}
	c := &call{session: s, face: f, ctx: ctx, token: m.ProgressToken(), meta: m.Lookup("params", "_meta")}
	s.running.Go(func() {
		result, err := run(c)
		if s.take(id) {
			f.reply(result, err)
		}
	})
}

// ask asks one thing.
func (c *call) ask(q question) (json.RawMessage, error) {
	answers, err := c.askAll(q)
	if err != nil {
		return nil, err
	}
	return answers[0], nil
}

// askAll asks several things at once.
func (c *call) askAll(questions ...question) ([]json.RawMessage, error) {
	return c.face.ask(c.ctx, questions)
}

// log sends a log message if the client wants it; it reports whether it did.
func (c *call) log(level int, logger string, data any) bool {
	if !c.logs(level) {
		return false
	}
	c.sendLog(level, logger, data)
	return true
}

// logs is the face's; the session has one, too.
func (c *call) logs(level int) bool { return c.face.logs(level) }
