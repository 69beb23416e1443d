package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// eraRequest is one request as its era shows it to a tool: who the client is, how it
// is asked for something, which log messages it takes, and how it is answered.
// There are two: legacyRequest and modernRequest.
type eraRequest interface {
	// client is what the client told about itself.
	client() clientInfo

	// ask returns the client's answers to the questions, in their order. A *toolError says
	// why a legacy client has not answered; an *inputRequired has the questions that a modern
	// client is to answer in the next round. Whatever the error, the call returns it.
	ask(ctx context.Context, questions []Question) ([]json.RawMessage, error)

	// wantsLog reports whether the request takes log messages of a level, an index of era.LogLevels.
	wantsLog(level int) bool

	// reply answers the request: with result, or with err if that is not nil.
	reply(result any, err error)
}

// toolError is an error that a model is meant to read: the answer to tools/call is a result with isError then.
type toolError struct {
	message string // what the model reads
}

// Error returns the message.
func (e *toolError) Error() string { return e.message }

// Question is something that only the client can answer: it becomes a request to a legacy client, and an entry of inputRequests to a
// modern one.
//
// In a modern request the function of the call (Tool.Run, say) runs from its beginning in every round, with the
// answers that are known by then. So before its last question it must change nothing,
// and it must ask the same questions under the same keys.
type Question struct {
	Key    string // tells the question from others of the same request
	Method string // elicitation/create with a form, sampling/createMessage or roots/list
	Params any    // the params of Method

	// Stateless says that a modern client gets no requestState with the question, and that its answer is taken without one.
	Stateless bool
}

// Elicit returns a question to the user: a form. schema may be any value whose JSON is a schema.
func Elicit(key, message string, schema any) Question {
	return Question{Key: key, Method: "elicitation/create", Params: struct {
		Message string `json:"message"`
		Schema  any    `json:"requestedSchema"`
	}{message, schema}}
}

// Sample returns a question to the client's model (sampling). system is the system prompt; "": none.
func Sample(key, prompt, system string, maxTokens int) Question {
	return Question{Key: key, Method: "sampling/createMessage", Params: struct {
		Messages     []Message `json:"messages"`
		SystemPrompt string    `json:"systemPrompt,omitempty"`
		MaxTokens    int       `json:"maxTokens"`
	}{[]Message{{"user", Text(prompt)}}, system, maxTokens}}
}

// Roots returns the question for the client's roots.
func Roots(key string) Question {
	return Question{Key: key, Method: "roots/list", Params: struct{}{}}
}

// missingCapability is the error that the client has not declared a capability that a question
// needs.
type missingCapability struct {
	capability string         // the name of the capability
	data       map[string]any // the data of the error response to a modern request
}

// Error returns a text that names the capability.
func (e *missingCapability) Error() string {
	return "the client has not declared the capability " + e.capability
}

// checkCapability returns a *missingCapability if the client has not declared the capability that the question needs; else nil.
func (q Question) checkCapability(client clientInfo) error {
	capability, subcapabilities, ok := "roots", map[string]any{}, true
	switch q.Method {
	case "elicitation/create":
		// An empty elicitation capability means forms; with parts, forms must be among them.
		capability, subcapabilities["form"] = "elicitation", struct{}{}
		ok = client.can(capability, "form") || !client.can(capability, "url")
	case "sampling/createMessage":
		capability = "sampling"
	}
	if ok && client.can(capability, "") {
		return nil
	}
	return &missingCapability{capability, map[string]any{"requiredCapabilities": map[string]any{capability: subcapabilities}}}
}

// Call is one request in progress that can take long or asks the client. It has a
// goroutine of its own.
type Call struct {
	s       *session        // the session that the request came in
	request eraRequest      // the request: it asks, logs and replies as its era does
	ctx     context.Context // done when the request is cancelled, or the session is over
	token   jsonrpc.ID      // the progress token; zero: the client wants no progress
	meta    json.RawMessage // the _meta of the request; nil: there is none
}

// start runs the job of a request in a goroutine, and replies with what that returns, unless the request is cancelled. If maxCalls are in
// progress, it replies with an error at once. It is called by one goroutine at a time.
func (s *session) start(m jsonrpc.Message, req eraRequest, job func(c *Call, params []byte) (any, error)) {
	id := m.ID()
	s.mu.Lock()
	many := len(s.calls) >= maxCalls
	s.mu.Unlock()
	if many {
		req.reply(nil, &rpcError{code: jsonrpc.CodeInternalError, message: fmt.Sprintf("more than %d calls in progress", maxCalls)})
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.mu.Lock()
	s.calls[id] = cancel
	s.mu.Unlock()
	c := &Call{s: s, request: req, ctx: ctx, token: m.ProgressToken(), meta: m.Lookup("params", "_meta")}
	s.jobs.Go(func() {
		result, err := job(c, m.Params())
		if s.takeCall(id) {
			req.reply(result, err)
		}
	})
}

// Can reports whether the client has declared that it can answer a question.
func (c *Call) Can(q Question) bool { return q.checkCapability(c.request.client()) == nil }

// Ask asks the client, and returns the answers in the order of the questions. It is an error if the client does not answer, or
// cannot. The caller returns an error as it is: in a modern request it may be how the questions reach the client.
func (c *Call) Ask(questions ...Question) ([]json.RawMessage, error) {
	for _, q := range questions {
		if err := q.checkCapability(c.request.client()); err != nil {
			return nil, err
		}
	}
	return c.request.ask(c.ctx, questions)
}

// Wait waits for d and returns nil. If the call is cancelled or the session ends before, it returns the error of the call's ctx.
func (c *Call) Wait(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// Log sends a log message if the client wants that level; it reports whether it did. level is one of era.LogLevels, logger the name of
// what logs, and data, which must be fit for JSON, what is said.
func (c *Call) Log(level, logger string, data any) bool {
	rank := slices.Index(era.LogLevels, level)
	if !c.request.wantsLog(rank) {
		return false
	}
	c.s.log(rank, logger, data)
	return true
}

// Progress reports that done of total are done, to a client that asked for progress, unless the call was cancelled. done must increase
// from one Progress to the next. message "": none.
func (c *Call) Progress(done, total int, message string) {
	if c.token.IsZero() || c.ctx.Err() != nil {
		return
	}
	c.s.notify("notifications/progress", struct {
		Token    json.RawMessage `json:"progressToken"`
		Progress int             `json:"progress"`
		Total    int             `json:"total"`
		Message  string          `json:"message,omitempty"`
	}{json.RawMessage(c.token.String()), done, total, message})
}

// NotifyListChanged tells the legacy session and the subscriptions that want to know it that a list ("tools", "prompts",
// "resources") has changed; it reports whether there are any.
func (c *Call) NotifyListChanged(kind string) bool {
	return c.s.publish("notifications/"+kind+"/list_changed", nil, func(l *listen) bool { return l.wantsList(kind) })
}

// notifyUpdated tells the legacy session and the subscriptions that have subscribed to a resource that it has changed; it reports
// whether there are any.
func (c *Call) notifyUpdated(uri string) bool {
	return c.s.publish("notifications/resources/updated", map[string]string{"uri": uri},
		func(l *listen) bool { return slices.Contains(l.URIs, uri) })
}
