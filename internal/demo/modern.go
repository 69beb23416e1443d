package demo

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// isModern reports whether a message is served by itself: it claims to be
// modern, or it is a request that only 2026-07-28 has, which then lacks what
// such a request needs (MI7).
func isModern(m jsonrpc.Message) bool {
	if m.Kind() == jsonrpc.Request && (m.Method() == "server/discover" || m.Method() == "subscriptions/listen") {
		return true
	}
	return era.IsModernMessage(m)
}

// modern serves one request of 2026-07-28. All that it may rely on is in the
// request itself (MI23).
func (s *session) modern(m jsonrpc.Message) {
	f := &modernFace{session: s, id: m.ID(), method: m.Method(), params: m.Params(), meta: era.MetaOf(m)}
	s.mu.Lock()
	used := s.used(f.id)
	s.mu.Unlock()
	if used {
		f.reply(nil, errIDInUse)
		return
	}
	if refusal := f.check(); refusal != nil {
		s.send(refusal.Response(f.id))
		return
	}
	switch {
	case f.method == "server/discover":
		f.reply(s.discover())
	case f.method == "subscriptions/listen":
		if err := s.listen(f.id, f.params); err != nil {
			f.reply(nil, err)
		}
	default:
		if err := f.readRetry(); err != nil {
			f.reply(nil, err)
			return
		}
		s.serve(m, f)
	}
}

// check finds what is wrong with the request before its method has a look at it.
func (f *modernFace) check() *era.Refusal {
	if refusal := f.meta.Check(era.Auto); refusal != nil {
		return refusal
	}
	served := f.method == "server/discover" || f.method == "subscriptions/listen" ||
		known[f.method] && !era.IsRemovedMethod(f.method)
	if !served {
		return era.NotFound(f.method)
	}
	return nil
}

func (s *session) discover() (any, error) {
	return struct {
		Versions     []string `json:"supportedVersions"`
		Capabilities any      `json:"capabilities"`
		Instructions string   `json:"instructions"`
	}{era.Auto.Versions(), capabilities, instructions}, nil
}

// modernFace is a request of 2026-07-28: it says itself who the client is, and
// when the client has to be asked it is answered with the questions
// (input_required), and comes again with the answers.
type modernFace struct {
	*session
	id     jsonrpc.ID
	method string
	params []byte
	meta   era.Meta

	state     state // of the rounds before this one
	responses map[string]json.RawMessage
}

func (f *modernFace) client() clientInfo {
	c := clientInfo{Revision: f.meta.Revision(), Info: f.meta.ClientInfo, Capabilities: map[string]json.RawMessage{}}
	for member := range jsonrpc.Members(f.meta.Capabilities) {
		c.Capabilities[member.Key] = member.Value
	}
	return c
}

// logs: without logLevel a request takes no log messages (MI18).
func (f *modernFace) logs(level int) bool {
	return f.meta.LogLevel != nil && level >= era.LogRank(f.meta.LogLevel)
}

// inputRequired is the error that ends a round in which something was asked.
type inputRequired struct {
	questions []question // none: only a pause
	state     string     // requestState; "" for none
}

func (e *inputRequired) Error() string { return "the client is to answer first" }

// readRetry takes what the client sends for the rounds before: a requestState
// that we have signed for this very request, and answers.
func (f *modernFace) readRetry() error {
	var p struct {
		State     *string         `json:"requestState"`
		Responses json.RawMessage `json:"inputResponses"`
	}
	if err := decode(f.params, &p); err != nil {
		return err
	}
	f.state = newState(f.method, f.params)
	if p.State != nil {
		st, ok := f.signer.open(*p.State, f.state)
		if !ok {
			return invalidParams("invalid or expired requestState")
		}
		f.state = st
	}
	if p.Responses == nil {
		return nil
	}
	if json.Unmarshal(p.Responses, &f.responses) != nil || f.responses == nil {
		return invalidParams("inputResponses must be an object")
	}
	return nil
}

// ask looks for the answers among those that came. What is missing is asked
// for, or again; what nobody asked for is ignored.
func (f *modernFace) ask(_ context.Context, questions []question) ([]json.RawMessage, error) {
	var answers []json.RawMessage
	var open []question
	stateless := false
	for _, q := range questions {
		stateless = stateless || q.stateless
		answer, known := f.state.Answers[q.key]
		if response, ok := f.responses[q.key]; ok && !known && (q.stateless || f.state.waits(q.key)) {
			if !fits(q.method, response) {
				return nil, invalidParams("the answer to " + q.key + " in inputResponses is none to " + q.method)
			}
			answer, known = response, true
			f.state.answer(q.key, response)
		}
		if !known {
			open = append(open, q)
		}
		answers = append(answers, answer)
	}
	switch {
	case len(open) == 0:
		return answers, nil
	case stateless: // nothing is remembered of what was answered
		return nil, &inputRequired{questions: questions}
	}
	f.state.Waiting = nil
	for _, q := range open {
		f.state.Waiting = append(f.state.Waiting, q.key)
	}
	return nil, &inputRequired{open, f.signer.sign(f.state)}
}

func (f *modernFace) pause(name string) error {
	if _, ok := f.state.Answers[name]; ok {
		return nil
	}
	if f.state.waits(name) {
		f.state.answer(name, json.RawMessage("null"))
		return nil
	}
	f.state.Waiting = []string{name}
	return &inputRequired{state: f.signer.sign(f.state)}
}

// fits reports whether an answer has the shape of a result of method.
func fits(method string, answer json.RawMessage) bool {
	var a struct {
		Action  string          `json:"action"`
		Role    string          `json:"role"`
		Model   *string         `json:"model"`
		Content json.RawMessage `json:"content"`
		Roots   []any           `json:"roots"`
	}
	if json.Unmarshal(answer, &a) != nil {
		return false
	}
	switch method {
	case "elicitation/create":
		return a.Action == "accept" || a.Action == "decline" || a.Action == "cancel"
	case "sampling/createMessage":
		return a.Role != "" && a.Model != nil && a.Content != nil
	}
	return a.Roots != nil // roots/list
}

func (f *modernFace) reply(result any, err error) {
	var unread *toolError
	var open *inputRequired
	kind := "complete"
	switch {
	case errors.As(err, &unread):
		result, err = failure("%s", unread), nil
	case errors.As(err, &open):
		kind = "input_required"
		result, err = open.result(), nil
	}
	var raw []byte
	if err == nil {
		raw, err = encode(result)
	}
	if err != nil {
		f.respond(f.id, nil, modernError(err))
		return
	}
	raw = jsonrpc.With(raw, "resultType", jsonrpc.Quote(kind))
	if kind == "complete" && era.IsCacheable(f.method) { // MI16
		ttl, scope := f.cache()
		raw = jsonrpc.With(jsonrpc.With(raw, "ttlMs", ttl), "cacheScope", scope)
	}
	f.respond(f.id, f.signed(raw), nil)
}

// signed puts into a result whose it is (MI17).
func (s *session) signed(result []byte) []byte {
	info, _ := encode(s.srv.info()) // strings: it can be encoded
	for member := range jsonrpc.Members(result) {
		if member.Key == "_meta" {
			return jsonrpc.With(result, "_meta", jsonrpc.With(member.Value, era.KeyServerInfo, info))
		}
	}
	return jsonrpc.With(result, "_meta", jsonrpc.With([]byte("{}"), era.KeyServerInfo, info))
}

// cache is for how many milliseconds a result may be kept, and for whom: not at
// all what a tool or the clock can change at any time, and what a user has said
// for that user only.
func (f *modernFace) cache() (ttl, scope []byte) {
	ttl, scope = []byte("60000"), []byte(`"public"`)
	uri := ""
	if f.method == "resources/read" {
		uri, _ = uriOf(f.params)
	}
	if f.method == "tools/list" || f.method == "prompts/list" || uri == clockURI || uri == askingURI {
		ttl = []byte("0")
	}
	if uri == askingURI {
		scope = []byte(`"private"`)
	}
	return ttl, scope
}

func (e *inputRequired) result() any {
	type request struct {
		Method string `json:"method"`
		Params any    `json:"params"`
	}
	requests := map[string]request{}
	for _, q := range e.questions {
		requests[q.key] = request{q.method, q.params}
	}
	return struct {
		Requests map[string]request `json:"inputRequests,omitempty"`
		State    string             `json:"requestState,omitempty"`
	}{requests, e.state}
}

// modernError turns an error into what 2026-07-28 has for it (J10).
func modernError(err error) error {
	var lack *lacking
	var e *rpcError
	switch {
	case errors.As(err, &lack):
		part := map[string]struct{}{}
		if lack.part != "" {
			part[lack.part] = struct{}{}
		}
		return &rpcError{code: era.CodeMissingCapability, message: lack.Error(),
			data: map[string]any{"requiredCapabilities": map[string]any{lack.capability: part}}}
	case errors.As(err, &e) && e.code == codeResourceNotFound && e.data != nil:
		return &rpcError{code: jsonrpc.CodeInvalidParams, message: e.message, data: e.data}
	}
	return err
}
